#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Runs the suites and compares; started by tests/long/source-suites.sh, where the options are."""
import argparse
import fcntl
import hashlib
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import suite as base
from suite import END, FAILED, PASSED, Missing, carried, plain, say

SUITES = ["redis", "libuv", "haproxy", "stunnel", "curl", "mariadb"]
REPEATS = 3
TOP = base.HERE.parent.parent.parent


def module_hash(name):
    return hashlib.sha256((base.HERE / (name + ".py")).read_bytes()).hexdigest()[:16]


class Results:
    """Runs of groups on this commit, a JSON line each."""

    def __init__(self, file, build, again):
        git = ["git", "-C", str(TOP)]
        self.commit = subprocess.run([*git, "rev-parse", "HEAD"], stdout=subprocess.PIPE, text=True,
                                     check=True).stdout.strip()
        if subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode:
            self.commit += "+changes"
        self.file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        self.xsock = os.path.join(build, "tools", "xsock")
        self.known = {}
        if file.exists() and not again:
            for line in file.read_text().splitlines():
                row = json.loads(line)
                self.known[self.key(**row)] = row

    @staticmethod
    def key(suite, version, group, side, commit, module="", **_):
        """What runs without xsock is the same on every commit, as long as the suite's module is."""
        return suite, version, group, side, commit if side == "xsock" else "", module

    def run(self, name, suite, group, side, fresh=False):
        """A run that is known, or a new one."""
        row = {"suite": name, "version": suite.version, "group": group, "side": side,
               "commit": self.commit, "module": module_hash(name)}
        if not fresh and self.key(**row) in self.known:
            return self.known[self.key(**row)]
        began = time.time()
        with tempfile.TemporaryDirectory(prefix="xsock-suite.") as folder:
            prefix = []
            if side == "xsock":
                os.environ["XSOCK_REGISTRY"] = os.path.join(folder, "registry")
                prefix = [self.xsock, "run", "--stream=both", "--summary", "--"]
            try:
                ran = suite.run(prefix, group)
            finally:
                os.environ.pop("XSOCK_REGISTRY", None)
        ran.cases.setdefault(END, PASSED)
        row.update(cases=ran.cases, carried=carried(ran.output), plain=plain(ran.output),
                   seconds=round(time.time() - began, 1))
        log = self.file.parent / name / ("%s.%s.log" % (group.replace("/", "_"), side))
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(ran.output)
        with open(self.file, "a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        self.known[self.key(**row)] = row
        return row


def fails(row, case):
    """Cases that are missing behind one that ended the group early do not count: that one does."""
    cases = row["cases"]
    return cases[case] != PASSED if case in cases else cases.get(END) != FAILED


def passed_of(row):
    """@return how many cases passed, and how many there are"""
    words = [word for case, word in row["cases"].items() if case != END]
    return words.count(PASSED), len(words)


class Comparison:
    """Of one group, both ways."""

    def __init__(self, results, name, suite, group):
        self.words = []   # what is to be said of it, beside numbers
        self.bad = []     # cases that fail because of xsock
        without = results.run(name, suite, group, "without")
        under = results.run(name, suite, group, "xsock")
        self.passed, count = passed_of(under)
        self.carried, self.plain = under["carried"], under["plain"]
        self.numbers = "%d of %d passed (without xsock %d), %d carried" % (
            self.passed, count, passed_of(without)[0], self.carried)
        suspects = [case for case, word in without["cases"].items()
                    if word == PASSED and fails(under, case)]
        suspects += [case for case, word in under["cases"].items()
                     if word == FAILED and case not in without["cases"]]
        unexpected = []
        for case in suspects:
            reason = [why for begin, why in suite.expected.items()
                      if (group + ": " + case).startswith(begin)]
            if reason:
                self.words.append("expected to differ: %s: %s" % (case, reason[0]))
            else:
                unexpected.append(case)
        if unexpected:
            self.judge(results, name, suite, group, unexpected)
        self.words += ["fails without xsock, too: " + case
                       for case, word in without["cases"].items()
                       if word == FAILED and fails(under, case)]

    def judge(self, results, name, suite, group, cases):
        """A case is right that passes at every repetition, and none of xsock that fails without it."""
        say("  again, because of: " + "; ".join(cases))
        under = [results.run(name, suite, group, "xsock", fresh=True) for _ in range(REPEATS)]
        cases = [case for case in cases if self.unstable(under, case, "at the first try only: ")]
        if not cases:
            return
        without = [results.run(name, suite, group, "without", fresh=True) for _ in range(REPEATS)]
        for case in cases:
            if any(fails(row, case) for row in without):
                self.words.append("fails at times without xsock, too: " + case)
            else:
                self.bad.append("%s (%d of %d again)" % (
                    case, sum(fails(row, case) for row in under), REPEATS))

    def unstable(self, rows, case, words):
        if any(fails(row, case) for row in rows):
            return True
        self.words.append("failed " + words + case)
        return False


def run_suite(results, name, wanted):
    """@return 'passed', 'failed' or 'skipped'"""
    suite = importlib.import_module(name).SUITE()
    try:
        suite.prepare()
    except Missing as why:
        say("SKIPPED %s: %s" % (name, why))
        return "skipped"
    lock = open(str(suite.place or tempfile.gettempdir() + "/xsock-suite-" + name) + ".lock", "w",
                encoding="ascii")
    fcntl.flock(lock, fcntl.LOCK_EX)  # suites write into their folders
    groups = [group for group in suite.groups() if not wanted or group in wanted]
    passed = count = 0
    reasons, bad = {}, []
    for number, group in enumerate(groups, 1):
        compared = Comparison(results, name, suite, group)
        say("%s %s, %d of %d: %s" % (name, group, number, len(groups), compared.numbers))
        for word in compared.words:
            say("  " + word)
        for case in compared.bad:
            say("  FAILED " + case)
        bad += compared.bad
        passed += compared.passed
        count += compared.carried
        for reason, sockets in compared.plain.items():
            reasons[reason] = reasons.get(reason, 0) + sockets
    least = 1 if wanted else suite.carried
    if count < least:
        bad.append("carried")
        say("  FAILED: %d sockets at least were to be carried" % least)
    print("%s %s: %d cases passed, %d failed by xsock; %s" % (
        name, suite.version, passed, len(bad), ", ".join(
            ["%d carried" % count] + ["%d plain: %s" % (n, why)
                                      for why, n in sorted(reasons.items())])), flush=True)
    return "failed" if bad else "passed"


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--build", default=str(TOP / "build" / "release"))
    parser.add_argument("--results", type=pathlib.Path,
                        default=TOP / "build" / "source-suites" / "results.jsonl")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    wanted = {}
    for name in options.names or SUITES:
        name, _, group = name.partition("/")
        if name not in SUITES:
            parser.error("no suite %s; there are: %s" % (name, " ".join(SUITES)))
        wanted.setdefault(name, []).extend([group] if group else [])
    if options.list:
        for name in wanted:
            print(name)
            if options.names:
                suite = importlib.import_module(name).SUITE()
                suite.prepare()
                print("".join("    %s/%s\n" % (name, group) for group in suite.groups()), end="")
        return 0
    base.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    results = Results(options.results.resolve(), os.path.abspath(options.build), options.again)
    try:
        ends = {run_suite(results, name, groups) for name, groups in wanted.items()}
    finally:
        base.end_children()
    if "failed" in ends:
        return 1
    return 0 if "passed" in ends else 77


if __name__ == "__main__":
    sys.exit(main())
