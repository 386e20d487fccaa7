// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Inbound: ULPDUs -> user memory: what holds of each message, and Sends. What is parsed here was
// written by a peer that may be hostile: a header is used only after its checks, and memory is
// looked up again for every piece, because a region may be revoked between two of them.
#include <algorithm>
#include <cstring>

#include "base/fault.hpp"
#include "base/place.hpp"
#include "ddp_user/stream_impl.hpp"

namespace xsock::ddp {

const std::array<Stream::Impl::RxHandler, static_cast<std::size_t>(RxKind::kCount)>
    Stream::Impl::kRxHandlers = {{
        // in the order of RxKind
        {&Impl::begin_any, &Impl::target_write, &Impl::deliver_write},
        {&Impl::begin_body, &Impl::target_body, &Impl::deliver_read_request,
         StreamError::read_request_malformed},
        {&Impl::begin_read_response, &Impl::target_read_response, &Impl::deliver_read_response},
        {&Impl::begin_send, &Impl::target_send, &Impl::deliver_send},
        {&Impl::begin_any, &Impl::target_body, &Impl::deliver_terminate},
        {&Impl::begin_immediate, &Impl::target_body, &Impl::deliver_immediate,
         StreamError::immediate_malformed},
        {&Impl::begin_body, &Impl::target_body, &Impl::deliver_atomic_request,
         StreamError::atomic_malformed},
        {&Impl::begin_atomic_response, &Impl::target_body, &Impl::deliver_atomic_response},
        {&Impl::begin_acknowledge, &Impl::target_body, &Impl::deliver_acknowledge},
    }};

// -- one ULPDU --

std::size_t Stream::Impl::rx_ulpdu(ConstBytes ulpdu) {
    if (take_short(ulpdu)) return ulpdu.size();
    rx_begin(ulpdu.size());
    if (rx.phase == RxUlpdu::Phase::start && ulpdu.size() >= kUntaggedOctets) {
        std::memcpy(rx.header.data(), ulpdu.data(), kUntaggedOctets);
        rx.have = kTaggedOctets;
        rx_on_start();
        if (rx.phase == RxUlpdu::Phase::rest) {
            rx.have = kUntaggedOctets;
            rx_on_header();
        }
    }
    while (rx.remaining() != 0) {
        const Bytes target = rx_target();
        if (target.empty()) return rx.have;
        {
            const fault::Touch touch(1, target.data(), target.size());
            place(target.data(), ulpdu.data() + rx.have, target.size());
        }
        rx_advance(target.size());
    }
    rx_end(true);
    return ulpdu.size();
}

/// A message of one segment, of a kind that programs send many of. False: it is none, or something
/// is wrong with it: the long way says what.
bool Stream::Impl::take_short(ConstBytes ulpdu) {
    if (!state.established() || rx_discarding || ulpdu.size() <= kTaggedOctets) return false;
    constexpr unsigned kLast = (DDP_FLAG_LAST | DDP_VERSION) << 8 | RDMAP_VERSION;
    switch (load_be16(ulpdu.data())) {
        case kLast | RDMAP_SEND:
        case kLast | RDMAP_SEND_SE:
            return take_short_send(ulpdu, false);
        case kLast | RDMAP_ACK_REQUEST | RDMAP_SEND:
        case kLast | RDMAP_ACK_REQUEST | RDMAP_SEND_SE:
            return take_short_send(ulpdu, (negotiated.features & MPA_FEATURE_ACKNOWLEDGE) != 0);
        case kLast | RDMAP_ACKNOWLEDGE:
            return take_short_acknowledge(ulpdu);
        case kLast | RDMAP_READ_REQUEST:
            return take_short_request(ulpdu);
        case kLast | DDP_FLAG_TAGGED << 8 | RDMAP_READ_RESPONSE:
            return take_short_response(ulpdu);
        default:
            return false;
    }
}

/// A Send that is one segment and goes into the first SGE of its receive: nearly every message of
/// a program that sends small ones. False: nothing has been done but that its receive may have been
/// taken.
bool Stream::Impl::take_short_send(ConstBytes ulpdu, bool asks) {
    if (message.into != RxMessage::Into::none || ulpdu.size() <= kUntaggedOctets) return false;
    const std::byte* const header = ulpdu.data();
    if (load_be32(header + offsetof(ddp_untagged, qn)) != DDP_QN_SEND ||
        load_be32(header + offsetof(ddp_untagged, msn)) != expected_msn[DDP_QN_SEND] ||
        load_be32(header + offsetof(ddp_untagged, mo)) != 0) {
        return false;
    }
    rx.length = static_cast<std::uint32_t>(ulpdu.size());
    rx.segment.opcode = static_cast<std::uint8_t>(load_be16(header) & RDMAP_OPCODE_MASK);
    rx.segment.last = true;
    rx.segment.stag = load_be32(header + 2);
    rx.op = opcode_info(rx.segment.opcode);
    if (!take_receive()) return false;
    const std::size_t bytes = ulpdu.size() - kUntaggedOctets;
    const Sge& sge = message.receive.sge[0];
    if (message.receive.sge_count == 0 || sge.length < bytes) return false;
    const Sge piece{sge.address, static_cast<std::uint32_t>(bytes), sge.lkey};
    if (!permits(piece, true)) return false;
    {
        const fault::Touch touch(1, piece.address, bytes);
        place(piece.address, header + kUntaggedOctets, bytes);
    }
    show_placed();
    ++counters.rx_segments;
    counters.rx_payload_bytes += bytes;
    ++counters.rx_messages[message.opcode];
    ++expected_msn[DDP_QN_SEND];
    message.write.forget();
    message.end();
    replies.took(asks);
    complete_receive(message.receive, WcStatus::success, static_cast<std::uint32_t>(bytes));
    return true;
}

void Stream::Impl::rx_begin(std::size_t ulpdu_length) {
    rx.begin(ulpdu_length, state.receiving() ? RxUlpdu::Phase::start : RxUlpdu::Phase::discard);
    if (!state.receiving() || ulpdu_length >= kTaggedOctets) return;
    rx.phase = RxUlpdu::Phase::discard;
    if (!rx_discarding) rx.fault = StreamError::segment_truncated;
}

Bytes Stream::Impl::rx_target() {
    switch (rx.phase) {
        case RxUlpdu::Phase::start:
            return Bytes(rx.header).subspan(rx.have, kTaggedOctets - rx.have);
        case RxUlpdu::Phase::blocked:
            if (!take_receive()) return {};
            rx.phase = RxUlpdu::Phase::rest;
            [[fallthrough]];
        case RxUlpdu::Phase::rest:
            return Bytes(rx.header).subspan(rx.have);
        case RxUlpdu::Phase::payload:
            if (rx.remaining() == 0) return {};
            return (this->*rx_handler().target)();
        case RxUlpdu::Phase::discard:
            break;
    }
    return rx.discard();
}

void Stream::Impl::rx_advance(std::size_t n) {
    XSOCK_ASSERT(n <= rx.remaining());
    rx.have += static_cast<std::uint32_t>(n);
    switch (rx.phase) {
        case RxUlpdu::Phase::start:
            if (rx.have == kTaggedOctets) rx_on_start();
            return;
        case RxUlpdu::Phase::rest:
            if (rx.have == kUntaggedOctets) rx_on_header();
            return;
        case RxUlpdu::Phase::payload:
            if (rx.cursor != nullptr) rx.cursor->offset += static_cast<std::uint32_t>(n);
            return;
        case RxUlpdu::Phase::blocked:
        case RxUlpdu::Phase::discard:
            return;
    }
}

void Stream::Impl::rx_end(bool intact) {
    if (!state.receiving()) return;
    if (!intact) {
        rx.phase = RxUlpdu::Phase::discard;
        return;
    }
    if (rx.fault != StreamError::none) {
        rx_raise(rx.fault);
        return;
    }
    if (rx.phase != RxUlpdu::Phase::payload) return;  // its receive was dropped
    XSOCK_ASSERT(rx.remaining() == 0);
    rx.phase = RxUlpdu::Phase::discard;
    show_placed();
    ++counters.rx_segments;
    counters.rx_payload_bytes += rx.payload_bytes();
    if (rx.segment.last) ++counters.rx_messages[rx.segment.opcode];
    const bool counts = rx.segment.last && is_counted(rx.op->kind) && !awaits_rtr();
    (this->*rx_handler().deliver)();
    if (counts && state.receiving()) replies.took(rx.segment.asks);
    // RFC 6581 §9 wants the RTR message that was agreed on here; any sound FPDU proves as well that
    // the initiator has ended its start-up.
    if (awaits_rtr()) state.establish();
}

/// The first 14 octets: all of a tagged header; of an untagged one, enough to find its receive.
/// A receive is taken before the last four, so that a zero-length Send can wait for one too.
void Stream::Impl::rx_on_start() {
    const StreamError v = parse_start(std::span(rx.header).first<kTaggedOctets>(), rx.segment,
                                      rx.op, negotiated.features);
    if (rx_discarding && (v != StreamError::none || rx.op->kind != RxKind::terminate)) {
        rx.phase = RxUlpdu::Phase::discard;
        return;
    }
    if (!rx.segment.tagged && rx.length < kUntaggedOctets) {
        rx.fail(StreamError::segment_truncated);
        return;
    }
    if (rx.segment.tagged) {
        rx.phase = RxUlpdu::Phase::payload;
        if (v != StreamError::none) {
            rx.fail(v);
        } else {
            (this->*rx_handler().begin)();
        }
        return;
    }
    rx.phase = RxUlpdu::Phase::rest;  // even of a bad header: the Terminate quotes all of it
    // RFC 5041 §7.1: the MSN must be the expected one; a Terminate, the last message, may have any.
    // take_short_send() has the same check.
    if (v != StreamError::none) {
        rx.fault = v;
    } else if (rx.op->kind != RxKind::terminate && rx.segment.msn != expected_msn[rx.segment.qn]) {
        rx.fault = StreamError::untagged_msn_range;
    } else if (rx.op->qn == DDP_QN_SEND && !take_receive()) {
        rx.phase = RxUlpdu::Phase::blocked;
    }
}

/// An untagged header is complete.
void Stream::Impl::rx_on_header() {
    parse_untagged_rest(rx.header, rx.segment);
    rx.phase = rx.fault == StreamError::none ? RxUlpdu::Phase::payload : RxUlpdu::Phase::discard;
    if (rx.fault == StreamError::none) (this->*rx_handler().begin)();
}

/// Ends the stream over the ULPDU in hand.
void Stream::Impl::rx_raise(StreamError v, ConstBytes rdmap_header) {
    fail_answered(rx.fault_status);
    ErrorContext error_context{.rdmap_header = rdmap_header, .segment_bytes = rx.length};
    if (rx.length >= kTaggedOctets && rx.length >= rx.header_octets()) {
        error_context.ddp_header = ConstBytes(rx.header).first(rx.header_octets());
    }
    fail(v, error_context);
    fail_receive(rx.fault_status);
}

/// The question that the ULPDU in hand answers will complete with `status`.
void Stream::Impl::fail_answered(WcStatus status) {
    if (status == WcStatus::success || rx.op == nullptr || orq.empty()) return;
    if (rx.op->kind == RxKind::read_response || rx.op->kind == RxKind::atomic_response) {
        state.set_failed_wqe(orq.front().sequence, status);
    }
}

/// The receive that the ULPDU in hand fills completes with `status`.
void Stream::Impl::fail_receive(WcStatus status) {
    if (status == WcStatus::success || rx.op == nullptr || rx.op->kind != RxKind::send) return;
    if (message.end()) complete_receive(message.receive, status);
}

void Stream::Impl::rx_memory_gone() {
    fail_answered(WcStatus::local_protection_error);
    fail_receive(WcStatus::local_protection_error);
}

// -- Send, in all its forms --

/// What the program posted goes first.
bool Stream::Impl::find_receive() {
    if (config.spare_receive != nullptr && config.rq->size() == 0) {
        const std::size_t bytes =
            rx.segment.last ? rx.length - kUntaggedOctets : std::size_t{kUnknownBytes};
        if (config.spare_receive(config.spare_argument, static_cast<std::uint32_t>(bytes),
                                 message.receive)) {
            return true;
        }
    }
    return config.rq->take(message.receive);
}

/// False: no receive is posted.
bool Stream::Impl::take_receive() {
    if (message.into != RxMessage::Into::none) return true;
    if (awaits_rtr() && negotiated.rtr == Rtr::send && rx.op->kind == RxKind::send &&
        rx.segment.last && rx.length == kUntaggedOctets) {
        message.begin(RxMessage::Into::rtr, rx.segment);
    } else if (find_receive()) {
        message.begin(RxMessage::Into::receive, rx.segment);
        replies.drop_rnr();
    } else {
        return false;
    }
    return true;
}

/// The segment in hand, if it fills a receive, goes nowhere; whatever else is in hand goes on, and
/// so does what follows.
void Stream::Impl::discard_segment_of_receive() noexcept {
    const bool begun = rx.phase == RxUlpdu::Phase::rest || rx.phase == RxUlpdu::Phase::payload;
    if (!begun || rx.fault != StreamError::none || rx.op->qn != DDP_QN_SEND ||
        message.into != RxMessage::Into::receive) {
        return;
    }
    if (rx.segment.last) ++expected_msn[DDP_QN_SEND];
    rx.phase = RxUlpdu::Phase::discard;
    replies.stop();
}

void Stream::Impl::begin_send() {
    if (rx.segment.mo != message.offset) {
        rx.fail(StreamError::untagged_mo);
    } else if (rx.segment.opcode != message.opcode) {
        rx.fail(StreamError::rdmap_opcode);
    } else if (rx.op->invalidates && rx.segment.stag != message.stag) {
        rx.fail(StreamError::invalidate_stag_invalid);
    } else if (message.into == RxMessage::Into::receive &&
               rx.payload_bytes() > message.receive.length - message.offset) {
        rx.fail(StreamError::untagged_too_long, WcStatus::local_length_error);
    } else {
        rx.cursor = &message.cursor;
    }
}

Bytes Stream::Impl::target_send() {
    const Sge piece = message.cursor.piece(sges_of(message.receive), rx.remaining());
    if (!permits(piece, true)) {
        return rx.fail(StreamError::local_catastrophic, WcStatus::local_protection_error);
    }
    return {piece.address, piece.length};
}

void Stream::Impl::deliver_send() {
    message.offset += static_cast<std::uint32_t>(rx.payload_bytes());
    if (!rx.segment.last) return;
    ++expected_msn[DDP_QN_SEND];
    message.write.forget();
    if (message.into == RxMessage::Into::rtr) {
        message.end();
        return;
    }
    if (rx.op->invalidates) {
        StreamError v = config.memory->check_invalidate(rx.segment.stag, config.pd, config.qp_num);
        if (v == StreamError::none && !config.memory->invalidate(rx.segment.stag)) {
            v = StreamError::invalidate_not_permitted;  // windows are bound to it
        }
        if (v != StreamError::none) {
            rx_raise(v);
            return;
        }
    }
    message.end();
    complete_receive(message.receive, WcStatus::success, message.offset);
}

bool Stream::Impl::move_receive(std::uint64_t wr_id, const RecvWqe& other) {
    if (message.into != RxMessage::Into::receive || !message.receive.internal ||
        message.receive.wr_id != wr_id) {
        return false;
    }
    message.move_to(other);
    return true;
}

void RxMessage::move_to(const RecvWqe& other) {
    std::size_t placed = cursor.offset;
    for (std::uint32_t i = 0; i < cursor.index; ++i) placed += receive.sge[i].length;
    Cursor from, to;
    for (std::size_t left = placed; left > 0;) {
        const Sge source = from.piece(sges_of(receive), left);
        const Sge target = to.piece(sges_of(other), source.length);
        {
            const fault::Touch reading(0, source.address, target.length);
            const fault::Touch writing(1, target.address, target.length);
            std::copy_n(source.address, target.length, target.address);
        }
        from.offset += target.length;
        to.offset += target.length;
        left -= target.length;
    }
    receive = other;
    cursor = to;
}

}  // namespace xsock::ddp
