# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Unmodified programs under `xsock run --stream=sdp`, with the independent model of SDP
(tests/interop/sdp_model.py) as their other end: a peer that is not this code. The model checks
every message; the cases compare what arrived.

    [SDP_MODEL_SEEDS=100] pytest-3 tests/system/sdp_peer_test.py --build build/release
"""
import collections
import contextlib
import fcntl
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import termios
import time

import pytest

from stream_runs import TIMEOUT, carried, command

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
import sdp_model  # pylint: disable=wrong-import-position
from iwarp_model import Ended  # pylint: disable=wrong-import-position

SEEDS = range(int(os.environ.get("SDP_MODEL_SEEDS", "4")))

# How a program begins that is client or server: the connection is `c`.
CONNECTED = """
import socket, sys
if sys.argv[1] == "server":
    s = socket.create_server(("127.0.0.1", 0))
    print(s.getsockname()[1], flush=True)
    c, _ = s.accept()
else:
    c = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
"""

# Sends and receives at the same time, in parts of random sizes: so many octets of a pattern, then the
# end; says what it received.
WORKER = CONNECTED + """
import hashlib, random, threading
seed, octets = map(int, sys.argv[3:5])
rng = random.Random(seed)
out = memoryview(rng.randbytes(octets))
def send():
    left = out
    while left:
        size = rng.choice([1, 100, 3000, 70000, 1 << 20])
        c.sendall(left[:size])
        left = left[size:]
    c.shutdown(socket.SHUT_WR)
sender = threading.Thread(target=send)
sender.start()
got, many = hashlib.sha256(), random.Random(seed + 1)
while True:
    some = c.recv(many.choice([1, 50, 5000, 1 << 18]))
    if not some:
        break
    got.update(some)
sender.join()
c.close()
print(got.hexdigest())
"""


@contextlib.contextmanager
def program(xsock, script, *arguments):
    """`script` under xsock."""
    child = subprocess.Popen(
        command(xsock, "sdp", sys.executable, "-c", script, *map(str, arguments)), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, XSOCK_LOG="info"),
        start_new_session=True)
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # also the program below `xsock run`
        child.communicate()


@contextlib.contextmanager
def connected(xsock, role, rng, script, *arguments, **more):
    """(program, model) of a connection; the program is its `role`."""
    with contextlib.ExitStack() as cleanup:
        if role == "server":
            child = cleanup.enter_context(program(xsock, script, role, 0, *arguments))
            port = int(child.stdout.readline())
            sock = cleanup.enter_context(socket.create_connection(("127.0.0.1", port)))
            peer = sdp_model.connect(sock, rng, **more)
        else:
            listener = cleanup.enter_context(socket.create_server(("127.0.0.1", 0)))
            listener.settimeout(TIMEOUT)
            child = cleanup.enter_context(
                program(xsock, script, role, listener.getsockname()[1], *arguments))
            sock = cleanup.enter_context(listener.accept()[0])
            peer = sdp_model.accept(sock, rng, **more)
        yield child, peer


def end_of(child):
    """What the program says, and what xsock said of it."""
    said, errors = child.communicate(timeout=TIMEOUT)
    return said, errors


def exchange(xsock, role, seed, octets=300_000, change=None, small=False, **more):
    """Both ends send and receive at once; the model, when it is done."""
    rng = random.Random(seed)
    size = more.setdefault("size", rng.choice([37, 100, 5000, 65536]))
    octets = min(octets, 500 * size)  # exit() waits for 5 s
    here = rng.randbytes(octets)
    there = random.Random(seed + 1).randbytes(octets)
    with connected(xsock, role, rng, WORKER, seed + 1, octets, **more) as (child, peer):
        peer.zero_copy = rng.random() < 0.5
        peer.until(lambda: peer.may_send)
        left = memoryview(here)
        while left:
            size = rng.choice([1, 1000] if small else [1, 1000, 50000])
            peer.write(left[:size])
            left = left[size:]
            peer.step(0)
            if change:
                change(peer, rng)
        peer.finish()
        said, errors = end_of(child)
    assert child.returncode == 0, errors
    assert bytes(peer.received) == there
    assert said.split()[-1] == hashlib.sha256(here).hexdigest()
    assert carried(errors) == (2 if role == "server" else 1) or carried(errors) == 1, errors
    return peer


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("seed", SEEDS)
def test_bulk_data_both_ways(xsock, role, seed):
    exchange(xsock, role, seed)


# Sends and ends at once, by exit().
LEAVES = """
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
c.sendall(bytes(range(256)) * 40)
"""


def listening_with_little_room():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.settimeout(TIMEOUT)
    return listener


def test_what_a_program_has_sent_when_it_exits_arrives(xsock):
    """Also what TCP still holds then, while this end sends messages of its own."""
    with contextlib.ExitStack() as cleanup:
        listener = cleanup.enter_context(listening_with_little_room())
        child = cleanup.enter_context(
            program(xsock, LEAVES, "client", listener.getsockname()[1]))
        sock = cleanup.enter_context(listener.accept()[0])
        # There are buffers for all of it, so it goes to the kernel at once.
        peer = sdp_model.accept(sock, random.Random(1), bufs=100, size=1000)
        time.sleep(1)  # the program ends, or would
        peer.update()
        peer.until(lambda: peer.peer_closed)
        assert bytes(peer.received) == bytes(range(256)) * 40
        end_of(child)


def some_change(peer, rng):
    """One of the things that the draft lets a sender of data do between its messages."""
    if peer.credit() < 3:
        return
    which = rng.random()
    if peer.outstanding:
        if which < 0.1 and peer.cancel_mseq is None:
            peer.cancel()
    elif which < 0.1 and peer.asked_size is None:
        peer.ask_size(rng.choice([37, 1000, 65536, 1 << 20]))
    elif which > 0.7 and peer.may_change_mode():
        if peer.mode == sdp_model.PIPELINED:
            peer.change_mode(sdp_model.COMBINED)
        elif peer.mode == sdp_model.COMBINED:
            peer.change_mode(sdp_model.PIPELINED if which < 0.99 else sdp_model.BUFFERED)


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("seed", SEEDS)
def test_modes_sizes_or_cancels_of_the_peer(xsock, role, seed):
    peer = exchange(xsock, role, 1000 + seed, octets=50_000, change=some_change, small=True)
    assert peer.counts["sent 07"] + peer.counts["sent 0b"] + peer.counts["sent 08"] > 0


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("seed", SEEDS)
def test_decode_finds_the_messages_of_both_ends(xsock, role, seed, tmp_path, monkeypatch):
    """The capture of such an exchange: three readings of SDP agree."""
    monkeypatch.setenv("XSOCK_PCAP", str(tmp_path / "capture.pcapng"))
    peer = exchange(xsock, role, 2000 + seed, octets=50_000, change=some_change, small=True)
    capture, = tmp_path.iterdir()
    decode = subprocess.run([xsock, "decode", "--check", "--json", str(capture)], check=False,
                            stdout=subprocess.PIPE, timeout=TIMEOUT)
    seen = collections.Counter()
    ends = {"first": "received", "second": "sent"} if role == "client" else \
           {"first": "sent", "second": "received"}
    for frame in json.loads(decode.stdout)["frames"]:
        if frame["kind"] == "sdp":
            assert not frame["wrong"], frame["words"]
            if frame["mid"] > sdp_model.HELLO_ACK:
                seen["%s %02x" % (ends[frame["from"]], frame["mid"])] += 1
    # What the model sends behind the end of the program is in no capture.
    late = peer.counts - seen
    assert not seen - peer.counts and set(late) <= {"sent ff"}, (seen, peer.counts)
    assert decode.returncode == 0


# Answers what it has read up to the end by its digest and some more.
ANSWERS = CONNECTED + """
import hashlib
got = b""
while some := c.recv(1 << 16):
    got += some
c.sendall(hashlib.sha256(got).digest() + bytes(range(256)) * 300)
c.close()
"""


@pytest.mark.parametrize("role", ["client", "server"])
def test_one_half_closes_before_the_other(xsock, role):
    rng = random.Random(2)
    octets = rng.randbytes(100_000)
    with connected(xsock, role, rng, ANSWERS, size=5000) as (child, peer):
        peer.write(octets)
        peer.close_write()
        peer.until(lambda: peer.closed)
        assert not peer.received
        peer.finish()
        assert bytes(peer.received) == hashlib.sha256(octets).digest() + bytes(range(256)) * 300
        _, errors = end_of(child)
    assert child.returncode == 0, errors


# A server whose client has said nothing yet.
SPEAKS_FIRST = """
import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
c, _ = s.accept()
c.sendall(b"welcome")
print(c.recv(100), flush=True)
c.close()
"""


@pytest.mark.parametrize("revision", [1, 2])
def test_the_server_may_speak_first(xsock, revision):
    with connected(xsock, "server", random.Random(3), SPEAKS_FIRST, size=5000,
                   revision=revision) as (child, peer):
        peer.until(lambda: peer.received)
        peer.write(b"thanks")
        peer.finish()
        assert bytes(peer.received) == b"welcome"
        assert end_of(child)[0].split()[-1] == "b'thanks'"


# Reads up to an urgent byte, takes it, reads on; sends one of its own in the middle.
URGENT = CONNECTED + """
import select, time
c.sendall(b"abc")
c.send(b"X", socket.MSG_OOB)
c.sendall(b"def")
waits = select.poll()
waits.register(c, select.POLLIN | select.POLLPRI)
got = []
while not got or got[-1]:
    if waits.poll()[0][1] & select.POLLPRI:
        try:
            got.append("urgent " + c.recv(1, socket.MSG_OOB).decode())
        except BlockingIOError:  # announced, not there
            time.sleep(0.01)
    else:
        got.append(c.recv(100).decode())
print(*got, sep=",")
"""


@pytest.mark.parametrize("role", ["client", "server"])
def test_urgent_data_both_ways(xsock, role):
    with connected(xsock, role, random.Random(4), URGENT, size=5000) as (child, peer):
        peer.until(lambda: len(peer.received) == 7)
        assert bytes(peer.received) == b"abcXdef" and peer.urgent_at == [3]
        peer.write(b"before")
        peer.until(peer.drained)
        peer.urgent(b"!")
        peer.write(b"behind")
        peer.finish()
        said, errors = end_of(child)
    assert child.returncode == 0, errors
    words = said.splitlines()[-1].split(",")
    assert "urgent !" in words
    assert "".join(word for word in words if word != "urgent !") == "beforebehind"


# Waits for the peer's end and says which it was.
WAITS = CONNECTED + """
c.sendall(b"ready")
try:
    while some := c.recv(100):
        pass
    print("end")
    if sys.argv[3] == "sends":
        while True:
            c.sendall(bytes(1000))
except OSError as e:
    print(type(e).__name__)
"""


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("how", ["reset", "abort", "fin"])
def test_abrupt_ends_of_the_peer(xsock, role, how):
    with connected(xsock, role, random.Random(5), WAITS, "sends", size=5000) as (child, peer):
        peer.until(lambda: peer.received)
        if how == "reset":
            peer.reset()
        elif how == "fin":  # without DisConn: a killed sender
            peer.stream.sock.shutdown(socket.SHUT_WR)
        else:
            peer.close_write()
            peer.until(lambda: len(peer.received) > 1000)
            peer.abort()
        said, errors = end_of(child)
    assert child.returncode == 0, errors
    said = said.split()[-2:] if how == "abort" else said.split()[-1:]
    assert said[-1] in ("ConnectionResetError", "BrokenPipeError"), said
    if how != "abort":
        assert said == ["ConnectionResetError"], said


# Gives up while bytes of the peer are unread.
LEAVES_UNREAD = CONNECTED + """
import struct, time
c.recv(1)
if sys.argv[3] == "linger":
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
c.close()
time.sleep(60)
"""


@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("how", ["unread", "linger"])
def test_a_program_that_gives_up_resets(xsock, role, how):
    with connected(xsock, role, random.Random(6), LEAVES_UNREAD, how, size=5000) as (_, peer):
        peer.write(b"x" if how == "linger" else b"xyz")
        with pytest.raises(Ended, match="TCP: reset"):
            peer.until(lambda: peer.peer_closed)
        assert not peer.received


# Closes at once behind what it sends; goes on.
CLOSES = """
import socket, sys, time
c = socket.socket()
c.setsockopt(0x5853, 1, 2)  # SOL_XSOCK: DDPMODE, DDPMODE_STREAM
c.setsockopt(0x5853, 20, 1000)  # DDPLINGER
c.connect(("127.0.0.1", int(sys.argv[2])))
c.sendall(bytes(range(256)))
c.close()
time.sleep(60)
"""


def test_a_closed_program_s_small_messages_have_time_while_the_peer_reads(xsock):
    with connected(xsock, "client", random.Random(7), CLOSES,
                   bufs=3, size=53, repost="eager") as (_, peer):
        def reads_late():
            time.sleep(0.15)
            return peer.peer_closed
        peer.until(reads_late)
        assert bytes(peer.received) == bytes(range(256))


def test_what_tcp_still_delivers_behind_close_has_time(xsock):
    """All is with the kernel and FIN behind it; a slow network takes longer than the linger time."""
    with contextlib.ExitStack() as cleanup:
        listener = cleanup.enter_context(listening_with_little_room())
        script = CLOSES.replace("c.sendall(", "c.sendall(160 * ")
        cleanup.enter_context(program(xsock, script, "client", listener.getsockname()[1]))
        sock = cleanup.enter_context(listener.accept()[0])
        peer = sdp_model.accept(sock, random.Random(8), bufs=100, size=1000, repost="never")
        peer.stream.read_size = 1000
        while not peer.peer_closed:
            time.sleep(0.1)
            peer.update()
            before = len(peer.received)
            peer.until(lambda: peer.peer_closed or len(peer.received) > before)
        assert bytes(peer.received) == bytes(range(256)) * 160


# Counts what comes; closes its own direction first.
COUNTS = """
import os, socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
c.shutdown(socket.SHUT_WR)
print(os.getpid(), flush=True)
total = 0
try:
    while some := c.recv(1 << 20):
        total += len(some)
    print(total)
except OSError as e:
    print(type(e).__name__, total)
"""


def test_what_came_ahead_of_a_reset_is_read(xsock):
    """A peer that has sent all and ended its process: its kernel meets our next message by a reset,
    while much of it still lies unread in ours."""
    with connected(xsock, "client", random.Random(9), COUNTS, size=5000) as (child, peer):
        pid = int(child.stdout.readline())
        peer.write(bytes(6_000_000))
        peer.until(peer.drained)
        os.kill(pid, signal.SIGSTOP)
        peer.write(bytes(300_000))
        peer.close_write()
        peer.until(lambda: peer.closed and not peer.stream.out)
        sock, unread = peer.stream.sock, bytearray(4)
        end = time.monotonic() + 10
        while fcntl.ioctl(sock, termios.TIOCOUTQ, unread) == 0 and any(unread):
            assert time.monotonic() < end, unread
            time.sleep(0.01)
        peer.reset()
        os.killpg(child.pid, signal.SIGCONT)  # `xsock run` stops with its program
        said, errors = end_of(child)
    assert said.split() == ["6300000"], (said, errors)
