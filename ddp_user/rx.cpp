// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Inbound: ULPDUs -> user memory: what holds of each message, and Sends. What is parsed here was
// written by a peer that may be hostile: a header is believed only after its checks, and memory is
// looked up again for every piece, because a region may be revoked between two of them.
#include <algorithm>
#include <cstring>

#include "base/fault.hpp"
#include "base/place.hpp"
#include "ddp_user/stream_impl.hpp"

namespace xsock::ddp {
namespace {

/// What was placed becomes visible before what its delivery tells.
void show_placed() noexcept { __atomic_thread_fence(__ATOMIC_RELEASE); }

}  // namespace

const std::array<Stream::Impl::RxHandler, static_cast<std::size_t>(RxKind::kCount)>
    Stream::Impl::kRxHandlers = {{
        // in the order of RxKind
        {&Impl::begin_write, &Impl::target_write, &Impl::deliver_write},
        {&Impl::begin_read_request, &Impl::target_body, &Impl::deliver_read_request},
        {&Impl::begin_read_response, &Impl::target_read_response, &Impl::deliver_read_response},
        {&Impl::begin_send, &Impl::target_send, &Impl::deliver_send},
        {&Impl::begin_terminate, &Impl::target_body, &Impl::deliver_terminate},
        {&Impl::begin_immediate, &Impl::target_body, &Impl::deliver_immediate},
        {&Impl::begin_atomic_request, &Impl::target_body, &Impl::deliver_atomic_request},
        {&Impl::begin_atomic_response, &Impl::target_body, &Impl::deliver_atomic_response},
    }};

// -- one ULPDU --

std::size_t Stream::Impl::rx_ulpdu(ConstBytes ulpdu) {
    if (take_short_send(ulpdu)) return ulpdu.size();
    rx_begin(ulpdu.size());
    if (rx.phase == Rx::Phase::start && ulpdu.size() >= kUntaggedOctets) {
        std::memcpy(rx.header.data(), ulpdu.data(), kUntaggedOctets);
        rx.have = kTaggedOctets;
        rx_on_start();
        if (rx.phase == Rx::Phase::rest) {
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

/// A Send that is one segment and goes into the first SGE of its receive: nearly every message of
/// a program that sends small ones. False: it is none, and nothing has been done but that its
/// receive may have been taken; whatever else may be said of the header is left to the long way.
bool Stream::Impl::take_short_send(ConstBytes ulpdu) {
    if (state != State::established || receive_taken || rtr_send || rx_discarding ||
        ulpdu.size() <= kUntaggedOctets) {
        return false;
    }
    constexpr unsigned kControl = (DDP_FLAG_LAST | DDP_VERSION) << 8 | RDMAP_VERSION;
    const std::byte* const header = ulpdu.data();
    const unsigned control = load_be16(header);
    if (control != (kControl | RDMAP_SEND) && control != (kControl | RDMAP_SEND_SE)) return false;
    if (load_be32(header + offsetof(ddp_untagged, qn)) != DDP_QN_SEND ||
        load_be32(header + offsetof(ddp_untagged, msn)) != expected_msn[DDP_QN_SEND] ||
        load_be32(header + offsetof(ddp_untagged, mo)) != 0) {
        return false;
    }
    rx.length = ulpdu.size();
    rx.segment.opcode = static_cast<std::uint8_t>(control & RDMAP_OPCODE_MASK);
    rx.segment.last = true;
    rx.segment.stag = load_be32(header + 2);
    rx.op = opcode_info(rx.segment.opcode);
    if (!take_receive()) return false;
    const std::size_t bytes = ulpdu.size() - kUntaggedOctets;
    const Sge& sge = receive.sge[0];
    if (receive.sge_count == 0 || sge.length < bytes) return false;
    const Sge piece{sge.address, static_cast<std::uint32_t>(bytes), sge.lkey};
    if (!permits(piece, true)) return false;
    {
        const fault::Touch touch(1, piece.address, bytes);
        place(piece.address, header + kUntaggedOctets, bytes);
    }
    show_placed();
    ++counters.rx_segments;
    counters.rx_payload_bytes += bytes;
    ++counters.rx_messages[message_opcode];
    ++expected_msn[DDP_QN_SEND];
    write_bytes = 0;
    receive_taken = false;
    complete_receive(receive, WcStatus::success, static_cast<std::uint32_t>(bytes));
    return true;
}

void Stream::Impl::rx_begin(std::size_t ulpdu_length) {
    rx.length = ulpdu_length;
    rx.have = 0;
    rx.op = nullptr;
    rx.cursor = nullptr;
    rx.fault = StreamError::none;
    rx.fault_status = WcStatus::success;
    rx.phase = receiving() ? Rx::Phase::start : Rx::Phase::discard;
    if (!receiving() || ulpdu_length >= kTaggedOctets) return;
    rx.phase = Rx::Phase::discard;
    if (!rx_discarding) rx.fault = StreamError::segment_truncated;
}

Bytes Stream::Impl::rx_target() {
    switch (rx.phase) {
        case Rx::Phase::start:
            return Bytes(rx.header).subspan(rx.have, kTaggedOctets - rx.have);
        case Rx::Phase::blocked:
            if (!take_receive()) return {};
            rx.phase = Rx::Phase::rest;
            [[fallthrough]];
        case Rx::Phase::rest:
            return Bytes(rx.header).subspan(rx.have);
        case Rx::Phase::payload:
            if (rx.remaining() == 0) return {};
            return (this->*rx_handler().target)();
        case Rx::Phase::discard:
            break;
    }
    return rx_discard();
}

void Stream::Impl::rx_advance(std::size_t n) {
    XSOCK_ASSERT(n <= rx.remaining());
    rx.have += n;
    switch (rx.phase) {
        case Rx::Phase::start:
            if (rx.have == kTaggedOctets) rx_on_start();
            return;
        case Rx::Phase::rest:
            if (rx.have == kUntaggedOctets) rx_on_header();
            return;
        case Rx::Phase::payload:
            if (rx.cursor != nullptr) rx.cursor->offset += static_cast<std::uint32_t>(n);
            return;
        case Rx::Phase::blocked:
        case Rx::Phase::discard:
            return;
    }
}

void Stream::Impl::rx_end(bool intact) {
    if (!receiving()) return;
    if (!intact) {
        rx.phase = Rx::Phase::discard;
        return;
    }
    if (rx.fault != StreamError::none) {
        rx_raise(rx.fault);
        return;
    }
    if (rx.phase != Rx::Phase::payload) return;  // flush_receives() came between
    XSOCK_ASSERT(rx.remaining() == 0);
    rx.phase = Rx::Phase::discard;
    show_placed();
    ++counters.rx_segments;
    counters.rx_payload_bytes += rx.payload_bytes();
    if (rx.segment.last) ++counters.rx_messages[rx.segment.opcode];
    (this->*rx_handler().deliver)();
    if (awaiting_rtr && receiving()) {
        // RFC 6581 §9 wants the RTR message that was agreed on here; any sound FPDU proves as well
        // that the initiator has ended its start-up.
        awaiting_rtr = false;
        state = State::established;
    }
}

/// The first 14 octets: all of a tagged header; of an untagged one, enough to find its receive.
/// A receive is taken before the last four, so that a zero-length Send can wait for one too.
void Stream::Impl::rx_on_start() {
    const StreamError v =
        parse_start(std::span(rx.header).first<kTaggedOctets>(), rx.segment, rx.op);
    if (rx_discarding && (v != StreamError::none || rx.op->kind != RxKind::terminate)) {
        rx.phase = Rx::Phase::discard;
        return;
    }
    if (!rx.segment.tagged && rx.length < kUntaggedOctets) {
        rx_fault(StreamError::segment_truncated);
        return;
    }
    if (rx.segment.tagged) {
        rx.phase = Rx::Phase::payload;
        if (v != StreamError::none) {
            rx_fault(v);
        } else {
            (this->*rx_handler().begin)();
        }
        return;
    }
    rx.phase = Rx::Phase::rest;  // even of a bad header: the Terminate quotes all of it
    if (v != StreamError::none) {
        rx.fault = v;
    } else if (rx.op->kind != RxKind::terminate && rx.segment.msn != expected_msn[rx.segment.qn]) {
        rx.fault = StreamError::untagged_msn_range;
    } else if (rx.op->qn == DDP_QN_SEND && !take_receive()) {
        rx.phase = Rx::Phase::blocked;
    }
}

/// An untagged header is complete.
void Stream::Impl::rx_on_header() {
    parse_untagged_rest(rx.header, rx.segment);
    rx.phase = rx.fault == StreamError::none ? Rx::Phase::payload : Rx::Phase::discard;
    if (rx.fault == StreamError::none) (this->*rx_handler().begin)();
}

/// Something is wrong with this ULPDU: the rest of it goes nowhere.
Bytes Stream::Impl::rx_fault(StreamError v, WcStatus status) {
    rx.fault = v;
    rx.fault_status = status;
    rx.phase = Rx::Phase::discard;
    return rx_discard();
}

Bytes Stream::Impl::rx_discard() noexcept {
    return Bytes(rx.discarded).first(std::min(rx.remaining(), rx.discarded.size()));
}

/// Ends the stream over the ULPDU in hand.
void Stream::Impl::rx_raise(StreamError v, ConstBytes rdmap_header) {
    if (rx.fault_status != WcStatus::success &&
        (rx.op->kind == RxKind::read_response || rx.op->kind == RxKind::atomic_response)) {
        if (!orq.empty()) set_failed_wqe(orq.front().sequence, rx.fault_status);
    }
    ErrorContext error_context{.rdmap_header = rdmap_header, .segment_bytes = rx.length};
    if (rx.length >= kTaggedOctets && rx.length >= rx.header_octets()) {
        error_context.ddp_header = ConstBytes(rx.header).first(rx.header_octets());
    }
    fail(v, error_context);
    if (rx.fault_status != WcStatus::success && rx.op->kind == RxKind::send && receive_taken) {
        receive_taken = false;
        complete_receive(receive, rx.fault_status);
    }
}

// -- Send, in all its forms --

/// What the program posted goes first.
bool Stream::Impl::find_receive() {
    if (config.spare_receive != nullptr && config.rq->size() == 0) {
        const std::size_t bytes =
            rx.segment.last ? rx.length - kUntaggedOctets : std::size_t{kUnknownBytes};
        if (config.spare_receive(config.spare_argument, static_cast<std::uint32_t>(bytes),
                                 receive)) {
            return true;
        }
    }
    return config.rq->take(receive);
}

/// False: no receive is posted.
bool Stream::Impl::take_receive() {
    if (receive_taken || rtr_send) return true;
    if (awaiting_rtr && negotiated.rtr == Rtr::send && rx.op->kind == RxKind::send &&
        rx.segment.last && rx.length == kUntaggedOctets) {
        rtr_send = true;
    } else if (find_receive()) {
        receive_taken = true;
    } else {
        return false;
    }
    message_opcode = rx.segment.opcode;
    message_stag = rx.segment.stag;
    message_offset = 0;
    receive_cursor = {};
    return true;
}

void Stream::Impl::begin_send() {
    if (rx.segment.mo != message_offset) {
        rx_fault(StreamError::untagged_mo);
    } else if (rx.segment.opcode != message_opcode) {
        rx_fault(StreamError::rdmap_opcode);
    } else if (rx.op->invalidates && rx.segment.stag != message_stag) {
        rx_fault(StreamError::invalidate_stag_invalid);
    } else if (receive_taken && rx.payload_bytes() > receive.length - message_offset) {
        rx_fault(StreamError::untagged_too_long, WcStatus::local_length_error);
    } else {
        rx.cursor = &receive_cursor;
    }
}

Bytes Stream::Impl::target_send() {
    const Sge piece = receive_cursor.piece({receive.sge.data(), receive.sge_count}, rx.remaining());
    if (!permits(piece, true)) {
        return rx_fault(StreamError::local_catastrophic, WcStatus::local_protection_error);
    }
    return {piece.address, piece.length};
}

void Stream::Impl::deliver_send() {
    message_offset += static_cast<std::uint32_t>(rx.payload_bytes());
    if (!rx.segment.last) return;
    ++expected_msn[DDP_QN_SEND];
    write_bytes = 0;
    if (rtr_send) {
        rtr_send = false;
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
    receive_taken = false;
    complete_receive(receive, WcStatus::success, message_offset);
}

bool Stream::Impl::move_receive(std::uint64_t wr_id, const RecvWqe& other) {
    if (!receive_taken || !receive.internal || receive.wr_id != wr_id) return false;
    // Octets of the FPDU in hand are placed too.
    std::size_t placed = receive_cursor.offset;
    for (std::uint32_t i = 0; i < receive_cursor.index; ++i) placed += receive.sge[i].length;
    Cursor from, to;
    for (std::size_t left = placed; left > 0;) {
        const Sge source = from.piece({receive.sge.data(), receive.sge_count}, left);
        const Sge target = to.piece({other.sge.data(), other.sge_count}, source.length);
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
    receive_cursor = to;
    return true;
}

}  // namespace xsock::ddp
