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
#include "libxsock/readiness/membership.hpp"
#include "transport/progress.hpp"

namespace xsock::readiness {

/// Writes an event once, however often it is rung, until the sleeper has taken it.
///
/// take() reads first: a ring that finds rung_ still set writes nothing, but what it tells of was
/// published before that and is seen when the thread looks, after take(). The other way round, the
/// read could swallow the write of a ring that has set rung_ again, and no later ring would write.
///
/// `Flag` is std::atomic<bool>, `Event` has write() and read(); or a test's models of them.
template <typename Flag, typename Event>
class RingOnce {
  public:
    /// Any thread, after the news was published (seq_cst, or under a lock that the sleeper takes).
    void ring(Event& event) {
        if (!rung_.exchange(true, std::memory_order_seq_cst)) event.write();
    }
    /// The sleeper, after the event was found readable; looking for news comes behind it.
    void take(Event& event) {
        event.read();
        rung_.store(false, std::memory_order_seq_cst);
    }
    [[nodiscard]] bool rung() const { return rung_.load(std::memory_order_seq_cst); }

  private:
    Flag rung_{false};
};

struct EventFd {
    void write() noexcept;
    void read() noexcept;
    int fd = -1;
};

class Sleeper final : public Progress::Follower {
  public:
    Sleeper() = default;
    ~Sleeper();

    /// Makes fd() readable, once until clear(). Any thread that found the sleeper in a list, with
    /// the lock of the list: the sleeper leaves its lists before it goes.
    void ring() noexcept { once_.ring(event_); }
    void on_lead_free() noexcept override { ring(); }

    // -- its thread only --

    [[nodiscard]] int fd() const noexcept { return event_.fd; }
    /// After fd() was found readable, before looking at what the ring was for.
    void clear() noexcept { once_.take(event_); }
    [[nodiscard]] bool rung() const noexcept { return once_.rung(); }

    // Links of the list that it is in, under the lock of that list.
    Sleeper* next = nullptr;
    Sleeper* previous = nullptr;
    bool listed = false;

  private:
    friend class SleeperPool;
    std::uint32_t generation_ = generation();  // of the process whose eventfd it is
    EventFd event_;
    RingOnce<std::atomic<bool>, EventFd> once_;
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
    /// The same where the lock may be another thread's and the list half changed: all stay behind.
    void forget_all() noexcept;

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Sleeper>> idle_;
};

}  // namespace xsock::readiness
