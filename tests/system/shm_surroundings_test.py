# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Shared memory where something stands between the two processes: namespaces, users, address
translation, seccomp. Each row says which way data go, why, and that `require` says the same.

    pytest-3 tests/system/shm_surroundings_test.py --build build/release
"""
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading

import pytest

from stream_runs import TIMEOUT

ADDRESS = "127.0.0.1"
REFUSE = (sys.executable, "-B",
          os.path.join(os.path.dirname(__file__), os.pardir, "support", "refuse_call.py"))
NOBODY = ("setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups", "--")
MEMORY = ("shm", "none")


def environment(mode, more):
    # A machine under load may let either end of the link wait.
    return dict(os.environ, XSOCK_SHM=mode, XSOCK_LOG="error", XSOCK_SHM_TIMEOUT_MS="30000", **more)


class Ends:
    """xsock ping at both ends; `under` is a command that an end's program is run by."""

    def __init__(self, xsock):
        self.xsock = xsock

    @contextlib.contextmanager
    def listening(self, under=(), **more):
        """A server; answers its port."""
        with subprocess.Popen([*under, self.xsock, "ping", "--listen", ADDRESS + ":0"],
                              stdout=subprocess.PIPE, text=True,
                              env=environment("auto", more)) as process:
            try:
                said = re.search("port ([0-9]+)", process.stdout.readline())
                assert said, "the server listens"
                yield said[1]
            finally:
                process.kill()  # unshare passes on no other signal
                process.wait(TIMEOUT)

    def ping(self, port, under=(), mode="auto", **more):
        return subprocess.run([*under, self.xsock, "ping", ADDRESS, port, "-c", "3", "-i", "0",
                               "--json"], check=False, capture_output=True, text=True,
                              timeout=TIMEOUT, env=environment(mode, more))

    def check(self, expected, port, under=(), **more):
        """Path and reason; and what `require` does then."""
        done = self.ping(port, under, **more)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["path"], said["shm_reason"], said["lost"]) == (*expected, 0)
        done = self.ping(port, under, "require", **more)
        if expected == MEMORY:
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["path"] == "shm"
        else:
            assert done.returncode == 1, done.stdout
            assert os.strerror(93) in done.stderr, done.stderr  # EPROTONOSUPPORT


@pytest.fixture(name="ends")
def ends_fixture(xsock):
    return Ends(xsock)


def need(*command):
    """Skips where it fails: this machine does not permit it."""
    if shutil.which(command[0]) is None:
        pytest.skip("%s is not there" % command[0])
    if subprocess.run([*command, "true"], check=False, timeout=TIMEOUT,
                      capture_output=True).returncode != 0:
        pytest.skip("not permitted: " + " ".join(command))


# Namespaces that leave the network as it is, and a user namespace that maps the user.
SHARED_BY = {
    "pid": ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
    "mount": ("unshare", "--mount"),
    "ipc_and_uts": ("unshare", "--ipc", "--uts"),
    "user": ("unshare", "--user", "--map-root-user"),
}


@pytest.mark.parametrize("kind", SHARED_BY)
def test_namespaces_that_share_memory(ends, kind):
    """The client in one, then the server."""
    under = SHARED_BY[kind]
    need(*under)
    with ends.listening() as port:
        ends.check(MEMORY, port, under)
    with ends.listening(under) as port:
        ends.check(MEMORY, port)


def test_rootless_user_namespace(ends):
    """An ordinary user makes it, as rootless containers do; both ends are that user's."""
    under = (*NOBODY, *SHARED_BY["user"])
    need(*under)
    with ends.listening(NOBODY) as port:
        ends.check(MEMORY, port, under)


def test_user_who_is_not_mapped(ends):
    """Seen as 65534 by the other end, which is nobody's number here."""
    under = ("unshare", "--user")
    need(*under)
    with ends.listening() as port:
        ends.check(("tcp", "user"), port, under)


def test_other_user(ends):
    """Only those that XSOCK_SHM_USERS admits, at both ends."""
    need(*NOBODY)
    root, other = {"XSOCK_SHM_USERS": "0"}, {"XSOCK_SHM_USERS": "65533"}
    with ends.listening() as port:
        ends.check(("tcp", "user"), port, NOBODY)
        ends.check(("tcp", "user"), port, NOBODY, **root)
    with ends.listening(**other) as port:
        ends.check(("tcp", "user"), port, NOBODY)
        ends.check(MEMORY, port, NOBODY, **root)


def forward(listener, port):
    """Each connection to `listener` is passed on to that port until `listener` is shut down."""
    def pump(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    threads, sockets = [], []
    with contextlib.suppress(OSError):
        while True:
            near = listener.accept()[0]
            far = socket.create_connection((ADDRESS, int(port)), TIMEOUT)
            sockets += [near, far]
            threads += [threading.Thread(target=pump, args=pair)
                        for pair in ((near, far), (far, near))]
            for thread in threads[-2:]:
                thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    for end in sockets:
        end.close()


def test_proxy(ends):
    """Both ends are on this host, but not of one connection."""
    with ends.listening() as port, socket.create_server((ADDRESS, 0)) as listener:
        proxy = threading.Thread(target=forward, args=(listener, port))
        proxy.start()
        try:
            ends.check(("tcp", "addresses"), str(listener.getsockname()[1]))
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            proxy.join(TIMEOUT)


def test_address_translation(ends):
    """A port of the loopback that the kernel leads to another."""
    if os.environ.get("XSOCK_OWN_NETWORK") != "1":
        pytest.skip("no network namespace of its own")
    if shutil.which("nft") is None:
        pytest.skip("nft is not there")
    with ends.listening() as port:
        rules = ("table ip shm {\nchain out {\ntype nat hook output priority -100;\n"
                 "tcp dport 7 dnat to %s:%s;\n}\n}\n" % (ADDRESS, port))
        subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True, timeout=TIMEOUT)
        try:
            ends.check(("tcp", "addresses"), "7")
        finally:
            subprocess.run(["nft", "delete", "table", "ip", "shm"], check=True, timeout=TIMEOUT)


@pytest.mark.parametrize("call, at_client, at_server", [
    # The initiator makes the memory, and connects by an AF_UNIX socket; a responder without one
    # has nothing to offer.
    ("memfd_create", ("tcp", "unreachable"), MEMORY),
    ("unix-sockets", ("tcp", "unreachable"), ("tcp", "peer-off")),
])
def test_forbidden_calls(ends, call, at_client, at_server):
    """By a seccomp filter at one end."""
    under = (*REFUSE, call)
    need(*under)
    with ends.listening() as port:
        ends.check(at_client, port, under)
    with ends.listening(under) as port:
        ends.check(at_server, port)
