# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""An independent end of the Sockets Direct Protocol over iWARP, written from what the draft says
(draft-pinkerton-iwarp-sdp-01) and not from stream/. It checks every message of the other end and
raises BrokenRule; what it sends itself is random within the rules, by a seed.

It sends Data, SrcAvail (and the Data that a SendSm asks for), SrcAvailCancel, ModeChange, ChRcvBuf,
urgent data, DisConn, AbortConn. It serves no RDMA Reads: the end under test declines all SrcAvails.
SinkAvail is no sink's to send toward an end that never enters Pipelined.
"""
import collections
import socket
import struct
import time

from iwarp_model import (LIMIT_S, SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE, Ended,
                         initiate, read_request, reply, require)

HELLO, HELLO_ACK, DISCONN, ABORT, SENDSM, WR_COMPL, RD_COMPL, MODE_CHANGE = range(8)
SRC_CANCEL, SINK_CANCEL, SINK_CANCEL_ACK, CH_RCV_BUF, CH_RCV_BUF_ACK = range(8, 13)
SUSP_COMM, SUSP_COMM_ACK = 13, 14
SINK_AVAIL, SRC_AVAIL, DATA = 0xFD, 0xFE, 0xFF
OOB_PRES, OOB_PEND, REQ_PIPE = 1, 2, 4
BUFFERED, COMBINED, PIPELINED = range(3)
HEADER = 16
LARGEST_SIZE = 1 << 31

# The octets behind the BSDH; those of Data are payload.
BODY = {HELLO: 16, HELLO_ACK: 12, DISCONN: 0, ABORT: 0, SENDSM: 0, WR_COMPL: 4, RD_COMPL: 4,
        MODE_CHANGE: 4, SRC_CANCEL: 0, SINK_CANCEL: 0, SINK_CANCEL_ACK: 0, CH_RCV_BUF: 4,
        CH_RCV_BUF_ACK: 4, SUSP_COMM: 8, SUSP_COMM_ACK: 0, SINK_AVAIL: 20, SRC_AVAIL: 16, DATA: 0}
PLAIN_SEND = (DISCONN, SRC_AVAIL, SINK_AVAIL, DATA, MODE_CHANGE, CH_RCV_BUF, CH_RCV_BUF_ACK)
STREAM = (DATA, SRC_AVAIL, SINK_AVAIL)


def header(mid, flags, bufs, length, mseq, ack):
    return struct.pack(">BBHIII", mid, flags, bufs, length, mseq, ack)


def hello(bufs, size, version=0x11, adverts=4, wish=65536, ord_=1, ird=1):
    """A Hello, 32 octets."""
    return (header(HELLO, 0, bufs, 32, 0, 0)
            + struct.pack(">BBHIIHH", version, 0, adverts, wish, size, ord_, ird))


def hello_ack(bufs, size, version=0x11, adverts=4, ord_=1, ird=1):
    """A HelloAck, 28 octets."""
    return (header(HELLO_ACK, 0, bufs, 28, 0, 0)
            + struct.pack(">BBHIHH", version, 0, adverts, size, ord_, ird))


def parse_hello(octets, mid):
    """{bufs, size, adverts} of the other end's Hello or HelloAck."""
    length = HEADER + BODY[mid]
    require(len(octets) == length, "%d octets of private data" % len(octets))
    got, _, bufs, said, mseq, ack = struct.unpack(">BBHIII", octets[:HEADER])
    require((got, said, mseq, ack) == (mid, length, 0, 0), "Hello's header")
    if mid == HELLO:
        version, _, adverts, _, size, ord_, ird = struct.unpack(">BBHIIHH", octets[HEADER:])
    else:
        version, _, adverts, size, ord_, ird = struct.unpack(">BBHIHH", octets[HEADER:])
    require(version >> 4 == 1 and adverts >= 1 and ord_ >= 1 and ird >= 1, "Hello's fields")
    require(37 <= size <= LARGEST_SIZE and bufs >= 3, "Hello: size %d, %d buffers" % (size, bufs))
    return {"bufs": bufs, "size": size, "adverts": adverts}


class Peer:
    """One end. Queue with write(), urgent(), close_write(); then step() until what is wanted is
    there: received, urgent_at, peer_closed, ended."""

    def __init__(self, stream, rng, first, bufs, size, may_send, repost="random"):
        self.stream, self.rng, self.repost = stream, rng, repost
        self.may_send = may_send  # the responder waits for an FPDU of the initiator
        # Receiving: `free` buffers of `size` octets. Each message sent tells of them and is kept
        # here until the other end has acknowledged it.
        self.size, self.free, self.consumed, self.rx_mseq = size, bufs, 0, 0
        self.told = collections.OrderedDict({0: (bufs, 0)})
        self.received = bytearray()
        self.pends, self.urgent_at = [], []
        self.peer_closed = self.aborted = False
        # Sending
        self.tx_mseq = 0
        self.peer_bufs, self.peer_ack = first["bufs"], 0
        self.peer_size, self.adverts = first["size"], first["adverts"]
        self.mode, self.mode_mseq, self.queue = COMBINED, 0, bytearray()
        self.urgent_queue = []  # [position in the queue of the octet, PEND was sent]
        self.outstanding = collections.deque()  # the unread octets of each SrcAvail
        self.declined = bytearray()  # what SendSm asked for; goes first
        self.cancel_mseq = None
        self.asked_size = None
        self.closing = self.closed = False
        self.zero_copy = False  # whether to advertise
        self.counts = collections.Counter()

    # ---- What a script does ----
    def write(self, octets):
        assert not self.closing
        self.queue += octets

    def urgent(self, octet):
        assert not self.closing
        self.queue += octet
        self.urgent_queue.append([len(self.queue) - 1, False])

    def close_write(self):
        self.closing = True

    def abort(self):
        """As a program that closes with octets unread."""
        if self.closed:
            self.send(ABORT)
            self.until(lambda: not self.stream.out or self.stream.ended)
        else:
            self.reset()

    def reset(self):
        self.stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.sock.close()
        self.stream.ended = "reset"

    def may_change_mode(self):
        return self.peer_ack >= self.mode_mseq and not self.outstanding and not self.declined

    def change_mode(self, mode):
        """Of the half that sends."""
        assert self.may_change_mode()
        self.send(MODE_CHANGE, bytes([mode << 4, 0, 0, 0]))
        if self.mode == PIPELINED:
            self.mode_mseq = self.tx_mseq
        self.mode = mode

    def ask_size(self, size):
        assert self.asked_size is None
        self.asked_size = size
        self.peer_size = min(size, self.peer_size)
        self.send(CH_RCV_BUF, struct.pack(">I", size))

    def cancel(self):
        assert self.outstanding and self.cancel_mseq is None
        self.send(SRC_CANCEL)
        self.cancel_mseq = self.tx_mseq

    # ---- Sending ----
    def credit(self):
        return self.peer_bufs - (self.tx_mseq - self.peer_ack)

    def gives_credit(self):
        """Whether a message would tell of buffers that the other end does not know."""
        bufs, ack = next(reversed(self.told.values()))
        return ack + bufs < self.rx_mseq + self.free

    def send(self, mid, body=b"", flags=0, **wrong):
        """Sends one message; `wrong` fields are for tests of bad input."""
        self.tx_mseq += 1
        bufs, length = wrong.get("bufs", self.free), wrong.get("length", HEADER + len(body))
        mseq = wrong.get("mseq", self.tx_mseq) & 0xFFFFFFFF
        ack = wrong.get("ack", self.rx_mseq) & 0xFFFFFFFF
        opcode = SEND if mid in PLAIN_SEND and not flags & 3 else SEND_SE
        self.told[self.tx_mseq] = (bufs, ack)
        self.stream.send_message(header(mid, flags, bufs, length, mseq, ack) + body, opcode)
        self.counts["sent %02x" % mid] += 1

    def update(self):
        self.send(DATA)

    def _announce_urgent(self):
        for mark in self.urgent_queue:
            if not mark[1] and mark[0] < 65535 and self.credit() >= 1:
                mark[1] = True
                self.send(DATA, flags=OOB_PEND)

    def _send_stream(self):
        """One message with stream octets; the caller has checked the credit."""
        room = self.peer_size - HEADER
        if self.declined:
            size = min(len(self.declined), room, self._chunk(room))
            self.send(DATA, bytes(self.declined[:size]))
            del self.declined[:size]
            return
        if self.zero_copy and not self.urgent_queue and self.mode != BUFFERED \
                and self.rng.random() < 0.4 and self.cancel_mseq is None:
            self._advertise(room - 16)
            return
        size, flags = min(len(self.queue), self._chunk(room)), 0
        if self.urgent_queue:
            position, told = self.urgent_queue[0]
            if size > position:
                size, flags = position + 1, OOB_PRES | (0 if told else OOB_PEND)
                self.urgent_queue.pop(0)
        self.send(DATA, bytes(self.queue[:size]), flags)
        del self.queue[:size]
        for mark in self.urgent_queue:
            mark[0] -= size

    def _chunk(self, room):
        return self.rng.choice([1, self.rng.randint(1, room), room, room])

    def _advertise(self, room):
        size = self.rng.randint(2, 100000)
        octets = self.queue[:size]
        if len(octets) < 2:
            self.send(DATA, bytes(octets))
            del self.queue[:]
            return
        inline = 0
        if self.mode == COMBINED:
            inline = self.rng.randint(1, max(1, min(room, len(octets) - 1, 2000)))
        self.send(SRC_AVAIL, struct.pack(">IIQ", len(octets), self.rng.randint(1, 2**32 - 1),
                                         self.rng.randint(1, 2**62)) + octets[:inline])
        self.outstanding.append(bytes(octets[inline:]))
        del self.queue[:size]

    def _stream_may_go(self):
        if self.declined:
            return True
        if self.outstanding:
            return self.mode == PIPELINED and self.zero_copy and len(self.queue) > 1 \
                and len(self.outstanding) < self.adverts and self.cancel_mseq is None
        return bool(self.queue)

    def send_what_may_go(self):
        if not self.may_send or self.aborted:
            return
        self._announce_urgent()
        while self.credit() >= 3 and len(self.stream.out) < 1 << 18 and self._stream_may_go():
            if self.outstanding and not self.declined:
                self._advertise(self.peer_size - HEADER - 16)
            else:
                self._send_stream()
        drained = not (self.queue or self.outstanding or self.declined)
        if self.closing and not self.closed and drained \
                and self.credit() >= (1 if self.gives_credit() else 2):
            self.send(DISCONN)
            self.closed = True

    # ---- Buffers of this end ----
    def _repost(self):
        """Posts some of the consumed buffers again; at the latest when the other end can send no
        stream octets any more all of them."""
        bufs, ack = next(reversed(self.told.values()))
        known = bufs - (self.rx_mseq - ack)
        if self.repost == "never":
            return
        if self.repost == "eager" or known <= 2:
            some = self.consumed
        else:
            some = self.rng.randint(0, self.consumed)
        self.free += some
        self.consumed -= some
        if self.may_send and not self.aborted and self.gives_credit() and self.credit() >= 1 \
                and (known <= 2 or self.rng.random() < 0.1):
            self.update()

    # ---- Receiving ----
    def _check(self, opcode, message):
        require(len(message) >= HEADER, "%d octets are no message" % len(message))
        mid, flags, bufs, length, mseq, ack = struct.unpack(">BBHIII", message[:HEADER])
        body = len(message) - HEADER
        require(length == len(message), "Len %d of %d octets" % (length, len(message)))
        require(length <= self.size, "%d octets for a buffer of %d" % (length, self.size))
        require(mseq == self.rx_mseq + 1, "MSeq %d behind %d" % (mseq, self.rx_mseq))
        require(self.peer_ack <= ack <= self.tx_mseq, "MSeqAck %d" % ack)
        require(ack + bufs >= self.peer_ack + self.peer_bufs, "buffers were taken back")
        require(self.free > 0, "a message without a buffer")
        require(mid in BODY and mid not in (HELLO, HELLO_ACK), "MID %02x" % mid)
        require(body >= BODY[mid] if mid in STREAM else body == BODY[mid],
                "%d octets behind the header of %02x" % (body, mid))
        require(flags & 0xF8 == 0, "flags %02x" % flags)
        require(not flags & OOB_PRES or (mid == DATA and body), "OOB_PRES without its octet")
        require(not flags & REQ_PIPE or mid in (RD_COMPL, WR_COMPL), "REQ_PIPE on %02x" % mid)
        payload = body > BODY[mid]
        # What it knew of my buffers is what my message `ack` said.
        told, told_ack = self.told[ack]
        known = told - (mseq - 1 - told_ack)
        if flags & 3:
            needs = 1
        elif payload:
            needs = 3
        else:
            needs = 1 if ack + bufs > self.peer_ack + self.peer_bufs else 2
        require(known >= needs, "credit %d, where %d is needed for %02x" % (known, needs, mid))
        kind = (SEND,) if mid in PLAIN_SEND and not (flags & 3 and mid == DATA) else (SEND_SE,)
        if mid in (RD_COMPL, WR_COMPL):
            kind = (SEND_SE, SEND_SE_INVALIDATE, SEND_INVALIDATE)
        require(opcode in kind or (flags & OOB_PEND and opcode == SEND_SE),
                "RDMAP opcode %d for %02x, flags %02x" % (opcode, mid, flags))
        require(not self.peer_closed or not payload, "stream octets behind DisConn")
        self.free -= 1
        self.consumed += 1
        self.rx_mseq = mseq
        self.peer_bufs, self.peer_ack = bufs, ack
        while next(iter(self.told)) < ack:
            self.told.popitem(last=False)
        return mid, flags, ack, message[HEADER:]

    def _mark(self, flags, payload):
        """Of the message whose payload is not yet in `received`."""
        before = len(self.received)
        if flags & OOB_PEND:
            self.pends.append(before)
        if flags & OOB_PRES:
            require(self.pends, "OOB_PRES without OOB_PEND")
            position = before + len(payload) - 1
            require(position - self.pends.pop(0) <= 65535, "OOB_PEND too far ahead")
            self.urgent_at.append(position)

    def _on_message(self, opcode, message):
        mid, flags, ack, body = self._check(opcode, message)
        self.counts["received %02x" % mid] += 1
        require(not self.aborted, "a message behind AbortConn")
        if flags & 3:
            self._mark(flags, body if mid == DATA else b"")
        if mid == DATA:
            self.received += body
        elif mid == DISCONN:
            require(not self.peer_closed, "DisConn twice")
            self.peer_closed = True
        elif mid == ABORT:
            require(self.peer_closed, "AbortConn before DisConn")
            self.aborted = True
        elif mid == SENDSM:
            self._on_send_sm(ack)
        elif mid == CH_RCV_BUF_ACK:
            size, = struct.unpack(">I", body)
            require(self.asked_size is not None, "ChRcvBufAck without ChRcvBuf")
            require(37 <= size <= LARGEST_SIZE, "ChRcvBufAck: %d" % size)
            self.peer_size, self.asked_size = size, None
        else:
            require(False, "%02x was not expected" % mid)

    def _on_send_sm(self, ack):
        require(self.outstanding, "SendSm without SrcAvail")
        if self.cancel_mseq is not None and ack >= self.cancel_mseq:
            # The whole of what was not read is the program's again.
            self.queue[:0] = b"".join(self.outstanding)
            self.outstanding.clear()
        else:
            self.declined += self.outstanding.popleft()
        if not self.outstanding:
            self.cancel_mseq = None

    # ---- The loop ----
    def step(self, timeout=0.01):
        self.send_what_may_go()
        self.stream.poll(timeout)
        while True:
            message = self.stream.receive()
            self.may_send = self.may_send or self.stream.heard
            if message is None:
                break
            self._on_message(message[0], message[2])
            self._repost()
        self._repost()

    def until(self, condition, limit_s=LIMIT_S):
        end = time.monotonic() + limit_s
        while not condition():
            require(time.monotonic() < end, "not within %d s; %s" % (limit_s, self.state()))
            if self.stream.ended and not condition():
                raise Ended("TCP: %s; %s" % (self.stream.ended, self.state()))
            self.step()

    def drained(self):
        return not (self.queue or self.declined or self.outstanding or self.stream.out)

    def state(self):
        return "credit %d, free %d, %d received, %d queued, %d advertised, %s" % (
            self.credit(), self.free, len(self.received), len(self.queue), len(self.outstanding),
            dict(self.counts))

    def finish(self):
        """Closes both halves as the draft asks: the sender of the second DisConn ends TCP."""
        mine_was_second = self.peer_closed and not self.closed
        self.close_write()
        self.until(lambda: self.closed and not self.stream.out)
        if mine_was_second:
            self.stream.sock.shutdown(socket.SHUT_WR)
        self.until(lambda: self.peer_closed)
        end = time.monotonic() + LIMIT_S
        while not self.stream.ended:
            require(time.monotonic() < end, "TCP does not end behind both DisConns")
            self.step()
        # A process that has ended meets what is sent to it by a reset: also updates of ours that
        # were under way. It has nothing to lose then.
        require(self.stream.terminate is None, "Terminate behind both DisConns")
        self.stream.sock.close()


def connect(sock, rng, bufs=None, size=None, revision=2, **more):
    """The connecting peer, on a connected socket."""
    bufs, size = bufs or rng.randint(3, 40), size or rng.choice([37, 100, 5000, 65536])
    stream, answer = initiate(sock, rng, hello(bufs, size), revision)
    return Peer(stream, rng, parse_hello(answer, HELLO_ACK), bufs, size, True, **more)


def accept(sock, rng, bufs=None, size=None, **more):
    """The accepting peer, on an accepted socket."""
    request = read_request(sock)
    first = parse_hello(request[3], HELLO)
    bufs, size = bufs or rng.randint(3, 40), size or rng.choice([37, 100, 5000, 65536])
    stream = reply(sock, rng, request, hello_ack(bufs, size))
    return Peer(stream, rng, first, bufs, size, False, **more)
