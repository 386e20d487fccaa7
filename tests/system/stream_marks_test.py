# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Servers that speak first, under `both`, and peers whose SYN has the mark of a client that will ask
for a byte stream: some ask, some speak plain, some send a little and some nothing. Each concerns its
own connection alone. (Servers that wait for their peer: sdp_hostile_test.py.)

    pytest-3 tests/system/stream_marks_test.py --build build/release
"""
import contextlib
import os
import random
import resource
import socket
import subprocess
import sys

import pytest

from stream_runs import TIMEOUT, command, seconds_behind_a_thousand, time_of, trickle

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
import iwarp_model as iwarp  # pylint: disable=wrong-import-position
import sdp_model as sdp  # pylint: disable=wrong-import-position

HELLO = b"220 this server speaks first\r\n"

LISTEN = """
import asyncio, socket, threading
HELLO = %r
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen(2000)
print(s.getsockname()[1], flush=True)
""" % HELLO

ECHO = """
def serve(c):
    try:
        c.sendall(HELLO)
        while some := c.recv(1000):
            c.sendall(some)
    except OSError:
        pass
    c.close()
"""

SERVERS = {
    # One connection after another, as daytime's.
    "one": LISTEN + """
while True:
    c, _ = s.accept()
    c.sendall(HELLO)
    c.close()
""",
    "one_that_shuts_down": LISTEN + """
while True:
    c, _ = s.accept()
    c.sendall(HELLO[:10])
    c.sendall(HELLO[10:])
    c.shutdown(socket.SHUT_WR)
    c.close()
""",
    "threads": LISTEN + ECHO + """
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
""",
    "events": LISTEN + """
async def serve(reader, writer):
    try:
        writer.write(HELLO)
        await writer.drain()
        while some := await reader.read(1000):
            writer.write(some)
            await writer.drain()
        writer.close()
    except OSError:
        pass
async def main():
    server = await asyncio.start_server(serve, sock=s)
    await server.serve_forever()
asyncio.run(main())
""",
}
ECHOES = ["threads", "events"]

# Greets, and has a child try to go on.
FORKS = LISTEN + """
import os
c, _ = s.accept()
c.sendall(b"220 ")
pid = os.fork()
if pid == 0:
    for use in (lambda: c.sendall(b"child"), lambda: c.recv(1), lambda: c.shutdown(socket.SHUT_WR)):
        try:
            use()
            os._exit(1)
        except PermissionError:
            pass
    c.close()
    os._exit(0)
print(os.waitpid(pid, 0)[1], flush=True)
c.sendall(b"parent")
assert c.recv(100) == b"word"
"""


class Server:
    def __init__(self, xsock, name, log_path):
        self.log_path = log_path
        argv = command(xsock, "both", sys.executable, "-c",
                       FORKS if name == "forks" else SERVERS[name])
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen([word for word in argv if word != "--summary"],
                                            stdout=subprocess.PIPE, stderr=log,
                                            env=dict(os.environ, XSOCK_LOG="info"))
        self.port = int(self.process.stdout.readline())

    def connect(self, is_marked=True):
        sock = socket.socket()
        if is_marked:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x2C)
        sock.settimeout(TIMEOUT)
        sock.connect(("127.0.0.1", self.port))
        return sock

    def lines(self, code):
        return sum(" %s: " % code in line for line in self.log_path.read_text().splitlines())

    def serves_streams(self):
        with self.connect() as sock:
            peer = sdp.connect(sock, random.Random(1), bufs=10, size=5000)
            peer.until(lambda: len(peer.received) == len(HELLO))
            assert bytes(peer.received) == HELLO

    def serves_plain(self):
        with self.connect(is_marked=False) as sock:
            assert iwarp.read_exactly(sock, len(HELLO)) == HELLO

    def serves(self):
        self.serves_streams()
        self.serves_plain()


@pytest.fixture(name="server")
def server_fixture(xsock, tmp_path, request):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the server's too
    started = Server(xsock, request.param, tmp_path / "log")
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def toward(*names):
    return pytest.mark.parametrize("server", names, ids=names, indirect=True)


@toward(*SERVERS)
def test_a_thousand_silent_marked_peers_delay_no_other(server):
    server.serves()
    # A thousand threads of Python take each other seconds on a busy machine, marked or not.
    behind_plain = seconds_behind_a_thousand(lambda: server.connect(is_marked=False), server.serves)
    behind_marked = seconds_behind_a_thousand(server.connect, server.serves)
    # Not the start-up limit of the others (10 s), nor a time for each of them.
    assert behind_marked < min(3 + 10 * behind_plain, 9)


@toward(*ECHOES)
def test_a_marked_peer_may_speak_plain(server):
    with server.connect() as sock:
        sock.sendall(b"plain words")
        assert iwarp.read_exactly(sock, len(HELLO) + 11) == HELLO + b"plain words"
    server.serves()
    assert server.lines("fallback-not-mpa") == 1


@toward(*SERVERS)
def test_a_marked_peer_of_one_octet_a_second_delays_no_other(server):
    alone = time_of(server.serves)
    with server.connect() as slow:
        trickle(slow, b"MPA", server.serves, alone)
        slow.sendall(b" and no Request")
        with contextlib.suppress(iwarp.Ended):  # of a server that has closed it meanwhile
            assert iwarp.read_exactly(slow, len(HELLO)) == HELLO
    server.serves()


# First words that wait are the process's that has sent them, as a started connection is.
@toward("forks")
def test_a_child_leaves_the_first_words_of_its_parent_alone(server):
    with server.connect() as sock:
        assert server.process.stdout.readline() == b"0\n", "what the child has ended with"
        peer = sdp.connect(sock, random.Random(2), bufs=10, size=5000)
        peer.until(lambda: len(peer.received) == 10)
        assert bytes(peer.received) == b"220 parent"
        peer.write(b"word")
        peer.finish()
    assert server.process.wait(TIMEOUT) == 0 and server.lines("handed-on") == 1


@toward(*ECHOES)
def test_a_marked_peer_that_stays_silent_is_plain_in_the_end(server):
    with server.connect() as silent:
        assert iwarp.read_exactly(silent, len(HELLO)) == HELLO
        assert server.lines("fallback-slow") == 1
        silent.sendall(b"words")
        assert iwarp.read_exactly(silent, 5) == b"words"
    server.serves()
