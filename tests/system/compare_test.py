#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""bench/compare.sh with programs in the place of xsock_bench whose figures are known."""
import json
import pathlib
import subprocess
import sys
import tempfile

COMPARE = pathlib.Path(__file__).resolve().parents[2] / "bench" / "compare.sh"

# Prints a sample of two rows: `slow` in us, `fast` in M/s, each one of three figures in turn.
FAKE = """#!/bin/sh
[ "$1" != --help ] || {{ printf 'The rows:\\n  slow\\n  fast\\n'; exit 0; }}
read -r n <{count}
echo $((n + 1)) >{count}
case $((n % 3)) in
{cases}
esac
"""


def program(path, slow, fast):
    count = path.with_suffix(".count")
    count.write_text("0\n")
    cases = []
    for n, factor in enumerate((1.0, 1.01, 0.99)):
        rows = [
            {"row": "slow", "better": "lower", "unit": "us", "xsock_by_round": [slow * factor]},
            {"row": "fast", "better": "higher", "unit": "M/s", "xsock_by_round": [fast * factor]},
        ]
        cases.append(f"{n}) echo '{json.dumps(rows)}' ;;")
    path.write_text(FAKE.format(count=count, cases="\n".join(cases)))
    path.chmod(0o755)


def compare(*arguments):
    return subprocess.run([COMPARE, *arguments], capture_output=True, text=True, check=False)


def run(folder, old, new, *options):
    program(folder / "old", *old)
    program(folder / "new", *new)
    return compare(*options, folder / "old", folder / "new")


def expect(got, status, line):
    assert got.returncode == status, (got.returncode, status, got.stdout, got.stderr)
    assert line in (got.stdout + got.stderr).splitlines(), (line, got.stdout, got.stderr)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        expect(run(folder, (10, 5), (10, 5)), 0, "worse: none")
        expect(run(folder, (10, 5), (10.2, 5)), 0, "worse: none")  # within the tolerance
        expect(run(folder, (10, 5), (11, 5)), 1, "worse: slow")
        expect(run(folder, (10, 5), (10, 4)), 1, "worse: fast")
        expect(run(folder, (10, 5), (8, 6)), 0, "worse: none")
        expect(run(folder, (10, 5), (8, 4), "-R", "slow,fast"), 1, "worse: fast")
        expect(run(folder, (0, 5), (0, 5)), 0, "worse: none")
        expect(run(folder, (0, 5), (1, 5)), 1, "worse: slow")
        expect(run(folder, (1, 5), (0, 5)), 0, "worse: none")
        expect(run(folder, (0, 5), (0, 4)), 1, "worse: fast")  # what is behind such a row counts, too
        expect(run(folder, (10, 5), (10, 0)), 1, "worse: fast")
        got = run(folder, (10, 5), (10, 5), "-r", "0")
        expect(got, 2, "compare.sh: -r 0 is no number of rounds")
        got = compare(folder / "old", folder / "none")
        expect(got, 2, f"compare.sh: {folder}/none cannot be run")
        (folder / "broken").write_text("#!/bin/sh\n[ $1 != --help ] || exec ./old --help\nexit 1\n")
        (folder / "broken").chmod(0o755)
        got = compare("-R", "slow", folder / "old", folder / "broken")
        expect(got, 2, f"compare.sh: {folder}/broken failed in round 1")
    print("compare: ok")


if __name__ == "__main__":
    sys.exit(main())
