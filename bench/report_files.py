# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What the reports of losses share: samples from a file, a table and a picture to two others."""
import os
import sys


def write_report(read, table, picture):
    """CSV TABLE PICTURE of the command line; read(path) gives rows, the others text of them."""
    name = os.path.basename(sys.argv[0])
    if len(sys.argv) != 4:
        sys.exit("usage: %s CSV TABLE PICTURE" % name)
    rows = read(sys.argv[1])
    if not rows:
        sys.exit("%s: %s has no lines" % (name, sys.argv[1]))
    for path, text in ((sys.argv[2], table(rows)), (sys.argv[3], picture(rows))):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
