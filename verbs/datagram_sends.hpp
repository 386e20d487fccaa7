// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The send queue of a UD queue pair: requests that are done complete in the order in which they
// were posted. Any thread; takes no lock of the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/device.hpp"
#include "base/spin_lock.hpp"

namespace xsock::verbs {

/// A completion of UD QP `num`. `purge_num`: what Cq::purge() goes by.
Wc datagram_wc(std::uint32_t num, QpNum purge_num, std::uint64_t wr_id, WcOpcode opcode,
               WcStatus status) noexcept;

class DatagramSends {
  public:
    struct Send {
        std::uint64_t wr_id = 0;
        bool signaled = false;
        WcStatus status = WcStatus::success;
    };

    DatagramSends(std::uint32_t num, std::shared_ptr<CompletionTarget> cq)
        : num_(num), cq_(std::move(cq)) {}
    DatagramSends(const DatagramSends&) = delete;
    DatagramSends& operator=(const DatagramSends&) = delete;

    void set_purge_num(QpNum purge_num) noexcept { purge_num_.store(purge_num); }

    /// One that is done.
    void add_done(const Send& send);
    /// One that will be by end(the answer).
    std::uint64_t begin(const Send& send);
    void end(std::uint64_t number);
    [[nodiscard]] std::size_t waiting() const noexcept { return waiting_count_.load(); }

    /// What is not done completes now, as flushed. end() of it has no effect.
    void flush();

    /// What is not done, and what waits behind it, never completes. end() of it has no effect.
    /// @return how many of them were signaled
    std::size_t discard();

    /// The queue has ended: what is posted from now on is to be flushed.
    [[nodiscard]] bool failed() const noexcept { return failed_.load(); }
    void set_failed(bool failed) noexcept { failed_.store(failed); }

  private:
    struct Waiting {
        Send send;
        bool done = false;
    };
    void complete(const Send& send);

    const std::uint32_t num_;
    const std::shared_ptr<CompletionTarget> cq_;
    std::atomic<QpNum> purge_num_{0};
    std::atomic<bool> failed_{false};

    SpinLock lock_;
    std::deque<Waiting> waiting_;
    std::uint64_t first_ = 0;  ///< number of the first of waiting_
    std::atomic<std::size_t> waiting_count_{0};
};

}  // namespace xsock::verbs
