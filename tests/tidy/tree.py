# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The files of the project and the command line, for the checks beside this one."""
import argparse
import os
import subprocess

SOURCES = (".c", ".h", ".cpp", ".hpp")
NOT_OURS = {".git", ".cache", "build"}
# Not written by us: licence texts, captures of other people's traffic, inputs of fuzzers.
FOREIGN = ("LICENSES" + os.sep, os.path.join("tests", "vectors") + os.sep,
           os.path.join("tests", "fuzz", "corpus") + os.sep)
TOP = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


class NothingToCheck(Exception):
    """This tree lacks what the check is about; says what."""


def files(top):
    """Paths relative to `top`: what git tracks or would track; everything where there is no git."""
    if os.path.exists(os.path.join(top, ".git")):
        listed = subprocess.run(
            ["git", "-C", top, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            stdout=subprocess.PIPE, check=False)
        if listed.returncode == 0:
            paths = sorted(set(listed.stdout.decode().split("\0")) - {""})
            return [path for path in paths if os.path.isfile(os.path.join(top, path))]
    found = []
    for folder, below, names in os.walk(top):
        below[:] = sorted(b for b in below if b not in NOT_OURS and not b.startswith("build-"))
        found += [os.path.relpath(os.path.join(folder, name), top) for name in sorted(names)]
    return found


def text(top, path):
    """The file's text, or None where it is not text."""
    with open(os.path.join(top, path), "rb") as f:
        content = f.read()
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def top_of(doc, epilog=None, **switches):
    """The tree that the command line names, this one by default. A switch is its help text and what
    is then done with the tree: switch=(help, function)."""
    parser = argparse.ArgumentParser(description=doc, epilog=epilog,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", default=TOP, help="its top folder; this project's without it")
    for name, (words, _) in switches.items():
        parser.add_argument("--" + name, action="store_true", help=words)
    given = parser.parse_args()
    if not os.path.isdir(given.tree):
        parser.error("%s is no folder" % given.tree)
    top = os.path.abspath(given.tree)
    for name, (_, action) in switches.items():
        if getattr(given, name):
            action(top)
    return top


def check(doc, breaches, **switches):
    """What a check does as a program: prints each breach; returns the exit status."""
    top = top_of(doc, "Prints a line for each breach. Exit status: 1 when there are any, 77 when "
                 "the tree has nothing to check.", **switches)
    try:
        found = list(breaches(top))
    except NothingToCheck as reason:
        print("SKIPPED: %s" % reason)
        return 77
    for line in found:
        print(line)
    return 1 if found else 0
