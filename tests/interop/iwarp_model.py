# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""The iWARP below the SDP model, from the RFCs and without code of this tree: MPA's start-up (RFC
5044 §7.1, RFC 6581), FPDUs with CRC32c, DDP's untagged segments (RFC 5041), RDMAP's Sends (RFC 5040).
No markers. It checks all that it receives and raises BrokenRule.
"""
import select
import socket
import struct

REQUEST, REPLY = b"MPA ID Req Frame", b"MPA ID Rep Frame"
MARKERS, CRC, REJECT, ENHANCED = 0x80, 0x40, 0x20, 0x10
RTR_MODEL, RTR_SEND, RTR_WRITE, RTR_READ = 0x80000000, 0x40000000, 0x8000, 0x4000
SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE, TERMINATE = 3, 4, 5, 6, 7
LIMIT_S = 60


class BrokenRule(Exception):
    """The other end broke a rule."""


class Ended(Exception):
    """TCP ended before the other end should have ended it."""


def _table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = _table()


def crc32c(octets):
    crc, table = 0xFFFFFFFF, CRC_TABLE
    for octet in octets:
        crc = table[(crc ^ octet) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def require(holds, rule):
    if not holds:
        raise BrokenRule(rule)


def read_exactly(sock, size):
    """`size` octets of a socket that blocks."""
    octets = b""
    while len(octets) < size:
        try:
            more = sock.recv(size - len(octets))
        except ConnectionResetError as error:
            raise Ended("reset in start-up") from error
        if not more:
            raise Ended("end in start-up, behind %r" % octets)
        octets += more
    return octets


def _frame(key, flags, revision, private_data):
    return key + struct.pack(">BBH", flags, revision, len(private_data)) + private_data


def _read_frame(sock, key):
    header = read_exactly(sock, 20)
    flags, revision, length = struct.unpack(">BBH", header[16:])
    require(header[:16] == key, "MPA: %r where %r belongs" % (header[:16], key))
    require(length <= 512, "MPA: PD_Length %d" % length)
    return flags, revision, read_exactly(sock, length)


def _cut_enhanced(private_data):
    require(len(private_data) >= 4, "MPA: no enhanced data in spite of S")
    return struct.unpack(">I", private_data[:4])[0], private_data[4:]


class Stream:
    """An MPA stream in full operation. Non-blocking: receive() gives whole RDMAP messages."""

    def __init__(self, sock, rng, crc):
        self.sock, self.rng, self.crc = sock, rng, crc
        self.out, self.input = bytearray(), bytearray()
        self.tx_msn = self.rx_msn = 1
        self.partial = bytearray()
        self.ended = None  # "fin" or "reset"
        self.terminate = None  # the payload of a Terminate Message
        self.heard = False  # a whole FPDU
        self.broken = False  # nothing more can be sent
        self.read_size = 1 << 16
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)

    # ---- Out ----
    def send_message(self, message, opcode, stag=0, largest_segment=None):
        """Queues a Send, in segments of random sizes."""
        largest = largest_segment or self.rng.choice([40, 700, 1440, 9000, 60000])
        offset = 0
        while True:
            size = min(len(message) - offset, largest)
            last = offset + size == len(message)
            header = struct.pack(">BBIIII", 0x41 if last else 0x01, 0x40 | opcode, stag, 0,
                                 self.tx_msn, offset)
            self.send_fpdu(header + message[offset:offset + size])
            offset += size
            if last:
                break
        self.tx_msn += 1

    def send_fpdu(self, ulpdu):
        fpdu = struct.pack(">H", len(ulpdu)) + ulpdu
        fpdu += bytes(-len(fpdu) % 4)
        self.out += fpdu + struct.pack("<I", crc32c(fpdu) if self.crc else 0)

    # ---- In and out ----
    def poll(self, timeout):
        """Moves octets; waits at most `timeout` seconds for the first of them."""
        if self.ended:
            return
        readable, writable, _ = select.select([self.sock], [self.sock] if self.out else [], [],
                                              timeout)
        if writable:
            some = self.rng.choice([1, 100, 1 << 20, 1 << 20])
            try:
                del self.out[:self.sock.send(self.out[:some])]
            except (ConnectionResetError, BrokenPipeError):
                self.out.clear()  # what came before the reset can still be read
                self.broken = readable = True
        if readable:
            try:
                more = self.sock.recv(self.read_size)
            except BlockingIOError:
                return  # a send failed, and there is nothing to read yet
            except ConnectionResetError:
                self.ended = "reset"
                return
            self.input += more
            if not more:
                self.ended = "reset" if self.broken else "fin"

    # ---- In ----
    def _fpdu(self):
        if len(self.input) < 2:
            return None
        size = struct.unpack(">H", self.input[:2])[0]
        padded = 2 + size + -(2 + size) % 4
        if len(self.input) < padded + 4:
            return None
        if self.crc:
            require(struct.unpack("<I", self.input[padded:padded + 4])[0]
                    == crc32c(self.input[:padded]), "MPA: CRC")
        require(not any(self.input[2 + size:padded]), "MPA: pad is not zero")
        ulpdu = bytes(self.input[2:2 + size])
        del self.input[:padded + 4]
        self.heard = True
        return ulpdu

    def receive(self):
        """(opcode, Invalidate STag, message) of the next whole Send, or None."""
        while self.terminate is None:
            ulpdu = self._fpdu()
            if ulpdu is None:
                return None
            require(len(ulpdu) >= 14 and ulpdu[0] & 3 == 1 and ulpdu[1] >> 6 == 1, "DDP: header")
            require(ulpdu[0] & 0x3C == 0 and ulpdu[1] & 0x30 == 0, "DDP: reserved bits")
            opcode = ulpdu[1] & 15
            if ulpdu[0] & 0x80:
                require(opcode == 0 and len(ulpdu) == 14, "RDMAP: tagged message %d" % opcode)
                continue  # the zero-length Write that readies the responder to send
            require(len(ulpdu) >= 18, "DDP: header cut")
            stag, queue, msn, offset = struct.unpack(">IIII", ulpdu[2:18])
            if opcode == TERMINATE:
                require((queue, msn, offset) == (2, 1, 0), "RDMAP: Terminate's header")
                self.terminate = ulpdu[18:]
                return None
            require(opcode in (SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE),
                    "RDMAP: opcode %d" % opcode)
            require((queue, msn, offset) == (0, self.rx_msn, len(self.partial)),
                    "DDP: queue %d, MSN %d, offset %d" % (queue, msn, offset))
            self.partial += ulpdu[18:]
            if ulpdu[0] & 0x40:
                message, self.partial = bytes(self.partial), bytearray()
                self.rx_msn += 1
                return opcode, stag, message
        return None


def initiate(sock, rng, private_data, revision=2):
    """Sends a Request; the Stream and the Reply's private data."""
    sock.setblocking(True)
    sock.settimeout(LIMIT_S)
    flags, enhanced = CRC, b""
    if revision == 2:
        flags |= ENHANCED
        enhanced = struct.pack(">I", RTR_MODEL | RTR_WRITE | 1 << 16 | 1)
    sock.sendall(_frame(REQUEST, flags, revision, enhanced + private_data))
    flags, answered, data = _read_frame(sock, REPLY)
    require(answered == revision, "MPA: revision %d, not %d" % (answered, revision))
    require(not flags & MARKERS, "MPA: markers, which this model cannot do")
    require(flags & CRC, "MPA: no CRC, although one end asked for it")
    if flags & REJECT:
        raise Ended("MPA: refused")
    ready = None
    if flags & ENHANCED:
        require(revision == 2 and answered == 2, "MPA: enhanced Reply to revision %d" % revision)
        ready, data = _cut_enhanced(data)
    stream = Stream(sock, rng, True)
    if ready is not None and ready & RTR_MODEL:
        require(ready & RTR_WRITE, "MPA: Reply wants an RTR that was not offered")
        stream.send_fpdu(struct.pack(">BBIQ", 0xC1, 0x40, 0, 0))
    return stream, data


def read_request(sock):
    """A Request's (flags, revision, enhanced data or None, private data)."""
    sock.setblocking(True)
    sock.settimeout(LIMIT_S)
    flags, revision, data = _read_frame(sock, REQUEST)
    require(revision in (1, 2), "MPA: revision %d" % revision)
    require(not flags & MARKERS, "MPA: markers, which this model cannot do")
    enhanced = None
    if flags & ENHANCED:
        require(revision == 2, "MPA: S in revision 1")
        enhanced, data = _cut_enhanced(data)
    return flags, revision, enhanced, data


def reply(sock, rng, request, private_data):
    """Answers what read_request() gave; the Stream. No CRC only where the Request wants none."""
    flags, revision, enhanced, _ = request
    head, answer = flags & CRC | (ENHANCED if enhanced is not None else 0), b""
    if enhanced is not None:
        value = 1 << 16 | 1
        if enhanced & RTR_MODEL:
            require(enhanced & RTR_WRITE, "MPA: no zero-length Write offered as RTR")
            value |= RTR_MODEL | RTR_WRITE
        answer = struct.pack(">I", value)
    sock.sendall(_frame(REPLY, head, revision, answer + private_data))
    return Stream(sock, rng, bool(flags & CRC))


def listen():
    """A listening socket of loopback."""
    return socket.create_server(("127.0.0.1", 0))
