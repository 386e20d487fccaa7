// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The callers that wait for one Progress: one of them leads and sleeps in epoll, the others follow
// and sleep until something has moved or the lead is free. Progress decides who may lead, and
// polls; any thread calls this.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "base/bytes.hpp"
#include "base/poll_group.hpp"
#include "base/result.hpp"
#include "base/wake_flag.hpp"
#include "transport/event_fd.hpp"
#include "transport/spin_score.hpp"

namespace xsock {

class SignalBlocker;

class WaitGroup {
  public:
    Result<void> open() noexcept { return wake_flag_.open(); }
    /// When no thread waits any more: at the end, and in a forked child.
    void close() noexcept;

    /// Something has moved: wakes the leader, all that sleep_as_follower(), and of those that
    /// sleep_interruptibly() the ones that are done.
    void wake() noexcept {
        if (leader_wake_.should_notify()) wake_flag_.notify();
        wake_followers();
    }

    // -- the leader --

    [[nodiscard]] bool has_leader() const noexcept {
        return leader_.load(std::memory_order_seq_cst);
    }
    /// Makes the caller the leader, unless there is one.
    [[nodiscard]] bool try_lead() noexcept {
        return !leader_.exchange(true, std::memory_order_seq_cst);
    }
    /// From now on wake() notifies the leader, which checks once more before it sleeps.
    void begin_sleep() noexcept { leader_wake_.begin_sleep(); }
    /// Readable when the leader was notified.
    [[nodiscard]] int wake_fd() const noexcept { return wake_flag_.fd(); }
    /// Sleeps until `epoll_fd` is readable. True: the leader was notified.
    bool sleep_as_leader(int epoll_fd, Time deadline, SignalBlocker* blocker);
    /// `notified`: wake_fd() was readable.
    void end_sleep(bool notified) noexcept {
        if (notified) wake_flag_.take();
        leader_wake_.end_sleep();
    }
    /// offer_lead() must follow.
    void end_lead() noexcept { leader_.store(false, std::memory_order_seq_cst); }
    void offer_lead() noexcept;

    // -- followers; `may_lead`: callers may poll at all --

    using Follower = PollGroup::Follower;
    void follow(Follower& follower, bool may_lead);
    void unfollow(Follower& follower, bool may_lead) noexcept;

    /// Sleeps until wake(), unless it is done or the lead is free. False: a signal handler ran that
    /// ends system calls.
    bool sleep_as_follower(const std::function<bool()>& done, bool may_lead, Time deadline);
    /// The same, and a signal that `blocker` holds back ends it. False: not possible.
    bool sleep_interruptibly(const std::function<bool()>& done, bool may_lead, Time deadline,
                             SignalBlocker& blocker);

    /// Asleep in a poll() of the caller's own: its descriptor becomes readable when that one would
    /// be woken. -1: there is none left.
    int begin_wait(const std::function<bool()>& done, bool may_lead);
    void end_wait(int fd, bool may_lead) noexcept;

    // -- those that spin first --

    [[nodiscard]] bool worth_spinning() noexcept { return spin_score_.worth_while(); }
    void count_spin(bool found) noexcept { spin_score_.count(found); }
    /// The same of yielding the processor, where spinning has found nothing.
    [[nodiscard]] SpinScore& yield_score() noexcept { return yield_score_; }
    [[nodiscard]] const SpinScore& yield_score() const noexcept { return yield_score_; }

  private:
    /// A follower in a call that signals interrupt: asleep on an eventfd beside the signals'.
    struct Waiter {
        const std::function<bool()>* done = nullptr;  // null: not in use
        EventFd event;
        bool notified = false;
    };
    static void notify(Waiter& waiter) noexcept;
    Waiter* add_waiter(const std::function<bool()>& done);
    bool remove_waiter(Waiter& waiter) noexcept;
    [[nodiscard]] bool lead_free(bool may_lead) const noexcept { return may_lead && !has_leader(); }
    int signal_descriptor();

    // A follower counts itself, reads the number of wake-ups, checks what it waits for, and
    // sleeps while the number stays as it was; a waker publishes its event, checks the count, and
    // if it is not 0 raises the number and wakes. All in one order: either the waker sees the
    // follower, or the follower the event; and a number raised after the follower read it does not
    // let it sleep.
    void wake_followers() noexcept {
        if (waiter_count_.load(std::memory_order_seq_cst) != 0) notify_waiters();
        if (followers_.load(std::memory_order_seq_cst) != 0) wake_futex();
    }
    void notify_waiters() noexcept;
    void wake_futex() noexcept;

    std::atomic<bool> leader_{false};
    WakeFlag leader_wake_;
    EventFd wake_flag_;  // wakes the leader; only the leader takes it
    std::mutex mutex_;
    std::atomic<std::uint32_t> followers_{0};       // in sleep_as_follower()
    std::atomic<std::uint32_t> follower_wakes_{0};  // a futex: grows with each wake-up
    std::atomic<int> signal_fd_{-1};                // made when first needed
    std::deque<Waiter> waiters_;                    // under mutex_; one that was made stays
    std::atomic<std::size_t> waiter_count_{0};
    std::vector<Follower*> polling_followers_;  // under mutex_
    std::atomic<std::size_t> polling_count_{0};
    SpinScore spin_score_;
    SpinScore yield_score_{/*pays=*/false};
};

}  // namespace xsock
