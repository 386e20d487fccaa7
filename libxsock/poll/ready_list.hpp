// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The ready list of an epoll set, the threads that wait for it, and its mirror, an eventfd in the
// kernel's set by which the set is readable from outside. A wake-up puts an entry on the list, an
// answer takes entries off it, and each is told once in an answer, however often it is woken
// meanwhile. Every call with the lock of the list held, which is the set's.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "libxsock/poll/intrusive_list.hpp"
#include "libxsock/poll/waiter.hpp"
#include "transport/event_fd.hpp"

namespace xsock::readiness {

/// Bits of epoll_event::events that say how, not what.
inline constexpr std::uint32_t kHow = EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE;

class ReadyList {
  public:
    struct Entry : ListLink<Entry> {
        explicit Entry(const epoll_event& event) : wanted(event.events), data(event.data) {}

        /// EPOLLONESHOT has fired.
        [[nodiscard]] bool disabled() const noexcept { return (wanted & ~kHow) == 0; }
        /// What of `events` the program wants to be told.
        [[nodiscard]] std::uint32_t wants(std::uint32_t events) const noexcept {
            return wanted & ~kHow & events;
        }

        std::uint32_t wanted;
        epoll_data_t data;

      private:
        friend class ReadyList;
        bool told = false;   // is in the answer that is being made
        bool woken = false;  // since it was told
    };

    [[nodiscard]] bool empty() const noexcept { return ready_.empty(); }
    [[nodiscard]] bool has_waiters() const noexcept { return awake_ != 0 || !waiters_.empty(); }

    /// It has been woken.
    void push(Entry& entry) noexcept;
    /// It goes, or is no entry of ours for the time being.
    void remove(Entry& entry) noexcept { ready_.remove(entry); }

    /// The oldest, to be asked whether it is ready: a wake-up from here on lists it again.
    Entry* pop() noexcept { return ready_.pop_front(); }
    /// It is ready, and stays on the list.
    void keep(Entry& entry) noexcept {
        if (!IntrusiveList<Entry>::linked(entry)) ready_.push_back(entry);
    }
    /// It is ready, and in the answer.
    void tell(Entry& entry) noexcept;
    /// The answer is complete: level-triggered ones go to the end of the list, in the order in
    /// which they were told.
    void end_answer() noexcept;

    /// A thread in a wait checks from here on, until stop_checks().
    void start_checks() noexcept { ++awake_; }
    void stop_checks() noexcept;
    /// It is about to sleep instead, and is notified of what is pushed.
    void prepare_wait(Waiter& waiter) noexcept;
    void finish_wait(Waiter& waiter) noexcept;
    void wake_all() noexcept;

    [[nodiscard]] bool has_mirror() const noexcept { return mirror_.is_open(); }
    void set_mirror(EventFd mirror) noexcept;
    void clear_mirror_if_empty() noexcept;

    /// In a forked child: entries and waiters were the parent's.
    void forget_all() noexcept;

  private:
    void wake_one() noexcept;

    IntrusiveList<Entry> ready_;
    IntrusiveList<Entry> told_;      // in the answer that is being made
    IntrusiveList<Waiter> waiters_;  // threads asleep, latest first
    std::size_t awake_ = 0;          // threads in a wait that will check before they sleep
    EventFd mirror_;
    bool mirror_set_ = false;
};

}  // namespace xsock::readiness
