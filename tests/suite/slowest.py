#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The slowest cases of the parts that ran since a file was written; ./test shows them.

    slowest.py BUILD-FOLDER SINCE-FILE [COUNT]
"""
import glob
import os
import sys
import xml.etree.ElementTree as ElementTree


def cases(folder, since):
    """(seconds, preset, part, name) of each case."""
    for report in glob.glob(os.path.join(folder, "*", "parts", "*", "cases.xml")):
        if os.path.getmtime(report) < since:
            continue
        part = os.path.dirname(report)
        preset = os.path.basename(os.path.dirname(os.path.dirname(part)))
        for case in ElementTree.parse(report).iter("testcase"):
            yield float(case.get("time", 0)), preset, os.path.basename(part), case.get("name")


def main():
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    found = sorted(cases(sys.argv[1], os.path.getmtime(sys.argv[2])), reverse=True)
    if not found:
        return
    print("\nThe slowest of %d cases:" % len(found))
    for seconds, preset, part, name in found[:count]:
        print("%7.1f s  %-8s %-10s %s" % (seconds, preset, part, name))
    print(flush=True)


if __name__ == "__main__":
    main()
