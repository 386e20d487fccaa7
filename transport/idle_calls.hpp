// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Items that have something to do which had better wait for more: an Acknowledge that is owed to a
// peer rides with the next message, if one is posted soon. They are called once nothing moves, or
// a thread is about to sleep. The poller's, but for any().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/pollable.hpp"

namespace xsock {

class IdleCalls {
  public:
    /// So that add() cannot fail: there are so many items.
    void reserve(std::size_t items) {
        if (items > items_.capacity()) items_.reserve(2 * items);
    }
    void add(Pollable& item) noexcept;
    void remove(Pollable& item) noexcept;
    /// Any thread. In one order with the flags of those that go to sleep.
    [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_seq_cst); }

    /// The end of a cycle: calls those whose time has come. @pre any()
    /// @param sleeps a thread sleeps, or may, unless this cycle moved something
    void end_cycle(PollCycle& cycle, bool sleeps) noexcept;
    /// Calls all: nothing may follow for a while.
    void call_all(PollCycle& cycle) noexcept { call_each(cycle, true); }

  private:
    void call_each(PollCycle& cycle, bool due) noexcept;

    std::vector<Pollable*> items_;
    std::atomic<bool> any_{false};
    Time idle_since_ = 0;            // the first cycle that moved nothing; 0: none yet
    std::uint32_t busy_cycles_ = 0;  // since something was added to an empty list
};

}  // namespace xsock
