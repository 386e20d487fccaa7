// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/stream.hpp"

#include <algorithm>

#include "ddp_user/stream_impl.hpp"

namespace xsock::ddp {

// -- what both directions share --

void Stream::Impl::fail(StreamError v, const ErrorContext& error_context) {
    state.fail(v, error_context);
    rx.phase = RxUlpdu::Phase::discard;
}

void Stream::Impl::end(StreamError v) {
    state.end(v);
    rx.phase = RxUlpdu::Phase::discard;
}

bool Stream::Impl::permits(const Sge& sge, bool write) const noexcept {
    if (sge.lkey == kLkeyNone) return !config.require_lkeys;
    return config.memory->check_local(sge.lkey, config.pd, config.qp_num, sge.address, sge.length,
                                      write);
}

MemoryTable::Found Stream::Impl::remote(std::uint32_t stag, Right right, std::uint64_t to,
                                        std::uint64_t length) const noexcept {
    const auto found =
        config.memory->check_remote(stag, config.pd, config.qp_num, right, to, length);
    if (found.stream_error != StreamError::none || config.rights == kRemoteAccess) return found;
    switch (right) {
        case Right::remote_write:
            if ((config.rights & kRemoteWrite) == 0) return {StreamError::write_access};
            break;
        case Right::remote_read:
            if ((config.rights & kRemoteRead) == 0) return {StreamError::read_access};
            break;
        case Right::remote_atomic:
            if ((config.rights & kRemoteAtomic) == 0) return {StreamError::read_access};
            break;
    }
    return found;
}

void Stream::Impl::complete_oldest(WcStatus status) {
    SendQueue& sq = *config.sq;
    const SendWqe& wqe = sq.at(sq.retired());
    const bool read = awaits_response(wqe.opcode) && status == WcStatus::success;
    const bool asked = (wqe.flags & kSendSignaled) != 0;
    unsigned flags = asked ? 0 : kWcUnsignaled;
    if ((wqe.flags & kSendInternal) != 0) flags |= kWcInternal;
    if (status != WcStatus::success && wqe.opcode == SendOpcode::bind_window &&
        wqe.remote_stag != 0) {
        config.memory->abandon(wqe.remote_stag);
    }
    const std::uint64_t wr_id = wqe.wr_id;
    const std::uint32_t bytes = read ? wqe.length : 0;
    const WcOpcode opcode = send_info(wqe.opcode).completion;
    // The slot first: a thread that sees the completion may post into it at once.
    sq.retire();
    if (!asked && status == WcStatus::success) return;
    complete(*config.send_cq, [&](Wc& wc) {
        wc.wr_id = wr_id;
        wc.qp_context = config.qp_context;
        wc.qp_num = config.qp_num;
        wc.byte_len = bytes;
        wc.invalidated_stag = 0;
        wc.opcode = opcode;
        wc.status = status;
        wc.flags = static_cast<std::uint8_t>(flags);
        wc.immediate = 0;
    });
}

void Stream::Impl::complete_receive(const RecvWqe& wqe, WcStatus status, std::uint32_t byte_len) {
    const bool ok = status == WcStatus::success;
    const bool invalidated = ok && rx.op->invalidates;
    const bool immediate = ok && rx.op->kind == RxKind::immediate;
    const bool beside = ok && rx.op->immediate;
    unsigned flags = 0;
    if (wqe.internal) flags |= kWcInternal;
    if (ok && rx.op->solicited) flags |= kWcSolicited;
    if (invalidated) flags |= kWcInvalidated;
    if (immediate) flags |= kWcImmediate;
    if (beside) flags |= kWcSendImmediate;
    complete(*config.recv_cq, [&](Wc& wc) {
        wc.wr_id = wqe.wr_id;
        wc.qp_context = config.qp_context;
        wc.qp_num = config.qp_num;
        wc.byte_len = byte_len;
        wc.invalidated_stag = invalidated ? rx.segment.stag : 0;
        wc.opcode = WcOpcode::recv;
        wc.status = status;
        wc.flags = static_cast<std::uint8_t>(flags);
        wc.immediate = immediate ? load_be64(rx.body.data()) : beside ? rx.segment.stag : 0;
    });
}

void Stream::Impl::complete_sent() {
    SendQueue& sq = *config.sq;
    for (;;) {
        complete_plain();
        if (sq.retired() >= tx.sent) return;
        WcStatus status = WcStatus::success;
        const SendWqe& wqe = sq.at(sq.retired());
        if (awaits_response(wqe.opcode)) {
            if (!orq.take_delivered()) {
                if (!orq.abandoned()) return;
                status = WcStatus::flushed;
            }
        } else if (tx.acks.any() && !sends_nothing(wqe.opcode) &&
                   sq.retired() >= tx.acks.confirmed() && !forgotten(wqe)) {
            if (!orq.abandoned()) return;
            status = WcStatus::connection_lost;
        }
        complete_oldest(status);
    }
}

/// The peer was not asked whether it has this entry, the next to complete, and will not be. (An
/// entry behind it that is not given yet may still ask.)
bool Stream::Impl::forgotten(const SendWqe& wqe) const noexcept {
    const bool last_asked = tx.finishing && tx.next == config.sq->posted();
    return (wqe.flags & kSendSignaled) == 0 && (last_asked || orq.abandoned()) &&
           tx.acks.unrequested(config.sq->retired());
}

/// complete_oldest() for the Sends and Writes at the head, which have succeeded, without its
/// checks.
void Stream::Impl::complete_plain() {
    SendQueue& sq = *config.sq;
    const std::uint64_t end = tx.acks.any() ? std::min(tx.sent, tx.acks.confirmed()) : tx.sent;
    for (std::uint64_t oldest = sq.retired(); oldest < end;) {
        XSOCK_ASSERT(sq.retired() == oldest);  // else a sink has ended the stream
        const SendWqe& wqe = sq.at(oldest);
        const SendOpcode opcode = wqe.opcode;
        if (opcode != SendOpcode::send && opcode != SendOpcode::write) return;
        const std::uint64_t wr_id = wqe.wr_id;
        const unsigned flags = wqe.flags;
        sq.retire_to(++oldest);
        if ((flags & kSendSignaled) == 0) continue;
        complete(*config.send_cq, [&](Wc& wc) {
            wc.wr_id = wr_id;
            wc.qp_context = config.qp_context;
            wc.qp_num = config.qp_num;
            wc.byte_len = 0;
            wc.invalidated_stag = 0;
            wc.opcode = opcode == SendOpcode::send ? WcOpcode::send : WcOpcode::write;
            wc.status = WcStatus::success;
            wc.flags = (flags & kSendInternal) != 0 ? std::uint8_t{kWcInternal} : std::uint8_t{0};
            wc.immediate = 0;
        });
    }
}

void Stream::Impl::flush_posted_receives(WcStatus status) {
    if (!config.rq_shared) config.rq->close();
    if (message.end()) complete_receive(message.receive, status);
    if (config.rq_shared) return;
    RecvWqe wqe;
    while (config.rq->take(wqe)) complete_receive(wqe, status);
}

// -- life and end --

Stream::Stream(const Config& config) {
    static_assert(sizeof(Impl) <= 896, "an idle connection should cost little");
    XSOCK_ASSERT(config.memory != nullptr && config.sq != nullptr && config.rq != nullptr);
    XSOCK_ASSERT(config.send_cq != nullptr && config.recv_cq != nullptr);
    impl_ = std::make_unique<Impl>(config);
}

Stream::~Stream() = default;

void Stream::llp_established(const Negotiated& negotiated) {
    Impl& s = *impl_;
    s.negotiated = negotiated;
    if (negotiated.enhanced) {
        s.ird = negotiated.ird;
        s.ord = negotiated.ord;
    } else {
        s.ord = std::min(s.ord, kUnnegotiatedReads);
    }
    if (s.state.now() != State::idle) return;
    if (s.tx.acknowledged) {
        using By = AckRequests::By;
        const bool told = (negotiated.features & MPA_FEATURE_ACKNOWLEDGE) != 0;
        s.tx.acks.set(told ? By::messages : s.ord != 0 ? By::reads : By::nothing);
    }
    if (negotiated.rtr != Rtr::none && !negotiated.initiator) {
        // RFC 6581 §9: the ULP sees nothing of the connection before the RTR message.
        if (negotiated.rtr == Rtr::read && s.ird == 0) s.ird = 1;
        return;
    }
    s.tx.rtr = negotiated.rtr;
    s.state.establish();
}

void Stream::llp_failed(StreamError stream_error) { impl_->fail(stream_error); }

void Stream::llp_closed(CloseKind kind) {
    if (kind == CloseKind::peer_finished) return;  // half a connection is left: we may still send
    impl_->fail(StreamError::mpa_connection_lost);
    impl_->end();
}

void Stream::llp_probe() {
    Impl& s = *impl_;
    // An Acknowledge would count it.
    if (s.tx.acks.by() == AckRequests::By::messages) return;
    if (s.state.established() && !tx_wanted()) s.tx.probe = true;
}

void Stream::receive_overdue() {
    Impl& s = *impl_;
    if (!rx_blocked()) return;
    // MO has not been read yet; of a message that begins it can only be 0.
    std::fill(s.rx.header.begin() + offsetof(ddp_untagged, mo), s.rx.header.end(), std::byte{0});
    s.rx_raise(StreamError::untagged_no_buffer);
}

void Stream::fail(StreamError stream_error) { impl_->fail(stream_error); }

void Stream::tx_memory_gone() { impl_->tx_memory_gone(); }
void Stream::rx_memory_gone() { impl_->rx_memory_gone(); }

void Stream::flush(WcStatus status) {
    Impl& s = *impl_;
    SendQueue& sq = *s.config.sq;
    sq.close();
    s.end();
    s.tx.end(sq.posted());
    s.orq.abandon();
    s.irq.clear();
    while (sq.retired() < sq.posted()) {
        s.complete_oldest(s.state.flush_status(sq.retired(), status));
    }
    s.flush_posted_receives(status);
}

void Stream::drop_sends() {
    Impl& s = *impl_;
    SendQueue& sq = *s.config.sq;
    sq.close();
    s.end();
    s.tx.end(sq.posted());
    while (sq.retired() < sq.posted()) {
        const bool local = sends_nothing(sq.at(sq.retired()).opcode);
        s.complete_oldest(local ? WcStatus::flushed : WcStatus::success);
    }
}

void Stream::drop_receives() {
    impl_->discard_segment_of_receive();
    impl_->flush_posted_receives(WcStatus::flushed);
}

void Stream::flush_receives() {
    impl_->rx.phase = RxUlpdu::Phase::discard;
    impl_->flush_posted_receives(WcStatus::flushed);
    peer_finished();
}

void Stream::hold_sends(bool held) noexcept { impl_->tx.held = held; }

void Stream::peer_finished() {
    Impl& s = *impl_;
    s.replies.stop();
    s.orq.abandon();
    s.run_local();
    s.complete_sent();
}

// -- the two directions --

UlpdusGiven Stream::tx_fill(const UlpduBatch& batch) { return impl_->tx_fill(batch); }
void Stream::tx_done(std::uint32_t n) { impl_->tx_done(n); }
bool Stream::tx_intact() { return impl_->tx_intact(); }
std::size_t Stream::rx_ulpdu(ConstBytes ulpdu) { return impl_->rx_ulpdu(ulpdu); }
void Stream::rx_begin(std::size_t ulpdu_length) { impl_->rx_begin(ulpdu_length); }
Bytes Stream::rx_target() { return impl_->rx_target(); }
void Stream::rx_advance(std::size_t n) { impl_->rx_advance(n); }
void Stream::rx_end(bool intact) { impl_->rx_end(intact); }
void Stream::rx_placed(const PlacedWrites& writes) { impl_->rx_placed(writes); }
void Stream::rx_placed_response(ConstBytes header, std::size_t bytes) {
    impl_->rx_placed_response(header, bytes);
}

// -- what may be asked --

bool Stream::tx_wanted() const noexcept { return impl_->next() != Impl::Next::nothing; }

void Stream::finish() {
    Impl& s = *impl_;
    s.tx.finishing = true;
    s.replies.hurry();
    s.complete_sent();
}

bool Stream::owes_acknowledge() const noexcept { return impl_->replies.owed(); }
void Stream::acknowledge() noexcept { impl_->replies.release(); }

bool Stream::rx_blocked() const noexcept { return impl_->rx.phase == RxUlpdu::Phase::blocked; }

// While reception stands still no more answers are asked for.
bool Stream::tell_rnr() noexcept {
    constexpr std::uint64_t kNeeds = MPA_FEATURE_ACKNOWLEDGE | MPA_FEATURE_RNR;
    if ((impl_->negotiated.features & kNeeds) != kNeeds) return true;
    return impl_->irq.empty() && impl_->replies.tell_rnr();
}
bool Stream::rnr_exceeded() const noexcept { return impl_->tx.rnr.exceeded(); }
void Stream::fail_waiting() { impl_->fail_waiting(); }
void Stream::set_rnr_retries(std::uint8_t most) noexcept { impl_->tx.rnr.set_most(most); }

bool Stream::drained() const noexcept {
    const Impl& s = *impl_;
    return s.config.sq->retired() == s.config.sq->posted() && s.tx.log.empty() &&
           s.tx.rtr == Rtr::none && !s.tx.probe && s.irq.empty() && s.orq.empty();
}

bool Stream::awaits_answers() const noexcept { return !impl_->orq.empty(); }

Stream::State Stream::state() const noexcept { return impl_->state.now(); }
StreamError Stream::stream_error() const noexcept { return impl_->state.error(); }

const TerminateInfo* Stream::terminate_sent() const noexcept { return impl_->state.sent(); }

const TerminateInfo* Stream::terminate_received() const noexcept { return impl_->state.received(); }

const Negotiated& Stream::negotiated() const noexcept { return impl_->negotiated; }
std::uint16_t Stream::ird() const noexcept { return impl_->ird; }
std::uint16_t Stream::ord() const noexcept { return impl_->ord; }
const Counters& Stream::counters() const noexcept { return impl_->counters; }
void Stream::set_depths(std::uint16_t ird, std::uint16_t ord) noexcept {
    impl_->ird = ird;
    impl_->ord = ord;
}
bool Stream::move_receive(std::uint64_t wr_id, const RecvWqe& other) {
    return impl_->move_receive(wr_id, other);
}
ConstBytes Stream::move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to) {
    return impl_->move_send(wr_id, new_id, to);
}
void Stream::stop_receiving() noexcept {
    impl_->rx_discarding = true;
    impl_->rx.phase = RxUlpdu::Phase::discard;
}
void Stream::leave_shared_queue(RecvQueue& own) noexcept {
    impl_->config.rq = &own;
    impl_->config.rq_shared = false;
}
void Stream::set_rights(std::uint32_t rights) noexcept { impl_->config.rights = rights; }
void Stream::set_acknowledged() noexcept { impl_->tx.acknowledged = true; }
void Stream::set_write_observer(WriteObserver* observer) noexcept {
    impl_->write_observer = observer;
}
void Stream::set_context(std::uint64_t context) noexcept { impl_->config.qp_context = context; }

const Config& Stream::config() const noexcept { return impl_->config; }

}  // namespace xsock::ddp
