// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/wait_group.hpp"

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <ctime>
#include <utility>

#include "transport/clock.hpp"
#include "transport/descriptors.hpp"
#include "transport/signal_blocker.hpp"

namespace xsock {

void WaitGroup::close() noexcept {
    if (const int fd = signal_fd_.load(); fd >= 0) close_internal_fd(fd);
    wake_flag_.close();
    for (Waiter& waiter : waiters_) waiter.event.close();
}

// ---- the leader -------------------------------------------------------------

bool WaitGroup::sleep_as_leader(int epoll_fd, Time deadline, SignalBlocker* blocker) {
    // Polled, not taken: an epoll_wait() here would eat the edge of an EPOLLET item.
    std::array<pollfd, 3> fds{{{epoll_fd, POLLIN, 0}, {wake_fd(), POLLIN, 0}, {-1, POLLIN, 0}}};
    if (blocker != nullptr) {
        fds[2].fd = signal_descriptor();
        if (fds[2].fd >= 0) blocker->hold();
    }
    const int n = ::poll(fds.data(), fds.size(), milliseconds_until(deadline));
    if (n < 0 && errno == EINTR && blocker != nullptr) blocker->note();
    return n > 0 && fds[1].revents != 0;
}

// A leader that stops notifies the others: those of wait() all check again; of those in poll() and
// in calls that signals interrupt one each is notified, which leads or passes the lead on.
void WaitGroup::offer_lead() noexcept {
    if (polling_count_.load(std::memory_order_seq_cst) != 0) {
        const std::lock_guard lock(mutex_);
        if (!polling_followers_.empty()) polling_followers_.front()->on_lead_free();
    }
    if (waiter_count_.load(std::memory_order_seq_cst) != 0) {
        const std::lock_guard lock(mutex_);
        const auto asleep = std::find_if(
            waiters_.begin(), waiters_.end(),
            [](const Waiter& waiter) { return waiter.done != nullptr && !waiter.notified; });
        if (asleep != waiters_.end()) notify(*asleep);
    }
    wake_followers();
}

// ---- followers --------------------------------------------------------------

void WaitGroup::follow(Follower& follower, bool may_lead) {
    const std::lock_guard lock(mutex_);
    polling_followers_.push_back(&follower);
    polling_count_.store(polling_followers_.size(), std::memory_order_seq_cst);
    if (lead_free(may_lead)) follower.on_lead_free();
}

void WaitGroup::unfollow(Follower& follower, bool may_lead) noexcept {
    const std::lock_guard lock(mutex_);
    polling_followers_.erase(
        std::find(polling_followers_.begin(), polling_followers_.end(), &follower));
    polling_count_.store(polling_followers_.size(), std::memory_order_seq_cst);
    if (!polling_followers_.empty() && lead_free(may_lead)) {
        polling_followers_.front()->on_lead_free();
    }
}

void WaitGroup::notify_waiters() noexcept {
    const std::lock_guard lock(mutex_);
    for (Waiter& waiter : waiters_) {
        if (waiter.done != nullptr && !waiter.notified && (*waiter.done)()) notify(waiter);
    }
}

void WaitGroup::wake_futex() noexcept {
    follower_wakes_.fetch_add(1, std::memory_order_seq_cst);
    syscall(SYS_futex, &follower_wakes_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Without a time limit the kernel itself goes on after handlers with SA_RESTART.
bool WaitGroup::sleep_as_follower(const std::function<bool()>& done, bool may_lead, Time deadline) {
    followers_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = follower_wakes_.load(std::memory_order_seq_cst);
    bool interrupted = false;
    if (const bool free = lead_free(may_lead); !done() && !free) {
        timespec until{};
        if (deadline != kNever) {
            until.tv_sec = static_cast<time_t>(deadline / kSecond);
            until.tv_nsec = static_cast<long>(deadline % kSecond);
        }
        const long n =
            syscall(SYS_futex, &follower_wakes_, FUTEX_WAIT_BITSET_PRIVATE, seen,
                    deadline != kNever ? &until : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
        interrupted = n != 0 && errno == EINTR;
    }
    followers_.fetch_sub(1, std::memory_order_seq_cst);
    return !interrupted;
}

void WaitGroup::notify(Waiter& waiter) noexcept {
    waiter.notified = true;
    waiter.event.notify();
}

// In the list, not notified. Null: there are no descriptors for that, or no memory. (It must not
// throw: what its caller waits for may be the end of what the poller does with the caller's
// memory.)
WaitGroup::Waiter* WaitGroup::add_waiter(const std::function<bool()>& done) {
    const std::lock_guard lock(mutex_);
    const auto unused = std::find_if(waiters_.begin(), waiters_.end(),
                                     [](const Waiter& w) { return w.done == nullptr; });
    Waiter* self = nullptr;
    try {
        self = unused != waiters_.end() ? &*unused : &waiters_.emplace_back();
    } catch (...) {
        return nullptr;
    }
    if (!self->event.is_open() && !self->event.open()) return nullptr;
    self->done = &done;
    waiter_count_.fetch_add(1, std::memory_order_seq_cst);
    return self;
}

// True: it was notified.
bool WaitGroup::remove_waiter(Waiter& waiter) noexcept {
    const std::lock_guard lock(mutex_);
    waiter_count_.fetch_sub(1, std::memory_order_seq_cst);
    waiter.done = nullptr;
    const bool notified = std::exchange(waiter.notified, false);
    if (notified) waiter.event.take();
    return notified;
}

int WaitGroup::begin_wait(const std::function<bool()>& done, bool may_lead) {
    Waiter* const self = add_waiter(done);
    if (self == nullptr) return -1;
    if (lead_free(may_lead)) {
        const std::lock_guard lock(mutex_);
        if (!self->notified) notify(*self);
    }
    return self->event.fd();
}

void WaitGroup::end_wait(int fd, bool may_lead) noexcept {
    if (fd < 0) return;
    Waiter* self = nullptr;
    {
        const std::lock_guard lock(mutex_);
        self = &*std::find_if(waiters_.begin(), waiters_.end(),
                              [fd](const Waiter& w) { return w.event.fd() == fd; });
    }
    // It may be this one that was told to lead.
    if (remove_waiter(*self) && lead_free(may_lead)) offer_lead();
}

// A signal handler ends a blocking call however it is asleep, and also where it runs between two
// checks of the call: so signals are held back all the time, and a descriptor says that one has
// come. A futex cannot wait for that; a waiter has an eventfd, which is written when what it waits
// for is there, or when it shall lead. The rule against lost wake-ups is that of the other
// followers: it is in the list before it checks, they have published before they read the list.
bool WaitGroup::sleep_interruptibly(const std::function<bool()>& done, bool may_lead, Time deadline,
                                    SignalBlocker& blocker) {
    const int signals = signal_descriptor();
    if (signals < 0) return false;
    Waiter* const self = add_waiter(done);
    if (self == nullptr) return false;
    if (!lead_free(may_lead) && !done()) {
        blocker.hold();
        std::array<pollfd, 2> fds{{{self->event.fd(), POLLIN, 0}, {signals, POLLIN, 0}}};
        ::poll(fds.data(), fds.size(), milliseconds_until(deadline));
    }
    remove_waiter(*self);
    return true;
}

// -1 when no descriptor is left: then a handler ends the call whatever its flags say.
int WaitGroup::signal_descriptor() {
    int fd = signal_fd_.load(std::memory_order_acquire);
    if (fd >= 0) return fd;
    const int made = make_signal_descriptor();
    if (made < 0) return -1;
    if (signal_fd_.compare_exchange_strong(fd, made, std::memory_order_acq_rel)) {
        register_internal_fd(made);
        return made;
    }
    ::close(made);
    return fd;
}

}  // namespace xsock
