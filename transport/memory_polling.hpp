// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The items whose memory poll cycles check: no descriptor tells what comes there while they do. An
// item leaves the list by arm(): from then on its descriptor tells. Part of PollSet, in the poller.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/pollable.hpp"

namespace xsock {

class MemoryPolling;

/// A Pollable with a descriptor, and with memory that other processes store to.
class PolledMemory : public Pollable {
  public:
    /// Takes what has come, within one item's share of a poll cycle. True: something moved.
    virtual bool poll_memory(PollCycle& cycle) = 0;
    /// From now on the descriptor tells that something has come. False: something is there already.
    virtual bool arm() = 0;
    /// Undoes arm().
    virtual void disarm() = 0;
    /// The program may be about to sleep until its descriptor tells.
    [[nodiscard]] virtual bool is_relied_on() const noexcept = 0;

  private:
    friend class MemoryPolling;
    std::uint32_t idle_cycles_ = 0;
    bool polled_ = false;  // is in the list
};

class MemoryPolling {
  public:
    /// Checking so many words takes some 60 ns; thousands would take more than asking epoll.
    static constexpr std::size_t kMost = 64;
    /// Of several, one that was idle for so many cycles is armed.
    static constexpr std::uint32_t kIdleCycles = 4096;
    /// Other descriptors may wait for so long meanwhile.
    static constexpr Time kEpollPeriod = kMillisecond;

    MemoryPolling() { items_.reserve(kMost); }

    // -- any thread --

    /// Epoll does not tell of all that comes.
    [[nodiscard]] bool is_detached() const noexcept {
        return detached_.load(std::memory_order_seq_cst);
    }

    // -- the poller --

    [[nodiscard]] bool empty() const noexcept { return items_.empty(); }
    [[nodiscard]] std::size_t size() const noexcept { return items_.size(); }
    /// The item is polled from now on: disarmed. False: there are kMost already.
    bool begin(PolledMemory& item);
    /// The item was armed, or is removed from the PollSet.
    void end(PolledMemory& item) noexcept;
    /// One cycle. True: something moved.
    bool poll(PollCycle& cycle);
    /// Epoll is relied on from now on. False: of some item more has come, and the next cycle takes
    /// it.
    [[nodiscard]] bool arm_all(PollCycle& cycle);
    /// Those that is_relied_on() says it of are armed. False: of one of them more has come.
    [[nodiscard]] bool arm_relied_on(PollCycle& cycle);
    [[nodiscard]] bool any_relied_on() const noexcept;
    /// The descriptors have waited for kEpollPeriod. Asked in each cycle.
    [[nodiscard]] bool epoll_due(PollCycle& cycle) noexcept;
    /// Epoll was asked, or must be, in the next cycle.
    void epoll_asked(PollCycle& cycle) noexcept { epoll_asked_ = cycle.now(); }
    void ask_epoll_next() noexcept { epoll_asked_ = 0; }

  private:
    static constexpr std::uint32_t kCyclesPerClock = 16;

    void drop(std::size_t at) noexcept;
    template <typename F>
    bool arm(PollCycle& cycle, const F& which);

    std::vector<PolledMemory*> items_;
    std::atomic<bool> detached_{false};  // items_ is not empty
    std::uint32_t cycles_ = 0;           // since the clock was read
    Time epoll_asked_ = 0;
};

}  // namespace xsock
