#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Each mutant of tests/kernel/mutants.py can be made: what it makes wrong is in its file, once."""
import os
import sys

import tree

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kernel"))
import mutants  # noqa: E402


def breaches(top):
    for name, mutant in mutants.MUTANTS.items():
        with open(os.path.join(top, mutant.file)) as f:
            times = f.read().count(mutant.right)
        if times != 1:
            yield "%s: %d times what mutant %s makes wrong (tests/kernel/mutants.py)" % (
                mutant.file, times, name)


if __name__ == "__main__":
    sys.exit(tree.check(__doc__, breaches))
