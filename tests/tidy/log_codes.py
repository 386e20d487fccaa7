#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What the sources can say and what docs/troubleshooting.md explains are the same: the codes of log
lines, the texts of stream errors, and the settings of the environment, which tools/settings.cpp has
too.
"""
import os
import re
import sys

import tree

PAGE = os.path.join("docs", "troubleshooting.md")
SETTINGS = os.path.join("tools", "settings.cpp")
SPEAKERS = ("base", "transport", "libxsock", "verbs")

LOGGED = re.compile(r'\blog\(\s*(?:[\w:]+::)?LogLevel::\w+,\s*"([^"]+)"')
TABLE = os.path.join("base", "stream_error.cpp")
STREAM_ERROR = re.compile(r'"([a-z]+(?:-[a-z]+)+)"')  # a name in the table
TEXT = re.compile(r'"([a-z]+(?:-[a-z]+)+)",\s*((?:"[^"]*"\s*)+),')  # and what it means
WORD = re.compile(r'"([a-z]+(?:-[a-z]+)*)"')  # may be a code on its way to a log line
READ = re.compile(r'\w\(\s*"(XSOCK_[A-Z_]+)"')
ROW = re.compile(r'^\| `([^`]+)` \|', re.M)
MEANING = re.compile(r'^\| `([^`]+)` \|[^|]*\| ([^|]*) \|[^|]*\|$', re.M)

# Told by one part of xsock to another, and no setting of a user's.
INTERNAL = {"XSOCK_SUMMARY"}


def section(page, title):
    """The text behind a heading, up to the next of the same level."""
    match = re.search(r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(title), page, re.M | re.S)
    return match.group(1) if match else ""


def text_of(top, path):
    return (tree.text(top, path) or "") if os.path.isfile(os.path.join(top, path)) else ""


def breaches(top):
    codes, words, read = {}, set(), {}
    for path in tree.files(top):
        if path.split(os.sep)[0] not in SPEAKERS or not path.endswith(tree.SOURCES):
            continue
        content = tree.text(top, path) or ""
        for found in LOGGED.finditer(content):
            codes.setdefault(found.group(1), path)
        words.update(WORD.findall(content))
        for found in READ.finditer(content):
            read.setdefault(found.group(1), path)
        if path == TABLE:
            for found in STREAM_ERROR.finditer(content):
                codes.setdefault(found.group(1), path)
    page = text_of(top, PAGE)
    explained = set(ROW.findall(section(page, "Log codes")))
    for code, path in sorted(codes.items()):
        if code not in explained:
            yield "%s: the code %s is not explained in %s" % (path, code, PAGE)
    for code in sorted(explained - set(codes) - words):
        yield "%s: no source says %s" % (PAGE, code)
    meanings = dict(MEANING.findall(section(page, "Log codes")))
    for code, literals in TEXT.findall(text_of(top, TABLE)):
        said = "".join(re.findall(r'"([^"]*)"', literals)).rstrip(".")
        if meanings.get(code, said) != said:
            yield "%s: %s is told as: %s" % (PAGE, code, said)

    described = {name for name in ROW.findall(section(page, "Environment"))}
    shown = set(re.findall(r'\{"(XSOCK_[A-Z_]+)"', text_of(top, SETTINGS)))
    for name, path in sorted(read.items()):
        if name in INTERNAL:
            continue
        missing = [where for where, names in ((PAGE, described), (SETTINGS, shown))
                   if name not in names]
        if missing:
            yield "%s: %s is missing in %s" % (path, name, " and ".join(missing))
    for name in sorted((described | shown) - set(read)):
        yield "%s: no source reads it, but %s or %s tells of it" % (name, PAGE, SETTINGS)


if __name__ == "__main__":
    sys.exit(tree.check(__doc__, breaches))
