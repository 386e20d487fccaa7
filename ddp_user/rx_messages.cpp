// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Inbound: what each kind of message but Sends asks for (Stream::Impl::kRxHandlers). The rules
// of rx.cpp hold here too.
#include <algorithm>
#include <cstring>

#include "base/atomic_operation.hpp"
#include "base/fault.hpp"
#include "ddp_user/stream_impl.hpp"

namespace xsock::ddp {

// -- Write (RFC 5040 §5.1): placed, never delivered --

Bytes Stream::Impl::target_write() {
    const std::size_t done = rx.have - kTaggedOctets;
    const auto found =
        remote(rx.segment.stag, Right::remote_write, rx.segment.to + done, rx.remaining());
    if (found.stream_error != StreamError::none) return rx.fail(found.stream_error);
    return {found.address, rx.remaining()};
}

void Stream::Impl::deliver_write() {
    message.write.add(rx.payload_bytes(), rx.segment.last);
    if (write_observer != nullptr && rx.payload_bytes() != 0) [[unlikely]]
        write_observer->on_stored_write(rx.segment.stag);
}

// -- Read Request --

/// Untagged, of one segment, with RDMAP's header as all of its payload.
void Stream::Impl::begin_body() {
    if (rx.segment.mo != 0) {
        rx.fail(StreamError::untagged_mo);
    } else if (!rx.segment.last || rx.payload_bytes() != rx.op->rdmap_octets) {
        rx.fail(rx_handler().malformed);
    }
}

/// RDMAP headers of untagged messages; whatever is beyond them is dropped.
Bytes Stream::Impl::target_body() {
    const std::size_t done = rx.have - kUntaggedOctets;
    if (done >= rx.body.size()) return rx.discard();
    return Bytes(rx.body).subspan(done, std::min(rx.remaining(), rx.body.size() - done));
}

void Stream::Impl::deliver_read_request() {
    const auto bytes = std::span<const std::byte>(rx.body).first<kReadRequestOctets>();
    const InboundRead read{.request = parse_read_request(bytes), .msn = rx.segment.msn};
    if (irq.size() >= ird) {
        rx_raise(StreamError::read_queue_overflow, bytes);
        return;
    }
    // RFC 5040 §5.2.1: the source of a zero-length Read is not checked.
    if (read.request.size > 0) {
        const auto found = remote(read.request.source_stag, Right::remote_read,
                                  read.request.source_to, read.request.size);
        if (found.stream_error != StreamError::none) {
            rx_raise(found.stream_error, bytes);
            return;
        }
    }
    if (!irq.push(read)) {
        rx_raise(StreamError::local_catastrophic);
        return;
    }
    ++expected_msn[DDP_QN_READ_REQUEST];
}

// -- Read Response: exactly what the oldest Read asked for, in order --

void Stream::Impl::begin_read_response() {
    const std::size_t bytes = rx.payload_bytes();
    if (orq.empty() || orq.front().atomic || rx.segment.stag != orq.front().sink_stag ||
        rx.segment.to != orq.offset || bytes > orq.front().length - orq.offset ||
        rx.segment.last != (bytes == orq.front().length - orq.offset)) {
        rx.fail(StreamError::response_unexpected, WcStatus::bad_response);
        return;
    }
    rx.cursor = &orq.cursor;
}

Bytes Stream::Impl::target_read_response() {
    const SendWqe& wqe = config.sq->at(orq.front().sequence);
    const Sge piece = orq.cursor.piece(sges_of(wqe), rx.remaining());
    if (!permits(piece, true)) {
        return rx.fail(StreamError::local_catastrophic, WcStatus::local_protection_error);
    }
    return {piece.address, piece.length};
}

void Stream::Impl::deliver_read_response() {
    orq.offset += static_cast<std::uint32_t>(rx.payload_bytes());
    if (rx.segment.last) response_delivered();
}

/// The oldest entry of the ORQ has its answer.
void Stream::Impl::response_delivered() {
    const bool posted = orq.front().sequence != kNoEntry;
    if (tx.acks.any()) tx.acks.confirm(orq.front().confirms, *config.sq);
    tx.rnr.dismiss();  // a message ahead of the request has been taken
    orq.pop();
    if (posted || tx.acks.any()) complete_sent();
    run_local();  // a fence may have fallen
}

// -- Immediate Data (RFC 7306 §6): a message without memory --

void Stream::Impl::begin_immediate() {
    if (rx.segment.opcode != message.opcode) {
        rx.fail(StreamError::rdmap_opcode);  // amid a Send
    } else {
        begin_body();
    }
}

void Stream::Impl::deliver_immediate() {
    ++expected_msn[DDP_QN_SEND];
    message.end();
    complete_receive(message.receive, WcStatus::success, message.write.take());
}

// -- atomic operations (RFC 7306 §5) --

/// Done at once, in the order of arrival, once the CRC has held; the IRQ keeps the answer. (RFC
/// 7306 §8: a Terminate over it quotes the DDP header only.)
void Stream::Impl::deliver_atomic_request() {
    const AtomicRequest request =
        parse_atomic_request(std::span<const std::byte>(rx.body).first<kAtomicRequestOctets>());
    if (irq.size() >= ird) {
        rx_raise(StreamError::read_queue_overflow);
        return;
    }
    const bool add = request.opcode == RDMAP_ATOMIC_FETCH_ADD;
    if (!add && request.opcode != RDMAP_ATOMIC_COMPARE_SWAP) {
        rx_raise(StreamError::atomic_opcode);
        return;
    }
    const auto found =
        remote(request.remote_stag, Right::remote_atomic, request.remote_to, kAtomicBytes);
    if (found.stream_error != StreamError::none) {
        rx_raise(found.stream_error);
        return;
    }
    if (reinterpret_cast<std::uintptr_t>(found.address) % kAtomicBytes != 0) {
        rx_raise(StreamError::atomic_unaligned);
        return;
    }
    // Room for the answer first: what has been done must be told.
    if (!irq.push({.response = {.request_id = request.request_id},
                   .msn = rx.segment.msn,
                   .atomic = true})) {
        rx_raise(StreamError::local_catastrophic);
        return;
    }
    const fault::Touch touch(1, found.address, kAtomicBytes);
    irq[irq.size() - 1].response.original = perform_atomic(
        add ? SendOpcode::fetch_add : SendOpcode::compare_swap, found.address, request.operands);
    ++expected_msn[DDP_QN_READ_REQUEST];
}

void Stream::Impl::begin_atomic_response() {
    if (rx.segment.mo != 0) {
        rx.fail(StreamError::untagged_mo);
    } else if (orq.empty() || !orq.front().atomic || !rx.segment.last ||
               rx.payload_bytes() != kAtomicResponseOctets) {
        rx.fail(StreamError::response_unexpected, WcStatus::bad_response);
    }
}

void Stream::Impl::deliver_atomic_response() {
    const AtomicResponse response =
        parse_atomic_response(std::span<const std::byte>(rx.body).first<kAtomicResponseOctets>());
    ++expected_msn[DDP_QN_ATOMIC_RESPONSE];
    if (response.request_id != orq.front().sink_stag) {
        rx.fault_status = WcStatus::bad_response;
        rx_raise(StreamError::response_unexpected);
    } else if (!store_result(response.original)) {
        rx.fault_status = WcStatus::local_protection_error;
        rx_raise(StreamError::local_catastrophic);
    } else {
        response_delivered();
    }
}

/// Puts the former value, in host order, where the oldest atomic operation wants it. False: its key
/// does not permit that any more.
bool Stream::Impl::store_result(std::uint64_t value) {
    const SendWqe& wqe = config.sq->at(orq.front().sequence);
    std::array<std::byte, kAtomicBytes> bytes;
    std::memcpy(bytes.data(), &value, bytes.size());
    Cursor to;
    for (std::size_t done = 0; done < bytes.size();) {
        const Sge piece = to.piece(sges_of(wqe), bytes.size() - done);
        if (!permits(piece, true)) return false;
        const fault::Touch touch(1, piece.address, piece.length);
        std::memcpy(piece.address, bytes.data() + done, piece.length);
        to.offset += piece.length;
        done += piece.length;
    }
    return true;
}

// -- Acknowledge (docs/wire.md) --

void Stream::Impl::begin_acknowledge() {
    if (rx.segment.mo != 0) {
        rx.fail(StreamError::untagged_mo);
    } else if (!rx.segment.last || rx.payload_bytes() != 0 || !may_acknowledge(rx.segment.stag)) {
        rx.fail(StreamError::acknowledge_malformed);
    }
}

void Stream::Impl::deliver_acknowledge() {
    ++expected_msn[DDP_QN_ACKNOWLEDGE];
    if (!take_acknowledge(rx.segment.stag)) rx_raise(StreamError::acknowledge_range);
}

bool Stream::Impl::may_acknowledge(std::uint32_t value) const noexcept {
    return (value & RDMAP_ACKNOWLEDGE_RNR) == 0 || (negotiated.features & MPA_FEATURE_RNR) != 0;
}

/// False: the peer cannot have taken so many.
bool Stream::Impl::take_acknowledge(std::uint32_t value) {
    const std::uint32_t messages = value & RDMAP_ACKNOWLEDGE_MASK;
    if (!tx.acks.take(messages, tx.begun(), *config.sq)) return false;
    if (tx.acks.any()) complete_sent();
    tx.rnr.taken(messages);
    // Where completions do not wait for the peer the message may have completed.
    const bool waits = (value & RDMAP_ACKNOWLEDGE_RNR) != 0;
    if (waits && tx.acks.by() == AckRequests::By::messages) tx.rnr.notice();
    return true;
}

/// The peer has no receive for the oldest of ours that needs one. It may say so of none.
void Stream::Impl::fail_waiting() {
    SendQueue& sq = *config.sq;
    for (auto at = std::max(sq.retired(), tx.acks.confirmed()); at < tx.begun(); ++at) {
        if (!takes_receive(sq.at(at).opcode)) continue;
        state.set_failed_wqe(at, WcStatus::rnr_retries_exceeded);
        fail(StreamError::rnr_retries_exceeded);
        break;
    }
    tx.rnr.dismiss();
}

/// One that is in order. False: it is not, or comes at a wrong time.
bool Stream::Impl::take_short_acknowledge(ConstBytes ulpdu) {
    const std::byte* const header = ulpdu.data();
    if ((negotiated.features & MPA_FEATURE_ACKNOWLEDGE) == 0 || ulpdu.size() != kUntaggedOctets ||
        load_be32(header + offsetof(ddp_untagged, qn)) != DDP_QN_ACKNOWLEDGE ||
        load_be32(header + offsetof(ddp_untagged, msn)) != expected_msn[DDP_QN_ACKNOWLEDGE] ||
        load_be32(header + offsetof(ddp_untagged, mo)) != 0) {
        return false;
    }
    const std::uint32_t value = load_be32(header + 2);
    if (!may_acknowledge(value) || !take_acknowledge(value)) return false;
    ++expected_msn[DDP_QN_ACKNOWLEDGE];
    ++counters.rx_segments;
    ++counters.rx_messages[RDMAP_ACKNOWLEDGE];
    return true;
}

// -- Terminate: the last message of the peer --

/// The entry whose Send, Write or Immediate Data it was; of Writes to one place, the oldest.
/// kNoEntry: it has completed, or was none of them.
std::uint64_t Stream::Impl::sender_of(const Segment& segment) const noexcept {
    SendQueue& sq = *config.sq;
    std::uint32_t msn = tx.send_msn;
    for (std::uint64_t i = sq.retired(); i < tx.next; ++i)
        msn -= takes_receive(sq.at(i).opcode) ? 1 : 0;
    for (std::uint64_t i = sq.retired(); i < tx.begun(); ++i) {
        const SendWqe& wqe = sq.at(i);
        const bool writes =
            wqe.opcode == SendOpcode::write || wqe.opcode == SendOpcode::write_immediate;
        if (segment.tagged && writes && segment.opcode == RDMAP_WRITE &&
            segment.stag == wqe.remote_stag &&
            segment.to - wqe.remote_to < std::max(wqe.length, 1u)) {
            return i;
        }
        if (!takes_receive(wqe.opcode)) continue;
        if (!segment.tagged && segment.qn == DDP_QN_SEND && segment.msn == msn) return i;
        ++msn;
    }
    return kNoEntry;
}

void Stream::Impl::deliver_terminate() {
    Terminated about;
    const std::size_t bytes = std::min(rx.payload_bytes(), rx.body.size());
    // This segment has been counted.
    const bool starting = !negotiated.initiator && counters.rx_segments == 1;
    TerminateInfo info;
    const bool sound = parse_terminate(ConstBytes(rx.body).first(bytes), info, about, starting);
    state.terminate_received(info);
    if (!sound) {
        end(StreamError::terminate_malformed);  // noted; one does not answer a Terminate
        return;
    }
    WcStatus status = status_of(info);
    const SendQueue& sq = *config.sq;
    if (about.known && (about.segment.opcode == RDMAP_READ_RESPONSE ||
                        about.segment.opcode == RDMAP_ATOMIC_RESPONSE)) {
        // Our response to a request of the peer's: no entry of ours is at fault.
    } else if (about.known && about.segment.opcode == RDMAP_ATOMIC_REQUEST && !orq.empty()) {
        std::uint64_t sequence = orq.front().sequence;
        for (std::uint32_t i = 0; i < orq.size(); ++i) {
            if (orq[i].msn == about.segment.msn) sequence = orq[i].sequence;
        }
        const StreamErrorInfo& unaligned = stream_error_info(StreamError::atomic_unaligned);
        if (info.layer == static_cast<std::uint8_t>(unaligned.layer) &&
            info.etype == unaligned.etype && info.code == unaligned.code) {
            status = WcStatus::remote_invalid_request;
        }
        state.set_failed_wqe(sequence, status);
    } else if (about.known && about.segment.opcode == RDMAP_READ_REQUEST && !orq.empty()) {
        std::uint64_t sequence = orq.front().sequence;
        for (std::uint32_t i = 0; about.has_read_request && i < orq.size(); ++i) {
            if (orq[i].sink_stag == about.read_request.sink_stag) sequence = orq[i].sequence;
        }
        state.set_failed_wqe(sequence, status);
    } else if (const auto refused = about.known ? sender_of(about.segment) : kNoEntry;
               refused != kNoEntry) {
        state.set_failed_wqe(refused, status);
        if (tx.acks.any()) {  // what came before it was taken
            tx.acks.confirm(refused, *config.sq);
            complete_sent();
        }
    } else if (sq.retired() < tx.begun()) {
        state.set_failed_wqe(sq.retired(), status);
    }
    end();
}

}  // namespace xsock::ddp
