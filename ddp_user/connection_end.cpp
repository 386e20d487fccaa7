// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a connection ends: by the peer, by the program, by a fault, in time.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "ddp_user/connection.hpp"

namespace xsock::ddp {
namespace {

// The errno that tells a socket programmer how a stream ended.
int errno_of(StreamError stream_error) {
    switch (stream_error) {
        case StreamError::none:
            return 0;
        case StreamError::startup_timeout:
        case StreamError::peer_silent:
            return ETIMEDOUT;
        case StreamError::startup_rejected:
            return ECONNREFUSED;
        case StreamError::mpa_connection_lost:
            return ECONNRESET;
        case StreamError::local_fault:
            return EFAULT;
        default:
            return EPROTO;
    }
}

}  // namespace

// ---- what has come about --------------------------------------------------

void Connection::update_end(Time now) {
    const Llp::Status& layer = llp_->status();
    const bool sending_terminate = stream_.state() == Stream::State::terminating;
    const bool stream_ended = stream_.state() == Stream::State::ended;
    if (stream_ended && stream_.terminate_received() != nullptr) {
        end(QpState::error, {EndCause::terminated, EPROTO, stream_error()}, WcStatus::flushed, true,
            now);
        return;
    }
    // What the layer still has waits behind a message that the peer does not take.
    if (stream_ended && stream_error() == StreamError::rnr_retries_exceeded) {
        end_by_stream(false, now);
        return;
    }
    // A peer that does not read must not keep us.
    if (sending_terminate && deadlines_.linger == kNever) begin_linger(now);
    if (layer.tx_pending != 0 && !peer_finished()) return;  // a Terminate or a Reply goes first
    if (stream_ended || layer.state == Llp::State::closed ||
        (layer.state == Llp::State::failed && !sending_terminate)) {
        const bool said_something = stream_.terminate_sent() != nullptr ||
                                    (layer.state == Llp::State::closed && committed_);
        end_by_stream(said_something, now);
        return;
    }
    if (sending_terminate) {
        if (fin_sent()) end_by_stream(false, now);  // too late to tell the peer
        return;
    }
    if (remote_ == Remote::finished && unconsumed_.empty() && start_ != Start::held) {
        on_peer_finished();
        if (ended()) return;
    }
    if (local_ == Local::closing && is_started() && stream_.drained() &&
        !stream_.owes_acknowledge() && llp_->status().tx_pending == 0 &&
        (peer_finished() || finish_at() <= now)) {
        finish();
    }
    // A message that no receive will take (the program has closed the connection) must not delay
    // the peer.
    const bool unwanted = released_ && stream_.rx_blocked();
    if (fin_sent() && (peer_finished() || unwanted)) {
        end(QpState::closed, {}, WcStatus::flushed, true, now);
    }
}

// Half of the connection is left.
void Connection::on_peer_finished() {
    remote_ = Remote::over;
    if (attr_.outlives_peer && awaits_confirm_end_ && !closing()) {
        set_state(QpState::peer_closed);  // the rest with confirm_end()
        return;
    }
    if ((attr_.outlives_peer || awaits_confirm_end_) && !closing()) {
        stream_.peer_finished();
    } else {
        stream_.flush_receives();  // Reads too: no answer can come any more
    }
    if (closing() || attr_.outlives_peer) return;
    push_event(WcOpcode::closed, WcStatus::success);
    set_state(QpState::peer_closed);
}

bool Connection::awaits_rtr() const noexcept {
    return llp_->state() == Llp::State::operational && start_ == Start::pending;
}

Time Connection::finish_at() const noexcept {
    return std::max(llp_->status().finish_at, finish_at_);
}

// FIN, once. The layer must not be asked for anything behind it.
void Connection::finish() {
    if (fin_sent()) return;
    delegate_.finish();
    llp_->tx_finished();
    local_ = Local::finished;
}

// The stream, or the layer below it, is over.
void Connection::end_by_stream(bool orderly, Time now) {
    const StreamError v = stream_error();
    if (v == StreamError::none) {
        end(QpState::closed, {}, WcStatus::flushed, true, now);
        return;
    }
    const bool is_lost = v == StreamError::mpa_connection_lost;
    end(QpState::error, {EndCause::stream_error, errno_of(v), v},
        is_lost ? WcStatus::connection_lost : WcStatus::flushed, orderly, now);
}

// The end of all posted work. `orderly`: what was written shall still reach the peer, so we finish
// and wait for its FIN a while; otherwise what carries the connection goes at once.
void Connection::end(QpState state, const ConnectionError& error, WcStatus status, bool orderly,
                     Time now) {
    if (ended()) return;
    life_ = Life::ended;
    error_ = error;
    const bool told = state_ == QpState::peer_closed;
    // The program is told first, unless the end is its own doing or a fault of the stream.
    const bool peer_left = told || (state == QpState::error && status == WcStatus::connection_lost);
    // The one request whose memory is gone is known to the stream.
    const WcStatus of_others =
        status == WcStatus::local_protection_error ? WcStatus::flushed : status;
    // An error of the program's own is one of any service.
    const bool silent = attr_.unreliable && status != WcStatus::local_protection_error &&
                        stream_error() != StreamError::local_catastrophic;
    if (awaits_confirm_end_ && is_started() && !released_ && (peer_left || silent)) {
        if (silent) stream_.drop_sends();
        flush_held_ = of_others;
    } else {
        stream_.flush(of_others);
    }
    if (!told) {
        push_event(WcOpcode::closed, state == QpState::closed ? WcStatus::success
                                     : status == WcStatus::flushed
                                         ? WcStatus::remote_operation_error
                                         : status);
    }
    unconsumed_ = {};
    rnr_wait_.end();
    set_state(state);
    if (closed()) return;  // by the listener of the state
    if (!orderly) {
        close(state == QpState::error);
        return;
    }
    const bool rejects = !negotiated().initiator && !is_started();
    if (rejects && !negotiated().peer_is_xsock && !peer_finished()) {
        local_ = Local::fin_owed;
        finish_at_ = after(now, limits_.fin_delay);
    } else {
        finish();
    }
    if (peer_finished()) {
        close(false);
        return;
    }
    begin_linger(now);
}

void Connection::end_fresh(QpState state) {
    life_ = Life::closed;
    stream_.flush(WcStatus::flushed);
    set_state(state);
}

void Connection::close(bool reset) {
    if (closed()) return;
    life_ = Life::closed;
    delegate_.close(reset);
}

void Connection::set_state(QpState next) {
    if (state_ == next) return;
    state_ = next;
    delegate_.on_state(next);
}

void Connection::begin_linger(Time now) noexcept { deadlines_.linger = after(now, limits_.linger); }

void Connection::push(const Wc& wc) {
    CompletionQueue& queue = *stream_.config().recv_cq;
    if (stream_.config().completions != nullptr) {
        stream_.config().completions->push(queue, wc);
    } else {
        queue.push(wc);
    }
}

void Connection::push_event(WcOpcode opcode, WcStatus status) {
    if (!event_completions_ || released_) return;
    Wc wc;
    wc.opcode = opcode;
    wc.status = status;
    wc.qp_num = stream_.config().qp_num;
    wc.qp_context = stream_.config().qp_context;
    push(wc);
}

// ---- ending ---------------------------------------------------------------

void Connection::shutdown(Time now) {
    if (ended() || closing()) return;
    stream_.config().sq->close();
    local_ = Local::closing;
    if (state_ == QpState::fresh) {
        end_fresh(QpState::closed);
        return;
    }
    stream_.finish();
    if (is_started() && !negotiated().peer_is_xsock) finish_at_ = after(now, limits_.fin_delay);
    if (state_ == QpState::established) set_state(QpState::closing);
}

void Connection::abort() {
    confirm_end();
    if (ended()) {
        close(true);
        return;
    }
    stream_.config().sq->close();
    if (state_ == QpState::fresh) {
        end_fresh(QpState::error);
        return;
    }
    end(QpState::error, {EndCause::aborted, ECONNABORTED, stream_error()}, WcStatus::flushed, false,
        0);
}

// No reset: what TCP has is still delivered, as it is when the process has ended.
void Connection::leave(Time now) {
    if (ended() || llp_ == nullptr) return;
    stream_.stop_receiving();
    resume(now);  // what waited for a receive goes by
    if (ended()) return;
    if (state_ == QpState::established) set_state(QpState::closing);
    finish();
    begin_linger(now);
}

void Connection::detach(Time now) {
    confirm_start();
    confirm_end();
    if (ended()) return;
    const bool in_order = state_ == QpState::established || state_ == QpState::peer_closed ||
                          state_ == QpState::closing;
    if (in_order) stream_.finish();
    const SendQueue& sq = *stream_.config().sq;
    if (!in_order || sq.posted() != sq.retired()) {
        abort();
        return;
    }
    shutdown(now);
    if (ended()) return;
    leave_shared_queue();
    stream_.flush_receives();
    stream_.stop_receiving();
    rnr_wait_.end();
    begin_linger(now);
    released_ = true;
    resume(now);  // what waited for a receive goes by
    // What is left, FIN, goes by the layer of start-up; a Terminate does not, which the peer
    // expects from the other.
    const bool idle = unconsumed_.empty() && stream_.drained() && !stream_.owes_acknowledge() &&
                      stream_.state() == Stream::State::established &&
                      llp_->status().tx_pending == 0;
    if (!ended() && llp_ != startup_ && idle) hand_over(*startup_, now);
}

void Connection::release(Time now) {
    confirm_start();
    confirm_end();
    released_ = true;
    if (ended()) return;
    const SendQueue& sq = *stream_.config().sq;
    if ((state_ == QpState::starting || state_ == QpState::requested) &&
        sq.posted() == sq.retired()) {
        abort();  // what was posted meanwhile would still go if start-up succeeds
        return;
    }
    if (!stream_.config().rq_shared) stream_.drop_receives();
    // Later messages must not use up what others share: they find an empty queue of our own.
    leave_shared_queue();
    rnr_wait_.end();  // none will be posted: the linger time decides
    begin_linger(now);
    shutdown(now);
}

void Connection::linger(Time now) noexcept {
    if (!ended()) begin_linger(now);
}

void Connection::extend_linger(Time now) noexcept {
    if (!closed() && deadlines_.linger != kNever) begin_linger(now);
}

void Connection::leave_shared_queue() {
    if (!stream_.config().rq_shared || own_queue_ != nullptr) return;
    own_queue_ = std::make_unique<RecvQueue>(1);
    stream_.leave_shared_queue(*own_queue_);
}

// The peer has left in good order, and of ours nothing was sent but what the layers need: that a
// probe finds it gone is no fault of the connection. (One that outlives its peer still takes
// requests, and they are lost.)
bool Connection::loses_nothing(int error, EndCause cause) const noexcept {
    return cause == EndCause::lost && error == ECONNRESET && state_ == QpState::peer_closed &&
           !attr_.outlives_peer && stream_error() == StreamError::none &&
           stream_.config().sq->posted() == 0;
}

void Connection::lost(int error, EndCause cause) {
    if (!ended()) {
        const bool is_orderly = loses_nothing(error, cause);
        if (llp_ != nullptr) llp_->lost();
        if (is_orderly) {
            end(QpState::closed, {}, WcStatus::flushed, false, 0);
        } else {
            end(QpState::error, {cause, error, stream_error()}, WcStatus::connection_lost, false,
                0);
        }
    }
    close(false);
}

void Connection::tx_fault() { end_by_fault(EndCause::tx_memory_unmapped); }

void Connection::end_by_fault(EndCause cause) {
    if (ended()) return;
    if (cause == EndCause::tx_memory_unmapped) {
        stream_.tx_memory_gone();
    } else {
        stream_.rx_memory_gone();
    }
    end(QpState::error, {cause, EFAULT}, WcStatus::local_protection_error, false, 0);
}

// ---- time -----------------------------------------------------------------

Time Connection::next_timeout(Time now) const noexcept {
    if (closed() || llp_ == nullptr) return kNever;
    Time next = std::min(rnr_wait_.next_timeout(), deadlines_.linger);
    if (ended()) return local_ == Local::fin_owed ? std::min(next, finish_at_) : next;
    next = std::min(next, llp_->status().next_timeout);
    if (local_ == Local::closing && finish_at() > now) next = std::min(next, finish_at());
    if (awaits_rtr()) next = std::min(next, deadlines_.rtr);
    if (rnr_judged_at_ != 0) next = std::min(next, rnr_judged_at_);
    return next;
}

void Connection::on_time(Time now) {
    if (closed() || llp_ == nullptr) return;
    if (ended()) {
        if (local_ == Local::fin_owed && now >= finish_at_) finish();
        if (now >= deadlines_.linger) close(false);
        return;
    }
    if (llp_->status().next_timeout <= now) llp_->on_time(now);
    if (awaits_rtr() && deadlines_.rtr <= now) stream_.fail(StreamError::startup_timeout);
    if (rnr_judged_at_ <= now) rnr_judged_at_ = 0;
    if (rnr_wait_.notice_due(now)) resume(now);  // a receive may have been posted meanwhile
    if (rnr_wait_.notice_due(now)) rnr_wait_.noticed(now, rnr_notice_every_, stream_.tell_rnr());
    if (rnr_wait_.over(now)) {
        rnr_wait_.end();
        stream_.receive_overdue();
        resume(now);  // consumed and dropped from here on
    }
    if (ended() || deadlines_.linger > now) return;
    if (fin_sent()) {
        // All was sent, and the peer has not finished in time.
        end(QpState::closed, {}, WcStatus::flushed, false, now);
    } else {
        end(QpState::error, {EndCause::linger_expired, ETIMEDOUT, stream_error()},
            WcStatus::flushed, false, now);
    }
}

}  // namespace xsock::ddp
