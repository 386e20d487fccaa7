#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The table of calls in docs/overlay.md is that of libxsock/overlay/libc_calls.h, in its order and
words; and every wrapped call has its function.
"""
import glob
import os
import re
import sys

import tree

LIST = os.path.join("libxsock", "overlay", "libc_calls.h")
PAGE = os.path.join("docs", "overlay.md")
BEGIN = "<!-- The table is made by tests/tidy/overlay_calls.py --write. -->\n"
END = "<!-- End of the table. -->\n"

SECTION = re.compile(r"/\* ---- (.*?) ---- \*/")
NAME = re.compile(r"(CALL|ALIAS|KEEP)\((\w+),")


def entries(header):
    """(section, kind, name, words or the name that an alias stands for), in the order of the list."""
    body = header[header.index("#define XSOCK_LIBC_CALLS"):].replace("\\\n", "\n")
    section = ""
    for piece in re.finditer(r"/\* ---- .*? ---- \*/|(?:CALL|ALIAS|KEEP)\(\w+,.*?\)(?=\s*(?:/\*|CALL|"
                             r"ALIAS|KEEP|#|$))", body, re.S):
        text = piece.group()
        named = SECTION.match(text)
        if named:
            section = named.group(1)
            continue
        kind, name = NAME.match(text).groups()
        if kind == "ALIAS":
            words = re.match(r"ALIAS\(\w+,\s*(\w+)\)", text).group(1)
        else:
            words = re.search(r'"((?:[^"\\]|\\.)*)"\s*\)$', text, re.S).group(1)
        yield section, kind, name, words


def table(header):
    lines = []
    last = None
    listed = list(entries(header))
    aliases = {}
    for _, kind, name, words in listed:
        if kind == "ALIAS":
            aliases.setdefault(words, []).append(name)
    for section, kind, name, words in listed:
        if kind == "ALIAS":
            continue
        if section != last:
            lines += ["", "### " + section.capitalize(), "", "| call | on a DDPMODE descriptor |",
                      "|---|---|"]
            last = section
        names = ", ".join("`%s`" % n for n in [name] + aliases.get(name, []))
        lines.append("| %s | %s%s |" % (names, "(libc's own) " if kind == "KEEP" else "", words))
    return "\n".join(lines[1:]) + "\n"


def breaches(top):
    with open(os.path.join(top, LIST), encoding="utf-8") as f:
        header = f.read()
    with open(os.path.join(top, PAGE), encoding="utf-8") as f:
        page = f.read()
    if BEGIN not in page or END not in page:
        yield "%s: no table; its two comments are missing" % PAGE
    elif page.split(BEGIN)[1].split(END)[0] != table(header):
        yield "%s: the table is not that of %s; run %s --write" % (PAGE, LIST, __file__)
    sources = ""
    for path in sorted(glob.glob(os.path.join(top, "libxsock", "overlay", "*.c"))):
        with open(path, encoding="utf-8") as f:
            sources += f.read()
    for _, kind, name, words in entries(header):
        defined = {"CALL": r"overlay_%s\(|OVERLAY_CALL\(\w+, %s," % (name, name),
                   "ALIAS": r"XSOCK_LIBC_ALIAS\(%s, %s\)" % (name, words)}.get(kind)
        if defined and not re.search(defined, sources):
            yield "%s: %s has no function in libxsock/overlay/" % (LIST, name)


def write(top):
    with open(os.path.join(top, LIST), encoding="utf-8") as f:
        new = table(f.read())
    path = os.path.join(top, PAGE)
    with open(path, encoding="utf-8") as f:
        page = f.read()
    before, rest = page.split(BEGIN)
    with open(path, "w", encoding="utf-8") as f:
        f.write(before + BEGIN + new + END + rest.split(END)[1])


if __name__ == "__main__":
    sys.exit(tree.check(__doc__, breaches, write=("bring the table up to date first", write)))
