#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""tests/suite/cases.py over cases of which it is known how they end."""
import os
import pathlib
import subprocess
import sys
import tempfile

CASES = pathlib.Path(__file__).resolve().parent / "cases.py"


def run(*cases):
    """Runs cases, each a shell command in a folder of its own run: its exit status, its output, what
    is unsteady, how many ran ("": it does not say)."""
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for name, command in cases:
            lines.append('add_test(%s "/bin/sh" "-c" "cd %s; %s")' % (name, folder, command))
            limit_s = 2 if name == "time-out" else 60
            lines.append("set_tests_properties(%s PROPERTIES TIMEOUT %d SKIP_RETURN_CODE 77)" %
                         (name, limit_s))
        pathlib.Path(folder, "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
        unsteady = pathlib.Path(folder, "unsteady")
        ran = pathlib.Path(folder, "ran")
        done = subprocess.run([CASES, folder, unsteady, "-j", "3", "--no-tests=ignore"],
                              capture_output=True, text=True, check=False,
                              env={**os.environ, "XSOCK_CASES_RAN": str(ran)})
        return (done.returncode, done.stdout, *(
            file.read_text() if file.exists() else "" for file in (unsteady, ran)))


# Fails the first time, or the first two times.
ONCE = "test -e once || { touch once; echo reason; exit 1; }"
TWICE = "test -e b || { test -e a && touch b; touch a; exit 1; }"
FIRST_AND_THIRD = "echo >>n; test \\$(wc -l <n) = 2"


def check(what, condition, output):
    if not condition:
        print("%s:\n%s" % (what, output))
        sys.exit(1)


def main():
    status, output, unsteady, ran = run(("good", "true"), ("skip", "exit 77"))
    check("all good", status == 0 and not unsteady and ran == "2\n", output)
    status, output, unsteady, ran = run()
    check("none", status == 0 and not unsteady and not ran, output)

    status, output, unsteady, ran = run(("good", "true"), ("once", ONCE), ("skip", "exit 77"))
    check("three ran", ran == "3\n", output)
    check("one unsteady", status == 0 and unsteady == "once\n    reason\n", output)
    check("one unsteady is named", "UNSTEADY: once" in output, output)

    for what, command in (("fails again", TWICE), ("fails always", "exit 1"),
                          ("fails the third time", FIRST_AND_THIRD),
                          ("sanitizer", "echo AddressSanitizer: heap; " + ONCE),
                          ("assertion", "echo xsock: assertion failed at a:1: b; " + ONCE),
                          ("time-out", "test -e t || { touch t; sleep 30; }"),
                          ("killed", "test -e k || { touch k; kill -SEGV \\$\\$; }")):
        name = "time-out" if what == "time-out" else "bad"
        status, output, unsteady, _ = run(("good", "true"), (name, command))
        check(what, status != 0 and not unsteady, output)

    many = [("m%d" % n, ONCE.replace("once", "once%d" % n)) for n in range(4)]
    status, output, unsteady, _ = run(*many)
    check("four failures", status != 0 and not unsteady and "4 cases failed" in output, output)
    status, output, unsteady, _ = run(*many[:3])
    wanted = "".join("m%d\n    reason\n" % n for n in range(3))
    check("three failures", status == 0 and unsteady == wanted, output)


if __name__ == "__main__":
    main()
