# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Why a connection is not carried in the byte-stream mode: each reason has a code, which the exit
summary and the log have, and a paragraph in docs/troubleshooting.md.

    pytest-3 tests/system/stream_reasons_test.py --build build/release
"""
import contextlib
import os
import re
import socket
import subprocess
import sys

import pytest

from stream_runs import TIMEOUT, carried, command

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

SERVER = """
import fcntl, os, signal, socket, time
s = socket.create_server(("127.0.0.1", 0))
signal.signal(signal.SIGIO, signal.SIG_IGN)
print(s.getsockname()[1], flush=True)
c, _ = s.accept()
%s
"""
CLIENT = """
import fcntl, os, signal, socket, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
c = socket.socket()
%s
"""
ASYNC = "fcntl.fcntl(c, fcntl.F_SETFL, fcntl.fcntl(c, fcntl.F_GETFL) | os.O_ASYNC)\n"

# What a server does with what it accepts, what its plain peer says, and what that hears.
OF_SERVERS = {
    "policy-tcp": ("tcp", "c.sendall(c.recv(5))", b"hello", b"hello"),
    "fallback-not-mpa": ("both", "c.sendall(c.recv(5))", b"hello", b"hello"),
    "fallback-server-first": ("both", "c.sendall(b'220')", b"", b"220"),
    "fallback-eof": ("both", "assert c.recv(5) == b'MPA'", b"MPA", b""),
    "fallback-slow": ("both", "assert c.recv(5) == b'MPA I'", b"MPA ID", None),
    "fallback-async": ("both", ASYNC + "c.sendall(c.recv(5))", b"hello", b"hello"),
}


@pytest.mark.parametrize("code", OF_SERVERS)
def test_a_server_says_why(xsock, monkeypatch, code):
    stream, does, says, hears = OF_SERVERS[code]
    seen = ""
    monkeypatch.setenv("XSOCK_LOG", "info")
    with subprocess.Popen(command(xsock, stream, sys.executable, "-c", SERVER % does),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        port = int(program.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as peer:
            if code == "fallback-async":  # behind the flag, or the bytes decide
                seen = line_with(program, code)
            peer.sendall(says)
            if hears is not None:
                if says:
                    peer.shutdown(socket.SHUT_WR)
                assert peer.recv(100, socket.MSG_WAITALL) == hears
            said = seen + program.communicate(timeout=TIMEOUT)[1]
    assert program.returncode == 0, said
    # Under `tcp` the listener, too: what it is there for is not carried.
    sockets = 2 if code == "policy-tcp" else 1
    assert "%d passed through: %s" % (sockets, code) in said and " %s: " % code in said, said
    assert "did not ask" not in said, said


def line_with(program, code):
    """Of its log, as soon as it is there."""
    line = program.stderr.readline()
    while code not in line:
        assert line, "the program has ended"
        line = program.stderr.readline()
    return line


OF_CLIENTS = {
    "policy-tcp": ("tcp", "c.connect(to)"),
    "unknown-peer": ("both", "c.connect(to)"),
    "fallback-async": ("sdp", "%sc.connect(to)" % ASYNC),
    "fast-open": ("both", "c.sendto(b'x', socket.MSG_FASTOPEN, to)"),
    "start-failed": ("sdp", """c.connect(to)
try:
    c.recv(1)
except ConnectionResetError:
    pass
"""),
    "connect-failed": ("sdp", """
nobody = socket.socket()
nobody.bind(("127.0.0.1", 0))
try:
    c.setblocking(False)
    c.connect(nobody.getsockname())
except BlockingIOError:
    import select
    select.select([], [c], [])
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
"""),
}


@pytest.mark.parametrize("code", OF_CLIENTS)
def test_a_client_says_why(xsock, monkeypatch, code):
    stream, does = OF_CLIENTS[code]
    monkeypatch.setenv("XSOCK_LOG", "info")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        text = CLIENT % ("to = ('127.0.0.1', %d)\n%s" % (listener.getsockname()[1], does))
        with subprocess.Popen(command(xsock, stream, sys.executable, "-c", text),
                              stderr=subprocess.PIPE, text=True) as program:
            if code != "connect-failed":
                with contextlib.closing(listener.accept()[0]) as peer:
                    if code == "start-failed":
                        peer.sendall(b"220 I speak first\r\n")
            _, said = program.communicate(timeout=TIMEOUT)
    assert program.returncode == 0, said
    assert "1 passed through: %s" % code in said and carried(said) == 0, said
    if code not in ("start-failed", "connect-failed"):  # which have lines of other codes
        assert " %s: " % code in said, said


def test_what_must_be_carried_is_not_opened_fast(xsock):
    text = CLIENT % """
import errno
for how in (lambda: c.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", 9)),
            lambda: c.sendmsg([b"x"], [], socket.MSG_FASTOPEN, ("127.0.0.1", 9))):
    try:
        how()
        sys.exit("it went")
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP, error
"""
    subprocess.run(command(xsock, "sdp", sys.executable, "-c", text), check=True, timeout=TIMEOUT)


def test_each_reason_has_a_paragraph():
    with open(os.path.join(TOP, "docs", "troubleshooting.md"), encoding="utf-8") as file:
        section = file.read().partition("## Why a connection is not carried")[2].partition("\n## ")[0]
    told = set(re.findall(r"^- \*\*`([a-z-]+)`\*\*", section, re.M))
    with open(os.path.join(TOP, "base", "plain_socket.cpp"), encoding="utf-8") as file:
        published = set(re.findall(r'^    \{"([a-z-]+)", "', file.read(), re.M))
    assert {*OF_SERVERS, *OF_CLIENTS} - {"start-failed", "connect-failed"} <= published, published
    assert {*OF_SERVERS, *OF_CLIENTS, *published, "handed-on", "registry-wrong"} <= told, told
