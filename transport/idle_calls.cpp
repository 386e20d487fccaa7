// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/idle_calls.hpp"

#include <algorithm>

namespace xsock {
namespace {

/// Longer than a program takes that answers at once, and no more than a round trip.
constexpr Time kWait = 20'000;
/// Where other connections never pause.
constexpr std::uint32_t kMostBusyCycles = 32;

}  // namespace

void IdleCalls::add(Pollable& item) noexcept {
    if (item.idle_ == Pollable::Idle::waits || !item.registered_) return;
    item.idle_ = Pollable::Idle::waits;
    items_.push_back(&item);
    if (!any()) any_.store(true, std::memory_order_seq_cst);
}

void IdleCalls::remove(Pollable& item) noexcept {
    if (item.idle_ == Pollable::Idle::no) return;
    item.idle_ = Pollable::Idle::no;
    items_.erase(std::find(items_.begin(), items_.end(), &item));
}

void IdleCalls::end_cycle(PollCycle& cycle, bool sleeps) noexcept {
    if (cycle.active) {
        if (++busy_cycles_ >= kMostBusyCycles) call_each(cycle, true);
        return;
    }
    call_each(cycle, sleeps);
    if (items_.empty()) return;
    const Time now = monotonic_now();
    if (idle_since_ == 0) idle_since_ = now;
    if (now - idle_since_ >= kWait) call_each(cycle, true);
}

// An item that is called may end: then it is not of this list any more. That it adds itself changes
// nothing, it answers false instead.
void IdleCalls::call_each(PollCycle& cycle, bool due) noexcept {
    for (std::size_t left = items_.size(), i = 0; left != 0 && i < items_.size(); --left) {
        Pollable& item = *items_[i];
        bool done = true;
        call(item, cycle, [&] { done = item.on_idle(cycle, due); });
        if (i >= items_.size() || items_[i] != &item) continue;
        if (done) {
            remove(item);
        } else {
            ++i;
        }
    }
    if (!items_.empty()) return;
    any_.store(false, std::memory_order_relaxed);
    idle_since_ = 0;
    busy_cycles_ = 0;
}

}  // namespace xsock
