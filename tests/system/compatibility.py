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
import time

HEAD = """# Programs in the byte-stream mode

Unmodified programs of Debian 12 that ran under `xsock run --stream`, and what their exit summaries said. This
page is made from a run of the tests ([testing](testing.md)) on %s; a row is here because its test passed:
the program's own results (files, answers, its own checks) were right. Both ends are on one machine; versions
are those of the installed packages.

## Both ends under xsock

*Carried* are the TCP sockets of both programs whose bytes went over iWARP, so a connection counts as two, and
the listening socket as a third. *Plain* are those that stayed TCP, by reason:

| reason | |
|---|---|
| `did not ask for DDPMODE` | not connected and not listening, as far as the policy saw: programs make such sockets to learn what the kernel can do |
| `fallback-not-mpa`, `fallback-eof` | accepted from a client that spoke no iWARP, or closed without a word: most are questions of the test itself, which it asks without xsock |
| `fallback-server-first` | the same, at a server that speaks first |
| `unknown-peer` | a client whose server did not say that it takes byte streams |
| `policy-tcp` | programs that the built-in [policy](policy.md) leaves alone |

[Troubleshooting](troubleshooting.md) has all of them.

| package | version | what ran | carried | plain |
|---|---|---|---|---|
"""
ONE_END = """
## One end without xsock

The same programs, with the client or the server started without xsock: nothing is carried, and the answers
are those without it. The numbers are the connections that the end under xsock left plain.

| package | what ran | client plain | server plain |
|---|---|---|---|
"""
CLIENT, SERVER = ("the client without xsock", "client plain"), ("the server without xsock", "server plain")


def version(package):
    """Of an installed Debian package."""
    return subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True).stdout or "?"


def append(file, package, what, count, reasons, one_end):
    row = {"package": package, "version": version(package), "what": what, "carried": count,
           "plain": reasons, "one_end": one_end, "date": time.strftime("%Y-%m-%d")}
    with open(file, "a", encoding="utf-8") as rows:
        rows.write(json.dumps(row, sort_keys=True) + "\n")


def plain_words(row):
    return ", ".join("%d `%s`" % (count, reason)
                     for reason, count in sorted(row["plain"].items()))


def split(what):
    """Of a row of one end: what ran, and which end was plain (0: the client)."""
    for end, words in enumerate((CLIENT, SERVER)):
        for word in words:
            if what.endswith(word):
                return what[:-len(word)].rstrip(" ,") or "one of the runs above", end
    return what, 0


def page(lines):
    rows = {}
    for line in lines:
        row = json.loads(line)
        rows[row["package"], row["one_end"], row["what"]] = row  # a later run takes its place
    text = HEAD % " and ".join(sorted({row["date"] for row in rows.values()}))
    one_end = {}
    for (package, is_one, what), row in sorted(rows.items()):
        if is_one:
            what, end = split(what)
            one_end.setdefault((package, what), ["", ""])[end] = plain_words(row) or "no socket"
        else:
            text += "| %s | %s | %s | %s | %s |\n" % (
                package, row["version"], what, row["carried"] or "", plain_words(row))
    return text + ONE_END + "".join("| %s | %s | %s | %s |\n" % (*key, *ends)
                                    for key, ends in sorted(one_end.items()))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: compatibility.py ROWS >docs/compatibility.md")
    with open(sys.argv[1], encoding="utf-8") as given:
        sys.stdout.write(page(given))
