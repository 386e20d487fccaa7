# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Unmodified servers and clients under `xsock run --stream`: beginning and ending them, and what
their exit summaries must say. The tests of programs (stream_*_programs_test.py) use it.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from stream_runs import (CUT, RESET, TIMEOUT, carried, command, listens, on_the_way, plain,
                         wait_for)

# Who runs under xsock: the server, the client. A peer without it is the kernel's TCP.
ENDS = pytest.mark.parametrize("ends", [("both", "both"), ("both", None), (None, "both")],
                               ids=["carried", "from-a-plain-client", "to-a-plain-server"])


def program(name):
    """Its path; the test is skipped where it is not installed."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        pytest.skip("%s is not there" % name)
    return found


@pytest.fixture(name="open_path")
def open_path_fixture():
    """As tmp_path, for servers that give up their rights: pytest closes its folders to others again
    whenever one of it starts."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield pathlib.Path(name)


class Summary:
    """What `xsock run --summary` printed behind the program's own words."""

    def __init__(self, said):
        self.said = said
        first = re.search(r"xsock: (\d+) TCP sockets in (\d+) process(?:es)?: (\d+) connected, "
                          r"(\d+) accepted, (\d+) listening", said)
        numbers = [int(n) for n in first.groups()] if first else [0] * 5
        self.sockets, self.processes, self.connected, self.accepted, self.listening = numbers
        self.carried, self.plain = carried(said), plain(said)

    def is_all_carried(self, own_connections=True):
        """All that were used: programs make sockets to learn what the kernel can do. The own
        connections of a server are those by which apache2 has its processes wake up and end."""
        used = self.accepted + self.listening + (self.connected if own_connections else 0)
        return self.carried >= used and not set(self.plain) - {"did not ask for DDPMODE"}

    def plain_by(self, start):
        """Sockets that stayed plain for reasons that begin so."""
        return sum(n for reason, n in self.plain.items() if reason.startswith(start))


def descendants(pid):
    """Of a process, the nearest first."""
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread), encoding="ascii") as file:
                found += [int(child) for child in file.read().split()]
    return found + [each for child in found for each in descendants(child)]


class Running:
    """A program in the background; what it says goes to files in `folder`."""

    def __init__(self, xsock, stream, folder, *argv, environment=None, stdin=subprocess.DEVNULL,
                 stdout=None, name=None):
        self.name = name or os.path.basename(argv[0])
        self.stream = stream
        self.out_path = folder / (self.name + ".out")
        self.err_path = folder / (self.name + ".err")
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                command(xsock, stream, *argv), stdin=stdin, stdout=stdout or out, stderr=err,
                cwd=folder, env=dict(os.environ, **(environment or {})),
                start_new_session=True)  # apache2 sends signals to its group

    @property
    def pid(self):
        """Of the program itself, not of xsock."""
        if self.stream is None:
            return self.process.pid
        return descendants(self.process.pid)[0]

    def said(self):
        return (self.out_path.read_text(errors="replace") +
                self.err_path.read_text(errors="replace"))

    def wait(self, status=0):
        """Until it ends by itself. @return its summary"""
        self.process.wait(TIMEOUT)
        assert status is None or self.process.returncode == status, self.said()
        return Summary(self.said())

    def end(self, how=signal.SIGTERM, status=None):
        """@return its summary"""
        self.process.send_signal(how)
        return self.wait(status)

    def kill(self):
        """With all that it started."""
        for pid in [*descendants(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def running(*arguments, **named):
    it = Running(*arguments, **named)
    try:
        yield it
    finally:
        it.kill()


def is_listed(xsock, port):
    """A client of `both` would be carried to that port of 127.0.0.1."""
    done = subprocess.run([xsock, "info", "--policy", "any", "127.0.0.1:%d" % port, "--json"],
                          stdout=subprocess.PIPE, text=True, timeout=TIMEOUT, check=True)
    return '"sdp"' in done.stdout.partition('"peer"')[2]


def await_port(xsock, server, port, takes_streams=True):
    """Until clients reach it, and under xsock until they are carried."""
    def there():
        assert server.process.poll() is None, server.said()
        return listens(port) and (
            server.stream is None or not takes_streams or is_listed(xsock, port))
    wait_for("listener of %s at %d" % (server.name, port), there)


def run(xsock, stream, *argv, status=0, **named):
    """A program until its end. @return what it printed, and its summary"""
    done = subprocess.run(command(xsock, stream, *argv), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=TIMEOUT, check=False, **named)
    said = done.stderr.decode(errors="replace")
    assert status is None or done.returncode == status, (done.returncode, done.stdout[-2000:], said)
    return done.stdout, Summary(said)


def check_client(ends, summary, connections=1):
    """Of a client that made at least so many connections to one server."""
    if ends[1] is None:
        return
    assert summary.connected >= connections, summary.said
    if ends[0] is None:
        assert summary.carried == summary.listening and \
            summary.plain_by("unknown-peer") >= connections, summary.said
    else:
        assert summary.is_all_carried(), summary.said


def check_server(ends, summary, connections=1):
    """Of a server that took at least so many connections of one kind of client. @return the same"""
    if ends[0] is None:
        return summary
    assert summary.accepted >= connections, summary.said
    if ends[1] is None:
        assert summary.plain_by("fallback-") >= connections, summary.said
    else:
        assert summary.is_all_carried(own_connections=False), summary.said
    return summary


def note(row, ends, package, what, *summaries):
    """A row of docs/compatibility.md; `row` is the fixture. When all else was right."""
    if ends[1] is None:
        what += ", client plain"
    elif ends[0] is None:
        what += ", server plain"
    row(package, what, *(each.said for each in summaries), one_end=None in ends)


# ---- what is killed and stopped --------------------------------------------

CHAOS = [("server", signal.SIGKILL), ("client", signal.SIGKILL), ("server", signal.SIGSTOP),
         ("client", signal.SIGSTOP), ("way", RESET), ("way", CUT)]
CHAOS_NAMES = ["server-killed", "client-killed", "server-stopped", "client-stopped", "way-reset",
               "way-cut"]
STOPPED_S = 3


def chaos(test):
    """Runs it for each way in which an end of a connection, or what is between both, is lost, or
    does not go on."""
    return pytest.mark.parametrize(("victim", "how"), CHAOS, ids=CHAOS_NAMES)(test)


def goes_on(how):
    """After a while."""
    return how in (signal.SIGSTOP, CUT)


def hit(victim, how):
    """All processes of that program; those that are stopped go on after a while."""
    pids = [victim.process.pid] if victim.stream is None else descendants(victim.process.pid)
    assert pids, victim.said()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
    if how == signal.SIGSTOP:
        time.sleep(STOPPED_S)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def meet(server, client, victim, how):
    """Has it happen, and waits until the client has ended."""
    if victim != "way":
        hit(server if victim == "server" else client, how)
        client.process.wait(TIMEOUT)
    elif how == RESET:
        with on_the_way(how):
            client.process.wait(TIMEOUT)
    else:
        with on_the_way(how):
            time.sleep(STOPPED_S)
        client.process.wait(TIMEOUT)


def check_chaos(server, client, victim, how, sent, got_path):
    """Of a client that has been sent some of `sent`, and writes what it gets into that file."""
    wait_for("first bytes", lambda: got_path.exists() and got_path.stat().st_size > 0)
    assert client.process.poll() is None, "it has ended before: " + client.said()
    meet(server, client, victim, how)
    if (victim, how) != ("client", signal.SIGKILL):  # which leaves no last words
        check_client(("both", "both"), Summary(client.said()))
    got = got_path.read_bytes()
    assert got == sent[:len(got)], "a byte is wrong"
    if goes_on(how):
        assert client.process.returncode == 0 and len(got) == len(sent), client.said()
    else:
        assert client.process.returncode != 0 and len(got) < len(sent), client.said()
