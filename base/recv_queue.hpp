// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Receives waiting for messages. An object of its own: one QP's, or shared by many (SRQ); arrival
// chooses the WQE. Posters and pollers serialise on a lock; the one poller of an exclusive queue
// takes it once for several receives.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/biased_lock.hpp"
#include "base/result.hpp"
#include "base/work.hpp"

namespace xsock {

class RecvQueue {
  public:
    /// `exclusive`: one thread at a time takes, so that it may take several ahead under one lock.
    /// It has no limit then (arm_limit()).
    explicit RecvQueue(std::uint32_t depth, bool exclusive = false);
    RecvQueue(const RecvQueue&) = delete;
    RecvQueue& operator=(const RecvQueue&) = delete;

    /// Any thread. ENOBUFS: full. EINVAL: too many SGEs. EMSGSIZE: over 2^32-1 bytes. ENOMEM.
    /// EPIPE: closed.
    ///
    /// @return true when a poller found the queue empty since the last post: the caller must notify
    /// the connections that wait (transport does).
    Result<bool> post(const RecvWr& wr);

    /// The poller: takes the oldest receive. False when empty; then the next post() answers true.
    bool take(RecvWqe& out);

    /// post() answers EPIPE from now on; take() still works (flushing). Any thread.
    void close();

    [[nodiscard]] std::uint32_t size() const noexcept;
    [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }

    /// SRQ limit (verbs): when size() falls below `limit`, take() clears it and limit_reached()
    /// answers true once. 0: none.
    void arm_limit(std::uint32_t limit);
    [[nodiscard]] bool limit_reached() noexcept;
    /// Called by take(), outside the lock, when the limit is reached. Before first use.
    using Notifier = void (*)(void* argument);
    void set_limit_notifier(Notifier notifier, void* argument) noexcept {
        notifier_ = notifier;
        notifier_argument_ = argument;
    }

  private:
    bool take_ahead(RecvWqe& out);

    static constexpr std::uint32_t kAhead = 16;

    std::uint32_t depth_;
    const bool exclusive_;
    // Of the poller of an exclusive queue; made when the queue is long for the first time.
    std::unique_ptr<RecvWqe[]> ahead_;
    std::uint32_t ahead_at_ = 0;
    std::atomic<std::uint32_t> ahead_left_{0};  // written by that poller

    // What posts and receptions read is one cache line, up to the first part of the lock.
    alignas(64) std::vector<RecvWqe> ring_;  // grows by doubling to depth_
    std::uint32_t head_ = 0;                 // index of the oldest in ring_
    std::atomic<std::uint32_t> size_{0};
    std::uint32_t limit_ = 0;
    bool closed_ = false;
    bool found_empty_ = false;
    mutable BiasedLock mutex_;
    std::atomic<bool> limit_hit_{false};
    Notifier notifier_ = nullptr;
    void* notifier_argument_ = nullptr;
};

}  // namespace xsock
