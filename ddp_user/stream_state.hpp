// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where a stream stands between llp_established() and its end, and what ended it: the first error,
// the work request that caused it, and the Terminate Messages of both directions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "ddp_user/read_queues.hpp"
#include "ddp_user/stream.hpp"
#include "ddp_user/terminate.hpp"

namespace xsock::ddp {

class StreamState {
  public:
    using State = Stream::State;
    [[nodiscard]] State now() const noexcept { return state_; }
    [[nodiscard]] bool established() const noexcept { return state_ == State::established; }
    [[nodiscard]] bool receiving() const noexcept { return state_ < State::terminating; }
    [[nodiscard]] bool ended() const noexcept { return state_ == State::ended; }
    [[nodiscard]] StreamError error() const noexcept { return error_; }

    void establish() noexcept { state_ = State::established; }
    /// The first thing that goes wrong decides: queues its Terminate, or ends the stream when there
    /// is none for it, or no memory. Anything later is ignored.
    void fail(StreamError v, const ErrorContext& error_context);
    /// Nothing is sent or delivered any more. `v`: why, if nothing went wrong before; the peer is
    /// not told.
    void end(StreamError v = StreamError::none) noexcept {
        if (receiving()) error_ = v;
        state_ = State::ended;
    }

    /// The entry that caused what comes next.
    void set_failed_wqe(std::uint64_t sequence, WcStatus status) noexcept {
        if (failed_sequence_ != kNoEntry || !receiving()) return;
        failed_sequence_ = sequence;
        failed_status_ = status;
    }
    /// With what the entry completes when the others complete with `others`.
    [[nodiscard]] WcStatus flush_status(std::uint64_t sequence, WcStatus others) const noexcept {
        return sequence == failed_sequence_ ? failed_status_ : others;
    }

    [[nodiscard]] bool terminate_due() const noexcept {
        return state_ == State::terminating && !sent_;
    }
    /// @pre terminate_due()
    void give_terminate(UlpduOut& out) noexcept;
    void terminate_received(const TerminateInfo& info) noexcept { received_ = info; }
    /// Null: none.
    [[nodiscard]] const TerminateInfo* sent() const noexcept { return sent_ ? &*sent_ : nullptr; }
    [[nodiscard]] const TerminateInfo* received() const noexcept {
        return received_ ? &*received_ : nullptr;
    }

  private:
    State state_ = State::idle;
    StreamError error_ = StreamError::none;
    WcStatus failed_status_ = WcStatus::flushed;
    std::uint64_t failed_sequence_ = kNoEntry;     // entry that caused the end, if known
    std::unique_ptr<TerminateMessage> terminate_;  // in State::terminating, until it is given
    std::optional<TerminateInfo> sent_, received_;
};

}  // namespace xsock::ddp
