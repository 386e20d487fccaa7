// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/connection.hpp"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <new>
#include <utility>

#include "base/assert.hpp"
#include "base/fault.hpp"

namespace xsock::ddp {

Connection::Connection(const ConnectionConfig& config, Delegate& delegate)
    : limits_(config.limits),
      delegate_(delegate),
      stream_(config.stream),
      event_completions_(config.event_completions) {}

// ---- beginning ------------------------------------------------------------

void Connection::start(Llp& layer, const StartAttr& attr, Time now) {
    XSOCK_ASSERT(state_ == QpState::fresh);
    llp_ = startup_ = &layer;
    attr_ = attr;
    awaits_confirm_end_ = attr.confirmed;
    stream_.set_depths(attr.ird, attr.ord);
    if (attr.acknowledged) stream_.set_acknowledged();
    deadlines_.rtr = after(now, attr.rtr_timeout);
    set_state(QpState::starting);
    layer.start(now);
}

Result<void> Connection::accept(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord,
                                Time now) {
    if (state_ != QpState::requested) return Error{EINVAL, "no Request waits for an answer"};
    if (!llp_->accept(private_data, ird, ord, now)) return Error{EINVAL, "too much private data"};
    set_state(QpState::starting);
    return {};
}

Result<void> Connection::reject(ConstBytes private_data, Time now) {
    if (state_ != QpState::requested) return Error{EINVAL, "no Request waits for an answer"};
    if (!llp_->reject(private_data, now)) return Error{EINVAL, "too much private data"};
    return {};
}

// What is known to the program may happen: receiving and sending begin.
bool Connection::confirm_start() {
    if (start_ != Start::held) return false;
    start_ = Start::done;
    stream_.hold_sends(false);
    return !ended();
}

void Connection::confirm_end() {
    awaits_confirm_end_ = false;
    if (flush_held_) {
        stream_.flush(*std::exchange(flush_held_, std::nullopt));
    } else if (!ended() && remote_ == Remote::over) {
        if (attr_.outlives_peer) {
            stream_.peer_finished();
        } else {
            stream_.flush_receives();
        }
    }
}

void Connection::set_context(std::uint64_t context) noexcept { stream_.set_context(context); }
void Connection::set_rnr(const RnrAttr& rnr) noexcept {
    rnr_notice_every_ = rnr.notice_every;
    stream_.set_rnr_retries(rnr.retries);
}

// ---- reception ------------------------------------------------------------

// Runs what touches memory of the program. False: some of it is gone, or memory of ours ran out,
// and the connection has ended over that.
template <typename F>
bool Connection::guarded(F&& f, EndCause cause) {
    std::exception_ptr thrown;
    const bool whole = fault::guard([&] {
        try {
            f();
        } catch (...) {
            thrown = std::current_exception();
        }
    });
    if (!whole) {
        end_by_fault(cause);
        return false;
    }
    if (!thrown) return true;
    try {
        std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
        lost(ENOMEM);
        return false;
    }
}

bool Connection::feed(ConstBytes bytes, Time now) {
    std::size_t taken = 0;
    for (bool again = true; again && taken < bytes.size() && !ended();) {
        Llp* const layer = llp_;
        Llp::Rx rx;
        if (!guarded([&] { rx = llp_->rx(bytes.subspan(taken), now); },
                     EndCause::rx_memory_unmapped)) {
            return false;
        }
        XSOCK_ASSERT(rx.taken <= bytes.size() - taken);
        taken += rx.taken;
        // Before anything is delivered of what follows.
        open_layer(now);
        // Nothing may follow the end of start-up where the data go another way.
        if (llp_ != layer && taken != bytes.size() && !ended()) {
            lost(EPROTO);
            return false;
        }
        if (start_ == Start::pending) update_start();
        again = rx.boundary && start_ != Start::held;
    }
    if (taken == bytes.size() || ended()) {
        unconsumed_.clear();
    } else if (unconsumed_.empty()) {
        unconsumed_.assign(bytes.begin() + static_cast<std::ptrdiff_t>(taken), bytes.end());
        unconsumed_at_ = 0;
    } else {
        unconsumed_at_ += taken;
    }
    return true;
}

void Connection::rx(ConstBytes bytes, Time now) {
    if (ended() || bytes.empty()) return;
    if (unconsumed_.empty()) {
        if (start_ != Start::held) {
            feed(bytes, now);
            return;
        }
        unconsumed_at_ = 0;
    }
    unconsumed_.insert(unconsumed_.end(), bytes.begin(), bytes.end());
}

void Connection::rx_eof(Time now) {
    if (remote_ != Remote::open) return;
    remote_ = Remote::finished;
    if (!ended()) llp_->rx_eof(now);
}

// Also right after a queue was found empty: a shared one may have been filled before on_rnr().
bool Connection::resume(Time now) {
    if (unconsumed_.empty() || start_ == Start::held) return false;
    if (stream_.config().rq_shared && stream_.rx_blocked()) delegate_.on_rnr();
    const std::size_t at = unconsumed_at_;
    if (!feed(ConstBytes(unconsumed_).subspan(at), now)) return true;
    if (unconsumed_.empty()) {
        unconsumed_.shrink_to_fit();
        rnr_wait_.end();
        // What the peer has taken meanwhile may not have been read yet.
        if (stream_.rnr_exceeded() && rnr_judged_at_ == 0) rnr_judged_at_ = now + kMillisecond;
        return true;
    }
    const bool taken = unconsumed_at_ != at;
    if (!stream_.rx_blocked()) {
        rnr_wait_.end();
    } else if (!released_ && (taken || !rnr_wait_.begun())) {
        // After a Send that found its receive this is another one, with a wait of its own.
        rnr_wait_.begin(now, limits_.rnr_timeout, rnr_notice_every_);
    }
    return taken;
}

bool Connection::move_receive(std::uint64_t wr_id, const RecvWqe& other) {
    bool moved = false;
    return guarded([&] { moved = stream_.move_receive(wr_id, other); },
                   EndCause::rx_memory_unmapped) &&
           moved;
}

// ---- transmission ---------------------------------------------------------

bool Connection::tx_wanted() const noexcept {
    if (fin_sent()) return false;  // nothing may follow
    const Llp::Status& layer = llp_->status();
    if (layer.tx_pending != 0) return true;
    if (!layer.tx_allowed) return false;
    switch (layer.state) {
        case Llp::State::startup:
        case Llp::State::await_decision:
            return true;
        case Llp::State::operational:
        case Llp::State::failed:
            return stream_.tx_wanted();
        case Llp::State::started:
        case Llp::State::closed:
            return false;
    }
    return false;
}

TxBatch Connection::tx_prepare(Bytes scratch, std::size_t byte_budget, Time now) {
    TxBatch batch;
    if (!guarded([&] { batch = llp_->tx_prepare(scratch, byte_budget, now); },
                 EndCause::tx_memory_unmapped)) {
        return {};
    }
    return batch;
}

void Connection::tx_commit(std::size_t n, Time now) {
    if (n != 0) committed_ = true;
    llp_->tx_commit(n, now);
    open_layer(now);
    // Start-up may end by what was written: nothing that was posted goes before that is told.
    if (start_ == Start::pending && !ended()) update_start();
}

bool Connection::move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to) {
    if (ended()) return false;
    ConstBytes from;
    if (!guarded([&] { from = stream_.move_send(wr_id, new_id, to); },
                 EndCause::tx_memory_unmapped)) {
        return false;
    }
    if (from.empty()) return false;
    if (llp_ != nullptr) llp_->tx_move(from.data(), from.size(), to);
    return true;
}

// ---- changes of state -----------------------------------------------------

void Connection::update(Time now) {
    if (closed() || llp_ == nullptr) return;
    if (!ended()) update_start();
    if (!ended() && stream_.rnr_exceeded() && unconsumed_.empty() && rnr_judged_at_ == 0) {
        stream_.fail_waiting();
    }
    if (!ended()) update_end(now);
    // All of ours was sent, and the peer has finished or its FIN is not waited for.
    const bool fin_due = local_ == Local::fin_owed || local_ == Local::finished;
    if (ended() && (peer_finished() || !fin_due)) {
        close(!peer_finished() && state_ == QpState::error && !fin_sent());
    }
}

void Connection::open_layer(Time now) {
    if (llp_->state() != Llp::State::started || llp_ != startup_) return;
    Llp& layer = delegate_.data_layer(*startup_);
    if (ended()) return;
    llp_ = &layer;
    llp_->open(Llp::Opening::first, startup_->negotiated(), now);
}

void Connection::hand_over(Llp& to, Time now) {
    XSOCK_ASSERT(llp_->status().tx_pending == 0 && unconsumed_.empty());
    llp_ = &to;
    if (to.state() == Llp::State::started) {
        to.open(Llp::Opening::resumed, startup_->negotiated(), now);
    }
}

void Connection::update_start() {
    if (start_ != Start::pending || state_ == QpState::fresh) return;
    if (state_ == QpState::starting && llp_->state() == Llp::State::await_decision) {
        set_state(QpState::requested);
        return;  // a delegate that answers at once has been here meanwhile
    }
    if (stream_.state() != Stream::State::established) return;
    push_event(WcOpcode::connected, WcStatus::success);
    const bool hold = attr_.confirmed && !closing();
    start_ = hold ? Start::held : Start::done;
    stream_.hold_sends(hold);
    delegate_.on_started();
    if (!closing()) set_state(QpState::established);
}

// ---- to be asked ----------------------------------------------------------

const Negotiated& Connection::negotiated() const noexcept {
    return startup_ != nullptr ? startup_->negotiated() : stream_.negotiated();
}

ConstBytes Connection::private_data() const noexcept {
    return startup_ != nullptr ? startup_->private_data() : ConstBytes{};
}

StreamError Connection::stream_error() const noexcept {
    if (state_ == QpState::closed && error_.cause == EndCause::none) return StreamError::none;
    if (stream_.stream_error() != StreamError::none || llp_ == nullptr)
        return stream_.stream_error();
    const StreamError now = llp_->status().stream_error;
    return now != StreamError::none ? now : startup_->status().stream_error;
}

}  // namespace xsock::ddp
