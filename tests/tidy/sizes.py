#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What one reader can hold in mind: classes of at most 30 data members, those of nested structs
counted; at most 5 bools in one class (more are an undeclared state machine); product files of at
most 500 lines, unless a comment at the top says why ("Longer than 500 lines: ...").

The lists of what is larger are below. They only shrink: what is on them may not grow, and an entry
that is not needed any more is a breach too.
"""
import functools
import os
import re
import sys

import tree

PRODUCT = ("base", "mpa", "ddp_user", "shm", "stream", "transport", "libxsock", "verbs", "include", "tools",
           "examples", "ddp_kernel", "trp")  # the last two are not in the tree yet
MEMBERS = 30
BOOLS = 5
LINES = 500
REASON = re.compile(r"Longer than %d lines: \S" % LINES)
TOP_LINES = 20

# Data members of a class, by its name. CmId begins with the structures of the public ABI.
LARGE_CLASSES = {
    "CmId": 33,
}
# Bools of a class.
MANY_BOOLS = {}
# Settings, and what a report says: their bools are independent of each other, and no state.
NO_STATE = {"ClientOptions", "ConnectAttr", "ConnectionSummary", "MpaConnection", "Negotiated",
            "PingOptions", "StartupConfig"}
# Lines of a file, by its path; rounded up to 50, so that wrapping a comment is no growth.
LONG_FILES = {}

TOKEN = re.compile(r"[A-Za-z_]\w*|::|->|[0-9][\w.']*|\S")
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|'
                      r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.S | re.M)
OPEN, CLOSE = {"(": ")", "{": "}", "[": "]"}, set(")}]")
KINDS = ("class", "struct", "union")
NO_MEMBER = {"using", "typedef", "friend", "static_assert", "static", "enum", "constexpr", "extern",
             "_Static_assert"}


def tokens_of(text):
    def blank(found):
        text = found.group()
        if text[0] in "\"'R":
            return ' "" ' if text[0] != "'" else " 0 "
        return " "
    return TOKEN.findall(NOT_CODE.sub(blank, text))


def skip_group(tokens, i):
    """The index behind the group that opens at tokens[i]."""
    depth = 0
    while i < len(tokens):
        if tokens[i] in OPEN:
            depth += 1
        elif tokens[i] in CLOSE:
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return i


def skip_angles(tokens, i):
    """The index behind the template arguments that open at tokens[i]; i + 1 if they are none."""
    depth, k = 0, i
    while k < len(tokens):
        token = tokens[k]
        if token == "<":
            depth += 1
        elif token == ">":
            depth -= 1
            if depth == 0:
                return k + 1
        elif token in ("(", "[", "{"):
            k = skip_group(tokens, k)
            continue
        elif token in (";", "}"):
            break
        k += 1
    return i + 1


class Class:
    def __init__(self, name):
        self.name = name
        self.members = 0
        self.bools = 0


def head_of(tokens, i):
    """Of `class NAME ... {` at i: the name and the index of its brace; None where it defines none."""
    name, k = "", i + 1
    while k < len(tokens):
        token = tokens[k]
        if token == "{":
            return name, k
        if token in (";", "=", ")", ",", ">") or token in ("(",) and name and tokens[k - 1] == name:
            return None
        if token in ("(", "["):
            k = skip_group(tokens, k)
            continue
        if token == "<":
            k = skip_angles(tokens, k)
            continue
        if token == ":":  # bases
            while k < len(tokens) and tokens[k] not in ("{", ";"):
                k = skip_angles(tokens, k) if tokens[k] == "<" else k + 1
            continue
        if token == "*" or token == "&":
            return None
        if re.match(r"[A-Za-z_]", token) and token not in ("final", "alignas", "__attribute__"):
            if name and tokens[k - 1] not in ("::",) and tokens[k - 1] == name:
                return None  # struct type variable
            name = token
        k += 1
    return None


def count_statement(words, into):
    """One statement at the depth of a class, without what is in brackets."""
    if not words or words[0] in NO_MEMBER:
        return
    while words and words[0] in ("inline", "mutable", "volatile", "const", "alignas", "struct",
                                 "class", "union"):
        words = words[1:]
    if any(word in ("static", "operator", "constexpr", "typedef", "friend") for word in words):
        return
    cut = next((n for n, word in enumerate(words) if word in ("=", "{}")), len(words))
    if "()" in words[:cut]:
        return
    if len([word for word in words if re.match(r"[A-Za-z_]", word)]) < 2 and "(*)" not in words:
        return
    declarators = 1 + words.count(",")
    into.members += declarators
    # In C a _Bool; std::atomic<bool> is one too. A bit of one bit of an unsigned is.
    type_words = words[:cut]
    if "bool" in type_words or "_Bool" in type_words or "<bool>" in type_words:
        into.bools += declarators
    elif ":" in words and words[words.index(":") + 1:words.index(":") + 2] == ["1"]:
        into.bools += declarators


def parse_class(tokens, i, name, found):
    """The body of a class whose brace is at i; the index behind it. Appends it to `found`."""
    this = Class(name)
    found.append(this)
    i += 1
    words = []
    while i < len(tokens):
        token = tokens[i]
        if token == "}":
            count_statement(words, this)
            return i + 1, this
        if token in ("public", "private", "protected") and tokens[i + 1:i + 2] == [":"]:
            words, i = [], i + 2
        elif token == "template" and not words:
            i = skip_angles(tokens, i + 1)
        elif token in KINDS and head_of(tokens, i) and (not words or words == ["alignas"]):
            inner, brace = head_of(tokens, i)
            i, nested = parse_class(tokens, brace, inner or name, found)
            this.members += nested.members
            this.bools += nested.bools
            words = ["nested", "type"] if tokens[i:i + 1] != [";"] else []
            if words:
                # A member of the type just defined: its members are counted, it is none itself.
                while i < len(tokens) and tokens[i] != ";":
                    i = skip_group(tokens, i) if tokens[i] in OPEN else i + 1
                words, i = [], i + 1
        elif token == ";":
            count_statement(words, this)
            words, i = [], i + 1
        elif token == "<" and words and words[-1] != "operator":
            end = skip_angles(tokens, i)
            words.append("<bool>" if "bool" in tokens[i:end] and words[-1] == "atomic" else "<>")
            i = end
        elif token == "(":
            end = skip_group(tokens, i)
            if words and words[-1] in ("alignas", "__attribute__", "decltype"):
                if words[-1] != "decltype":
                    words.pop()
            elif tokens[i + 1:i + 2] == ["*"] and end < len(tokens) and tokens[end] == "(":
                words += ["(*)", "pointer"]  # to a function: a member
                end = skip_group(tokens, end)
            else:
                words.append("()")
            i = end
        elif token == "[":
            i = skip_group(tokens, i)
        elif token == "{":
            if words and words[0] == "enum":
                i = skip_group(tokens, i)
                continue
            function = "()" in words and not ("=" in words and words.index("=") < words.index("()"))
            i = skip_group(tokens, i)
            if function and tokens[i:i + 1] != [","] and tokens[i:i + 1] != ["{"]:
                words = []
                if tokens[i:i + 1] == [";"]:
                    i += 1
            elif not function:
                words.append("{}")
        elif token == "=":
            # An initializer: nothing in it declares.
            words.append(token)
            i += 1
            while i < len(tokens) and tokens[i] not in (";", ","):
                if tokens[i] in OPEN:
                    i = skip_group(tokens, i)
                elif tokens[i] == "<":
                    i = skip_angles(tokens, i)
                else:
                    i += 1
        else:
            words.append(token)
            i += 1
    return i, this


@functools.lru_cache(maxsize=None)
def classes(text):
    """Every class that the text defines."""
    tokens, found, i = tokens_of(text), [], 0
    while i < len(tokens):
        if tokens[i] == "template":
            i = skip_angles(tokens, i + 1)
        elif tokens[i] == "enum":
            i += 2
        elif tokens[i] in KINDS and head_of(tokens, i):
            name, brace = head_of(tokens, i)
            i, _ = parse_class(tokens, brace, name or "(unnamed)", found)
        else:
            i += 1
    return found


def measured(top):
    """(kind, name, size, path) of everything that is larger than its limit."""
    for path in tree.files(top):
        if path.split(os.sep)[0] not in PRODUCT or not path.endswith(tree.SOURCES):
            continue
        text = tree.text(top, path) or ""
        for found in classes(text):
            if found.members > MEMBERS:
                yield "members", found.name, found.members, path
            if found.bools > BOOLS and found.name not in NO_STATE:
                yield "bools", found.name, found.bools, path
        lines = text.count("\n")
        if lines > LINES and not REASON.search("\n".join(text.split("\n")[:TOP_LINES])):
            yield "lines", path, lines, path


def breaches(top, known=None):
    known = known or {"members": LARGE_CLASSES, "bools": MANY_BOOLS, "lines": LONG_FILES}
    limits = {"members": MEMBERS, "bools": BOOLS, "lines": LINES}
    seen = set()
    for what, name, size, path in measured(top):
        seen.add((what, name))
        if size > known[what].get(name, limits[what]):
            yield "%s: %s has %d %s; %d are the limit" % (path, name, size, what,
                                                         known[what].get(name, limits[what]))
    for what, listed in known.items():
        for name in listed:
            if (what, name) not in seen:
                yield "tests/tidy/sizes.py: %s is within the limit of %s: take it off the list" % (
                    name, what)


def print_large(top):
    for what, name, size, path in measured(top):
        print("large: %s (%s): %d %s" % (name, path, size, what))


if __name__ == "__main__":
    sys.exit(tree.check(__doc__, breaches, list=("print what is large first", print_large)))
