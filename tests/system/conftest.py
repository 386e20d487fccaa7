# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""What pytest needs to know of these tests: ctest starts it once for each case."""
import os

import pytest

SKIPPED = 77  # as ctest has it


def pytest_addoption(parser):
    parser.addoption("--build", help="the build folder, for the tests of the program xsock",
                     default=os.path.join("build", "release"))


def pytest_sessionfinish(session, exitstatus):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.OK and "passed" not in reporter.stats:
        session.exitstatus = SKIPPED


@pytest.fixture(name="xsock", scope="session")
def xsock_fixture(pytestconfig):
    """The program xsock of that build."""
    return os.path.join(os.path.abspath(pytestconfig.getoption("--build")), "tools", "xsock")
