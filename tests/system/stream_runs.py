# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Programs run under `xsock run --stream`, and what their exit summaries say."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

full = pytest.mark.full  # directly above `def`: a case for ./test --full only

TIMEOUT = 120  # seconds, for machines that are slow and busy


# How a server begins: `s` listens, and its port is the first thing said.
LISTENS = """
import os, socket, sys
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
"""

# Of an nginx.conf, and of its http section: all that nginx writes is below `folder`.
NGINX_MAIN = """
daemon off;
worker_processes 2;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
"""
NGINX_HTTP = """
    sendfile on;
    tcp_nopush on;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
"""


def command(xsock, stream, *program, policy=None):
    """`program` in that mode of the byte stream; None: without xsock."""
    if stream is None:
        return list(program)
    more = ["--policy", str(policy)] if policy else []
    return [xsock, "run", "--stream=" + stream, "--summary", *more, "--", *program]


CUT = ["DROP"]
RESET = ["REJECT", "--reject-with", "tcp-reset"]


@contextlib.contextmanager
def on_the_way(target):
    """What becomes meanwhile of all segments of established connections; resets pass."""
    if os.environ.get("XSOCK_OWN_NETWORK") != "1":
        pytest.skip("it needs a network namespace of its own (tests/support/own_network.sh)")
    if shutil.which("iptables", path=os.environ.get("PATH", "") + ":/usr/sbin") is None:
        pytest.skip("iptables is not there")
    environment = dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/sbin")
    rule = ["INPUT", "-p", "tcp", "--tcp-flags", "SYN,RST", "NONE", "-j", *target]
    try:
        subprocess.run(["iptables", "-A", *rule], check=True, env=environment)
        yield
    finally:
        subprocess.run(["iptables", "-F", "INPUT"], check=True, env=environment)


def carried(said):
    """Sockets that the summary calls carried."""
    found = re.search(r"(\d+) carried over iWARP \(stream mode\)", said)
    return int(found.group(1)) if found else 0


def plain(said):
    """{reason: sockets} of those that the summary calls plain."""
    return {reason: int(count)
            for count, reason in re.findall(r"(\d+) passed through: ([^(\n]*[^(\s])", said)}


def trickle(sock, octets, check, alone):
    """One a second, and calls check() behind each, which took `alone` seconds before."""
    for octet in octets:
        sock.sendall(bytes([octet]))
        begin = time.monotonic()
        check()
        # Not the start-up limit (10 s).
        assert time.monotonic() - begin < 3 + 10 * alone
        time.sleep(1)


def time_of(check):
    """Seconds, when it has been called before."""
    check()
    begin = time.monotonic()
    check()
    return time.monotonic() - begin


def seconds_behind_a_thousand(connect, check):
    """How long check() takes while a thousand connections, from connect(), are silent."""
    with contextlib.ExitStack() as cleanup:
        for _ in range(1000):
            cleanup.enter_context(connect())
        begin = time.monotonic()
        check()
        return time.monotonic() - begin


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def wait_for(what, true, seconds=TIMEOUT):
    """Until true() is; it fails when that takes so long."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "no " + what
        time.sleep(0.02)


def listens(port):
    """Whether a socket listens at that port of 127.0.0.1, asked without connecting to it."""
    wanted = ":%04X" % port
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for line in lines:
                words = line.split()
                if words[1].endswith(wanted) and words[3] == "0A":
                    return True
    return False


class Server:
    """A program that runs meanwhile; what it says is in `log`."""

    def __init__(self, argv, log, **popen):
        self.log = log
        with open(log, "ab") as into:
            self.process = subprocess.Popen(  # a session, so that kill() reaches what it forks
                argv, stdin=subprocess.DEVNULL, stdout=into, stderr=into, start_new_session=True,
                **popen)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as text:
            return text.read()

    def wait_to_listen(self, port):
        def there():
            assert self.process.poll() is None, self.said()
            return listens(port)
        wait_for("listener at %d: %s" % (port, self.said()), there)

    def end(self, ask=None, status=(0,)):
        """Has it end, by SIGTERM or by ask(). What it has said, and its summary."""
        if ask:
            ask()
        elif self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            raise AssertionError("it does not end: " + self.said()) from None
        assert self.process.returncode in status, (self.process.returncode, self.said())
        return self.said()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def serving(argv, log, port, **popen):
    """A Server that listens at `port`; it is killed at the end, if it has not ended."""
    server = Server(argv, log, **popen)
    try:
        server.wait_to_listen(port)
        yield server
    finally:
        server.kill()


def run(argv, status=(0,), timeout=TIMEOUT, **popen):
    """Its end, of which stdout and stderr (with the summary) are text."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", timeout=timeout, check=False, **popen)
    assert done.returncode in status, (done.returncode, done.stdout[-4000:], done.stderr[-4000:])
    return done
