#!/usr/bin/env -S python3 -B
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Runs the cases of a part by ctest, and repeats those that failed alone.

    cases.py FOLDER UNSTEADY-FILE [ctest arguments...]

Many cases run beside each other, on machines that do other things too. One that fails there and
passes three times in a row with nothing beside it is unsteady: it is named in the output, does not
fail the part, and is appended to UNSTEADY-FILE with the last lines that it printed when it failed.
./test shows that file above its summary.

XSOCK_CASES_RAN names a file: it gets the number of cases that ran, if any did.

Not repeated, so that the part fails: a report of a sanitizer, an assertion of the library, a crash, a
time-out (a time limit ends only what hangs), and more than three cases that failed.
"""
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

MOST = 3
LINES = 8  # of what an unsteady case printed
ALONE = ["-j", "1", "--repeat", "until-fail:3"]
FAULT = re.compile(
    r"(Address|Thread|Leak|UndefinedBehavior)Sanitizer|runtime error:|xsock: assertion failed"
    r"|terminate called|stack smashing|SIGSEGV|SIGABRT|SIGBUS|[Cc]ore dumped|Segmentation fault")
# " 3/12 Test  #7: name ........***Failed    1.00 sec"
RESULT = re.compile(r"^\s*\d+/\d+ Test\s+#\d+: (\S+) \.*\s*(\*\*\*(\S+))?")


def run(arguments):
    """Exit status, what ctest says of each case that did not pass: {name: word}, how many ran."""
    results = {}
    ran = 0
    with subprocess.Popen(["ctest", *arguments], stdout=subprocess.PIPE, text=True,
                          errors="replace") as ctest:
        for line in ctest.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            found = RESULT.match(line)
            if found:
                ran += 1
                if found[2]:
                    results[found[1]] = found[3]
    return ctest.returncode, results, ran


def outputs(report):
    """{name: what it printed} of the cases in a JUnit file that failed."""
    return {case.get("name"): "".join(case.itertext())
            for case in ElementTree.parse(report).iter("testcase")
            if case.get("status") == "fail"}


def obstacle(failed, report):
    """Why these cases are not repeated; None: they are."""
    if not failed:
        return "no case failed, ctest did"
    if len(failed) > MOST:
        return "%d cases failed" % len(failed)
    printed = outputs(report)
    for name, word in sorted(failed.items()):
        if word != "Failed":
            return "%s: %s" % (name, word)
        fault = FAULT.search(printed.get(name, ""))
        if fault:
            return "%s: %s" % (name, fault[0])
    return None


def main():
    folder, unsteady = sys.argv[1:3]
    report = os.path.join(folder, "cases.xml")
    if os.path.exists(report):
        os.remove(report)
    status, results, ran = run(["--test-dir", folder, "--output-on-failure", "--output-junit", report,
                                *sys.argv[3:]])
    if ran and os.environ.get("XSOCK_CASES_RAN"):
        with open(os.environ["XSOCK_CASES_RAN"], "a", encoding="utf-8") as out:
            out.write("%d\n" % ran)
    if status == 0:
        return 0
    failed = {name: word for name, word in results.items() if word != "Skipped"}
    why_not = obstacle(failed, report) if os.path.exists(report) else "ctest wrote no report"
    if why_not:
        print("\nNothing is repeated: %s" % why_not)
        return status
    names = sorted(failed)
    print("\nOnce more, alone: %s" % " ".join(names))
    pattern = "^(%s)$" % "|".join(re.escape(name) for name in names)
    status, _, _ = run(["--test-dir", folder, "--output-on-failure", "--no-tests=error",
                     "-R", pattern, *ALONE])
    if status != 0:
        return status
    printed = outputs(report)
    with open(unsteady, "a", encoding="utf-8") as out:
        for name in names:
            out.write("%s\n" % name)
            lines = [line.strip() for line in printed.get(name, "").split("\n") if line.strip()]
            out.writelines("    %s\n" % line for line in lines[-LINES:])
            print("UNSTEADY: %s failed beside others, and passed three times alone" % name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
