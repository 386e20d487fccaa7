#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Each mutant of tests/kernel/mutants.py can be made: what it makes wrong is in its file, once. And the
check that has to fail is there."""
import os
import sys

import tree

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kernel"))
import mutants  # noqa: E402


def tests_of(top):
    """All that may hold the name of a check."""
    for folder in ("tests/kernel", "tests/unit/ddp_kernel", "tests/unit/transport"):
        for name in sorted(os.listdir(os.path.join(top, folder))):
            if name.endswith((".c", ".h", ".sh", ".cpp")):
                with open(os.path.join(top, folder, name), encoding="utf-8") as f:
                    yield f.read()


def breaches(top):
    tests = "\n".join(tests_of(top))
    for name, mutant in mutants.MUTANTS.items():
        check = mutant.check.split(".")[-1] if mutant.test.startswith("unit_") else mutant.check
        if check not in tests:
            yield "%s: no test has the check of mutant %s (tests/kernel/mutants.py)" % (check, name)
        with open(os.path.join(top, mutant.file)) as f:
            times = f.read().count(mutant.right)
        if times != 1:
            yield "%s: %d times what mutant %s makes wrong (tests/kernel/mutants.py)" % (
                mutant.file, times, name)


if __name__ == "__main__":
    sys.exit(tree.check(__doc__, breaches))
