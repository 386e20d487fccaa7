// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A thread that sleeps in the kernel for readiness: an eventfd in its poll(), written by the thread
// that has an event for it. Taken from a pool for the time of one wait, so that a thread that has
// waited once keeps no descriptor.
//
// The rule against lost wake-ups is the notifier's: the waiter enters the notifier's list under its
// lock, checks once more, and only then sleeps; the notifier finds it there under the same lock
// after it has published the event.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/poll_group.hpp"
#include "base/result.hpp"
#include "libxsock/poll/intrusive_list.hpp"
#include "transport/event_fd.hpp"
#include "transport/fork.hpp"

namespace xsock::readiness {

/// Writes an event once, however often it is notified, until the waiter has taken it.
///
/// take() reads first: a notify() that finds notified_ still set writes nothing, but its event was
/// published before that and is seen when the thread checks, after take(). The other way round, the
/// read could swallow the write of a notify() that has set notified_ again, and no later one would
/// write.
///
/// `Flag` is std::atomic<bool>, `Event` is EventFd; or a test's models of them.
template <typename Flag, typename Event>
class NotifyOnce {
  public:
    /// Any thread, after the news was published (seq_cst, or under a lock that the waiter takes).
    void notify(Event& event) {
        if (!notified_.exchange(true, std::memory_order_seq_cst)) event.notify();
    }
    /// The waiter, after the event was found readable and before it checks for news.
    void take(Event& event) {
        event.take();
        notified_.store(false, std::memory_order_seq_cst);
    }
    [[nodiscard]] bool notified() const { return notified_.load(std::memory_order_seq_cst); }

  private:
    Flag notified_{false};
};

class Waiter final : public PollGroup::Follower, public ListLink<Waiter> {
  public:
    /// Makes fd() readable, once until clear(). Any thread that found the waiter in a list, with
    /// the lock of the list: the waiter leaves its lists before it goes.
    void notify() noexcept { once_.notify(event_); }
    void on_lead_free() noexcept override { notify(); }

    // -- its thread only --

    [[nodiscard]] int fd() const noexcept { return event_.fd(); }
    /// After fd() was found readable, before the thread checks what it was notified of.
    void clear() noexcept { once_.take(event_); }
    [[nodiscard]] bool notified() const noexcept { return once_.notified(); }

  private:
    friend class WaiterPool;
    std::uint32_t generation_ = process_generation();  // of the process whose eventfd it is
    EventFd event_;
    NotifyOnce<std::atomic<bool>, EventFd> once_;
};

class WaiterPool {
  public:
    static WaiterPool& instance() noexcept;

    struct Return {
        void operator()(Waiter* waiter) const noexcept;
    };
    using Lease = std::unique_ptr<Waiter, Return>;

    /// EMFILE, ENFILE or ENOMEM when none can be made.
    Result<Lease> acquire();

    // For the fork handlers.
    void lock() noexcept { mutex_.lock(); }
    void unlock() noexcept { mutex_.unlock(); }
    /// The parent's eventfds are shared with it: they are closed here, never written.
    void forget_after_fork() noexcept;
    /// The same where the lock may be another thread's and the list half changed: all stay behind.
    void forget_all() noexcept;

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Waiter>> idle_;
};

}  // namespace xsock::readiness
