// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Outbound: which message is next, batches of small ones, and what becomes of an entry when the LLP
// has it. Messages are never interleaved; where both sources have one, they alternate.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fault.hpp"
#include "ddp_user/batch_writer.hpp"
#include "ddp_user/stream_impl.hpp"

namespace xsock::ddp {
namespace {

// Where Reads ask for acknowledgement: when nothing else is to be sent, but at least one for so
// many entries, so that a busy queue does not fill up before the first is confirmed.
constexpr std::uint64_t kAckRequestEvery = 16;

/// All bytes of a ULPDU, together.
void put(const UlpduOut& ulpdu, std::byte* to) {
    std::memcpy(to, ulpdu.header.data(), ulpdu.header_size);
    to += ulpdu.header_size;
    for (std::size_t i = 0; i < ulpdu.payload_count; ++i) {
        const ConstBytes payload = ulpdu.payload[i];
        if (payload.empty()) continue;
        const fault::Touch touch(0, payload.data(), payload.size());
        std::memcpy(to, payload.data(), payload.size());
        to += payload.size();
    }
}

}  // namespace

/// What tx_fill() gives next. All conditions for sending stand here and in the three that follow.
Stream::Impl::Next Stream::Impl::next() const noexcept {
    if (tx.log.full()) return Next::nothing;
    if (!state.established()) return state.terminate_due() ? Next::terminate : Next::nothing;
    const Next others = next_message();
    if (!replies.owed() || tx.under_way != TxState::Source::none || tx.rtr != Rtr::none)
        return others;
    const bool sends = others != Next::nothing && others != Next::local;
    return replies.due(sends) ? Next::acknowledge : others;
}

/// The same without what the peer is told of its own. @pre established
Stream::Impl::Next Stream::Impl::next_message() const noexcept {
    if (tx.under_way == TxState::Source::send_queue) return Next::message;
    if (tx.under_way == TxState::Source::response) return Next::response;
    if (tx.rtr != Rtr::none) return Next::rtr;
    bool send = false;
    if (tx.next < config.sq->posted() && !tx.held) {
        const SendWqe& wqe = config.sq->at(tx.next);
        if (!local(wqe)) {
            send = may_start(wqe);
        } else if (may_run_local(wqe)) {
            return Next::local;
        }
    }
    const bool response = irq.due();
    const bool by_reads = tx.acks.by() == AckRequests::By::reads;
    if (may_request_ack() && (!send || (by_reads && tx.next - tx.acks.asked() >= kAckRequestEvery)))
        return Next::ack_request;
    if (send && (!response || tx.previous == TxState::Source::response)) return Next::message;
    if (response) return Next::response;
    return tx.probe ? Next::probe : Next::nothing;
}

/// Messages that may start in a row, given that next() answers `message` now: then it is called
/// again, for another source may be due.
std::uint64_t Stream::Impl::messages_in_a_row() const noexcept {
    const std::uint64_t posted = config.sq->posted() - tx.next;
    if (tx.under_way != TxState::Source::none) return 0;
    if (irq.due()) return 1;
    if (tx.acks.by() != AckRequests::By::reads) return posted;
    const std::uint64_t unrequested = tx.next - tx.acks.asked();
    return std::min(posted, kAckRequestEvery - std::min(unrequested, kAckRequestEvery - 1));
}

/// Is the next message the only thing to send, and a copy of its bytes in its entry? Most messages
/// of a ping-pong are.
bool Stream::Impl::is_single() const noexcept {
    return tx.under_way == TxState::Source::none && !irq.due() && !may_request_ack() &&
           config.sq->posted() == tx.next + 1 && (config.sq->at(tx.next).flags & kSendInline) != 0;
}

/// The single message, an Acknowledge, or one ahead of the other.
UlpdusGiven Stream::Impl::fill_single(const UlpduBatch& batch) {
    BatchWriter writer(batch);
    const Next what = next();
    const bool acknowledges = what == Next::acknowledge;
    const Next behind = acknowledges ? next_message() : what;
    if (behind != Next::message) {
        if (!acknowledges || behind != Next::nothing) return {};
    } else if (!is_single()) {
        return {};
    }
    if (!acknowledges) return {put_messages(writer) ? writer.count() : 0};
    if (!writer.takes(kUntaggedOctets)) return {};
    std::byte* const at = writer.at();
    writer.advance(kUntaggedOctets);
    if (behind == Next::message) {
        const SendWqe& wqe = config.sq->at(tx.next);
        const bool tagged = wqe.opcode == SendOpcode::write;
        const std::size_t header = tagged ? kTaggedOctets : kUntaggedOctets;
        if ((!tagged && wqe.opcode != SendOpcode::send) || !writer.takes(header + wqe.length))
            return {};
    }
    put_acknowledge(at);
    ++counters.tx_segments;
    if (behind == Next::message) put_messages(writer);
    return {writer.count()};
}

UlpdusGiven Stream::Impl::tx_fill(const UlpduBatch& batch) {
    if (batch.single) return fill_single(batch);
    XSOCK_ASSERT(batch.mulpdu >= kMaxUlpduHeader);
    BatchWriter writer(batch);
    for (;;) {
        const Next what = next();
        if (what == Next::nothing) break;
        if (what == Next::local) {
            run_local();
            continue;
        }
        if (put_small(what, writer)) {
            if (writer.full()) break;
            continue;
        }
        UlpduOut& out = *batch.described;
        // Building may find a reason to end the stream; then there is a Terminate to send instead.
        if (!build(what, batch.mulpdu, out)) continue;
        ++counters.tx_segments;
        const std::size_t size = out.size();
        if (!writer.takes(size)) return {writer.count(), true, next() != Next::nothing};
        put(out, writer.at());
        writer.advance(size);
        if (writer.full()) break;
    }
    return {writer.count(), false};
}

/// Several ULPDUs of the kind that is next, small enough to be written whole. False: there is none.
bool Stream::Impl::put_small(Next what, BatchWriter& to) {
    if (what == Next::message) return put_messages(to) || put_requests(to);
    return what == Next::response && put_responses(to);
}

/// Sends and Writes that are small enough to be written whole. Nothing is changed before the last
/// byte is copied: program memory may be gone. False: the next message is none of them.
bool Stream::Impl::put_messages(BatchWriter& to) {
    SendQueue& sq = *config.sq;
    BatchWriter writer = to;  // the compiler knows that nothing else changes it
    std::uint64_t left = messages_in_a_row();
    std::uint32_t msn = tx.send_msn;
    std::size_t payload = 0, n = 0, solicited = 0, writes = 0;
    for (; left != 0; --left, ++n) {
        const SendWqe& wqe = sq.at(tx.next + n);
        const bool tagged = wqe.opcode == SendOpcode::write;
        if ((!tagged && wqe.opcode != SendOpcode::send) || fenced(wqe)) break;
        const std::size_t size = (tagged ? kTaggedOctets : kUntaggedOctets) + wqe.length;
        if (!writer.takes(size)) break;
        // If it fails the entry does, by build(): then no question is missed.
        const bool asks = tx.acks.give(tx.next + n, wqe.flags);
        if (!put_message(wqe, msn, asks, writer.at())) break;
        writer.advance(size);
        if (tagged) {
            ++writes;
        } else {
            ++msn;
            if ((wqe.flags & kSendSolicited) != 0) ++solicited;
        }
        payload += wqe.length;
    }
    if (n == 0) return false;
    to = writer;
    counters.tx_segments += n;
    counters.tx_payload_bytes += payload;
    counters.tx_messages[RDMAP_WRITE] += writes;
    counters.tx_messages[RDMAP_SEND_SE] += solicited;
    counters.tx_messages[RDMAP_SEND] += n - writes - solicited;
    tx.log.push(TxLog::Kind::send_queue, true, static_cast<std::uint32_t>(n));
    tx.previous = TxState::Source::send_queue;
    tx.probe = false;
    tx.send_msn = msn;
    tx.next += n;
    tx.acks.count(static_cast<std::uint32_t>(n));
    return true;
}

/// A message that fits into one small ULPDU, its payload copied behind the header; longer ones:
/// build_from_send_queue(). False: memory that its key does not permit; build() says so.
bool Stream::Impl::put_message(const SendWqe& wqe, std::uint32_t msn, bool asks,
                               std::byte* to) const {
    const bool tagged = wqe.opcode == SendOpcode::write;
    to += encode(Segment{.opcode = rdmap_opcode(wqe),
                         .tagged = tagged,
                         .asks = asks,
                         .stag = tagged ? wqe.remote_stag : 0,
                         .to = tagged ? wqe.remote_to : 0,
                         .qn = DDP_QN_SEND,
                         .msn = msn},
                 to);
    if ((wqe.flags & kSendInline) != 0) {
        copy_short(to, wqe.inline_payload(), wqe.length);
        return true;
    }
    for (const Sge& sge : sges_of(wqe)) {
        if (sge.length == 0) continue;
        if (!permits(sge, false)) return false;
        const fault::Touch touch(0, sge.address, sge.length);
        copy_short(to, sge.address, sge.length);
        to += sge.length;
    }
    return true;
}

/// Describes what next() answered. False: there is none, for the stream has ended over it.
bool Stream::Impl::build(Next what, std::size_t mulpdu, UlpduOut& out) {
    out.payload_count = 0;
    out.unstable = false;
    if (what == Next::rtr) return build_unposted(std::exchange(tx.rtr, Rtr::none), out);
    tx.probe = false;  // whatever is sent now serves
    switch (what) {
        case Next::message:
            tx.under_way = tx.previous = TxState::Source::send_queue;
            return build_from_send_queue(mulpdu, out);
        case Next::response:
            tx.under_way = tx.previous = TxState::Source::response;
            return build_response(mulpdu, out);
        case Next::ack_request:
            return build_ack_request(out);
        case Next::acknowledge:
            out.header_size = put_acknowledge(out.header.data());
            return true;
        case Next::probe:
            return build_unposted(Rtr::write, out);
        case Next::terminate:
            state.give_terminate(out);
            tx.log.push(TxLog::Kind::terminate, true);
            ++counters.tx_messages[RDMAP_TERMINATE];
            return true;
        case Next::nothing:
        case Next::local:
        case Next::rtr:
            break;
    }
    return false;
}

/// Are there entries to request an acknowledgement of, and is there room in the ORQ for a Read?
bool Stream::Impl::may_request_ack() const noexcept {
    if (!tx.acks.due() || tx.under_way != TxState::Source::none || orq.abandoned()) return false;
    return tx.acks.by() == AckRequests::By::messages || orq.size() < ord;
}

bool Stream::Impl::fenced(const SendWqe& wqe) const noexcept {
    return (wqe.flags & kSendFence) != 0 && !orq.empty();
}

bool Stream::Impl::may_start(const SendWqe& wqe) const noexcept {
    if (fenced(wqe)) return false;
    // A request that can never be sent is let through, to fail.
    return !awaits_response(wqe.opcode) || orq.size() < ord || ord == 0;
}

// -- entries that send nothing --

bool Stream::Impl::local(const SendWqe& wqe) const noexcept {
    return sends_nothing(wqe.opcode) || (awaits_response(wqe.opcode) && orq.abandoned());
}

/// Not while an earlier entry may still be read by the LLP: it may lie in the region.
bool Stream::Impl::may_run_local(const SendWqe& wqe) const noexcept {
    return tx.sent == tx.next && !fenced(wqe);
}

/// Local Invalidate: of a region that this QP could use itself. False: it is none, or not valid.
bool Stream::Impl::revoke(std::uint32_t stag) {
    auto region = config.memory->query(stag);
    return region && region->pd == config.pd &&
           (region->only_qp == 0 || region->only_qp == config.qp_num) &&
           config.memory->invalidate(stag);
}

/// What sends nothing. False: it cannot be done.
bool Stream::Impl::perform(const SendWqe& wqe) {
    MemoryTable& memory = *config.memory;
    if (wqe.opcode == SendOpcode::local_invalidate) return revoke(wqe.invalidate_stag);
    if (wqe.opcode != SendOpcode::bind_window) return true;
    if (wqe.remote_stag != 0) return memory.bind(wqe.remote_stag);
    memory.unbind(wqe.invalidate_stag);
    return true;
}

void Stream::Impl::run_local() {
    if (!state.established() || tx.under_way == TxState::Source::send_queue || tx.held) return;
    while (tx.next < config.sq->posted()) {
        const SendWqe& wqe = config.sq->at(tx.next);
        if (!local(wqe) || !may_run_local(wqe)) return;
        if (!perform(wqe)) {
            fail_entry(WcStatus::local_protection_error);
            return;
        }
        tx.acks.skip(tx.next, wqe.flags);
        tx.sent = ++tx.next;
        complete_sent();
    }
}

// -- after the LLP has them --

void Stream::Impl::tx_done(std::uint32_t n) {
    while (n != 0) {
        if (state.ended()) return;  // the LLP forgets what it was given
        const TxLog::Batch done = tx.log.pop(n);
        n -= done.ulpdus;
        switch (done.kind) {
            case TxLog::Kind::send_queue:
                if (!done.last) break;
                tx.sent += done.ulpdus;
                complete_sent();
                run_local();
                break;
            case TxLog::Kind::response:
                if (done.last) irq.pop(done.ulpdus);
                break;
            case TxLog::Kind::unposted:
                break;
            case TxLog::Kind::terminate:
                end();
                break;
        }
    }
}

bool Stream::Impl::tx_intact() {
    if (tx.log.empty()) return true;
    for (std::uint64_t sequence = tx.sent; sequence < tx.begun(); ++sequence) {
        const SendWqe& wqe = config.sq->at(sequence);
        if (awaits_response(wqe.opcode) || (wqe.flags & kSendInline) != 0) continue;
        std::uint32_t given = sequence == tx.next ? tx.offset : wqe.length;
        for (Cursor at; given > 0;) {
            const Sge piece = at.piece(sges_of(wqe), given);
            if (!permits(piece, false)) {
                state.set_failed_wqe(sequence, WcStatus::local_protection_error);
                end(StreamError::local_catastrophic);
                return false;
            }
            at.offset += piece.length;
            given -= piece.length;
        }
    }
    for (std::uint32_t i = 0; i < irq.size(); ++i) {
        const InboundRead& read = irq[i];
        const std::uint32_t given = irq.given(i);
        if (given == 0 || read.source == nullptr) continue;
        const auto found =
            remote(read.request.source_stag, Right::remote_read, read.request.source_to, given);
        // The STag may mean other memory by now.
        if (found.stream_error == StreamError::none && found.address == read.source) continue;
        end(found.stream_error != StreamError::none ? found.stream_error
                                                    : StreamError::read_stag_invalid);
        return false;
    }
    return true;
}

/// The oldest entry that cannot be read has failed. There is none if it was the source of a Read
/// Response.
void Stream::Impl::tx_memory_gone() {
    for (std::uint64_t sequence = tx.sent; sequence < config.sq->posted(); ++sequence) {
        const SendWqe& wqe = config.sq->at(sequence);
        if (awaits_response(wqe.opcode) || (wqe.flags & kSendInline) != 0) continue;
        for (const Sge& sge : sges_of(wqe)) {
            if (!permits(sge, false) || fault::readable(sge.address, sge.length)) continue;
            state.set_failed_wqe(sequence, WcStatus::local_protection_error);
            return;
        }
    }
}

ConstBytes Stream::Impl::move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to) {
    SendQueue& sq = *config.sq;
    for (std::uint64_t sequence = sq.retired(); sequence < sq.posted(); ++sequence) {
        SendWqe& wqe = sq.at(sequence);
        if (wqe.wr_id != wr_id || (wqe.flags & kSendInternal) == 0) continue;
        XSOCK_ASSERT((wqe.flags & kSendInline) == 0 && wqe.sge_count == 1);
        const ConstBytes from(wqe.sge[0].address, wqe.sge[0].length);
        {
            const fault::Touch reading(0, from.data(), from.size());
            std::copy(from.begin(), from.end(), to);
        }
        wqe.wr_id = new_id;
        wqe.sge[0].address = to;
        return from;
    }
    return {};
}

}  // namespace xsock::ddp
