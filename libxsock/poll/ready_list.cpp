// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/ready_list.hpp"

namespace xsock::readiness {

void ReadyList::push(Entry& entry) noexcept {
    if (entry.told) {
        entry.woken = true;  // end_answer() lists it
    } else {
        keep(entry);
    }
    if (mirror_.is_open()) {
        mirror_set_ = true;
        mirror_.notify();
    }
    wake_one();
}

void ReadyList::tell(Entry& entry) noexcept {
    entry.told = true;
    entry.woken = ready_.remove(entry);
    told_.push_back(entry);
    if ((entry.wanted & EPOLLONESHOT) != 0) entry.wanted &= kHow;
}

void ReadyList::end_answer() noexcept {
    while (Entry* const entry = told_.pop_front()) {
        entry->told = false;
        const bool level = (entry->wanted & EPOLLET) == 0;
        if (!entry->disabled() && (level || entry->woken)) ready_.push_back(*entry);
    }
}

// One waiter for each event, as the kernel does; a thread that leaves while events remain wakes the
// next.
void ReadyList::wake_one() noexcept {
    if (awake_ != 0) return;
    if (Waiter* const waiter = waiters_.pop_front()) waiter->notify();
}

void ReadyList::wake_all() noexcept {
    while (Waiter* const waiter = waiters_.pop_front()) waiter->notify();
}

void ReadyList::stop_checks() noexcept {
    --awake_;
    if (!ready_.empty()) wake_one();
}

void ReadyList::prepare_wait(Waiter& waiter) noexcept {
    --awake_;
    waiters_.push_front(waiter);
}

void ReadyList::finish_wait(Waiter& waiter) noexcept {
    waiters_.remove(waiter);
    ++awake_;
}

void ReadyList::set_mirror(EventFd mirror) noexcept {
    mirror_ = std::move(mirror);
    if (Entry* const entry = ready_.front()) push(*entry);
}

void ReadyList::clear_mirror_if_empty() noexcept {
    if (!mirror_set_ || !ready_.empty()) return;
    mirror_set_ = false;
    mirror_.take();
}

void ReadyList::forget_all() noexcept {
    ready_ = told_ = {};
    waiters_ = {};
    awake_ = 0;
    mirror_.close();
    mirror_set_ = false;
}

}  // namespace xsock::readiness
