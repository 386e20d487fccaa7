#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Makes docs/interop.md of the reports of siw_matrix.sh, one file for each kernel.

    table.py REPORT... >docs/interop.md
"""
import sys

WORDS = {"pass": "pass", "refused": "refused, as expected", "FAIL": "**FAILED**"}
HEAD = """# The kernel's siw as a peer

Made by `tests/long/siw-matrix.sh`; do not edit. Each row is a connection (or several) between xsock and
the software iWARP driver of Linux in a guest, controlled by a program of ours on each side
(`tests/interop/matrix`); those of *Rping* are rdma-core's rping in the guest and `xsock ping --rping`
here. Every byte that arrives is compared. After each row the guest's kernel log is searched for
warnings. What siw does otherwise than the RFCs say, and what we do about it, is in [wire.md](wire.md).

*Refused, as expected* is a row that must not work, and which one side at least refused. In the rows of
*Terminate* the reason that arrived is compared too, on both sides; the kernel's log has layer and type
of ours in each other's place.
"""


def read(path):
    """The kernel's version, and the rows in order."""
    release, rows = "?", []
    with open(path, encoding="utf-8") as f:
        for line in f:
            line = line.rstrip("\n")
            if line.startswith("# Linux "):
                release = line[len("# Linux "):]
            elif line:
                verdict, group, name, _, notes = line.split("\t")
                rows.append((group, name, verdict, notes))
    return release, rows


def main():
    reports = [read(path) for path in sys.argv[1:]]
    if not reports or not all(rows for _, rows in reports):
        sys.exit("table.py: no rows")
    print(HEAD)
    print("| kernel | pass | refused, as expected | failed |\n|---|---|---|---|")
    for release, rows in reports:
        counts = [sum(verdict == v for _, _, verdict, _ in rows) for v in WORDS]
        print("| %s | %d | %d | %d |" % (release, *counts))
    verdicts = [{row[:2]: row[2:] for row in rows} for _, rows in reports]
    order = list(dict.fromkeys(row[:2] for _, rows in reports for row in rows))
    group = None
    for key in order:
        if key[0] != group:
            group = key[0]
            print("\n## %s\n" % (group[0].upper() + group[1:]))
            print("| row | %s | seen |" % " | ".join(release for release, _ in reports))
            print("|---" * (len(reports) + 2) + "|")
        cells = [WORDS[found[key][0]] if key in found else "not run" for found in verdicts]
        notes = next((found[key][1] for found in reversed(verdicts) if key in found), "")
        print("| %s | %s | %s |" % (key[1], " | ".join(cells), notes.replace("|", "/")))


if __name__ == "__main__":
    main()
