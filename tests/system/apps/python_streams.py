#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""CPython's own tests of sockets with their connections carried as byte streams, by `xsock run
--stream=both`: nothing fails that does not fail without xsock, but for what EXPECTED lists, and the
exit summary proves that connections were carried.

    python_streams.py BUILD [MODULE...]

Needs Debian's libpython3.11-testsuite (exit status 77 without). Failed tests are run again, because
a busy machine fails some by itself, and then without xsock.
"""
import os
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)),
                os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from python_suites import Run, run_modules, tail  # noqa: E402
from stream_runs import carried  # noqa: E402

# Module: sockets that are carried at least, listeners among them. About nine tenths of what is
# there; test_select and test_selectors use no TCP.
MODULES = {
    "test_asyncio": 650,
    "test_epoll": 15,
    "test_httplib": 110,
    "test_select": 0,
    "test_selectors": 0,
    "test_socket": 480,
    "test_socketserver": 75,
    "test_ssl": 300,
    # ./test --full
    "test_asyncore": 100,
    "test_ftplib": 550,
    "test_multiprocessing_fork": 100,
    "test_multiprocessing_forkserver": 0,
    "test_multiprocessing_spawn": 80,
    "test_poplib": 190,
    "test_smtplib": 140,
}

# The files of test_asyncio that have to do with sockets; the others take longer than these.
ONLY = {
    "test_asyncio": ["test.test_asyncio.%s.*" % name for name in (
        "test_base_events", "test_buffered_proto", "test_events", "test_sendfile", "test_server",
        "test_selector_events", "test_sock_lowlevel", "test_ssl", "test_sslproto", "test_streams",
        "test_unix_events")],
}

# Tests that may fail (by the last part of their names), and why.
ARRIVES_LATER = ("bytes that were sent over loopback are there when send() returns; ours are a "
                 "moment later, when the peer's end has polled")
RESET_DROPS = ("a reset by SO_LINGER 0 right behind send(): TCP has handed the bytes to the peer's "
               "kernel by then, a stream whose start-up goes on drops them")
EXPECTED = {
    "test_control_and_wait": ARRIVES_LATER,
    "test_preauth_data_to_tls_client": RESET_DROPS,
    "test_preauth_data_to_tls_server": RESET_DROPS,
    "test_start_tls_server_1": "asyncio's start_tls() asserts where a first write of 100 KiB was "
                               "taken in part; before start-up 2 KiB are",
}


# Tests that are left out: they would wait for ever.
LEFT_OUT = {
    # An accepted connection goes to another process (docs/policy.md, Limits).
    "test_multiprocessing_fork": ["*TestPicklingConnections*"],
    "test_multiprocessing_forkserver": ["*TestPicklingConnections*"],
    "test_multiprocessing_spawn": ["*TestPicklingConnections*"],
}


def last(name):
    return name.rsplit(".", 1)[-1]


def run(prefix, module, only=()):
    return Run(prefix, module, only or ONLY.get(module, ()), LEFT_OUT.get(module, ()))


def verdict(prefix, module):
    """'ok', 'broken' (fails without xsock as well) or 'FAILED', and words."""
    under = run(prefix, module)
    count = carried(under.output)
    words = "%d tests, %d skipped, %d carried" % (len(under.ran), len(under.skipped), count)
    if under.problem:
        return "FAILED", "%s\n%s" % (under.problem, tail(under.output))
    if count < MODULES[module]:
        return "FAILED", "%s, %d at least were to be" % (words, MODULES[module])
    if not under.failed and under.status != 0:
        return "FAILED", "%s; exit status %d\n%s" % (words, under.status, tail(under.output))
    new = sorted({last(name) for name in under.failed} - set(EXPECTED))
    differs = sorted({last(name) for name in under.failed} & set(EXPECTED))
    if differs:
        words += "; expected to differ: " + ", ".join(differs)
    if not new:
        return ("ok", words) if under.ran else ("FAILED", "ran nothing")
    second = run(prefix, module, new)
    if second.passed():
        return "ok", words + "; at the second try: " + ", ".join(new)
    without = run((), module, new)
    if second.failed and second.failed <= without.failed:
        return "broken", "fails without xsock, too: " + ", ".join(new)
    return "FAILED", "%s\n%s" % (", ".join(sorted(second.failed)) or second.problem,
                                 tail(second.output))


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    xsock = os.path.join(os.path.abspath(sys.argv[1]), "tools", "xsock")
    overlay = (xsock, "run", "--stream=both", "--summary", "--")
    return run_modules(sys.argv[2:] or MODULES, lambda module: verdict(overlay, module))


if __name__ == "__main__":
    sys.exit(main())
