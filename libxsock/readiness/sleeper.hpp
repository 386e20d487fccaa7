// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A thread that sleeps in the kernel for readiness: an eventfd in its poll(), written by whoever
// has news for it. Lent from a pool for the time of one wait, so that a thread that has waited once
// keeps no descriptor.
//
// The rule against lost wake-ups is that of whoever rings: the sleeper puts itself into a list of
// theirs under their lock, looks once more, and only then sleeps; they find it there under the same
// lock after they have published the news.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "transport/progress.hpp"

namespace xsock::readiness {

class Sleeper final : public Progress::Follower {
  public:
    Sleeper() = default;
    ~Sleeper();

    /// Makes fd() readable, once until clear(). Any thread that found the sleeper in a list, with
    /// the lock of the list: the sleeper leaves its lists before it goes.
    void ring() noexcept;
    void on_lead_free() noexcept override { ring(); }

    // -- its thread only --

    [[nodiscard]] int fd() const noexcept { return fd_; }
    /// After fd() was found readable, before looking at what the ring was for.
    void clear() noexcept;
    [[nodiscard]] bool rung() const noexcept { return rung_.load(std::memory_order_seq_cst); }

    // Links of the list that it is in, under the lock of that list.
    Sleeper* next = nullptr;
    Sleeper* previous = nullptr;
    bool listed = false;

  private:
    friend class SleeperPool;
    int fd_ = -1;
    std::atomic<bool> rung_{false};
};

class SleeperPool {
  public:
    static SleeperPool& instance() noexcept;

    struct Return {
        void operator()(Sleeper* sleeper) const noexcept;
    };
    using Lease = std::unique_ptr<Sleeper, Return>;

    /// EMFILE, ENFILE or ENOMEM when none can be made.
    Result<Lease> lend();

    // For the fork handlers.
    void lock() noexcept { mutex_.lock(); }
    void unlock() noexcept { mutex_.unlock(); }
    /// The parent's eventfds are shared with it: they are closed here, never written.
    void forget_after_fork() noexcept;

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Sleeper>> idle_;
};

}  // namespace xsock::readiness
