# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What pytest needs to know of these tests: ctest starts it once for each case."""
import contextlib
import os
import signal

import pytest

import compatibility
from stream_runs import carried, plain

SKIPPED = 77  # as ctest has it


def pytest_addoption(parser):
    parser.addoption("--build", help="the build folder, for the tests of the program xsock",
                     default=os.path.join("build", "release"))
    parser.addoption("--compatibility", help="append rows for docs/compatibility.md to this file",
                     default=os.environ.get("XSOCK_COMPATIBILITY"))


def pytest_configure(config):
    for setting in ("XSOCK_SHM", "XSOCK_KERNEL"):
        os.environ.setdefault(setting, "off")  # as tests/CMakeLists.txt
    config.addinivalue_line("markers", "full: for ./test --full only (CMakeLists.txt)")


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.OK and "passed" not in reporter.stats:
        session.exitstatus = SKIPPED


@pytest.fixture(autouse=True, scope="session")
def nothing_outlives_the_tests():
    """Ends the programs that a failed test left behind: ctest waits for all that have its standard
    error, so that a failure would be told of only when the time is up."""
    yield
    # A thread may end meanwhile: its children are then the first one's, which is asked last.
    first = str(os.getpid())
    for thread in sorted(os.listdir("/proc/self/task"), key=first.__eq__):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/self/task/{thread}/children") as children:
                pids = children.read().split()
            for pid in map(int, pids):
                with contextlib.suppress(ProcessLookupError):  # a thread of the test waited for it
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture(name="xsock", scope="session")
def xsock_fixture(pytestconfig):
    """The program xsock of that build."""
    return os.path.join(os.path.abspath(pytestconfig.getoption("--build")), "tools", "xsock")


@pytest.fixture(name="row")
def row_fixture(pytestconfig):
    """row(PACKAGE, WHAT, SAID...): a row of docs/compatibility.md, from the summaries of both ends.
    Call it when all else was right. one_end=True: the other end ran without xsock."""
    file = pytestconfig.getoption("--compatibility")

    def row(package, what, *said, one_end=False):
        reasons = {}
        for text in said:
            for reason, count in plain(text).items():
                reasons[reason] = reasons.get(reason, 0) + count
        if file:
            compatibility.append(file, package, what, sum(map(carried, said)), reasons, one_end)
    return row
