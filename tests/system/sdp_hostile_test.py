# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""Peers that break SDP's rules, toward an unmodified program under `xsock run --stream`. Each row is
one rule: its connection ends as a reset, with one line that has a code, and the program goes on with
the others. Rules of which the program can be told only by the protocol engine itself are rows of
tests/unit/stream/sdp_test.cpp; docs/testing.md lists which is where.

    pytest-3 tests/system/sdp_hostile_test.py --build build/release
"""
import contextlib
import os
import random
import resource
import socket
import struct
import subprocess
import sys
import time

import pytest

from stream_runs import TIMEOUT, command, seconds_behind_a_thousand, time_of, trickle

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "interop"))
import iwarp_model as iwarp  # pylint: disable=wrong-import-position
import sdp_model as sdp  # pylint: disable=wrong-import-position

# Echoes, a thread for each connection; says how each ended.
ECHO = r"""
import socket, sys, threading
def serve(c, port):
    try:
        while some := c.recv(65536):
            c.sendall(some)
        print(f"{port} end\n", end="", flush=True)
    except OSError as e:
        print(f"{port} {type(e).__name__}\n", end="", flush=True)
    c.close()
s = socket.socket()
s.bind(("127.0.0.1", 0))
if len(sys.argv) > 1:
    s.setsockopt(0x5853, 1, int(sys.argv[1]))  # SOL_XSOCK, DDPMODE
s.listen(2000)
print(s.getsockname()[1], flush=True)
while True:
    c, address = s.accept()
    threading.Thread(target=serve, args=(c, address[1]), daemon=True).start()
"""


class Server:
    """The echo server, and what was logged."""

    def __init__(self, argv, folder):
        self.log_path = folder / "log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True,
                                            env=dict(os.environ, XSOCK_LOG="warn"))
        self.port = int(self.process.stdout.readline())
        self.ends = {}

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)

    def codes(self):
        """Of the lines, in their order."""
        return [line.split()[2].rstrip(":") for line in self.log_path.read_text().splitlines()
                if line.startswith("xsock[")]

    def end_of(self, port):
        """How the program saw the end of the connection from `port`."""
        while port not in self.ends:
            other, how = self.process.stdout.readline().split()
            self.ends[int(other)] = how
        return self.ends.pop(port)

    def still_serves(self):
        """A well-behaved peer gets its answer."""
        with self.connect() as sock:
            port = sock.getsockname()[1]
            peer = sdp.connect(sock, random.Random(1), bufs=10, size=5000)
            peer.write(b"still there?")
            peer.until(lambda: len(peer.received) == 12)
            peer.finish()
        assert self.end_of(port) == "end"


@contextlib.contextmanager
def serving(xsock, folder, stream, *arguments):
    """The server in that mode; None: without the byte-stream mode."""
    argv = [sys.executable, "-c", ECHO, *arguments]
    argv = [xsock, "run", "--", *argv] if stream is None else \
        [word for word in command(xsock, stream, *argv) if word != "--summary"]
    server = Server(argv, folder)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


@pytest.fixture(name="server", scope="module")
def server_fixture(xsock, tmp_path_factory):
    """One for all rows: it must survive each."""
    with serving(xsock, tmp_path_factory.mktemp("hostile"), "sdp") as server:
        yield server


def advertisement(length=5000, stag=7, address=4096):
    return struct.pack(">IIQ", length, stag, address)


def mode(octet):
    return bytes([octet, 0, 0, 0])


def number(value):
    return struct.pack(">I", value)


def sends(mid, body=b"", flags=0, **wrong):
    """A row that sends this message."""
    return lambda peer: peer.send(mid, body, flags, **wrong)


def one_by_one(*messages):
    def act(peer):
        for message in messages:
            message(peer)
    return act


def raw(size):
    """A Send of so many octets of nothing."""
    return lambda peer: peer.stream.send_message(bytes(size), iwarp.SEND)


def half_a_message(peer):
    peer.send(sdp.DATA, bytes(100))
    del peer.stream.out[-30:]
    fin(peer)


def fin(peer):
    peer.until(lambda: not peer.stream.out)
    peer.stream.sock.shutdown(socket.SHUT_WR)


DISCONN = sends(sdp.DISCONN)
TO_BUFFERED, TO_PIPELINED = sends(sdp.MODE_CHANGE, mode(0)), sends(sdp.MODE_CHANGE, mode(0x20))
SOURCE = sends(sdp.SRC_AVAIL, advertisement() + b"x")
PENDING = sends(sdp.DATA, b"", sdp.OOB_PEND)

ROWS = {
    # name: (what the peer does, the code of the line)
    "len_too_large": (sends(sdp.DATA, b"abc", length=20), "sdp-length"),
    "len_too_small": (sends(sdp.DATA, b"abc", length=18), "sdp-length"),
    "len_below_a_header": (sends(sdp.DATA, length=15), "sdp-length"),
    "beyond_the_buffer": (sends(sdp.DATA, bytes(65456)), "untagged-too-long"),
    "header_cut": (raw(10), "sdp-length"),
    "empty_send": (raw(0), "sdp-length"),
    "payload_on_disconn": (sends(sdp.DISCONN, b"1234"), "sdp-length"),
    "cut_srcavail": (sends(sdp.SRC_AVAIL, bytes(8)), "sdp-length"),
    "mid_0f": (sends(0x0F), "sdp-message"),
    "mid_10": (sends(0x10), "sdp-message"),
    "mid_80": (sends(0x80), "sdp-message"),
    "mid_fc": (sends(0xFC), "sdp-message"),
    "return_of_nothing": (sends(0x40, b"abc"), "sdp-message"),
    "hello_twice": (sends(sdp.HELLO, bytes(16)), "sdp-message"),
    "hello_ack_of_the_initiator": (sends(sdp.HELLO_ACK, bytes(12)), "sdp-message"),
    "mseq_skipped": (sends(sdp.DATA, mseq=3), "sdp-sequence"),
    "mseq_again": (sends(sdp.DATA, mseq=1), "sdp-sequence"),
    "ack_ahead": (sends(sdp.DATA, ack=50), "sdp-sequence"),
    "ack_back": (one_by_one(sends(sdp.DATA), sends(sdp.DATA, ack=0)), "sdp-sequence"),
    "bufs_taken_back": (sends(sdp.DATA, bufs=1), "sdp-credit"),
    "source_of_nothing": (sends(sdp.SRC_AVAIL, advertisement(0) + b"x"), "sdp-advertisement"),
    "source_of_2_31_and_1": (sends(sdp.SRC_AVAIL, advertisement((1 << 31) + 1) + b"x"),
                             "sdp-advertisement"),
    "source_wraps": (sends(sdp.SRC_AVAIL, advertisement(5000, 7, (1 << 64) - 4999) + b"x"),
                     "sdp-advertisement"),
    "source_of_stag_0": (sends(sdp.SRC_AVAIL, advertisement(stag=0) + b"x"), "sdp-advertisement"),
    "source_all_payload": (sends(sdp.SRC_AVAIL, advertisement(3) + b"xyz"), "sdp-advertisement"),
    "source_without_payload_in_combined": (sends(sdp.SRC_AVAIL, advertisement()),
                                           "sdp-advertisement"),
    "two_sources_in_combined": (one_by_one(SOURCE, SOURCE), "sdp-advertisement"),
    "data_behind_a_source": (one_by_one(SOURCE, sends(sdp.DATA, b"abc", ack=1)),
                             "sdp-advertisement"),
    "source_in_buffered": (one_by_one(TO_BUFFERED, SOURCE), "sdp-advertisement"),
    "source_with_payload_in_pipelined": (one_by_one(TO_PIPELINED, SOURCE), "sdp-advertisement"),
    "sink_outside_pipelined": (sends(sdp.SINK_AVAIL, advertisement() + number(0)),
                               "sdp-advertisement"),
    "read_completion_of_nothing": (sends(sdp.RD_COMPL, number(1)), "sdp-completion"),
    "write_completion_of_nothing": (sends(sdp.WR_COMPL, number(1)), "sdp-completion"),
    "send_sm_of_nothing": (sends(sdp.SENDSM), "sdp-completion"),
    "sink_cancel_ack_of_nothing": (sends(sdp.SINK_CANCEL_ACK), "sdp-completion"),
    "mode_combined_again": (sends(sdp.MODE_CHANGE, mode(0x10)), "sdp-mode"),
    "mode_3": (sends(sdp.MODE_CHANGE, mode(0x30)), "sdp-mode"),
    "mode_of_our_half_buffered": (sends(sdp.MODE_CHANGE, mode(0x80)), "sdp-mode"),
    "mode_of_our_half_combined": (sends(sdp.MODE_CHANGE, mode(0x90)), "sdp-mode"),
    "mode_of_our_half_pipelined": (sends(sdp.MODE_CHANGE, mode(0xA0)), "sdp-mode"),
    "mode_buffered_to_pipelined": (one_by_one(TO_BUFFERED, TO_PIPELINED), "sdp-mode"),
    "mode_pipelined_to_buffered": (one_by_one(TO_PIPELINED, TO_BUFFERED), "sdp-mode"),
    "mode_changed_with_a_source": (one_by_one(SOURCE, TO_BUFFERED), "sdp-mode"),
    "size_0": (sends(sdp.CH_RCV_BUF, number(0)), "sdp-resize"),
    "size_36": (sends(sdp.CH_RCV_BUF, number(36)), "sdp-resize"),
    "size_2_32_less_1": (sends(sdp.CH_RCV_BUF, number((1 << 32) - 1)), "sdp-resize"),
    "size_ack_of_nothing": (sends(sdp.CH_RCV_BUF_ACK, number(100)), "sdp-resize"),
    "disconn_twice": (one_by_one(DISCONN, DISCONN), "sdp-closing"),
    "data_behind_disconn": (one_by_one(DISCONN, sends(sdp.DATA, b"abc")), "sdp-closing"),
    "abort_ahead_of_disconn": (sends(sdp.ABORT), "sdp-closing"),
    "urgent_not_announced": (sends(sdp.DATA, b"abc", sdp.OOB_PRES), "sdp-urgent"),
    "urgent_without_an_octet": (sends(sdp.DATA, b"", sdp.OOB_PRES | sdp.OOB_PEND), "sdp-urgent"),
    "urgent_on_disconn": (one_by_one(PENDING, sends(sdp.DISCONN, flags=sdp.OOB_PRES)),
                          "sdp-urgent"),
    "urgent_never_follows": (one_by_one(PENDING, DISCONN), "sdp-urgent"),
    "urgent_too_far": (one_by_one(PENDING, sends(sdp.DATA, bytes(40000)),
                                  sends(sdp.DATA, bytes(40000))), "sdp-urgent"),
    "suspension": (sends(sdp.SUSP_COMM, struct.pack(">IHH", 0, 1, 80)), "sdp-suspend"),
    "suspension_port_0": (sends(sdp.SUSP_COMM, struct.pack(">IHH", 0, 1, 0)), "sdp-suspend"),
    "suspension_malformed": (sends(sdp.SUSP_COMM, bytes(8)), "sdp-suspend"),
    "suspension_ack_of_nothing": (sends(sdp.SUSP_COMM_ACK), "sdp-suspend"),
    "fin_without_disconn": (fin, "stream-truncated"),
    "fin_within_a_message": (half_a_message, "mpa-connection-lost"),
    "fin_behind_a_source": (one_by_one(SOURCE, fin), "stream-truncated"),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_broken_rule_ends_its_connection_only(server, row):
    act, code = ROWS[row]
    before = len(server.codes())
    with server.connect() as sock, server.connect() as other:
        port, other_port = sock.getsockname()[1], other.getsockname()[1]
        neighbour = sdp.connect(other, random.Random(2), bufs=10, size=5000)
        peer = sdp.connect(sock, random.Random(3), bufs=10, size=5000)
        for end in (peer, neighbour):
            end.write(b"abc")
            end.until(lambda end=end: len(end.received) == 3)
        act(peer)
        deadline = time.monotonic() + TIMEOUT
        while not peer.stream.ended:
            assert time.monotonic() < deadline
            peer.stream.poll(0.1)
        # A program that has read the end of the stream knows no more.
        ends = ("ConnectionResetError", "end") if peer.counts["sent 02"] else \
               ("ConnectionResetError",)
        assert server.end_of(port) in ends
        neighbour.write(b"def")
        neighbour.finish()
        assert bytes(neighbour.received) == b"abcdef"
        assert server.end_of(other_port) == "end"
    assert server.codes()[before:] == [code]


def test_an_end_of_tcp_alone_is_never_an_end_of_the_stream(server):
    """Many readers sleep while it comes."""
    with contextlib.ExitStack() as cleanup:
        peers = []
        for seed in range(150):
            sock = cleanup.enter_context(server.connect())
            peer = sdp.connect(sock, random.Random(seed), bufs=10, size=5000)
            peer.write(b"abc")
            peers.append((sock.getsockname()[1], peer))
        for _, peer in peers:
            peer.until(lambda peer=peer: len(peer.received) == 3)
        for _, peer in peers:
            peer.stream.sock.shutdown(socket.SHUT_WR)
        ends = [server.end_of(port) for port, _ in peers]
    assert ends == ["ConnectionResetError"] * len(peers)


HELLOS = {
    "version_2": sdp.hello(10, 5000, version=0x22),
    "no_adverts": sdp.hello(10, 5000, adverts=0),
    "no_ord": sdp.hello(10, 5000, ord_=0),
    "no_ird": sdp.hello(10, 5000, ird=0),
    "buffers_of_36": sdp.hello(10, 36),
    "buffers_of_2_31_and_1": sdp.hello(10, (1 << 31) + 1),
    "two_buffers": sdp.hello(2, 5000),
    "cut": sdp.hello(10, 5000)[:31],
    "more_behind": sdp.hello(10, 5000) + b"x",
}


@pytest.mark.parametrize("row", HELLOS)
def test_a_bad_hello_is_refused(server, row):
    before = len(server.codes())
    with server.connect() as sock:
        with pytest.raises(iwarp.Ended, match="refused"):
            iwarp.initiate(sock, random.Random(4), HELLOS[row])
    assert server.codes()[before:] == ["sdp-hello"]
    server.still_serves()


def test_messages_toward_a_byte_stream_are_refused(server):
    before = len(server.codes())
    with server.connect() as sock:
        with pytest.raises(iwarp.Ended, match="refused"):
            iwarp.initiate(sock, random.Random(5), b"")
    assert server.codes()[before:] == ["mode-refused"]
    server.still_serves()


def test_a_byte_stream_toward_messages_is_refused(xsock, tmp_path):
    with serving(xsock, tmp_path, None, "1") as server:  # DDPMODE_MESSAGE
        with server.connect() as sock:
            with pytest.raises(iwarp.Ended, match="refused"):
                sdp.connect(sock, random.Random(6))
        assert server.codes() == ["mode-refused"]


# Sends and says how that went.
CLIENT = """
import socket, sys
try:
    c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    c.sendall(b"abc")
    print(c.recv(100))
except OSError as e:
    print(type(e).__name__)
"""

HELLO_ACKS = {
    "none": (b"", "sdp-hello"),
    "version_2": (sdp.hello_ack(10, 5000, version=0x22), "sdp-hello"),
    "no_adverts": (sdp.hello_ack(10, 5000, adverts=0), "sdp-hello"),
    "buffers_of_36": (sdp.hello_ack(10, 36), "sdp-hello"),
    "two_buffers": (sdp.hello_ack(2, 5000), "sdp-hello"),
    "a_hello": (sdp.hello(10, 5000), "sdp-hello"),
    "cut": (sdp.hello_ack(10, 5000)[:27], "sdp-hello"),
}


@pytest.mark.parametrize("row", HELLO_ACKS)
def test_a_bad_hello_ack_ends_the_connection(xsock, row):
    private_data, code = HELLO_ACKS[row]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT)
        argv = command(xsock, "sdp", sys.executable, "-c", CLIENT, str(listener.getsockname()[1]))
        with subprocess.Popen([word for word in argv if word != "--summary"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=dict(os.environ, XSOCK_LOG="warn")) as client:
            with listener.accept()[0] as sock:
                iwarp.reply(sock, random.Random(7), iwarp.read_request(sock), private_data)
                said, errors = client.communicate(timeout=TIMEOUT)
    assert said.split() == ["ConnectionResetError"]
    assert [line.split()[2].rstrip(":") for line in errors.splitlines()] == [code]


def test_credit_that_is_never_given_stops_only_that_sender(server):
    """As a closed window of TCP: for ever, without an error."""
    before = len(server.codes())
    with server.connect() as sock:
        port = sock.getsockname()[1]
        peer = sdp.connect(sock, random.Random(8), bufs=3, size=5000, repost="never")
        peer.write(b"abc")
        peer.until(lambda: len(peer.received) == 3)  # it may send no data any more
        peer.write(b"def")
        end = time.monotonic() + 12  # longer than any time limit of a close or a start-up
        while time.monotonic() < end:
            peer.step(0.1)
        assert not peer.stream.ended and bytes(peer.received) == b"abc"
        server.still_serves()
        peer.repost = "eager"
        peer.finish()
        assert bytes(peer.received) == b"abcdef"
        assert server.end_of(port) == "end"
    assert server.codes()[before:] == []


def test_a_peer_that_never_reads_stops_only_its_sender(server):
    before = len(server.codes())
    with server.connect() as sock:
        peer = sdp.connect(sock, random.Random(9), bufs=60000, size=65536)
        room = 0
        until = time.monotonic() + TIMEOUT
        while room < 20 and not peer.stream.ended:  # until nothing goes on for two seconds
            assert time.monotonic() < until, "it never stops"
            peer.write(bytes(100_000) if not peer.queue else b"")
            peer.send_what_may_go()
            queued = len(peer.stream.out)
            with contextlib.suppress(BlockingIOError):
                del peer.stream.out[:sock.send(peer.stream.out)]
            room = room + 1 if len(peer.stream.out) == queued else 0
            time.sleep(0.1 if room else 0)
        assert not peer.stream.ended
        server.still_serves()
    server.still_serves()
    assert set(server.codes()[before:]) <= {"stream-truncated", "mpa-connection-lost"}


def marked(server):
    """A connected socket whose SYN says that a Request will come, which does not."""
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x2C)
    sock.settimeout(TIMEOUT)
    sock.connect(("127.0.0.1", server.port))
    return sock


def test_a_marked_peer_may_speak_plain(xsock, tmp_path):
    with serving(xsock, tmp_path, "both") as server:
        with marked(server) as sock:
            sock.sendall(b"plain words")
            assert iwarp.read_exactly(sock, 11) == b"plain words"
        server.still_serves()


def test_a_marked_peer_of_one_octet_a_second_delays_no_other(xsock, tmp_path):
    with serving(xsock, tmp_path, "both") as server:
        alone = time_of(server.still_serves)
        with marked(server) as slow:
            trickle(slow, b"MPA ID ", server.still_serves, alone)
            slow.sendall(b"words")  # no Request after all
            assert iwarp.read_exactly(slow, 12) == b"MPA ID words"


def test_a_thousand_silent_marked_peers_delay_no_other(xsock, tmp_path):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with serving(xsock, tmp_path, "both") as server:
        server.still_serves()
        # A thousand threads of Python take each other seconds on a busy machine, marked or not.
        behind_plain = seconds_behind_a_thousand(server.connect, server.still_serves)
        behind_marked = seconds_behind_a_thousand(lambda: marked(server), server.still_serves)
        # Not the start-up limit of the others (10 s), nor a time for each of them.
        assert behind_marked < min(3 + 10 * behind_plain, 9)
        assert len(server.codes()) <= 2, server.codes()
