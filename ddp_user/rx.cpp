// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Inbound: ULPDUs -> user memory, completions, the IRQ. Everything here was written by a peer that
// may be hostile: a header is believed only after its checks, and memory is looked up again for
// every piece, because a region may be revoked between two of them.
#include <algorithm>
#include <cstring>

#include "base/atomic_operation.hpp"
#include "base/fault.hpp"
#include "ddp_user/stream_impl.hpp"

namespace xsock::ddp {

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

/// A Send that is one segment and goes into the first SGE of its receive: nearly every message of
/// a program that sends small ones. Whatever else may be said of the header is left to the long
/// way.
Bytes Stream::Impl::rx_whole(ConstBytes ulpdu) {
    if (state != State::established || receive_taken || rtr_send || deaf ||
        ulpdu.size() <= kUntaggedOctets) {
        return {};
    }
    constexpr unsigned kControl = (DDP_FLAG_LAST | DDP_VERSION) << 8 | RDMAP_VERSION;
    const std::byte* const header = ulpdu.data();
    const unsigned control = load_be16(header);
    if (control != (kControl | RDMAP_SEND) && control != (kControl | RDMAP_SEND_SE)) return {};
    if (load_be32(header + offsetof(ddp_untagged, qn)) != DDP_QN_SEND ||
        load_be32(header + offsetof(ddp_untagged, msn)) != expected_msn[DDP_QN_SEND] ||
        load_be32(header + offsetof(ddp_untagged, mo)) != 0) {
        return {};
    }
    rx.length = ulpdu.size();
    rx.segment.opcode = static_cast<std::uint8_t>(control & RDMAP_OPCODE_MASK);
    rx.segment.last = true;
    rx.segment.stag = load_be32(header + 2);
    rx.op = opcode_info(rx.segment.opcode);
    if (!take_receive()) return {};
    const std::size_t octets = ulpdu.size() - kUntaggedOctets;
    const Sge& sge = receive.sge[0];
    if (receive.sge_count == 0 || sge.length < octets) return {};
    const Sge piece{sge.address, static_cast<std::uint32_t>(octets), sge.lkey};
    if (!permits(piece, true)) return {};
    return {piece.address, octets};
}

void Stream::Impl::rx_whole_done() {
    const std::size_t octets = rx.length - kUntaggedOctets;
    ++counters.rx_segments;
    counters.rx_payload_octets += octets;
    ++counters.rx_messages[message_opcode];
    ++expected_msn[DDP_QN_SEND];
    write_octets = 0;
    receive_taken = false;
    complete_receive(receive, WcStatus::success, static_cast<std::uint32_t>(octets));
}

void Stream::Impl::rx_begin(std::size_t ulpdu_length) {
    rx.length = ulpdu_length;
    rx.have = 0;
    rx.op = nullptr;
    rx.cursor = nullptr;
    rx.fault = Violation::none;
    rx.fault_status = WcStatus::success;
    rx.phase = receiving() ? Rx::Phase::start : Rx::Phase::discard;
    if (!receiving() || ulpdu_length >= kTaggedOctets) return;
    rx.phase = Rx::Phase::discard;
    if (!deaf) rx.fault = Violation::segment_truncated;
}

std::size_t Stream::Impl::rx_head(ConstBytes ulpdu) {
    if (rx.phase != Rx::Phase::start || ulpdu.size() < kUntaggedOctets) return 0;
    std::memcpy(rx.header.data(), ulpdu.data(), kUntaggedOctets);
    rx.have = kTaggedOctets;
    rx_on_start();
    if (rx.phase == Rx::Phase::rest) {
        rx.have = kUntaggedOctets;
        rx_on_header();
    }
    return rx.have;
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
    if (rx.fault != Violation::none) {
        rx_raise(rx.fault);
        return;
    }
    if (rx.phase != Rx::Phase::payload) return;  // flush_receives() came between
    XSOCK_ASSERT(rx.remaining() == 0);
    rx.phase = Rx::Phase::discard;
    ++counters.rx_segments;
    counters.rx_payload_octets += rx.payload_octets();
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
    const Violation v = parse_start(std::span(rx.header).first<kTaggedOctets>(), rx.segment, rx.op);
    if (deaf && (v != Violation::none || rx.op->kind != RxKind::terminate)) {
        rx.phase = Rx::Phase::discard;
        return;
    }
    if (!rx.segment.tagged && rx.length < kUntaggedOctets) {
        rx_fault(Violation::segment_truncated);
        return;
    }
    if (rx.segment.tagged) {
        rx.phase = Rx::Phase::payload;
        if (v != Violation::none) {
            rx_fault(v);
        } else {
            (this->*rx_handler().begin)();
        }
        return;
    }
    rx.phase = Rx::Phase::rest;  // even of a bad header: the Terminate quotes all of it
    if (v != Violation::none) {
        rx.fault = v;
    } else if (rx.op->kind != RxKind::terminate && rx.segment.msn != expected_msn[rx.segment.qn]) {
        rx.fault = Violation::untagged_msn_range;
    } else if (rx.op->qn == DDP_QN_SEND && !take_receive()) {
        rx.phase = Rx::Phase::blocked;
    }
}

/// An untagged header is complete.
void Stream::Impl::rx_on_header() {
    parse_untagged_rest(rx.header, rx.segment);
    rx.phase = rx.fault == Violation::none ? Rx::Phase::payload : Rx::Phase::discard;
    if (rx.fault == Violation::none) (this->*rx_handler().begin)();
}

/// Something is wrong with this ULPDU: the rest of it goes nowhere.
Bytes Stream::Impl::rx_fault(Violation v, WcStatus status) {
    rx.fault = v;
    rx.fault_status = status;
    rx.phase = Rx::Phase::discard;
    return rx_discard();
}

Bytes Stream::Impl::rx_discard() noexcept {
    return Bytes(rx.discarded).first(std::min(rx.remaining(), rx.discarded.size()));
}

/// Ends the stream over the ULPDU in hand.
void Stream::Impl::rx_raise(Violation v, ConstBytes rdmap_header) {
    if (rx.fault_status != WcStatus::success &&
        (rx.op->kind == RxKind::read_response || rx.op->kind == RxKind::atomic_response)) {
        if (!orq.empty()) blame(orq.front().sequence, rx.fault_status);
    }
    Offender offender{.rdmap_header = rdmap_header, .segment_octets = rx.length};
    if (rx.length >= kTaggedOctets && rx.length >= rx.header_octets()) {
        offender.ddp_header = ConstBytes(rx.header).first(rx.header_octets());
    }
    violate(v, offender);
    if (rx.fault_status != WcStatus::success && rx.op->kind == RxKind::send && receive_taken) {
        receive_taken = false;
        complete_receive(receive, rx.fault_status);
    }
}

// -- Write (RFC 5040 §5.2): placed, never delivered --

void Stream::Impl::begin_write() {}

Bytes Stream::Impl::target_write() {
    const std::size_t done = rx.have - kTaggedOctets;
    const auto found =
        remote(rx.segment.stag, Right::remote_write, rx.segment.to + done, rx.remaining());
    if (found.violation != Violation::none) return rx_fault(found.violation);
    return {found.address, rx.remaining()};
}

void Stream::Impl::deliver_write() {
    write_octets = (write_over ? 0 : write_octets) + rx.payload_octets();
    write_over = rx.segment.last;
}

// -- Read Request --

void Stream::Impl::begin_read_request() {
    if (rx.segment.mo != 0) {
        rx_fault(Violation::untagged_mo);
    } else if (!rx.segment.last || rx.payload_octets() != kReadRequestOctets) {
        rx_fault(Violation::read_request_malformed);
    }
}

/// RDMAP headers of untagged messages; whatever is beyond them is dropped.
Bytes Stream::Impl::target_body() {
    const std::size_t done = rx.have - kUntaggedOctets;
    if (done >= rx.body.size()) return rx_discard();
    return Bytes(rx.body).subspan(done, std::min(rx.remaining(), rx.body.size() - done));
}

void Stream::Impl::deliver_read_request() {
    const auto octets = std::span<const std::byte>(rx.body).first<kReadRequestOctets>();
    const InboundRead read{.request = parse_read_request(octets), .msn = rx.segment.msn};
    if (irq.size() >= ird) {
        rx_raise(Violation::read_queue_overflow, octets);
        return;
    }
    // RFC 5040 §5.2.1: the source of a zero-length Read is not looked at.
    if (read.request.size > 0) {
        const auto found = remote(read.request.source_stag, Right::remote_read,
                                  read.request.source_to, read.request.size);
        if (found.violation != Violation::none) {
            rx_raise(found.violation, octets);
            return;
        }
    }
    if (!irq.push(read)) {
        rx_raise(Violation::local_catastrophic);
        return;
    }
    ++expected_msn[DDP_QN_READ_REQUEST];
}

// -- Read Response: exactly what the oldest Read asked for, in order --

void Stream::Impl::begin_read_response() {
    const std::size_t octets = rx.payload_octets();
    if (orq.empty() || orq.front().atomic || rx.segment.stag != orq.front().sink_stag ||
        rx.segment.to != read_offset || octets > orq.front().length - read_offset ||
        rx.segment.last != (octets == orq.front().length - read_offset)) {
        rx_fault(Violation::response_unexpected, WcStatus::bad_response);
        return;
    }
    rx.cursor = &read_cursor;
}

Bytes Stream::Impl::target_read_response() {
    const SendWqe& wqe = config.sq->at(orq.front().sequence);
    const Sge piece = read_cursor.piece({wqe.sge.data(), wqe.sge_count}, rx.remaining());
    if (!permits(piece, true)) {
        return rx_fault(Violation::local_catastrophic, WcStatus::local_protection_error);
    }
    return {piece.address, piece.length};
}

void Stream::Impl::deliver_read_response() {
    read_offset += static_cast<std::uint32_t>(rx.payload_octets());
    if (!rx.segment.last) return;
    read_offset = 0;
    read_cursor = {};
    response_delivered();
}

/// The oldest entry of the ORQ has its answer.
void Stream::Impl::response_delivered() {
    const bool posted = orq.front().sequence != kNoEntry;
    tx.confirmed = orq.front().confirms;
    orq.pop();
    if (posted) ++reads_delivered;
    if (posted || acknowledged) complete_sent();
    run_local();  // a fence may have fallen
}

// -- Send, in all its forms --

/// What the program posted goes first.
bool Stream::Impl::find_receive() {
    if (config.spare_receive != nullptr && config.rq->size() == 0) {
        const std::size_t octets =
            rx.segment.last ? rx.length - kUntaggedOctets : std::size_t{kUnknownOctets};
        if (config.spare_receive(config.spare_argument, static_cast<std::uint32_t>(octets),
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
        rx_fault(Violation::untagged_mo);
    } else if (rx.segment.opcode != message_opcode) {
        rx_fault(Violation::rdmap_opcode);
    } else if (rx.op->invalidates && rx.segment.stag != message_stag) {
        rx_fault(Violation::invalidate_stag_invalid);
    } else if (receive_taken && rx.payload_octets() > receive.length - message_offset) {
        rx_fault(Violation::untagged_too_long, WcStatus::local_length_error);
    } else {
        rx.cursor = &receive_cursor;
    }
}

Bytes Stream::Impl::target_send() {
    const Sge piece = receive_cursor.piece({receive.sge.data(), receive.sge_count}, rx.remaining());
    if (!permits(piece, true)) {
        return rx_fault(Violation::local_catastrophic, WcStatus::local_protection_error);
    }
    return {piece.address, piece.length};
}

void Stream::Impl::deliver_send() {
    message_offset += static_cast<std::uint32_t>(rx.payload_octets());
    if (!rx.segment.last) return;
    ++expected_msn[DDP_QN_SEND];
    write_octets = 0;
    if (rtr_send) {
        rtr_send = false;
        return;
    }
    if (rx.op->invalidates) {
        Violation v = config.memory->check_invalidate(rx.segment.stag, config.pd, config.qp_num);
        if (v == Violation::none && !config.memory->invalidate(rx.segment.stag)) {
            v = Violation::invalidate_not_permitted;  // windows are bound to it
        }
        if (v != Violation::none) {
            rx_raise(v);
            return;
        }
    }
    receive_taken = false;
    complete_receive(receive, WcStatus::success, message_offset);
}

// -- Immediate Data (RFC 7306 §6): a message without memory --

void Stream::Impl::begin_immediate() {
    if (rx.segment.opcode != message_opcode) {
        rx_fault(Violation::rdmap_opcode);  // amid a Send
    } else if (rx.segment.mo != 0) {
        rx_fault(Violation::untagged_mo);
    } else if (!rx.segment.last || rx.payload_octets() != kImmediateOctets) {
        rx_fault(Violation::immediate_malformed);
    }
}

void Stream::Impl::deliver_immediate() {
    ++expected_msn[DDP_QN_SEND];
    receive_taken = false;
    constexpr std::uint64_t kMost = 0xffffffff;
    const std::uint64_t octets = write_over ? std::min(write_octets, kMost) : 0;
    write_octets = 0;
    complete_receive(receive, WcStatus::success, static_cast<std::uint32_t>(octets));
}

// -- atomic operations (RFC 7306 §5) --

void Stream::Impl::begin_atomic_request() {
    if (rx.segment.mo != 0) {
        rx_fault(Violation::untagged_mo);
    } else if (!rx.segment.last || rx.payload_octets() != kAtomicRequestOctets) {
        rx_fault(Violation::atomic_malformed);
    }
}

/// Done at once, in the order of arrival, once the CRC has held; the IRQ keeps the answer. (RFC
/// 7306 §8: a Terminate over it quotes the DDP header only.)
void Stream::Impl::deliver_atomic_request() {
    const AtomicRequest request =
        parse_atomic_request(std::span<const std::byte>(rx.body).first<kAtomicRequestOctets>());
    if (irq.size() >= ird) {
        rx_raise(Violation::read_queue_overflow);
        return;
    }
    const bool add = request.opcode == RDMAP_ATOMIC_FETCH_ADD;
    if (!add && request.opcode != RDMAP_ATOMIC_COMPARE_SWAP) {
        rx_raise(Violation::atomic_opcode);
        return;
    }
    const auto found =
        remote(request.remote_stag, Right::remote_atomic, request.remote_to, kAtomicOctets);
    if (found.violation != Violation::none) {
        rx_raise(found.violation);
        return;
    }
    if (reinterpret_cast<std::uintptr_t>(found.address) % kAtomicOctets != 0) {
        rx_raise(Violation::atomic_unaligned);
        return;
    }
    // Room for the answer first: what has been done must be told.
    if (!irq.push({.response = {.request_id = request.request_id},
                   .msn = rx.segment.msn,
                   .atomic = true})) {
        rx_raise(Violation::local_catastrophic);
        return;
    }
    const fault::Touch touch(1, found.address, kAtomicOctets);
    irq[irq.size() - 1].response.original = perform_atomic(
        add ? SendOpcode::fetch_add : SendOpcode::compare_swap, found.address, request.operands);
    ++expected_msn[DDP_QN_READ_REQUEST];
}

void Stream::Impl::begin_atomic_response() {
    if (rx.segment.mo != 0) {
        rx_fault(Violation::untagged_mo);
    } else if (orq.empty() || !orq.front().atomic || !rx.segment.last ||
               rx.payload_octets() != kAtomicResponseOctets) {
        rx_fault(Violation::response_unexpected, WcStatus::bad_response);
    }
}

void Stream::Impl::deliver_atomic_response() {
    const AtomicResponse response =
        parse_atomic_response(std::span<const std::byte>(rx.body).first<kAtomicResponseOctets>());
    ++expected_msn[DDP_QN_ATOMIC_RESPONSE];
    if (response.request_id != orq.front().sink_stag) {
        rx.fault_status = WcStatus::bad_response;
        rx_raise(Violation::response_unexpected);
    } else if (!store_result(response.original)) {
        rx.fault_status = WcStatus::local_protection_error;
        rx_raise(Violation::local_catastrophic);
    } else {
        response_delivered();
    }
}

/// Puts the former value, in host order, where the oldest atomic operation wants it. False: its key
/// does not permit that any more.
bool Stream::Impl::store_result(std::uint64_t value) {
    const SendWqe& wqe = config.sq->at(orq.front().sequence);
    std::array<std::byte, kAtomicOctets> octets;
    std::memcpy(octets.data(), &value, octets.size());
    Cursor to;
    for (std::size_t done = 0; done < octets.size();) {
        const Sge piece = to.piece({wqe.sge.data(), wqe.sge_count}, octets.size() - done);
        if (!permits(piece, true)) return false;
        const fault::Touch touch(1, piece.address, piece.length);
        std::memcpy(piece.address, octets.data() + done, piece.length);
        to.offset += piece.length;
        done += piece.length;
    }
    return true;
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

// -- Terminate: the last thing the peer says --

void Stream::Impl::begin_terminate() {}

/// The entry whose Send, Write or Immediate Data it was; of Writes to one place, the oldest.
/// kNoEntry: it has completed, or was none of them.
std::uint64_t Stream::Impl::sender_of(const Segment& segment) const noexcept {
    SendQueue& sq = *config.sq;
    const auto takes_msn = [](SendOpcode opcode) {
        return opcode == SendOpcode::send || opcode == SendOpcode::send_invalidate ||
               opcode == SendOpcode::immediate || opcode == SendOpcode::write_immediate;
    };
    std::uint32_t msn = tx.send_msn;
    for (std::uint64_t i = sq.retired(); i < tx.next; ++i)
        msn -= takes_msn(sq.at(i).opcode) ? 1 : 0;
    const std::uint64_t end = tx.next + (tx.under_way == Source::send_queue ? 1 : 0);
    for (std::uint64_t i = sq.retired(); i < end; ++i) {
        const SendWqe& wqe = sq.at(i);
        const bool writes =
            wqe.opcode == SendOpcode::write || wqe.opcode == SendOpcode::write_immediate;
        if (segment.tagged && writes && segment.opcode == RDMAP_WRITE &&
            segment.stag == wqe.remote_stag &&
            segment.to - wqe.remote_to < std::max(wqe.length, 1u)) {
            return i;
        }
        if (!takes_msn(wqe.opcode)) continue;
        if (!segment.tagged && segment.qn == DDP_QN_SEND && segment.msn == msn) return i;
        ++msn;
    }
    return kNoEntry;
}

void Stream::Impl::deliver_terminate() {
    Terminated about;
    const std::size_t octets = std::min(rx.payload_octets(), rx.body.size());
    // This segment has been counted.
    const bool starting = !negotiated.initiator && counters.rx_segments == 1;
    const bool sound =
        parse_terminate(ConstBytes(rx.body).first(octets), terminate_received, about, starting);
    terminate_seen = true;
    if (!sound) {
        violation = Violation::terminate_malformed;  // noted; one does not answer a Terminate
        end();
        return;
    }
    WcStatus status = status_of(terminate_received);
    const SendQueue& sq = *config.sq;
    const bool started = tx.under_way == Source::send_queue;
    if (about.known && (about.segment.opcode == RDMAP_READ_RESPONSE ||
                        about.segment.opcode == RDMAP_ATOMIC_RESPONSE)) {
        // Our answer to a question of the peer's: no entry of ours is at fault.
    } else if (about.known && about.segment.opcode == RDMAP_ATOMIC_REQUEST && !orq.empty()) {
        std::uint64_t sequence = orq.front().sequence;
        for (std::uint32_t i = 0; i < orq.size(); ++i) {
            if (orq[i].msn == about.segment.msn) sequence = orq[i].sequence;
        }
        const ViolationInfo& unaligned = violation_info(Violation::atomic_unaligned);
        if (terminate_received.layer == static_cast<std::uint8_t>(unaligned.layer) &&
            terminate_received.etype == unaligned.etype &&
            terminate_received.code == unaligned.code) {
            status = WcStatus::remote_invalid_request;
        }
        blame(sequence, status);
    } else if (about.known && about.segment.opcode == RDMAP_READ_REQUEST && !orq.empty()) {
        std::uint64_t sequence = orq.front().sequence;
        for (std::uint32_t i = 0; about.has_read_request && i < orq.size(); ++i) {
            if (orq[i].sink_stag == about.read_request.sink_stag) sequence = orq[i].sequence;
        }
        blame(sequence, status);
    } else if (const auto refused = about.known ? sender_of(about.segment) : kNoEntry;
               refused != kNoEntry) {
        blame(refused, status);
        if (acknowledged) {  // what came before it was taken
            tx.confirmed = std::max(tx.confirmed, refused);
            complete_sent();
        }
    } else if (sq.retired() < tx.next + (started ? 1 : 0)) {
        blame(sq.retired(), status);
    }
    end();
}

}  // namespace xsock::ddp
