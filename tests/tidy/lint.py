#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Small rules that a reader would otherwise have to look for: licence lines, line length, nothing
left for later, no path of one machine.
"""
import functools
import os
import re
import sys

import tree

COLUMNS = 100
SPDX = "SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only"
# Code that only runs inside of the kernel; its core is built in user space too.
KERNEL = "ddp_kernel" + os.sep
KERNEL_SPDX = "SPDX-License-Identifier: GPL-2.0-only"
CODE = tree.SOURCES + (".py", ".sh", ".cmake", "CMakeLists.txt", ".S", ".map")

# Put together here, so that this file passes its own rules.
LATER = re.compile(r"\b(?:%s)\b" % "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3, "HA" + "CK")))
MACHINE = re.compile(r"(?<![\w.$}])/(?:%s)/" % "|".join(("wor" + "k", "far" + "m", "roo" + "t")))


def breaches_of(path, content):
    lines = content.split("\n")
    if path.endswith(CODE) or lines[0].startswith("#!"):
        kernel = path.startswith(KERNEL) and not path.startswith(KERNEL + "core" + os.sep)
        spdx = KERNEL_SPDX if kernel else SPDX
        if not any(spdx in line for line in lines[:3]):
            yield 1, "no SPDX line"
    if content and not content.endswith("\n"):
        yield len(lines), "no newline at the end"
    for number, line in enumerate(lines, 1):
        if path.endswith(tree.SOURCES) and len(line.expandtabs(8)) > COLUMNS:
            yield number, "%d columns; %d are the limit" % (len(line.expandtabs(8)), COLUMNS)
        if line != line.rstrip():
            yield number, "white space at the end of the line"
        later = LATER.search(line)
        if later:
            yield number, "%s: do it, or write an issue" % later.group()
        machine = MACHINE.search(line)
        if machine:
            yield number, "a path of one machine (%s)" % machine.group()


# The self-test looks at many files again and again.
@functools.lru_cache(maxsize=None)
def seen(path, content):
    return list(breaches_of(path, content))


def breaches(top):
    for path in tree.files(top):
        if path.startswith(tree.FOREIGN):
            continue
        content = tree.text(top, path)
        if content is not None:
            for number, what in seen(path, content):
                yield "%s:%d: %s" % (path, number, what)


if __name__ == "__main__":
    sys.exit(tree.check(__doc__, breaches))
