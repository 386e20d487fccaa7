// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/memory_polling.hpp"

#include <algorithm>
#include <utility>

namespace xsock {

bool MemoryPolling::begin(PolledMemory& item) {
    item.idle_cycles_ = 0;
    if (item.polled_) return true;
    if (items_.size() == kMost) return false;
    item.disarm();
    item.polled_ = true;
    items_.push_back(&item);
    // Published before the caller checks for threads that rely on epoll.
    if (items_.size() == 1) detached_.store(true, std::memory_order_seq_cst);
    return true;
}

void MemoryPolling::end(PolledMemory& item) noexcept {
    if (!item.polled_) return;
    drop(static_cast<std::size_t>(std::find(items_.begin(), items_.end(), &item) - items_.begin()));
}

void MemoryPolling::drop(std::size_t at) noexcept {
    items_[at]->polled_ = false;
    items_[at] = items_.back();
    items_.pop_back();
    if (items_.empty()) detached_.store(false, std::memory_order_seq_cst);
}

// Backwards, since an item may drop itself; another one that it drops puts the last one in its
// place, which is then polled in the next cycle, or twice in this.
bool MemoryPolling::poll(PollCycle& cycle) {
    bool any = false;
    for (std::size_t at = items_.size(); at-- > 0;) {
        if (at >= items_.size()) continue;
        PolledMemory& item = *items_[at];
        bool moved = false;
        call(item, cycle, [&] { moved = item.poll_memory(cycle); });
        if (moved) {
            item.idle_cycles_ = 0;
            any = true;
        } else if (++item.idle_cycles_ >= kIdleCycles && items_.size() > 1 && item.polled_) {
            item.idle_cycles_ = 0;
            if (item.arm()) end(item);
        }
    }
    if (any) cycle.active = true;
    return any;
}

// True: all that were to be armed are.
template <typename F>
bool MemoryPolling::arm(PollCycle& cycle, const F& which) {
    bool armed = true;
    for (std::size_t at = items_.size(); at-- > 0;) {
        if (at >= items_.size()) continue;
        PolledMemory& item = *items_[at];
        if (!which(item)) continue;
        if (!item.arm()) {
            call(item, cycle, [&] { cycle.active |= item.poll_memory(cycle); });
            if (!item.polled_) continue;
            if (!item.arm()) {
                armed = false;
                continue;
            }
        }
        end(item);
    }
    return armed;
}

bool MemoryPolling::arm_all(PollCycle& cycle) {
    static_cast<void>(arm(cycle, [](const PolledMemory&) { return true; }));
    return items_.empty();
}

bool MemoryPolling::arm_relied_on(PollCycle& cycle) {
    return arm(cycle, [](const PolledMemory& item) { return item.is_relied_on(); });
}

bool MemoryPolling::any_relied_on() const noexcept {
    return std::any_of(items_.begin(), items_.end(),
                       [](const PolledMemory* item) { return item->is_relied_on(); });
}

bool MemoryPolling::epoll_due(PollCycle& cycle) noexcept {
    if (epoll_asked_ != 0 && ++cycles_ < kCyclesPerClock) return false;
    cycles_ = 0;
    return cycle.now() - epoll_asked_ >= kEpollPeriod;
}

}  // namespace xsock
