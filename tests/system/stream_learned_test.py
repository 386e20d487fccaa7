# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""XSOCK_POLICY_LEARN=1: what clients under `both` learn of servers that are not of this machine. Two
network namespaces with a link between them are the two machines.

    pytest-3 tests/system/stream_learned_test.py --build build/release
"""
import contextlib
import json
import os
import re
import subprocess
import sys
import time

import pytest

from machines import two_machines
from stream_runs import TIMEOUT, carried, command, wait_for

PORT = 7000
NEAR, FAR = "10.9.0.1", "10.9.0.2"

# A server without xsock that answers what it does not know, as HTTP's do, and PING.
PLAIN = """
import socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listens", flush=True)
while True:
    c, _ = s.accept()
    with c:
        c.sendall(b"+PONG\\r\\n" if b"PING" in c.recv(1000).upper() else b"-ERR what?\\r\\n")
"""

# One that says nothing, as most do until they have a whole line, while the first connection is open.
SILENT = """
import socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listens", flush=True)
c, _ = s.accept()
while c.recv(1000):
    pass
c, _ = s.accept()
c.recv(1000)
c.sendall(b"+PONG\\r\\n")
c.recv(1000)
"""

# Asks for the byte stream by itself.
BY_OPTION = """
import socket, sys
c = socket.socket()
c.setsockopt(0x5853, 1, 2)  # SOL_XSOCK, DDPMODE, DDPMODE_STREAM
c.connect((sys.argv[1], int(sys.argv[2])))
c.sendall(b"PING\\r\\n")
assert c.recv(100) == b"+PONG\\r\\n"
"""

# As health checks do: connects, and resets.
PROBES = """
import socket, struct, sys
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
c.close()
"""


@pytest.fixture(name="machines", scope="module")
def machines_fixture():
    """The client's, the server's."""
    with two_machines(NEAR, FAR, "redis-server", "redis-cli") as both:
        yield both


class Run:
    """One case: programs at both machines, and what is learned."""

    def __init__(self, xsock, machines, folder, monkeypatch):
        self.xsock, (self.client, self.server), self.folder = xsock, machines, folder
        self.learned = folder / "registry" / "learned"
        monkeypatch.setenv("XSOCK_REGISTRY", str(folder / "registry"))
        monkeypatch.setenv("XSOCK_LOG", "info")
        monkeypatch.setenv("XSOCK_POLICY_LEARN", "1")

    def entries(self):
        """{server and what it did}"""
        return {re.sub("^[0-9a-f]+-[0-9]+-[0-9a-f]{24}", "", name)
                for name in (os.listdir(self.learned) if self.learned.exists() else ())}

    def says(self, stream, *argv, status=0):
        """What the client says at its machine."""
        done = subprocess.run(self.client.inside(*command(self.xsock, stream, *argv)), check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=TIMEOUT)
        assert status is None or done.returncode == status, done.stdout
        return done.stdout

    def ping(self, stream, address=FAR):
        """By redis-cli. @return its words, log and summary; whether it was carried"""
        said = self.says(stream, "redis-cli", "-h", address, "-p", str(PORT), "ping", status=None)
        return said, carried(said) == 1 and "PONG" in said

    def info(self):
        """What `xsock info --policy` says of the server."""
        done = subprocess.run(
            self.client.inside(self.xsock, "info", "--policy", "any", "%s:%d" % (FAR, PORT),
                               "--json"), stdout=subprocess.PIPE, check=True, timeout=TIMEOUT)
        return json.loads(done.stdout)["learned"]

    @contextlib.contextmanager
    def redis(self, stream, at=None):
        program = subprocess.Popen(
            (at or self.server).inside(*command(
                self.xsock, stream, "redis-server", "--port", str(PORT), "--protected-mode", "no",
                "--save", "", "--dir", str(self.folder))),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for("redis", lambda: self.listens(at or self.server))
            yield
        finally:
            program.terminate()
            program.wait(TIMEOUT)

    @contextlib.contextmanager
    def plain(self, text=PLAIN):
        with subprocess.Popen(
                self.server.inside(sys.executable, "-c", text, FAR, str(PORT)),
                stdout=subprocess.PIPE) as program:
            try:
                assert program.stdout.readline() == b"listens\n"
                yield
            finally:
                program.kill()

    @staticmethod
    def listens(machine):
        with open("/proc/%d/net/tcp" % machine.holder.pid, encoding="ascii") as table:
            return any(line.split()[1].endswith(":%04X" % PORT) and line.split()[3] == "0A"
                       for line in table)


@pytest.fixture(name="run")
def run_fixture(xsock, machines, tmp_path, monkeypatch):
    return Run(xsock, machines, tmp_path, monkeypatch)


ANSWERED, FAILED = "0a090002-%d-sdp" % PORT, "0a090002-%d-failed" % PORT


def test_a_server_that_took_a_byte_stream_is_asked_again(run):
    with run.redis("both"):
        said, is_carried = run.ping("both")
        assert not is_carried and "PONG" in said and "unknown-peer" in said, said
        assert run.entries() == set() and run.info()["state"] == "unknown", "it was not asked"
        assert run.ping("sdp")[1]
        assert run.entries() == {ANSWERED}
        known = run.info()
        assert known["state"] == "answered" and 0 <= known["age_s"] < TIMEOUT, known
        said, is_carried = run.ping("both")
        assert is_carried and "learned-peer: %s:%d" % (FAR, PORT) in said, said


def test_a_socket_that_asks_by_itself_teaches(run):
    with run.redis("both"):
        said = run.says("both", sys.executable, "-c", BY_OPTION, FAR, str(PORT))
        assert carried(said) == 1 and run.entries() == {ANSWERED}, said
        assert run.ping("both")[1]


def test_what_was_learned_is_forgotten_after_ten_minutes(run):
    with run.redis("both"):
        assert run.ping("sdp")[1]
        (entry,) = run.learned.iterdir()
        for age, holds in ((500, True), (601, False)):
            then = time.time() - age
            os.utime(entry, (then, then))
            assert run.info()["state"] == ("answered" if holds else "unknown")
            said, is_carried = run.ping("both")
            assert is_carried == holds and "PONG" in said, said


# The server's next start was without xsock; or one of several behind the address is.
def test_a_server_that_was_plain_is_not_asked_for_ten_minutes(run):
    with run.redis("both"):
        assert run.ping("sdp")[1]
    with run.plain():
        said, _ = run.ping("both")
        assert said.count("learned-wrong: %s:%d" % (FAR, PORT)) == 1, said
        assert "1 passed through: start-failed" in said, said  # redis-cli connects again by itself
        assert run.entries() == {FAILED} and run.info()["state"] == "failed"
        said, is_carried = run.ping("both")
        assert "PONG" in said and not is_carried and "unknown-peer" in said, said
    with run.redis("both"):
        assert run.ping("sdp")[1], "who is told to asks"
        assert run.entries() == {FAILED, ANSWERED}
        said, is_carried = run.ping("both")
        assert "PONG" in said and not is_carried, said
        (entry,) = (path for path in run.learned.iterdir() if path.name.endswith("failed"))
        then = time.time() - 601
        os.utime(entry, (then, then))
        assert run.ping("both")[1]


# Unlike one that is listed, which takes it as soon as it accepts.
def test_a_server_that_is_silent_now_is_waited_for_as_long_as_start_up_may_take(run):
    with run.redis("both"):
        assert run.ping("sdp")[1]
    with run.plain(SILENT):
        begin = time.monotonic()
        said, _ = run.ping("both")
        assert "learned-wrong" in said and "start-failed" in said and "PONG" not in said, said
        assert time.monotonic() - begin > 9
        said, is_carried = run.ping("both")
        assert "PONG" in said and not is_carried, said


def test_a_client_that_resets_at_once_is_no_failure_of_the_server(run):
    with run.redis("both"):
        assert run.ping("sdp")[1]
        for _ in range(5):
            said = run.says("both", sys.executable, "-c", PROBES, FAR, str(PORT))
            assert "learned-wrong" not in said and run.entries() == {ANSWERED}, said
        assert run.ping("both")[1]


# There the registry says what holds now.
def test_nothing_is_learned_of_servers_of_the_same_machine(run):
    with run.redis("both", at=run.client):
        for address in (NEAR, "127.0.0.1"):
            assert run.ping("sdp", address)[1]
    assert run.entries() == set()


def test_nothing_is_learned_without_the_setting(run, monkeypatch):
    with run.redis("both"):
        monkeypatch.setenv("XSOCK_POLICY_LEARN", "0")
        assert run.ping("sdp")[1] and run.entries() == set() and run.info() is None
        monkeypatch.setenv("XSOCK_POLICY_LEARN", "1")
        assert run.ping("sdp")[1] and run.entries() == {ANSWERED}
        monkeypatch.setenv("XSOCK_POLICY_LEARN", "yes")
        said, is_carried = run.ping("both")
        assert "PONG" in said and not is_carried, said
        assert said.count("bad-setting: XSOCK_POLICY_LEARN=yes is neither 0 nor 1") == 1, said
        done = subprocess.run([run.xsock, "info", "--policy", "any", "127.0.0.1:1"], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and "XSOCK_POLICY_LEARN: neither 0 nor 1" in done.stderr, done


def test_a_folder_that_others_may_write_to_teaches_nothing(run):
    with run.redis("both"):
        assert run.ping("sdp")[1]
        run.learned.chmod(0o777)
        said, is_carried = run.ping("both")
        assert "PONG" in said and not is_carried, said
        said, is_carried = run.ping("sdp")
        assert is_carried and "registry-unavailable" in said, said
