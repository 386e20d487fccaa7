# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Programs of several processes in the byte-stream mode (docs/overlay.md, "Processes").

    pytest-3 tests/system/stream_processes_test.py --build build/release
"""
import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from stream_runs import TIMEOUT, carried, command, plain, wait_for

# What each server begins with: it says its port.
LISTENS = """
import os, signal, socket, subprocess, sys, time
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
def echo(c):
    c.sendall(c.recv(5, socket.MSG_WAITALL))
def refused(call, *arguments):
    try:
        call(*arguments)
    except OSError as e:
        print("refused", e.errno, flush=True)
"""

# Each client's: it sends and wants it back, then the end of the stream.
CLIENT = """
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c.sendall(b"hello")
back = c.recv(5, socket.MSG_WAITALL)
assert back == b"hello", back
assert c.recv(1) == b"", "the end"
"""


@contextlib.contextmanager
def running(xsock, server, stream="both"):
    """A server, and its port."""
    program = subprocess.Popen(command(xsock, stream, sys.executable, "-c", LISTENS + server),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        program.port = int(program.stdout.readline())
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)  # `xsock run`, and what it has started
        program.communicate()


def client(xsock, port, text=CLIENT, stream="both"):
    """Its summary."""
    done = subprocess.run(command(xsock, stream, sys.executable, "-c", text, str(port)),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def ended(program):
    """What it printed, and its summary."""
    out, said = program.communicate(timeout=TIMEOUT)
    assert program.returncode == 0, said
    return out, said


# ---- connections that have not started belong to every process ----------------------------------

HANDS_ON = {
    # As node's cluster does.
    "message": """
one, other = socket.socketpair()
child = os.fork()
if child == 0:
    _, fds, _, _ = socket.recv_fds(one, 1, 1)
    with socket.socket(fileno=fds[0]) as c:
        echo(c)
    os._exit(0)
c, _ = s.accept()
socket.send_fds(other, [b"x"], [c.fileno()])
c.close()
os.waitpid(child, 0)
""",
    # As inetd does.
    "exec": """
c, _ = s.accept()
subprocess.run([sys.executable, "-c",
                "import socket; c = socket.socket(fileno=0); c.sendall(c.recv(5, socket.MSG_WAITALL))"],
               stdin=c, check=True)
c.close()
""",
    "exec of a program with streams of stdio": """
c, _ = s.accept()
subprocess.run(["head", "-c5"], stdin=c, stdout=c, check=True)
c.close()
""",
    "fork": """
c, _ = s.accept()
child = os.fork()
if child == 0:
    echo(c)
    os._exit(0)
c.close()
os.waitpid(child, 0)
""",
    # The parent's close() comes before the program's first call.
    "vfork, and closes": """
c, _ = s.accept()
child = subprocess.Popen(["sh", "-c", "sleep 0.3; head -c5"], stdin=c, stdout=c)
c.close()
child.wait()
""",
    "posix_spawn, and closes": """
c, _ = s.accept()
child = os.posix_spawn("/bin/sh", ["sh", "-c", "sleep 0.3; head -c5"], os.environ, file_actions=[
    (os.POSIX_SPAWN_DUP2, c.fileno(), 0), (os.POSIX_SPAWN_DUP2, c.fileno(), 1)])
c.close()
os.waitpid(child, 0)
""",
    # A helper that closes all that it has inherited.
    "no one": """
c, _ = s.accept()
os.set_inheritable(c.fileno(), True)
subprocess.run([sys.executable, "-c", "import os; os.closerange(3, 100)"], close_fds=False,
               check=True)
echo(c)
c.close()
""",
}


@pytest.mark.parametrize("how", HANDS_ON)
@pytest.mark.parametrize("stream", ["both", None])
def test_an_accepted_connection_may_be_handed_on_before_it_starts(xsock, how, stream):
    with running(xsock, HANDS_ON[how]) as server:
        said = client(xsock, server.port, stream=stream)
        assert carried(said) == (1 if stream else 0), said
        _, said = ended(server)
    assert ("fallback-not-mpa" in said) == (stream is None), said


# Children that each call listen() on one socket: which of them saved the SYNs?
EACH_LISTENS = """
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        s.listen(4)
        os.write(1, b"listens\\n")
        c, _ = s.accept()
        c.sendall(b"hello")  # first
        os.write(1, c.recv(5) + b"\\n")
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""
IS_GREETED = """
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
assert c.recv(5, socket.MSG_WAITALL) == b"hello"
c.sendall(b"world")
assert c.recv(1) == b"", "the end"
"""


def test_servers_that_speak_first_may_share_a_listener(xsock):
    with running(xsock, EACH_LISTENS) as server:
        for _ in range(2):
            assert server.stdout.readline() == "listens\n"
        for _ in range(2):
            assert carried(client(xsock, server.port, IS_GREETED)) == 1
        out, said = ended(server)
    assert out == "world\n" * 2, said


# ---- a started one belongs to the process that started it ---------------------------------------

# What its child does with its copy changes nothing.
CHILD = """
c, _ = s.accept()
c.sendall(c.recv(2, socket.MSG_WAITALL))
child = os.fork()
if child == 0:
    %s
    os._exit(0)
%s
c.sendall(c.recv(3, socket.MSG_WAITALL))
os.waitpid(child, 0)
c.close()
"""
WAITS = "os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)"
CHILDREN = {
    "closes": ("c.close()", WAITS),
    "exits": ("sys.exit()", WAITS),
    "is killed": ("time.sleep(100)", "os.kill(child, signal.SIGKILL); " + WAITS),
    "executes a program": ("os.execv('/bin/true', ['true'])", WAITS),
    "holds it": ("time.sleep(1)", "pass"),
    "runs commands": ("subprocess.run('true; echo | cat', shell=True, close_fds=False)", WAITS),
}


@pytest.mark.parametrize("what", CHILDREN)
def test_a_child_changes_nothing_that(xsock, what):
    with running(xsock, CHILD % CHILDREN[what]) as server:
        assert carried(client(xsock, server.port)) == 1
        out, said = ended(server)
    assert "refused" not in out + said and carried(said) == 2, said


# As in redis while it saves: the peer learns of the end though a child still has the socket, which
# TCP would not tell it; also where the end is a reset.
@pytest.mark.parametrize("unread", [False, True])
def test_the_owner_closes_while_a_child_has_a_copy(xsock, unread):
    with running(xsock, """
c, _ = s.accept()
echo(c)
child = os.fork()
if child == 0:
    sys.stdin.readline()
    os._exit(0)
c.recv(1, socket.MSG_PEEK)
if not %s:
    c.recv(1)
c.close()
os.waitpid(child, 0)
""" % unread) as server:
        said = client(xsock, server.port, """
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c.sendall(b"hello")
assert c.recv(5, socket.MSG_WAITALL) == b"hello"
c.sendall(b"x")
try:
    assert c.recv(1) == b"" and not %s, "the end"
except ConnectionResetError:
    assert %s, "a reset"
""" % (unread, unread))
        assert carried(said) == 1 and server.poll() is None


USES = {
    "sends": ("refused(c.send, b'x')", 1),
    "receives, twice": ("refused(c.recv, 1); refused(c.recv, 1)", 1),
    "gets another number": ("refused(os.dup2, c.fileno(), 0)", 1),
}


@pytest.mark.parametrize("what", USES)
def test_a_child_is_refused_that(xsock, what):
    with running(xsock, CHILD % (USES[what][0], WAITS)) as server:
        assert carried(client(xsock, server.port)) == 1
        out, said = ended(server)
    count = USES[what][0].count("refused")
    assert out == "refused 1\n" * count, out  # EPERM
    assert "%d uses refused: handed-on" % count in said and carried(said) == 2, said


REFUSED = {
    "in a message": ("refused(socket.send_fds, one, [b'x'], [c.fileno()])", 95),  # EOPNOTSUPP
    "by exec": ("refused(c.set_inheritable, True)", 1),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_started_connection_is_not_handed_on(xsock, monkeypatch, how):
    call, error = REFUSED[how]
    monkeypatch.setenv("XSOCK_LOG", "warn")
    with running(xsock, """
one, other = socket.socketpair()
c, _ = s.accept()
echo(c)
%s
c.close()
""" % call) as server:
        port = server.port
        assert carried(client(xsock, port)) == 1
        out, said = ended(server)
    name = os.path.basename(sys.executable)
    assert out == "refused %d\n" % error and "1 uses refused: handed-on" in said, (out, said)
    assert said.count("handed-on:") == 1 and "'use tcp server %s *:%d'" % (name, port) in said, said


# ---- what exec() and exit() do with what was sent -----------------------------------------------

# Accepts, and reads, a moment later; says how much came before the end.
LATE = """
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
accepts_after, reads_after = map(float, sys.stdin.readline().split())
time.sleep(accepts_after)
c, _ = s.accept()
if reads_after:
    c.recv(1, socket.MSG_PEEK)
    time.sleep(reads_after)
count = 0
while some := c.recv(1 << 20):
    count += len(some)
print(count)
"""
LEAVES = """
import os, socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
c.sendall(bytes(%d))
if %s:
    c.close()
sys.stderr.flush()
%s
"""
ENDS = {"execs": "os.execv('/bin/true', ['true'])", "exits": "sys.exit()"}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("size, waits", [
    (5, "0 0"), (300_000, "0 1.8"), (1000, "1.8 0"), (0, "0 0"), (0, "0.3 0")])
def test_what_was_sent_arrives_though_the_program(xsock, how, closes, size, waits):
    with running(xsock, LATE) as server:
        server.stdin.write(waits + "\n")
        server.stdin.flush()
        assert carried(client(xsock, server.port, LEAVES % (size, closes, ENDS[how]))) == 1
        out, said = ended(server)
    assert out == "%d\n" % size, said


NO_PROGRAMS = """
import ctypes, tempfile
def made(text, mode=0o700):
    with tempfile.NamedTemporaryFile(delete=False, dir=sys.stdin.readline().strip()) as file:
        file.write(text)
    os.chmod(file.name, mode)
    return file.name
"""
FAILS = {
    "not there": ("refused(os.execv, '/nonexistent/true', ['true'])", 2),
    "nowhere": ("refused(os.execvp, 'no-such-program-anywhere', ['x'])", 2),
    "a folder": ("refused(os.execv, '/tmp', ['tmp'])", 13),
    "no right": ("refused(os.execv, made(b'#!/bin/sh\\n', 0o600), ['x'])", 13),
    "empty": ("refused(os.execv, made(b''), ['x'])", 8),
    "text": ("refused(os.execve, made(b'words'), ['x'], {})", 8),
    "no interpreter": ("refused(os.execv, made(b'#! /nonexistent/sh -x\\n'), ['x'])", 2),
    "one long argument": ("refused(os.execv, '/bin/true', ['true', 'x' * (1 << 20)])", 7),
    "many": ("refused(os.execve, '/bin/true', ['true'] + ['x' * 1000] * 10000, {})", 7),
    "by number": ("refused(os.execve, os.open(made(b'words'), os.O_RDONLY), ['x'], {})", 8),
}


@pytest.mark.parametrize("what", FAILS)
def test_a_connection_goes_on_behind_an_exec_that_cannot_be(xsock, tmp_path, what):
    call, error = FAILS[what]
    with running(xsock, NO_PROGRAMS + """
c, _ = s.accept()
half = c.recv(2, socket.MSG_WAITALL)  # it has started
%s
c.sendall(half + c.recv(3, socket.MSG_WAITALL))
c.close()
""" % call) as server:
        server.stdin.write("%s\n" % tmp_path)
        server.stdin.flush()
        assert carried(client(xsock, server.port)) == 1
        out, said = ended(server)
    assert out == "refused %d\n" % error, said


# What is executed all the same: a shell takes it, or an interpreter.
@pytest.mark.parametrize("call", [
    "ctypes.CDLL(None).execlp(made(b'echo %d\\n').encode(), b'x', None)", "os.execv(made(b'#!/bin/sh\\necho %d\\n'), ['x'])",
    "os.execve(os.open('/bin/sh', os.O_RDONLY), ['sh', '-c', 'echo %d'], {})",
    "os.execv('/bin/sh', ['sh', '-c', 'echo %d', 'x' * 100000])"])
def test_a_connection_ends_with_an_exec_that_can_be(xsock, tmp_path, call):
    with running(xsock, NO_PROGRAMS + "c, _ = s.accept()\necho(c)\n" + call % 17) as server:
        server.stdin.write("%s\n" % tmp_path)
        server.stdin.flush()
        assert carried(client(xsock, server.port)) == 1
        out, said = ended(server)
    assert out == "17\n", said


# The sending half ends ahead of exec(), which then fails: a file that is being written.
def test_a_send_behind_an_exec_that_failed_is_refused(xsock, tmp_path):
    with running(xsock, NO_PROGRAMS + """
import shutil
name = made(b"")
shutil.copy("/bin/true", name)
writes = open(name, "ab")
c, _ = s.accept()
echo(c)
refused(os.execv, name, ["x"])
refused(c.send, b"more")
c.close()
""") as server:
        server.stdin.write("%s\n" % tmp_path)
        server.stdin.flush()
        assert carried(client(xsock, server.port)) == 1
        out, said = ended(server)
    assert out == "refused 26\nrefused 32\n", said


# ---- what a server that does not block sends first ------------------------------------------------

LISTENS_FIRST = """
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
said = c.recv(5, socket.MSG_WAITALL)
assert said == b"hello", said
assert c.recv(1) == b"", "the end"
"""


def test_first_words_arrive_though_the_server_exits(xsock):
    with running(xsock, """
c, _ = s.accept()
c.setblocking(False)
c.send(b"hello")
os._exit(0)
""") as server:
        assert carried(client(xsock, server.port, LISTENS_FIRST)) == 1
        ended(server)


def is_stopped(stat):
    with open(stat, encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


# The server has answered the Request and may send nothing before the client's first frame.
@pytest.mark.parametrize("end", ("_exit(0)", 'execv("/bin/true", ["true"])'), ids=("exit", "exec"))
def test_first_words_wait_for_a_client_that_is_stopped(xsock, end):
    stops = "print(os.getpid(), flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\n"
    text = "import os, signal" + LISTENS_FIRST.replace("said =", stops + "said =", 1)
    with running(xsock, """
c, _ = s.accept()
c.setblocking(False)
sys.stdin.readline()
c.send(b"hello")
os.%s
""" % end) as server:
        program = subprocess.Popen(command(xsock, "both", sys.executable, "-c", text,
                                           str(server.port)),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        try:
            stat = "/proc/%d/stat" % int(program.stdout.readline())
            wait_for("the client to be stopped", lambda: is_stopped(stat))
            server.stdin.write("\n")
            server.stdin.flush()
            with pytest.raises(subprocess.TimeoutExpired):
                server.wait(0.5)
            os.killpg(program.pid, signal.SIGCONT)
            _, said = ended(program)
            assert carried(said) == 1
            ended(server)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.communicate()


def test_first_words_arrive_though_another_file_takes_the_number(xsock):
    with running(xsock, """
c, _ = s.accept()
c.setblocking(False)
c.send(b"hello")
with open("/dev/null") as null:
    os.dup2(null.fileno(), c.fileno())
sys.stdin.readline()
""") as server:
        assert carried(client(xsock, server.port, LISTENS_FIRST)) == 1
        server.stdin.write("\n")
        ended(server)


def test_nothing_is_sent_behind_an_early_shutdown(xsock):
    with running(xsock, """
c, _ = s.accept()
c.setblocking(False)
c.send(b"hello")
c.shutdown(socket.SHUT_WR)
refused(c.send, b"more")
c.setblocking(True)
c.recv(1)
c.close()
""") as server:
        assert carried(client(xsock, server.port, LISTENS_FIRST)) == 1
        out, said = ended(server)
    assert out == "refused 32\n", said


# ---- what idle connections cost -------------------------------------------------------------------

def times_run(pid):
    """How often a thread of the process was given a processor."""
    times = 0
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, thread), encoding="ascii") as stat:
            times += int(stat.read().split()[2])
    return times


IDLES = """
import os, select, socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c.sendall(b"hello")
assert c.recv(5, socket.MSG_WAITALL) == b"hello"
print(os.getpid(), flush=True)
waits = select.poll()
waits.register(c, select.POLLIN)
assert waits.poll()
assert c.recv(5) == b"again"
"""


def test_no_thread_runs_while_connections_are_idle(xsock):
    with running(xsock, """
c, _ = s.accept()
echo(c)
print(os.getpid(), flush=True)
assert c.recv(1) == b"", "the end"
""") as server, running(xsock, """
c, _ = s.accept()
echo(c)
sys.stdin.readline()
c.send(b"again")
""") as talker:
        clients = [subprocess.Popen(command(xsock, "both", sys.executable, "-c", IDLES,
                                            str(end.port)),
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    start_new_session=True) for end in (server, talker)]
        try:
            idle = [int(end.stdout.readline()) for end in (clients[0], clients[1], server)]

            def rests():
                before = [times_run(pid) for pid in idle]
                time.sleep(2.5)
                return before == [times_run(pid) for pid in idle]

            wait_for("some seconds in which no thread runs", rests)
            talker.stdin.write("\n")  # what comes then is seen as ever
            talker.stdin.flush()
            assert carried(ended(clients[1])[1]) == 1
        finally:
            for client_ in clients:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(client_.pid, signal.SIGKILL)
                client_.communicate()


FEW_DESCRIPTORS = """
import os, resource, socket, sys
port = int(sys.argv[1])
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
held = []
try:
    while True:
        held.append(os.dup(2))
except OSError:
    pass
for _ in range(%d):
    os.close(held.pop())
c = socket.socket()
c.connect(("127.0.0.1", port))
c.sendall(b"hello")
assert c.recv(5, socket.MSG_WAITALL) == b"hello"
"""


def test_a_client_with_few_descriptors_left_is_carried_or_counted(xsock):
    with running(xsock, """
while True:
    c, _ = s.accept()
    echo(c)
    c.close()
""") as server:
        lefts = {left: client(xsock, server.port, FEW_DESCRIPTORS % left) for left in range(2, 20)}
    for left, said in lefts.items():  # with 1 the policy itself cannot be loaded
        counted = carried(said) + sum(plain(said).get(reason, 0) for reason in
                                      ("unknown-peer", "fallback-no-watch"))
        assert counted == 1, (left, said)
    assert "fallback-no-watch" in lefts[5], lefts[5]
    assert carried(lefts[19]) == 1, lefts[19]
