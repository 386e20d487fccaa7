# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Unmodified programs in the byte-stream mode: `xsock run --stream`. What was carried is what their
exit summaries say.

    pytest-3 tests/system/stream_programs_test.py --build build/release
"""
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from stream_runs import LISTENS, NGINX_HTTP, NGINX_MAIN, TIMEOUT, carried, command

# Echoes one connection after another until its last word is "end"; says its port first.
SERVER = LISTENS + """
word = b""
while word != b"end":
    c, _ = s.accept()
    try:
        size = int.from_bytes(c.recv(4, socket.MSG_WAITALL), "big")
        word = c.recv(size, socket.MSG_WAITALL)
        c.sendall(word)
    except ConnectionResetError:
        pass
    c.close()
"""

# Sends its word and wants it back.
CLIENT = """
import socket, sys
word = bytes(range(256)) * 4096 if sys.argv[2] == "pattern" else sys.argv[2].encode()
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c.sendall(len(word).to_bytes(4, "big") + word)
back = c.recv(len(word), socket.MSG_WAITALL)
assert back == word, (len(back), len(word))
assert c.recv(1) == b"", "the end"
"""

# Sends 20 MB as programs that wait for edges do: after a short write it is the next edge's turn.
EDGES = """
import select, socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c.setblocking(False)
e = select.epoll()
e.register(c, select.EPOLLOUT | select.EPOLLET)
word = bytes(20_000_000)
left = memoryview(len(word).to_bytes(4, "big") + word)
while left:
    assert e.poll(60), "no edge, %d bytes left" % len(left)
    left = left[c.send(left):]
c.setblocking(True)
assert c.recv(len(word), socket.MSG_WAITALL) == word
"""

# Sends more than its peer has room for and ends: by sys.exit, os._exit, or os._exit behind close().
LEAVES = """
import os, socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
c.sendall(bytes(range(256)) * 1200)
if sys.argv[2] == "close":
    c.close()
sys.stderr.flush()
(sys.exit if sys.argv[2] == "exit" else os._exit)(0)
"""

# Reads nothing for longer than exit() waits for others, then all, and says how many there were.
LATE_READER = """
import socket, sys, time
s = socket.create_server(("127.0.0.1", 0))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
print(s.getsockname()[1], flush=True)
c, _ = s.accept()
c.recv(1)
time.sleep(1.8)
count = 1
while some := c.recv(1 << 20):
    count += len(some)
print(count)
"""

# Sends a file by sendfile(), and copies what comes back to another by splice(), through a pipe.
SENDS_A_FILE = """
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def splice(one, other, count):
    n = libc.splice(one, None, other, None, ctypes.c_size_t(count), 0)
    assert n >= 0, os.strerror(ctypes.get_errno())
    return n
name = sys.argv[2]
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
size = left = os.stat(name).st_size
c.sendall(size.to_bytes(4, "big"))
with open(name, "rb") as file:
    assert c.sendfile(file) == size and file.tell() == size
pipe, into = os.pipe()
with open(name + ".back", "wb") as back:
    while left:
        part = splice(c.fileno(), into, left)
        assert part > 0, "the end, %d bytes left" % left
        left -= part
        while part:
            part -= splice(pipe, back.fileno(), part)
    assert splice(c.fileno(), into, 1) == 0, "the end"
"""

NGINX = NGINX_MAIN + """
events {{ }}
http {{
    access_log {folder}/access.log;
""" + NGINX_HTTP + """
    server {{
        listen 127.0.0.1:{port};
        root {folder};
    }}
}}
"""


class Server:
    def __init__(self, xsock, stream, policy=None, environment=None, text=SERVER):
        self.said = None
        self.process = subprocess.Popen(
            command(xsock, stream, sys.executable, "-c", text, policy=policy),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, **(environment or {})))
        self.port = int(self.process.stdout.readline())

    def end(self, xsock, stream):
        """Its summary."""
        client(xsock, stream, self.port, "end")
        _, self.said = self.process.communicate(timeout=TIMEOUT)
        assert self.process.returncode == 0, self.said
        return self.said


@contextlib.contextmanager
def server(*arguments, **named):
    started = Server(*arguments, **named)
    try:
        yield started
    finally:
        if started.process.returncode is None:
            for pid in children(started.process.pid):  # which has the pipes, too
                os.kill(pid, signal.SIGKILL)
            started.process.kill()
            started.process.communicate()


def client(xsock, stream, port, word, policy=None, status=0, text=CLIENT):
    done = subprocess.run(
        command(xsock, stream, sys.executable, "-c", text, str(port), word, policy=policy),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == status, done.stderr
    return done.stderr


def test_both_ends_carried(xsock):
    with server(xsock, "sdp") as end:
        for word in ("hello", "pattern"):
            assert carried(client(xsock, "sdp", end.port, word)) == 1
        assert carried(end.end(xsock, "sdp")) == 4, "three connections and the listener"


# Gathers small sends behind a first one; fills the peer's buffer, for credit; then waits.
COUNTED = """
import socket, sys
s = socket.create_server(("127.0.0.1", 0))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
one = socket.create_connection(s.getsockname())
one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
other, _ = s.accept()
for _ in range(1000):
    one.send(bytes(10))
one.sendall(bytes(200_000))
other.recv(5000, socket.MSG_WAITALL)
print("ready", flush=True)
sys.stdin.readline()
"""


def test_stat_shows_what_a_stream_counts(xsock):
    program = subprocess.Popen(command(xsock, "sdp", sys.executable, "-c", COUNTED),
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "ready\n"
        pid = str(children(program.pid)[0])
        report = json.loads(subprocess.run([xsock, "stat", "--json", "--pid", pid], check=True,
                                           stdout=subprocess.PIPE, timeout=TIMEOUT).stdout)
        said = subprocess.run([xsock, "stat", "-l", "--pid", pid], check=True, text=True,
                              stdout=subprocess.PIPE, timeout=TIMEOUT).stdout
    finally:
        program.communicate("\n", timeout=TIMEOUT)
    ends = {c["negotiated"]["initiator"]: c for c in report["processes"][0]["connections"]}
    assert all(c["wire"] == "sdp" and c["mode"] == "stream" for c in ends.values()), ends
    sent, received = ends[True]["stream"], ends[False]["stream"]
    assert sent["sent_bytes"] == 210_000 and sent["received_bytes"] == 0, sent
    assert 0 < sent["sends_gathered"] < 1000 and sent["credit_waits"] > 0, sent
    assert received["received_bytes"] == 5000 and received["sent_bytes"] == 0, received
    assert "%d sends were gathered with others" % sent["sends_gathered"] in said, said


def test_edges_follow_short_writes(xsock):
    with server(xsock, "sdp") as end:
        assert carried(client(xsock, "sdp", end.port, "", text=EDGES)) == 1
        end.end(xsock, "sdp")


@pytest.mark.parametrize("how", ["exit", "_exit", "close"])
def test_what_a_program_sent_arrives_though_it_ends(xsock, how):
    reader = subprocess.Popen(
        command(xsock, "sdp", sys.executable, "-c", LATE_READER),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = int(reader.stdout.readline())
        assert carried(client(xsock, "sdp", port, how, text=LEAVES)) == 1
        out, said = reader.communicate(timeout=TIMEOUT)
    finally:
        reader.kill()
    assert (out.strip(), reader.returncode) == (str(256 * 1200), 0), said


def test_a_file_is_sent_and_copied_back(xsock, tmp_path):
    sent = tmp_path / "file"
    sent.write_bytes(random.Random(1).randbytes(5_000_000))
    with server(xsock, "sdp") as end:
        assert carried(client(xsock, "sdp", end.port, str(sent), text=SENDS_A_FILE)) == 1
        end.end(xsock, "sdp")
    assert (tmp_path / "file.back").read_bytes() == sent.read_bytes()


def test_nginx_sends_files(xsock, tmp_path):
    nginx = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if nginx is None or shutil.which("curl") is None:
        pytest.skip("nginx or curl is not there")
    large = random.Random(2).randbytes(5_000_000)
    (tmp_path / "large").write_bytes(large)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (tmp_path / "nginx.conf").write_text(NGINX.format(
        folder=tmp_path, port=port, user="user root;" if os.getuid() == 0 else ""))
    with subprocess.Popen(
            command(xsock, "sdp", nginx, "-e", str(tmp_path / "error.log"), "-p", str(tmp_path),
                    "-c", str(tmp_path / "nginx.conf")),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as program:
        try:
            curl = ["curl", "-sS", "--fail", "--retry", "20", "--retry-connrefused",
                    "--retry-delay", "1"]
            address = "http://127.0.0.1:%d/large" % port
            for n in range(3):
                got = tmp_path / ("got%d" % n)
                done = subprocess.run(
                    command(xsock, "sdp", *curl, "-r", "%d-" % n, "-o", str(got), address),
                    stderr=subprocess.PIPE, text=True, timeout=TIMEOUT, check=False)
                assert done.returncode == 0 and carried(done.stderr) >= 1, done.stderr
                assert got.read_bytes() == large[n:]
        finally:
            program.terminate()
            said = program.communicate(timeout=TIMEOUT)[1]
    errors = (tmp_path / "error.log").read_text()
    assert "sendfile" not in errors and carried(said) >= 1, (said, errors)


def test_a_server_of_both_takes_each_peer_as_it_comes(xsock):
    with server(xsock, "both") as end:
        assert carried(client(xsock, "sdp", end.port, "pattern")) == 1
        assert carried(client(xsock, None, end.port, "pattern")) == 0
        said = end.end(xsock, "sdp")
        assert carried(said) == 3 and "1 passed through: fallback-not-mpa" in said, said


# Both ends are writable when accept() has returned, and an edge comes once.
EDGES_AT_THE_START = """
import select, socket
for _ in range(100):
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(listener.getsockname())
    server, _ = listener.accept()
    with select.epoll() as edges:
        both = sorted((s.fileno(), select.EPOLLOUT) for s in (client, server))
        for s in (client, server):
            edges.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        assert sorted(edges.poll(10, 4)) == both
        assert edges.poll(0.005, 4) == []
    for s in (client, server, listener):
        s.close()
"""


@pytest.mark.parametrize("stream", ["both", None])
def test_both_ends_are_writable_at_once(xsock, stream):
    done = subprocess.run(command(xsock, stream, sys.executable, "-c", EDGES_AT_THE_START),
                          stderr=subprocess.PIPE, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0 and (stream is None or carried(done.stderr) == 300), done.stderr


# As hiredis learns what became of its connection.
CONNECTS_AGAIN = """
import select, socket, sys
c = socket.socket()
c.setblocking(False)
to = ("127.0.0.1", int(sys.argv[1]))
while c.connect_ex(to) not in (0, 106):
    select.select([], [c], [])
"""


# Accepts, and has a child echo: the child decides what the connection is.
FORKS = SERVER.replace('while word != b"end":', "for _ in range(2):").replace(
    "    try:", "    if os.fork(): c.close(); os.wait(); continue\n    try:").replace(
    "import ", "import os, ", 1).replace("    c.close()\n", "    c.close(); sys.exit()\n")


@pytest.mark.parametrize("stream", ["sdp", None])
def test_a_connection_that_a_child_decides_is_counted_once(xsock, stream):
    with server(xsock, "both", text=FORKS) as end:
        client(xsock, stream, end.port, "pattern")
        client(xsock, stream, end.port, "hello")
        _, said = end.process.communicate(timeout=TIMEOUT)
    assert "3 TCP sockets in 3 processes: 0 connected, 2 accepted, 1 listening" in said, said
    assert carried(said) == (3 if stream else 1) and "before it was decided" not in said, said


@pytest.mark.parametrize("stream", ["tcp", "sdp"])
def test_a_connection_is_counted_once_however_often_connect_is_called(xsock, stream):
    with server(xsock, "sdp" if stream == "sdp" else None) as end:
        said = client(xsock, stream, end.port, "", text=CONNECTS_AGAIN)
        assert "1 TCP sockets in 1 process: 1 connected" in said, said
        end.end(xsock, stream if stream == "sdp" else None)


def test_a_client_of_both_stays_plain_toward_a_peer_that_is_not_known(xsock):
    with server(xsock, None) as end:
        said = client(xsock, "both", end.port, "pattern")
        assert carried(said) == 0 and "1 passed through: unknown-peer" in said, said
        end.end(xsock, None)


def peer(xsock, port):
    """What `xsock info` says that a client would find there."""
    done = subprocess.run([xsock, "info", "--policy", "any", "127.0.0.1:%d" % port, "--json"],
                          stdout=subprocess.PIPE, text=True, timeout=TIMEOUT, check=True)
    return json.loads(done.stdout)["peer"]


@pytest.mark.parametrize("listens", ["both", "sdp"])
def test_a_client_of_both_is_carried_toward_a_server_of_this_machine(xsock, listens):
    with server(xsock, listens) as end:
        assert peer(xsock, end.port) == "sdp"
        assert carried(client(xsock, "both", end.port, "pattern")) == 1
        assert carried(client(xsock, "tcp", end.port, "pattern") if listens == "both" else "") == 0
        assert carried(end.end(xsock, "both")) == 3, "two connections and the listener"
    assert peer(xsock, end.port) == "unlisted"


# The port is another's now: one that is not under xsock.
def test_a_client_of_both_does_not_believe_a_server_that_was_killed(xsock):
    with server(xsock, "both") as end:
        assert peer(xsock, end.port) == "sdp"
        for pid in children(end.process.pid):
            os.kill(pid, signal.SIGKILL)
        end.process.wait()
        with socket.create_server(("127.0.0.1", end.port)) as plain:
            assert peer(xsock, end.port) == "elsewhere"
            answer = threading.Thread(target=echo_one, args=(plain,))
            answer.start()
            assert carried(client(xsock, "both", end.port, "hello")) == 0
            answer.join()


# Longer than start-up may take otherwise.
LATE_ACCEPT = SERVER.replace("word = b", "import time; time.sleep(11); word = b", 1)


def test_a_client_of_both_waits_as_long_as_the_server_needs_to_accept(xsock):
    with server(xsock, "both", text=LATE_ACCEPT) as end:
        assert carried(client(xsock, "both", end.port, "end")) == 1
        _, said = end.process.communicate(timeout=TIMEOUT)
        assert end.process.returncode == 0 and carried(said) == 2, said


def children(pid):
    """Of `xsock run --summary`: the program."""
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def echo_one(listener):
    connection, _ = listener.accept()
    with connection:
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        connection.sendall(connection.recv(size, socket.MSG_WAITALL))


# Tries again, as programs do whose server restarts.
LISTED_WRONGLY = """
import errno, socket, sys
word = sys.argv[2].encode()
for _ in range(2):
    c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    try:
        c.sendall(len(word).to_bytes(4, "big") + word)
        back = c.recv(len(word), socket.MSG_WAITALL)
        assert back == word, back
    except OSError as e:
        print(errno.errorcode[e.errno], file=sys.stderr)
"""


# A listener that does not take byte streams, listed by a process that lives: ours.
def test_a_client_of_both_forgets_a_server_that_was_listed_wrongly(xsock, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as plain:
        port = plain.getsockname()[1]
        so_cookie = 57
        cookie = int.from_bytes(plain.getsockopt(socket.SOL_SOCKET, so_cookie, 8), sys.byteorder)
        with open("/proc/self/stat", encoding="ascii") as stat:
            start = stat.read().rpartition(")")[2].split()[19]
        entry = "%016x-%d-%d-%s-sdp" % (cookie, os.getpid(), os.stat("/proc/self/ns/pid").st_ino,
                                       start)
        (tmp_path / str(port)).mkdir(mode=0o755)
        (tmp_path / str(port) / entry).touch()
        tmp_path.chmod(0o755)
        monkeypatch.setenv("XSOCK_REGISTRY", str(tmp_path))
        monkeypatch.setenv("XSOCK_LOG", "warn")
        assert peer(xsock, port) == "sdp"

        def serve():
            refused, _ = plain.accept()
            refused.recv(4)
            refused.sendall(b"I do not know that language\r\n")
            refused.close()
            echo_one(plain)

        server_thread = threading.Thread(target=serve)
        server_thread.start()
        said = client(xsock, "both", port, "hello", text=LISTED_WRONGLY)
        server_thread.join()
    assert said.count("ECONNRESET") == 1 and said.count("registry-wrong") == 1, said
    assert "1 passed through: unknown-peer" in said, said


ACCEPTS_SLOWLY = SERVER.replace("import ", "import time, ", 1).replace(
    "s.accept()\n", "s.accept()\n    time.sleep(1)\n")

# Resets its first connection at once, as health checks do, and uses the second.
RESETS_AND_CONNECTS = """
import socket, struct, sys
to = ("127.0.0.1", int(sys.argv[1]))
c = socket.create_connection(to)
c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
c.close()
c = socket.create_connection(to)
word = b"hello"
c.sendall(len(word).to_bytes(4, "big") + word)
assert c.recv(len(word), socket.MSG_WAITALL) == word
"""


def test_a_client_that_resets_at_once_goes_on_to_believe_the_server(xsock, monkeypatch):
    monkeypatch.setenv("XSOCK_LOG", "warn")
    with server(xsock, "both", text=ACCEPTS_SLOWLY) as end:
        said = client(xsock, "both", end.port, "", text=RESETS_AND_CONNECTS)
        assert carried(said) == 2 and "registry-wrong" not in said, said
        end.end(xsock, "both")


# Listens, and becomes another program that has the listening socket.
REPLACED = """
import os, socket, sys
s = socket.create_server(("127.0.0.1", 0))
s.set_inheritable(True)
print(s.getsockname()[1], flush=True)
sys.stdin.readline()
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], str(s.fileno())])
"""
HAS_LISTENER = SERVER.replace('s = socket.create_server(("127.0.0.1", 0))',
                              "s = socket.socket(fileno=int(sys.argv[1]))").replace(
                                  "print(s.getsockname()[1], flush=True)", 'print("here", flush=True)')


@pytest.mark.parametrize("after", ["both", None])
def test_a_server_that_executes_another_program_is_listed_only_if_that_one_takes_it(xsock, after):
    text = REPLACED if after else REPLACED.replace("os.execv(", 'os.execve(').replace(
        "str(s.fileno())])", 'str(s.fileno())], {"PATH": "/usr/bin:/bin"})')
    program = subprocess.Popen(
        command(xsock, "both", sys.executable, "-c", text, HAS_LISTENER),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = int(program.stdout.readline())
        assert peer(xsock, port) == "sdp"
        program.stdin.write("go\n")
        program.stdin.flush()
        assert program.stdout.readline() == "here\n"
        first = carried(client(xsock, "both", port, "first"))
        if after:  # it may be carried, if accept() was there before it
            assert peer(xsock, port) == "sdp"
            assert carried(client(xsock, "both", port, "pattern")) == 1
        else:
            assert first == 0 and peer(xsock, port) == "unlisted"
        client(xsock, "both", port, "end")
        program.communicate(timeout=TIMEOUT)
    finally:
        program.kill()
    assert program.returncode == 0


# nginx's new binary waits so before it accepts.
WAITS_BEFORE_IT_ACCEPTS = HAS_LISTENER.replace(
    "print(", "import select; e = select.epoll(); e.register(s, select.EPOLLIN)\nprint(", 1).replace(
        'word = b""', 'sys.stdin.readline(); word = b""', 1)


def test_a_program_that_waits_on_an_inherited_listener_is_listed(xsock):
    program = subprocess.Popen(
        command(xsock, "both", sys.executable, "-c", REPLACED, WAITS_BEFORE_IT_ACCEPTS),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = int(program.stdout.readline())
        program.stdin.write("go\n")
        program.stdin.flush()
        assert program.stdout.readline() == "here\n"
        assert peer(xsock, port) == "sdp"
        program.stdin.write("go\n")
        program.stdin.flush()
        assert carried(client(xsock, "both", port, "end")) == 1
        program.communicate(timeout=TIMEOUT)
    finally:
        program.kill()
    assert program.returncode == 0


# libuv asks for its rings so.
RING = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
io_uring_setup = 425
print(libc.syscall(io_uring_setup, 0, None), errno.errorcode[ctypes.get_errno()])
"""


def test_there_is_no_io_uring_under_a_policy(xsock):
    def answer(stream):
        return subprocess.run(command(xsock, stream, sys.executable, "-c", RING), check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=TIMEOUT).stdout
    for mode in ("both", "sdp", "tcp"):
        assert answer(mode) == "-1 ENOSYS\n"
    without = subprocess.run([xsock, "run", "--", sys.executable, "-c", RING], check=True,
                             stdout=subprocess.PIPE, text=True, timeout=TIMEOUT).stdout
    assert without == answer(None), "the kernel's own"


def test_a_server_of_sdp_closes_plain_peers(xsock):
    with server(xsock, "sdp") as end:
        with socket.create_connection(("127.0.0.1", end.port)) as plain:
            plain.settimeout(TIMEOUT)
            plain.sendall(b"\0\0\0\5hello")
            with contextlib.suppress(ConnectionResetError):
                assert plain.recv(1) == b""
        end.end(xsock, "sdp")


def test_a_client_of_sdp_fails_toward_a_plain_server(xsock):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT)

        def speak():
            plain, _ = listener.accept()
            with plain:
                plain.sendall(b"220 a server that speaks first, and not MPA\r\n")
                plain.recv(1000)

        speaker = threading.Thread(target=speak)
        speaker.start()
        said = client(xsock, "sdp", listener.getsockname()[1], "hello", status=1)
        speaker.join()
    assert "Connection reset by peer" in said, said


def test_the_policy_decides_by_program_and_port(xsock, tmp_path):
    name = os.path.basename(sys.executable)
    with server(xsock, "both") as end:
        policy = tmp_path / "policy"
        policy.write_text("use tcp client other-program *:*\n"
                          "use sdp client %s* 127.0.0.0/8:%d\n" % (name.rstrip(".0123456789"), end.port))
        assert carried(client(xsock, "tcp", end.port, "hello", policy=policy)) == 1
        policy.write_text("use tcp client * *:%d\nuse sdp client * *:*\n" % end.port)
        assert carried(client(xsock, "sdp", end.port, "hello", policy=policy)) == 0
        policy.write_text("use tcp client * *:%d\nuse sdp client * *:*\n" % (end.port ^ 1))
        assert carried(client(xsock, "tcp", end.port, "hello", policy=policy)) == 1
        end.end(xsock, "sdp")


def test_a_policy_with_an_error_does_not_hold(xsock, tmp_path):
    """xsock run refuses such a file itself, so it is named by the environment."""
    policy = tmp_path / "policy"
    policy.write_text("use sdp server * *:*\nuse nonsense\n")
    log = tmp_path / "log"
    with server(xsock, "both",
                environment={"XSOCK_POLICY": str(policy), "XSOCK_LOG": "error:%s" % log}) as end:
        client(xsock, None, end.port, "hello")
        end.end(xsock, None)
    text = log.read_text()
    assert "bad-policy: %s:2:" % policy in text and "the defaults hold" in text, text


def test_log_lines_of_the_policy_stand_for_the_variable(xsock, tmp_path):
    policy, log = tmp_path / "policy", tmp_path / "log"
    policy.write_text("log min-level 8 destination file %s\nuse sdp server * *:*\n" % log)
    with server(xsock, "both", policy=policy) as end:
        with socket.create_connection(("127.0.0.1", end.port)) as plain:
            plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
            until = time.monotonic() + TIMEOUT
            while not log.exists() or "startup-not-mpa" not in log.read_text():
                assert time.monotonic() < until, "no line in the log"
                time.sleep(0.01)
        end.end(xsock, "sdp")


def test_without_the_option_nothing_is_carried(xsock, tmp_path):
    home = tmp_path / "xsock"
    home.mkdir()
    (home / "policy").write_text("use sdp server * *:*\nuse sdp client * *:*\n")
    program = subprocess.Popen([xsock, "run", "--summary", "--", sys.executable, "-c", SERVER],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=dict(os.environ, XDG_CONFIG_HOME=str(tmp_path)))
    port = int(program.stdout.readline())
    client(xsock, None, port, "end")
    _, said = program.communicate(timeout=TIMEOUT)
    assert program.returncode == 0 and carried(said) == 0, said


# Accepts, and sends what it has accepted to another process, which echoes.
SENDS_SOCKETS = """
import os, socket, sys
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    while True:
        some, fds, _, _ = socket.recv_fds(theirs, 1, 1)
        if not some:
            sys.exit()
        with socket.socket(fileno=fds[0]) as c:
            size = int.from_bytes(c.recv(4, socket.MSG_WAITALL), "big")
            c.sendall(c.recv(size, socket.MSG_WAITALL))
theirs.close()
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
for _ in range(2):
    c, _ = s.accept()
    socket.send_fds(ours, [b"x"], [c.fileno()])
    c.close()
ours.close()
os.wait()
"""


@pytest.mark.parametrize("stream", ["sdp", None])
def test_an_accepted_socket_is_carried_by_the_process_that_it_is_sent_to(xsock, stream):
    with server(xsock, "both", text=SENDS_SOCKETS) as end:
        for word in ("pattern", "hello"):
            assert carried(client(xsock, stream, end.port, word)) == (1 if stream else 0)
        _, said = end.process.communicate(timeout=TIMEOUT)
    assert "3 TCP sockets in 2 processes: 0 connected, 2 accepted, 1 listening" in said, said
    assert carried(said) == (3 if stream else 1) and "before it was decided" not in said, said


# Executes a program for each connection, as inetd does; says its port first.
EXECUTES = LISTENS + """
for _ in range(2):
    c, _ = s.accept()
    if os.fork() == 0:
        os.dup2(c.fileno(), 0)
        os.dup2(c.fileno(), 1)
        os.execvp(sys.argv[1], sys.argv[1:])
    c.close()
    os.wait()
"""

# Sends lines, says that these are all, and wants them back.
LINES = """
import socket, sys, threading
word = b"".join(b"%s %d\\n" % (sys.argv[2].encode(), n) for n in range(50_000))
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sends = threading.Thread(target=lambda: (c.sendall(word), c.shutdown(socket.SHUT_WR)))
sends.start()
back = b""
while some := c.recv(1 << 20):
    back += some
sends.join()
assert back == word, (len(back), len(word))
"""


# sed uses streams of stdio.
@pytest.mark.parametrize("program", [["cat"], ["sed", ""]], ids=["cat", "sed"])
@pytest.mark.parametrize("stream", ["sdp", None])
def test_an_accepted_socket_is_carried_by_the_program_that_is_executed(xsock, stream, program):
    process = subprocess.Popen(command(xsock, "both", sys.executable, "-c", EXECUTES, *program),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline())
        for word in ("a", "another"):
            assert carried(client(xsock, stream, port, word, text=LINES)) == (1 if stream else 0)
        _, said = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert carried(said) == (3 if stream else 1) and "before it was decided" not in said, said
