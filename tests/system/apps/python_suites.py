#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""CPython's own tests of sockets, readiness and processes, under the overlay: nothing fails that does
not fail without it, and nothing is left out that runs without it.

    python_suites.py BUILD [--both] [MODULE...]

Needs Debian's libpython3.11-testsuite (exit status 77 without). A module that passes under the
overlay has passed; of one that does not, the failed tests are run again both ways, because a busy
machine fails some by itself. --both, or XSOCK_APPS_BOTH in the environment, runs every module
without the overlay first, and compares what was run.
"""
import os
import signal
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

PYTHON = "/usr/bin/python3"
MODULES = ("test_socket", "test_select", "test_epoll", "test_selectors", "test_asyncio",
           "test_httplib", "test_socketserver", "test_subprocess")
# AF_VSOCK without a hypervisor's answer waits forever on some machines.
IGNORED = ("*VSOCK*",)
TIME_LIMIT = 900  # seconds for one module


class Run:
    """One run of one module: which tests ran, which failed."""

    def __init__(self, prefix, module, only=(), left_out=()):
        self.ran, self.failed, self.skipped = set(), set(), set()
        self.problem = ""
        folder = tempfile.mkdtemp(prefix="xsock-python.")
        report = os.path.join(folder, "report.xml")
        # Without the resource "network" test_socketserver runs nothing.
        command = [*prefix, PYTHON, "-m", "test", "-u", "network", "--junit-xml", report]
        for pattern in (*IGNORED, *left_out):
            command += ["-i", pattern]
        for test in only:
            command += ["-m", test]
        try:
            self.status, self.output = self.execute([*command, module], folder)
            self.read(report)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def execute(command, folder):
        # A session of its own, so that nothing of it is left when it takes too long.
        child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        try:
            output, _ = child.communicate(timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, _ = child.communicate()
            output += b"\n(did not end within %d s)\n" % TIME_LIMIT
        return child.returncode, output.decode(errors="replace")

    def read(self, report):
        try:
            tree = ElementTree.parse(report)
        except (OSError, ElementTree.ParseError) as e:
            self.problem = "no report: %s" % e
            return
        for case in tree.iter("testcase"):
            name = case.get("name")
            if case.find("skipped") is not None or case.get("status") == "skipped":
                self.skipped.add(name)
            else:
                self.ran.add(name)
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed.add(name)

    def passed(self):
        return self.status == 0 and self.ran and not self.failed and not self.problem


def tail(text, lines=40):
    return "\n".join("        " + line for line in text.splitlines()[-lines:])


def verdict(overlay, module, both):
    """'ok', 'broken' (fails without the overlay as well) or 'FAILED', and words."""
    under = Run(overlay, module)
    words = "%d tests, %d skipped" % (len(under.ran), len(under.skipped))
    if both:
        without = Run((), module)
        missing = without.ran - under.ran
        if missing:
            return "FAILED", "not run under the overlay: %s" % ", ".join(sorted(missing))
    if under.passed():
        return "ok", words
    # By their last names: what fails in setUpModule or a class has no method.
    again = sorted(name.rsplit(".", 1)[-1] for name in under.failed)
    second = Run(overlay, module, again)
    if again and second.passed():
        return "ok", words + "; at the second try: " + ", ".join(again)
    without = Run((), module, again)
    if not without.passed() and second.failed <= without.failed:
        return "broken", "fails without the overlay, too: " + ", ".join(again)
    return "FAILED", "%s\n%s" % (under.problem or ", ".join(sorted(under.failed)),
                                 tail(second.output))


def have_suites():
    """Says so where they are not there."""
    found = subprocess.run([PYTHON, "-c", "import test.test_socket"], stderr=subprocess.DEVNULL,
                           check=False).returncode == 0
    if not found:
        print("SKIPPED: %s has no test suite (libpython3.11-testsuite)" % PYTHON)
    return found


def run_modules(modules, verdict_of):
    """Prints what verdict_of(module) answers, a line each. @return the exit status"""
    if not have_suites():
        return 77
    verdicts = set()
    for module in modules:
        began = time.monotonic()
        what, words = verdict_of(module)
        verdicts.add(what)
        print("%-7s %s (%d s): %s" % (what, module, time.monotonic() - began, words), flush=True)
    if "FAILED" in verdicts:
        return 1
    return 77 if verdicts == {"broken"} else 0


def main():
    arguments = [a for a in sys.argv[1:] if a != "--both"]
    both = "--both" in sys.argv[1:] or bool(os.environ.get("XSOCK_APPS_BOTH"))
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    overlay = (os.path.join(os.path.abspath(arguments[0]), "tools", "xsock"), "run", "--")
    return run_modules(arguments[1:] or MODULES, lambda module: verdict(overlay, module, both))


if __name__ == "__main__":
    sys.exit(main())
