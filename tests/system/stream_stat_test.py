# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""`xsock stat --all`: connections that are not carried, each with its reason, for as long as a
process has them.

    pytest-3 tests/system/stream_stat_test.py --build build/release
"""
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys

import pytest

from stream_runs import LISTENS, TIMEOUT, wait_for

# Each takes words on standard input: it goes on at the next line.
SERVER = """
import fcntl, os, signal, socket, sys
s = socket.create_server(%s)
signal.signal(signal.SIGIO, signal.SIG_IGN)
print(s.getsockname()[1], flush=True)
c, _ = s.accept()
%s
print("there", flush=True)
sys.stdin.readline()
c.close()
print("closed", flush=True)
sys.stdin.readline()
"""
CLIENT = """
import socket, sys
c = socket.socket()
to = ("127.0.0.1", int(sys.argv[1]))
%s
print("there", flush=True)
sys.stdin.readline()
c.close()
print("closed", flush=True)
sys.stdin.readline()
"""
ASYNC = "fcntl.fcntl(c, fcntl.F_SETFL, fcntl.fcntl(c, fcntl.F_GETFL) | os.O_ASYNC)\nc.recv(1)"


def kill(program):
    """With what it has forked."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)


class Stat:
    def __init__(self, xsock, folder):
        self.xsock = xsock
        self.folder = folder
        self.environment = dict(os.environ, XSOCK_STAT=str(folder))
        self.programs = contextlib.ExitStack()

    def start(self, stream, *argv):
        mode = ["--stream=" + stream] if stream else []
        program = self.programs.enter_context(subprocess.Popen(
            [self.xsock, "run", *mode, "--", *argv], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=self.environment, start_new_session=True))
        self.programs.callback(kill, program)
        return program

    def server(self, stream, does, listens='("127.0.0.1", 0)'):
        program = self.start(stream, sys.executable, "-c", SERVER % (listens, does))
        return program, int(program.stdout.readline())

    def client(self, stream, does, port):
        return self.start(stream, sys.executable, "-c", CLIENT % does, str(port))

    def said(self, *options):
        done = subprocess.run([self.xsock, "stat", *options], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.PIPE, check=True, timeout=TIMEOUT,
                              env=self.environment)
        assert done.stderr == "", done.stderr
        return done.stdout

    def processes(self):
        return {p["pid"]: p for p in json.loads(self.said("--all", "--json"))["processes"]}

    def plain(self, pid):
        return self.processes().get(pid, {"plain": []})["plain"]


@pytest.fixture(name="stat")
def stat_fixture(xsock, tmp_path):
    folder = tmp_path / "stat"
    folder.mkdir(mode=0o700)
    stat = Stat(xsock, folder)
    with stat.programs:
        yield stat


def says(program, word):
    line = program.stdout.readline().strip()
    assert line == word, (line, "not", word)


def go_on(program):
    program.stdin.write("\n")
    program.stdin.flush()


def closes(stat, program):
    """The program's connection goes from the list when it is closed."""
    go_on(program)
    says(program, "closed")
    assert stat.plain(program.pid) == []


# Mode, what the server does, what its plain peer says (None: nothing), whether it shuts down.
OF_SERVERS = {
    "policy-tcp": ("tcp", "c.recv(5)", b"hello", False),
    "fallback-not-mpa": ("both", "c.recv(5)", b"hello", False),
    "fallback-server-first": ("both", "c.sendall(b'220')", None, False),
    "fallback-eof": ("both", "c.recv(5)", b"MPA", True),
    "fallback-slow": ("both", "c.recv(5)", b"MPA ID", False),
    "fallback-async": ("both", ASYNC, None, False),
    "undecided": ("both", "", None, False),
}


@pytest.mark.parametrize("code", OF_SERVERS)
def test_a_servers_connection_is_shown_with_its_reason(stat, code):
    stream, does, words, ends = OF_SERVERS[code]
    program, port = stat.server(stream, does)
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as peer:
        if words is not None:
            peer.sendall(words)
        if ends:
            peer.shutdown(socket.SHUT_WR)
        if code == "fallback-async":  # behind the flag, or the byte decides
            wait_for("row", lambda: [r["why"] for r in stat.plain(program.pid)] == [code])
            peer.sendall(b"x")
        says(program, "there")
        rows = stat.plain(program.pid)
        assert len(rows) == 1, rows
        row = rows[0]
        assert (row["why"], row["role"]) == (code, "server"), row
        assert row["state"] == ("close-wait" if ends else "established"), row
        assert row["local"] == "127.0.0.1:%d" % port, row
        assert row["peer"] == "%s:%d" % peer.getsockname(), row
        text = stat.said("--all")
        assert "plain" in text and "server " + code in text, text
        assert code + ": " in stat.said("--all", "--long")
        assert "plain" not in stat.said(), "without --all"
        closes(stat, program)


OF_CLIENTS = {
    "policy-tcp": ("tcp", "c.connect(to)"),
    "unknown-peer": ("both", "c.connect(to)"),
    "unseen": ("both", """
import ctypes, platform, struct
SENDTO, FAST_OPEN = {"x86_64": 44, "aarch64": 206, "s390x": 369}[platform.machine()], 0x20000000
address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", to[1]) + bytes([127, 0, 0, 1]) + bytes(8)
socket.create_server(("127.0.0.1", 0))
assert ctypes.CDLL(None).syscall(SENDTO, c.fileno(), b"x", 1, FAST_OPEN, address, 16) == 1
"""),
    "fast-open": ("both", "socket.create_server(('127.0.0.1', 0))\n"
                          "c.sendto(b'x', socket.MSG_FASTOPEN, to)"),
}


@pytest.mark.parametrize("code", OF_CLIENTS)
def test_a_clients_connection_is_shown_with_its_reason(stat, code):
    stream, does = OF_CLIENTS[code]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = stat.client(stream, does, listener.getsockname()[1])
        with contextlib.closing(listener.accept()[0]) as peer:
            says(program, "there")
            rows = stat.plain(program.pid)
            assert [(r["why"], r["role"]) for r in rows] == [(code, "client")], rows
            assert rows[0]["peer"] == "%s:%d" % listener.getsockname(), rows
            assert rows[0]["local"] == "%s:%d" % peer.getpeername(), rows
            closes(stat, program)


IPV6 = '("::", 0), family=socket.AF_INET6, dualstack_ipv6=True'


@pytest.mark.parametrize("listens", ['("127.0.0.1", 0)', IPV6], ids=["ipv4", "ipv6"])
def test_a_carried_connection_is_not_among_them(stat, listens):
    server, port = stat.server("both", "c.recv(5)", listens)
    client = stat.client("both", "c.connect(to)\nc.sendall(b'hello')", port)
    says(server, "there")
    says(client, "there")
    processes = stat.processes()
    for program in (server, client):
        process = processes[program.pid]
        assert len(process["connections"]) == 1 and process["plain"] == [], process


def test_those_of_a_killed_process_go(stat):
    program, port = stat.server("both", "c.recv(5)")
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as peer:
        peer.sendall(b"hello")
        says(program, "there")
        assert len(stat.plain(program.pid)) == 1
        program.kill()
        program.wait(timeout=TIMEOUT)
        assert program.pid not in stat.processes()


FORKING = LISTENS + """
for _ in range(3):
    c, _ = s.accept()
    if os.fork() == 0:
        s.close()
        c.recv(1)
        print(os.getpid(), flush=True)
        sys.stdin.readline()
        os._exit(0)
    c.close()
sys.stdin.readline()
"""


@pytest.mark.parametrize("stream, code", [("tcp", "policy-tcp"), ("both", "fallback-not-mpa")])
def test_a_forked_servers_connections_are_its_childrens(stat, stream, code):
    program = stat.start(stream, sys.executable, "-c", FORKING)
    port = int(program.stdout.readline())
    with contextlib.ExitStack() as peers:
        children = set()
        for _ in range(3):
            peer = peers.enter_context(socket.create_connection(("127.0.0.1", port)))
            peer.sendall(b"x")
            children.add(int(program.stdout.readline()))
        wait_for("closed copies", lambda: not stat.plain(program.pid))
        shown = {pid: [(r["why"], r["role"]) for r in p["plain"]]
                 for pid, p in stat.processes().items() if pid != program.pid}
        assert shown == {child: [(code, "server")] for child in children}, shown


def test_a_number_without_a_record_is_counted(stat):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= 17000:
        pytest.skip("descriptors are limited")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = stat.client("both", """
import fcntl, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (17001, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
low = socket.socket()
c = socket.socket(fileno=fcntl.fcntl(low.fileno(), fcntl.F_DUPFD, 17000))
low.close()
socket.create_server(("127.0.0.1", 0))
c.connect(to)
""", listener.getsockname()[1])
        with contextlib.closing(listener.accept()[0]):
            says(program, "there")
            process = stat.processes()[program.pid]
            assert process["plain_unlisted"] == 1, process
            assert [r["why"] for r in process["plain"]] == ["unseen"], process
            assert "The reasons of 1 plain connections found no place" in stat.said("--all")


def test_programs_without_a_policy_are_not_looked_at(stat):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        to = listener.getsockname()
        with socket.create_connection(to, timeout=TIMEOUT):
            assert stat.processes() == {}
            assert stat.said("--all") == "No connections.\n"


OWN_MODE = """
import socket, sys
SOL_XSOCK, DDPMODE = 0x5853, 1
s = socket.socket()
s.setsockopt(SOL_XSOCK, DDPMODE, 1)
s.bind(("127.0.0.1", 0))
s.listen()
print(s.getsockname()[1], flush=True)
other = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c, _ = s.accept()
c.recv(5)
print("there", flush=True)
sys.stdin.readline()
"""


def test_of_a_program_that_asks_itself_what_asked(stat):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        program = stat.start(None, sys.executable, "-c", OWN_MODE, str(listener.getsockname()[1]))
        port = int(program.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT) as peer:
            peer.sendall(b"hello")
            says(program, "there")
            rows = stat.plain(program.pid)
            assert [(r["why"], r["role"]) for r in rows] == [("fallback-not-mpa", "server")], rows


# Python's ForkingMixIn and many servers end their children by _exit(), which runs no handlers.
def test_a_child_that_ends_by_exit_leaves_no_file(stat):
    program = stat.start("both", sys.executable, "-c", """
import os, socket, sys
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    pid = os.fork()
    if pid == 0:
        assert c.recv(1) == b"x"
        os._exit(0)
    c.close()
    assert os.waitpid(pid, 0)[1] == 0
    print(pid, flush=True)
""")
    port = int(program.stdout.readline())
    children = []
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(b"x")
            children.append(program.stdout.readline().strip())
    left = [name for name in os.listdir(stat.folder) if name.split("-")[0] in children]
    assert not left, left
