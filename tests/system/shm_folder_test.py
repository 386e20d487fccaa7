# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""XSOCK_SHM_DIR: shared memory between two network namespaces of one machine.

    pytest-3 tests/system/shm_folder_test.py --build build/release
"""
import contextlib
import json
import os
import re
import signal
import subprocess

import pytest

from machines import two_machines
from stream_runs import TIMEOUT

NEAR, FAR = "10.9.1.1", "10.9.1.2"
KEY = re.compile("[0-9a-f]{32}")


@pytest.fixture(name="machines")
def machines_fixture():
    """The client's, the server's."""
    with two_machines(NEAR, FAR) as both:
        yield both


@pytest.fixture(name="folder")
def folder_fixture(tmp_path):
    """Like /tmp: all may write, and remove what is theirs."""
    folder = tmp_path / "shm"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def names(folder):
    """Of listeners."""
    return {name for name in os.listdir(folder) if KEY.fullmatch(name)}


class Ends:
    """xsock ping between two machines; `folder` is XSOCK_SHM_DIR of an end, or None."""

    def __init__(self, xsock, machines):
        self.xsock, (self.client, self.server) = xsock, machines

    @staticmethod
    def environment(folder, mode):
        return dict(os.environ, XSOCK_SHM=mode, XSOCK_LOG="error",
                    **({} if folder is None else {"XSOCK_SHM_DIR": str(folder)}))

    @contextlib.contextmanager
    def listening(self, folder, mode="auto"):
        """A server: the process, and its port. It is ended by SIGTERM."""
        with subprocess.Popen(self.server.inside(self.xsock, "ping", "--listen", FAR + ":0"),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=self.environment(folder, mode)) as process:
            try:
                said = re.search("port ([0-9]+)", process.stdout.readline())
                assert said, "the server listens"
                yield process, said[1]
            finally:
                process.terminate()
                process.wait(TIMEOUT)

    def ping(self, folder, port, mode="auto"):
        """What a client says: path, and why it is not shared memory."""
        done = subprocess.run(
            self.client.inside(self.xsock, "ping", FAR, port, "-c", "3", "-i", "0", "--json"),
            check=False, capture_output=True, text=True, timeout=TIMEOUT,
            env=self.environment(folder, mode))
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        return said["path"], said["shm_reason"]


@pytest.fixture(name="ends")
def ends_fixture(xsock, machines):
    return Ends(xsock, machines)


def test_two_namespaces_share_memory(ends, folder):
    """With the folder at both ends, and only then; a server that ends leaves no name."""
    with ends.listening(folder) as (_, port):
        assert ends.ping(None, port) == ("tcp", "remote")
        assert ends.ping(folder, port, "require") == ("shm", "none")
        assert len(names(folder)) == 1, "the server's"
    assert names(folder) == set()
    with ends.listening(None) as (_, port):
        assert ends.ping(folder, port) == ("tcp", "peer-off")


def test_two_folders_are_not_one(ends, folder, tmp_path):
    """As on two machines: TCP."""
    with ends.listening(folder) as (_, port):
        assert ends.ping(tmp_path, port) == ("tcp", "unreachable")


def test_names_of_the_dead_are_removed(ends, folder):
    """What a killed server leaves its successor removes; names of others' files it does not."""
    (folder / "0123456789abcdef0123456789abcdef").write_text("a file")
    (folder / "notes").write_text("another")
    with ends.listening(folder) as (process, port):
        assert ends.ping(folder, port)[0] == "shm"
        (dead,) = names(folder) - {"0123456789abcdef0123456789abcdef"}
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT)
    assert dead in names(folder)
    with ends.listening(folder) as (_, port), ends.listening(folder) as (_, other_port):
        assert ends.ping(folder, port)[0] == "shm"
        assert ends.ping(folder, other_port)[0] == "shm", "that of the living one stays"
        assert ends.ping(folder, port)[0] == "shm"
        assert dead not in names(folder)
        assert len(names(folder)) == 3
    assert sorted(os.listdir(folder)) == ["0123456789abcdef0123456789abcdef", "notes"]


def check_bad_folder(ends, folder, wrong, why):
    """A line says why it is ignored."""
    if wrong == "open":
        folder.chmod(0o777)
        wrong = str(folder)
    with ends.listening(wrong) as (process, port):
        assert ends.ping(folder, port)[0] == "tcp"
        process.terminate()
        said = process.stderr.read()
    assert "XSOCK_SHM_DIR=" + wrong in said and why in said, said


def test_bad_folders(ends, folder):
    """Each is named in the log with what is wrong, and ignored."""
    for wrong, why in (("relative", "does not begin at the root"),
                       ("/" + 75 * "a", "is longer than 75 bytes"),
                       ("/proc/self/comm", "is no folder"), ("open", "has no sticky bit")):
        check_bad_folder(ends, folder, wrong, why)
