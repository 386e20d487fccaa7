// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Outbound: send-queue entries and the peer's Read Requests -> ULPDUs, each kind of message by
// itself.
#include <algorithm>

#include "ddp_user/stream_impl.hpp"

namespace xsock::ddp {
namespace {

// Of zero-length messages: it is not looked up, but iw_cxgb4 fails on 0.
constexpr std::uint32_t kAnyStag = 1;

void set_header(const Segment& segment, UlpduOut& out) {
    out.header_size = encode(segment, out.header.data());
    out.payload_count = 0;
}

/// What the header of a Send carries for its kind.
std::uint32_t beside_send(const SendWqe& wqe) {
    if (wqe.opcode == SendOpcode::send_invalidate) return wqe.invalidate_stag;
    if (wqe.opcode == SendOpcode::send_immediate) return static_cast<std::uint32_t>(wqe.immediate);
    return 0;
}

void add_payload(UlpduOut& out, const std::byte* from, std::size_t bytes) {
    out.payload[out.payload_count++] = {from, bytes};
}

}  // namespace

/// The RTR message (RFC 6581 §9), an ack request (what has the peer taken?), or a probe:
/// zero-length, and of no work request.
bool Stream::Impl::build_unposted(Rtr kind, UlpduOut& out) {
    switch (kind) {
        case Rtr::send:
            set_header({.opcode = RDMAP_SEND, .qn = DDP_QN_SEND, .msn = tx.send_msn++}, out);
            break;
        case Rtr::read:
            if (!start_read(kNoEntry, {.source_stag = kAnyStag}, out)) return false;
            break;
        case Rtr::none:
        case Rtr::write:
            set_header({.opcode = RDMAP_WRITE, .tagged = true, .stag = kAnyStag}, out);
            break;
    }
    ++counters.tx_messages[kind == Rtr::send   ? RDMAP_SEND
                           : kind == Rtr::read ? RDMAP_READ_REQUEST
                                               : RDMAP_WRITE];
    tx.log.push(TxLog::Kind::unposted, true);
    return true;
}

/// By itself: no message of an entry's can carry it any more.
bool Stream::Impl::build_ack_request(UlpduOut& out) {
    if (tx.acks.by() == AckRequests::By::reads) return build_unposted(Rtr::read, out);
    set_header({.opcode = RDMAP_WRITE, .tagged = true, .asks = true, .stag = kAnyStag}, out);
    ++counters.tx_messages[RDMAP_WRITE];
    tx.acks.ask_by_write(tx.next);
    tx.log.push(TxLog::Kind::unposted, true);
    return true;
}

/// What was taken of the peer's messages. @return octets
std::size_t Stream::Impl::put_acknowledge(std::byte* to) {
    const std::uint32_t value = replies.value();
    ++counters.tx_messages[RDMAP_ACKNOWLEDGE];
    tx.log.push(TxLog::Kind::unposted, true);
    return encode(Segment{.opcode = RDMAP_ACKNOWLEDGE,
                          .stag = value,
                          .qn = DDP_QN_ACKNOWLEDGE,
                          .msn = replies.give()},
                  to);
}

/// The next segment of entry tx.next (RFC 5041 §5.2), at most `mulpdu` octets with its header; the
/// last one finishes the entry. False: the entry cannot be sent, and the stream has failed.
bool Stream::Impl::build_from_send_queue(std::size_t mulpdu, UlpduOut& out) {
    const SendWqe& wqe = config.sq->at(tx.next);
    if (!may_send(wqe.opcode, negotiated)) {
        fail_entry(WcStatus::local_qp_error);  // the peer may not know it
        return false;
    }
    if (awaits_response(wqe.opcode)) return build_request(wqe, out);
    if (wqe.opcode == SendOpcode::immediate || tx.immediate_due) return build_immediate(wqe, out);

    const bool immediate_follows = wqe.opcode == SendOpcode::write_immediate;
    const bool tagged = wqe.opcode == SendOpcode::write || immediate_follows;
    const std::size_t room = mulpdu - (tagged ? kTaggedOctets : kUntaggedOctets);
    const std::uint32_t left = wqe.length - tx.offset;
    const auto bytes = static_cast<std::uint32_t>(std::min<std::size_t>(left, room));
    const bool last = bytes == left;
    const std::uint8_t opcode = tagged ? RDMAP_WRITE : rdmap_opcode(wqe);
    const bool asks = last && !immediate_follows && tx.acks.give(tx.next, wqe.flags);
    if (tagged) {
        set_header({.opcode = opcode,
                    .tagged = true,
                    .last = last,
                    .asks = asks,
                    .stag = wqe.remote_stag,
                    .to = wqe.remote_to + tx.offset},
                   out);
    } else {
        set_header({.opcode = opcode,
                    .last = last,
                    .asks = asks,
                    .stag = beside_send(wqe),
                    .qn = DDP_QN_SEND,
                    .msn = tx.send_msn,
                    .mo = tx.offset},
                   out);
    }

    if ((wqe.flags & kSendInline) != 0) {
        if (bytes > 0) add_payload(out, wqe.inline_payload() + tx.offset, bytes);
    } else {
        for (std::uint32_t n = bytes; n > 0;) {
            const Sge piece = tx.cursor.piece(sges_of(wqe), n);
            if (!permits(piece, false)) {
                fail_entry(WcStatus::local_protection_error);
                return false;
            }
            add_payload(out, piece.address, piece.length);
            tx.cursor.offset += piece.length;
            n -= piece.length;
        }
        out.unstable = config.snapshot || (wqe.flags & kSendSnapshot) != 0;
    }
    tx.offset += bytes;
    counters.tx_payload_bytes += bytes;
    tx.log.push(TxLog::Kind::send_queue, last && !immediate_follows);
    if (last) {
        ++counters.tx_messages[opcode];
        tx.acks.count(1);
        if (!tagged) ++tx.send_msn;
        if (immediate_follows) {
            tx.immediate_due = true;
        } else {
            tx.finish_entry();
        }
    }
    return true;
}

bool Stream::Impl::build_immediate(const SendWqe& wqe, UlpduOut& out) {
    const std::uint8_t opcode = rdmap_opcode(wqe);
    set_header({.opcode = opcode,
                .asks = tx.acks.give(tx.next, wqe.flags),
                .qn = DDP_QN_SEND,
                .msn = tx.send_msn++},
               out);
    tx.acks.count(1);
    store_be64(out.header.data() + out.header_size, wqe.immediate);
    out.header_size += kImmediateOctets;
    ++counters.tx_messages[opcode];
    tx.log.push(TxLog::Kind::send_queue, true);
    tx.finish_entry();
    return true;
}

/// A Read or Atomic Request.
bool Stream::Impl::build_request(const SendWqe& wqe, UlpduOut& out) {
    if (ord == 0) {
        fail_entry(WcStatus::local_qp_error);
        return false;
    }
    for (const Sge& sge : sges_of(wqe)) {
        if (sge.length > 0 && !permits(sge, true)) {
            fail_entry(WcStatus::local_protection_error);
            return false;
        }
    }
    const ReadRequest request{
        .size = wqe.length, .source_stag = wqe.remote_stag, .source_to = wqe.remote_to};
    const bool started =
        is_atomic(wqe.opcode) ? start_atomic(wqe, out) : start_read(tx.next, request, out);
    if (!started) return false;
    ++counters.tx_messages[rdmap_opcode(wqe)];
    tx.log.push(TxLog::Kind::send_queue, true);
    tx.finish_entry();
    return true;
}

/// Enters a Read into the ORQ and writes its Request.
bool Stream::Impl::start_read(std::uint64_t sequence, const ReadRequest& what, UlpduOut& out) {
    ReadRequest request = what;
    request.sink_stag = orq.next_sink_stag();
    const std::uint32_t msn = orq.next_msn();
    const std::uint64_t confirms = sequence == kNoEntry ? tx.next : sequence + 1;
    if (!enter_orq({.sequence = sequence,
                    .confirms = confirms,
                    .sink_stag = request.sink_stag,
                    .length = what.size,
                    .msn = msn})) {
        return false;
    }
    set_header({.opcode = RDMAP_READ_REQUEST, .qn = DDP_QN_READ_REQUEST, .msn = msn}, out);
    encode(request, out.header.data() + out.header_size);
    out.header_size += kReadRequestOctets;
    return true;
}

/// Enters an atomic operation into the ORQ and writes its Request. Its identifier is its MSN: the
/// head of the ORQ is all that an answer is compared with.
bool Stream::Impl::start_atomic(const SendWqe& wqe, UlpduOut& out) {
    const std::uint32_t msn = orq.next_msn();
    if (!enter_orq({.sequence = tx.next,
                    .confirms = tx.next + 1,
                    .sink_stag = msn,
                    .length = wqe.length,
                    .msn = msn,
                    .atomic = true})) {
        return false;
    }
    const bool add = wqe.opcode == SendOpcode::fetch_add;
    Atomic operands = wqe.atomic();
    if (add) {  // RFC 7306 §5.2: as if all were compared, with zero
        operands.compare = 0;
        operands.compare_mask = ~std::uint64_t{0};
    }
    const AtomicRequest request{.opcode = static_cast<std::uint8_t>(
                                    add ? RDMAP_ATOMIC_FETCH_ADD : RDMAP_ATOMIC_COMPARE_SWAP),
                                .request_id = msn,
                                .remote_stag = wqe.remote_stag,
                                .remote_to = wqe.remote_to,
                                .operands = operands};
    set_header({.opcode = RDMAP_ATOMIC_REQUEST, .qn = DDP_QN_READ_REQUEST, .msn = msn}, out);
    encode(request, out.header.data() + out.header_size);
    out.header_size += kAtomicRequestOctets;
    return true;
}

/// False: no memory; the stream has ended over it.
bool Stream::Impl::enter_orq(const OutboundRead& read) {
    if (!orq.push(read)) {
        state.set_failed_wqe(read.sequence, WcStatus::local_qp_error);
        fail(StreamError::local_catastrophic);
        return false;
    }
    tx.acks.asked(read.confirms);
    return true;
}

/// Entry tx.next cannot be sent, and with it the stream ends.
void Stream::Impl::fail_entry(WcStatus status) {
    state.set_failed_wqe(tx.next, status);
    fail(StreamError::local_catastrophic);
}

bool Stream::Impl::build_response(std::size_t mulpdu, UlpduOut& out) {
    InboundRead& read = irq.current();
    if (read.atomic) {
        build_atomic_response(read.response, out);
        return true;
    }
    const std::uint32_t left = read.request.size - irq.offset();
    const auto bytes =
        static_cast<std::uint32_t>(std::min<std::size_t>(left, mulpdu - kTaggedOctets));
    const bool last = bytes == left;
    set_header({.opcode = RDMAP_READ_RESPONSE,
                .tagged = true,
                .last = last,
                .stag = read.request.sink_stag,
                .to = read.request.sink_to + irq.offset()},
               out);
    if (bytes > 0) {
        // Looked up again for each segment: the region may have been revoked since the last.
        const auto found = remote(read.request.source_stag, Right::remote_read,
                                  read.request.source_to + irq.offset(), bytes);
        if (found.stream_error != StreamError::none) {
            fail_read(read, found.stream_error);
            return false;
        }
        // The STag may mean other memory than for the segment before.
        if (irq.offset() != 0 && read.source + irq.offset() != found.address) {
            fail_read(read, StreamError::read_stag_invalid);
            return false;
        }
        read.source = found.address - irq.offset();
        add_payload(out, found.address, bytes);
        // The owner may change what a peer may read, at any time; the CRC must fit all the same.
        out.unstable = true;
    }
    irq.advance(bytes);
    counters.tx_payload_bytes += bytes;
    tx.log.push(TxLog::Kind::response, last);
    if (last) {
        ++counters.tx_messages[RDMAP_READ_RESPONSE];
        irq.finish();
        tx.under_way = TxState::Source::none;
    }
    return true;
}

/// The operation itself was done when it was asked for.
void Stream::Impl::build_atomic_response(const AtomicResponse& response, UlpduOut& out) {
    set_header({.opcode = RDMAP_ATOMIC_RESPONSE,
                .qn = DDP_QN_ATOMIC_RESPONSE,
                .msn = irq.take_response_msn()},
               out);
    encode(response, out.header.data() + out.header_size);
    out.header_size += kAtomicResponseOctets;
    ++counters.tx_messages[RDMAP_ATOMIC_RESPONSE];
    tx.log.push(TxLog::Kind::response, true);
    irq.finish();
    tx.under_way = TxState::Source::none;
}

/// The Read Request is long gone: its headers are written anew for the Terminate to quote.
void Stream::Impl::fail_read(const InboundRead& read, StreamError v) {
    std::array<std::byte, kUntaggedOctets + kReadRequestOctets> ulpdu;
    encode(Segment{.opcode = RDMAP_READ_REQUEST, .qn = DDP_QN_READ_REQUEST, .msn = read.msn},
           ulpdu.data());
    encode(read.request, ulpdu.data() + kUntaggedOctets);
    fail(v, {.ddp_header = ConstBytes(ulpdu).first(kUntaggedOctets),
             .rdmap_header = ConstBytes(ulpdu).subspan(kUntaggedOctets),
             .segment_bytes = ulpdu.size()});
}

}  // namespace xsock::ddp
