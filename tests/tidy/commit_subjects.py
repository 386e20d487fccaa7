#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Subjects of commits: `folder: what it does`, at most 72 characters, for every commit since the one
that the rule was agreed on at. A tree without .git, or without that commit (a shallow clone), has
nothing to check.
"""
import os
import re
import subprocess
import sys

import tree

SINCE = "168ef3c"
LENGTH = 72
# Beside the folders of the tree: what has no folder of its own, or had one.
TOPICS = {"build", "ci", "run", "test", "README", "CHANGELOG", "completion", "scripts"}
SUBJECT = re.compile(r"(?P<topics>[\w.-]+(?:, ?[\w.-]+)*(?:/[\w./-]+)?): \S")


def git(top, *arguments):
    done = subprocess.run(["git", "-C", top, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise tree.NothingToCheck("git %s" % " ".join(arguments))
    return done.stdout.decode(errors="replace")


def folders(top):
    return {line.split("/")[0] for line in git(top, "ls-files").splitlines() if "/" in line}


def subjects(top, since=SINCE):
    """(abbreviated hash, subject) of each commit since `since`; merges have none of their own."""
    if not os.path.exists(os.path.join(top, ".git")):
        raise tree.NothingToCheck("no .git")
    listed = git(top, "log", "--no-merges", "--format=%h %s", since + "..HEAD")
    return [tuple(line.split(" ", 1)) for line in listed.splitlines() if " " in line]


def breaches_of(subject, known):
    if len(subject) > LENGTH:
        yield "%d characters; %d are the limit" % (len(subject), LENGTH)
    found = SUBJECT.match(subject)
    if not found:
        yield "no `folder: ` at the beginning"
        return
    for topic in found.group("topics").split(","):
        if topic.strip().split("/")[0] not in known:
            yield "`%s` is neither a folder nor a known topic" % topic.strip()


def breaches(top, since=SINCE):
    known = folders(top) | TOPICS
    for commit, subject in subjects(top, since):
        for what in breaches_of(subject, known):
            yield "%s: %s: %s" % (commit, what, subject)


if __name__ == "__main__":
    sys.exit(tree.check(__doc__, breaches))
