# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Policies and registries that are none, toward unmodified programs: one line says so, and the program
goes on. (What each wrong line of a policy is told as, and what the registry makes of each lie:
tests/unit/base/policy_test.cpp, listener_registry_test.cpp.)

    pytest-3 tests/system/stream_bad_input_test.py --build build/release
"""
import os
import random
import socket
import subprocess
import sys

import pytest

from stream_runs import TIMEOUT, carried, command

# Connects to itself and exchanges a word.
PROGRAM = """
import socket
s = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(s.getsockname())
d, _ = s.accept()
c.sendall(b"a word")
assert d.recv(100) == b"a word"
d.sendall(b"another")
assert c.recv(100) == b"another"
"""


def run(xsock, stream, *argv, **environment):
    done = subprocess.run(command(xsock, stream, *argv), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=TIMEOUT, check=False,
                          errors="replace", env=dict(os.environ, XSOCK_LOG="warn", **environment))
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stderr


def line_of(said, code):
    """The only one of the log."""
    (line,) = [line for line in said.splitlines() if line.startswith("xsock[")]
    assert " %s: " % code in line, line
    return line


def text(octets):
    return lambda path: path.write_bytes(octets)


GOOD = b"use sdp client * *:*\nuse sdp server * *:*\n"

POLICIES = {
    "nothing": (lambda path: None, "No such file"),
    "a_folder": (lambda path: path.mkdir(), "Is a directory"),
    "a_fifo": (os.mkfifo, "is no regular file"),
    "a_device": (lambda path: path.symlink_to("/dev/zero"), "is no regular file"),
    "a_loop_of_links": (lambda path: path.symlink_to(path), "symbolic links"),
    "a_wrong_word": (text(GOOD + b"use rdma client * *:*\n"), ":3: "),
    "a_wrong_port": (text(GOOD + b"\n# and\nuse tcp client * *:70000"), ":5: "),
    "a_nul": (text(GOOD + b"use tcp client \0 *:*\n"), ":3: "),
    "a_long_line": (text(GOOD + b"#" * 5000), ":3: "),
    "too_many_rules": (text(b"use sdp client * *:*\n" * 4097), ":4097: "),
    "too_long": (text(GOOD + b"#\n" * (1 << 20)), ""),
    "random_octets": (lambda path: path.write_bytes(random.Random(1).randbytes(100_000)), ":1: "),
}


@pytest.mark.parametrize("what", POLICIES)
def test_a_program_goes_on_by_the_defaults_when_its_policy_is(xsock, tmp_path, what):
    make, reason = POLICIES[what]
    path = tmp_path / "policy"
    make(path)
    said = run(xsock, "tcp", sys.executable, "-c", PROGRAM, XSOCK_POLICY=str(path))
    line = line_of(said, "bad-policy")
    assert str(path) + (reason if reason[:1] == ":" else "") in line and reason in line, line
    assert line.endswith("; the defaults hold"), line
    assert "3 passed through: policy-tcp" in said and carried(said) == 0, said


@pytest.mark.parametrize("name", ["XSOCK_STREAM", "XSOCK_POLICY"])
def test_a_program_goes_on_by_the_defaults_when_its_environment_is_wrong(xsock, name):
    argv = [xsock, "run", "--summary", "--", sys.executable, "-c", PROGRAM]
    said = run(xsock, None, *argv, **{name: "no/such/word"})
    assert name == "XSOCK_POLICY" or "none of tcp, both, sdp" in said, said
    line_of(said, "bad-policy")
    assert carried(said) == 3, "both for all: " + said


REGISTRIES = {
    "a_file": text(b"junk"),
    "a_fifo": os.mkfifo,
    "a_link_to_a_folder": lambda path: (path.with_name("x").mkdir(), path.symlink_to("x")),
    "a_folder_that_others_may_write_to": lambda path: (path.mkdir(), path.chmod(0o777)),
    "below_a_file": lambda path: None,
}


@pytest.mark.parametrize("what", REGISTRIES)
def test_a_server_is_not_listed_when_the_registry_is(xsock, tmp_path, what):
    path = tmp_path / "registry"
    REGISTRIES[what](path)
    if what == "below_a_file":
        (tmp_path / "file").touch()
        path = tmp_path / "file" / "registry"
    said = run(xsock, "both", sys.executable, "-c", PROGRAM, XSOCK_REGISTRY=str(path))
    line_of(said, "registry-unavailable")
    assert carried(said) == 1 and "1 passed through: unknown-peer" in said, said
    # The listener; what it accepts is still carried where the client is told to.
    with_line = run(xsock, "sdp", sys.executable, "-c", PROGRAM, XSOCK_REGISTRY=str(path))
    assert carried(with_line) == 3, with_line


# A listener of this process that takes no byte streams, and a registry that speaks of it.
def test_a_client_is_plain_toward_a_server_of_which_the_registry_lies(xsock, tmp_path):
    client = """
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c.sendall(b"a word")
assert c.recv(100) == b"a word"
"""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        so_cookie = 57
        cookie = int.from_bytes(listener.getsockopt(socket.SOL_SOCKET, so_cookie, 8), sys.byteorder)
        namespace = os.stat("/proc/self/ns/pid").st_ino
        folder = tmp_path / "registry" / str(port)
        folder.mkdir(parents=True)
        for lie in ((cookie + 1, os.getpid(), namespace, 0), (cookie, 1 << 30, namespace, 1),
                    (cookie, os.getpid(), namespace, 1), (cookie, os.getpid(), namespace + 1, 1),
                    (cookie, 0, 0, 0), ((1 << 64) - 1, (1 << 32) - 1, (1 << 64) - 1, (1 << 64) - 1)):
            (folder / ("%016x-%d-%d-%d-sdp" % lie)).touch()
        for name in (b"%016x" % cookie, b"%016x-%d" % (cookie, os.getpid()), b"\xff" * 255, b"-", b"%s"):
            with open(os.fsencode(folder) + b"/" + name, "wb"):
                pass
        with subprocess.Popen(
                command(xsock, "both", sys.executable, "-c", client, str(port)),
                stderr=subprocess.PIPE, text=True,
                env=dict(os.environ, XSOCK_REGISTRY=str(folder.parent))) as program:
            with listener.accept()[0] as peer:
                peer.sendall(peer.recv(100))
                said = program.communicate(timeout=TIMEOUT)[1]
    assert program.returncode == 0 and "1 passed through: unknown-peer" in said, said
