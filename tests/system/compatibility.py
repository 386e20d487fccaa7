#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Rows of docs/compatibility.md: tests append them to a file as JSON, a line each; this program
makes the page of them.

    XSOCK_COMPATIBILITY=$PWD/rows ./test --full -t system_stream
    tests/system/compatibility.py rows >docs/compatibility.md
"""
import json
import subprocess
import sys

HEAD = """# Programs in the byte-stream mode

Unmodified programs of Debian 12 that ran under `xsock run --stream`, and what their exit summaries said. This
page is made from a run of the tests ([testing](testing.md)); a row is here because its test passed: the
program's own results were right.

- *carried*: sockets that went over iWARP at both ends together, listeners among them.
- *plain*: sockets that stayed TCP, by reason ([policy](policy.md)). Where others are carried, these are mostly
  questions of the test itself, which it asks without xsock (`fallback-not-mpa`, `fallback-server-first`).
- *one end*: rows where one of the two programs ran without xsock; the answers are those without it.
"""


def version(package):
    """Of an installed Debian package."""
    return subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True).stdout or "?"


def append(file, package, what, count, reasons, one_end):
    row = {"package": package, "version": version(package), "what": what, "carried": count,
           "plain": reasons, "one_end": one_end}
    with open(file, "a", encoding="utf-8") as rows:
        rows.write(json.dumps(row, sort_keys=True) + "\n")


def result(row):
    if row["one_end"]:
        words = ["one end: as without"]
    else:
        words = ["%d carried" % row["carried"]] if row["carried"] else []
    return ", ".join(words + ["%d plain: %s" % (count, reason)
                              for reason, count in sorted(row["plain"].items())]) or "no socket"


def page(lines):
    rows = {}
    for line in lines:
        row = json.loads(line)
        rows[row["package"], row["one_end"], row["what"]] = row  # a later run takes its place
    text = HEAD + "\n| package | version | what ran | result |\n|---|---|---|---|\n"
    for _, row in sorted(rows.items()):
        text += "| %s | %s | %s | %s |\n" % (row["package"], row["version"], row["what"],
                                          result(row))
    return text


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: compatibility.py ROWS >docs/compatibility.md")
    with open(sys.argv[1], encoding="utf-8") as given:
        sys.stdout.write(page(given))
