#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Words of our own in place of the field's (docs/glossary.md): words.txt lists what may not come
back, and the few places where such a word means something else.
"""
import functools
import os
import re
import sys

import tree

LIST = os.path.join("tests", "tidy", "words.txt")
MOST_EXEMPTIONS = 20
# Between two words of a text: blanks, the end of a line, the mark of a comment.
BETWEEN = re.compile(r"(?:\s+(?:(?://[/]?<?|\*|#)\s*)?)")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# These name the old words on purpose.
LISTS = (LIST, os.path.join("tests", "tidy", "self_test.py"), os.path.join("docs", "glossary.md"),
         "CHANGELOG.md")


class Rules:
    """words.txt: `word`, `text` and `path` lines forbid, `allow` lines exempt."""

    def __init__(self, text):
        self.known = {}  # an identifier and what it should be; None: nothing to say
        self.texts = {}  # what was found in a text: the self-test looks at many again and again
        self.words, self.patterns, self.paths, self.exemptions, self.faults = [], [], [], [], []
        for number, line in enumerate(text.split("\n"), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            kind, _, rest = line.partition(" ")
            rest, _, reason = rest.strip().partition("  ")
            reason = reason.strip()
            try:
                if kind in ("word", "text", "path") and reason:
                    pattern = {"word": self.identifier, "text": self.prose,
                               "path": lambda p: p}[kind](rest)
                    {"word": self.words, "text": self.patterns,
                     "path": self.paths}[kind].append((re.compile(pattern), reason))
                elif kind == "allow" and "  " in reason:
                    pattern, _, why = reason.partition("  ")
                    self.exemptions.append((re.compile(rest), re.compile(pattern), number, why.strip()))
                else:
                    self.faults.append((number, "neither word, text, path nor allow with a reason"))
            except re.error as error:
                self.faults.append((number, "not a regular expression: %s" % error))
        if len(self.exemptions) > MOST_EXEMPTIONS:
            self.faults.append((self.exemptions[MOST_EXEMPTIONS][2],
                                "more than %d exemptions" % MOST_EXEMPTIONS))

    @staticmethod
    def identifier(pattern):
        """As a whole identifier or as one part of it: kept by `_`, a hump or a digit."""
        return r"(?<![A-Za-z])(?:%s)(?![a-z])|(?<=[a-z0-9])(?:%s)(?![a-z])" % (
            pattern, pattern[:1].upper() + pattern[1:])

    @staticmethod
    def prose(pattern):
        """Words that follow each other, also over the end of a line of a comment."""
        return r"\b(?:%s)\b" % pattern.replace(" ", BETWEEN.pattern)

    def exempt(self, path, line):
        return any(where.search(path) and what.search(line)
                   for where, what, _, _ in self.exemptions)

    def breaches_of(self, path, content):
        for pattern, instead in self.paths:
            if pattern.search(path):
                yield 1, "the name of the file: %s" % instead
        if content is None:
            return
        lines = content.split("\n")
        for found, instead in self.found(content):
            number = content.count("\n", 0, found.start()) + 1
            if not self.exempt(path, lines[number - 1]):
                yield number, "'%s': %s" % (BETWEEN.sub(" ", found.group()), instead)

    def found(self, content):
        if content not in self.texts:
            self.texts[content] = list(self.search(content))
        return self.texts[content]

    def search(self, content):
        for found in IDENTIFIER.finditer(content):
            name = found.group()
            if name not in self.known:
                self.known[name] = next((instead for pattern, instead in self.words
                                         if pattern.search(name)), None)
            if self.known[name]:
                yield found, self.known[name]
        for pattern, instead in self.patterns:
            for found in pattern.finditer(content):
                yield found, instead


rules_of = functools.lru_cache(maxsize=2)(Rules)


def breaches(top):
    content = tree.text(top, LIST)
    if content is None:
        yield "%s: not text" % LIST
        return
    rules = rules_of(content)
    for number, what in rules.faults:
        yield "%s:%d: %s" % (LIST, number, what)
    used = [False] * len(rules.exemptions)
    for path in tree.files(top):
        if path.startswith(tree.FOREIGN) or path in LISTS:
            continue
        text = tree.text(top, path)
        for number, what in rules.breaches_of(path, text):
            yield "%s:%d: %s" % (path, number, what)
        for i, (where, pattern, _, _) in enumerate(rules.exemptions):
            if not used[i] and text is not None and where.search(path) and pattern.search(text):
                used[i] = True
    if os.path.exists(os.path.join(top, "README.md")):  # a whole tree: each exemption has its use
        for i, (_, pattern, number, _) in enumerate(rules.exemptions):
            if not used[i]:
                yield "%s:%d: nothing needs this exemption any more (%s)" % (LIST, number,
                                                                           pattern.pattern)


if __name__ == "__main__":
    sys.exit(tree.check(__doc__, breaches))
