// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The items of a Progress: an epoll set over their descriptors, their deadlines, and the one that
// is busy-polled, which is read without asking epoll. Everything runs in the poller, under the
// progress lock, but for the functions that say otherwise.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "transport/event_fd.hpp"
#include "transport/idle_calls.hpp"
#include "transport/memory_polling.hpp"
#include "transport/pollable.hpp"

namespace xsock {

class PollSet {
  public:
    Result<void> open();
    /// Closes its own descriptors; those of the items stay open.
    void close() noexcept;
    /// In a forked child: closes the copies of all descriptors.
    void abandon() noexcept;

    // -- any thread --

    [[nodiscard]] int epoll_fd() const noexcept { return epoll_fd_; }
    /// Makes epoll_fd() readable until the next cycle that asks epoll.
    void notify_embedder() noexcept { embed_.notify(); }
    /// Epoll does not watch the busy-polled item (see detach_busy_polled()), or does not tell what
    /// comes into polled memory.
    [[nodiscard]] bool is_detached() const noexcept {
        return detached_.load(std::memory_order_seq_cst) || memory_.is_detached();
    }
    /// No descriptor tells what comes into polled memory.
    [[nodiscard]] bool memory_is_detached() const noexcept { return memory_.is_detached(); }

    // -- registration: as in Progress --

    Result<void> add(std::shared_ptr<Pollable> item);
    Result<void> add(std::shared_ptr<Pollable> item, int fd, std::uint32_t events);
    void modify(Pollable& item, std::uint32_t events);
    void remove(Pollable& item);
    /// Data do not come by its descriptor any more: while memory is polled it may wait.
    void watch_for_end_only(Pollable& item);
    /// Its descriptor tells of little: while memory is polled it may wait.
    void watch_rarely(Pollable& item);
    void set_deadline(Pollable& item, Time deadline);
    void join_channels(Progress& progress, Pollable& item);

    [[nodiscard]] std::size_t size() const noexcept { return items_.size(); }
    [[nodiscard]] std::vector<std::shared_ptr<Pollable>> items() const;
    template <typename F>
    [[nodiscard]] bool any_of(F&& f) const {
        return std::any_of(items_.begin(), items_.end(),
                           [&](const auto& entry) { return f(*entry.second); });
    }

    // -- a poll cycle --

    /// Calls the items that are ready or due: the busy-polled one, and now and then those that
    /// epoll tells of.
    void serve_ready(PollCycle& cycle);
    /// Calls the ready members of a channel. False: it has members of other Progresses too, and
    /// what was ready must be found by a thorough cycle.
    [[nodiscard]] bool serve_channel(SoftChannel& channel, PollCycle& cycle);
    /// More than one item has a descriptor that data come by.
    [[nodiscard]] bool watches_several() const noexcept {
        return watched_ > (memory_.empty() ? 1 : 0);
    }
    void call_at_cycle_end(Pollable& item) noexcept;
    /// Calls what asked for it.
    void serve_cycle_end(PollCycle& cycle) noexcept {
        if (!at_cycle_end_.empty()) call_cycle_ends(cycle);
    }
    /// What was removed in this cycle is destroyed.
    void forget_removed() noexcept {
        if (!removed_.empty()) removed_.clear();
    }
    /// The next cycle reads the busy-polled item in any case.
    void read_next_time() noexcept { reads_put_off_ = kReadsPutOff; }
    /// A pause takes the time of a poll cycle: what only epoll sees waits no longer.
    void count_pause() noexcept { ++cycles_since_epoll_; }

    [[nodiscard]] IdleCalls& idle() noexcept { return idle_; }
    [[nodiscard]] const IdleCalls& idle() const noexcept { return idle_; }

    // -- memory that poll cycles check --

    [[nodiscard]] MemoryPolling& memory() noexcept { return memory_; }
    [[nodiscard]] bool polls_memory() const noexcept { return !memory_.empty(); }
    /// A thread relies on epoll, and is woken for what comes from now on.
    void arm_memory(PollCycle& cycle);
    /// Programs may sleep on channels of some: those are armed. False: more has come, and the next
    /// cycle takes it.
    [[nodiscard]] bool arm_for_channels(PollCycle& cycle);

    // -- the busy-polled item, in epoll or not --

    /// Callers have polled it for so long that epoll need not watch it.
    [[nodiscard]] bool should_detach() const noexcept {
        return busy_polled_cycles_ >= kCyclesUntilDetach &&
               !detached_.load(std::memory_order_relaxed);
    }
    void put_off_detaching() noexcept { busy_polled_cycles_ = 0; }
    /// Takes it out of epoll, and publishes that; afterwards the caller checks for threads that
    /// rely on epoll, and if there are any puts it back.
    /// @pre should_detach()
    void detach_busy_polled() noexcept;
    void attach_busy_polled() noexcept;
    /// All is watched by epoll, and the next cycle asks it first.
    void rely_on_epoll() noexcept {
        attach_busy_polled();
        last_epoll_was_single_ = false;
        memory_.ask_epoll_next();
    }

  private:
    static constexpr std::uint32_t kCyclesUntilDetach = 256;
    static constexpr std::uint32_t kReadsPutOff = 16;

    bool serve_busy_polled(PollCycle& cycle);
    [[nodiscard]] bool serve_memory(PollCycle& cycle, bool asks_epoll);
    void call_cycle_ends(PollCycle& cycle) noexcept;
    void begin_busy_poll(Pollable& item) noexcept;
    void watch(Pollable& item) noexcept;
    void unwatch(Pollable& item);
    void serve_deadlines(PollCycle& cycle);
    void update_timer() noexcept;

    int epoll_fd_ = -1;
    int timer_fd_ = -1;  // timerfd: earliest deadline
    EventFd embed_;      // makes epoll_fd() readable for a loop that embeds us
    std::unordered_map<Pollable*, std::shared_ptr<Pollable>> items_;
    std::vector<Pollable*> at_cycle_end_;             // empty between cycles
    std::size_t cycle_ends_called_ = 0;               // so many of them, from the front
    std::vector<std::shared_ptr<Pollable>> removed_;  // removed in this cycle
    std::set<std::pair<Time, Pollable*>> deadlines_;
    Time armed_timer_ = kNever;
    std::atomic<bool> detached_{false};  // written under the progress lock
    std::size_t watched_ = 0;            // items with a descriptor, unless for its end only
    std::size_t rare_ = 0;               // of those, what watch_rarely() was told of
    Pollable* busy_polled_ = nullptr;    // received last: tried without asking epoll
    std::uint32_t cycles_since_epoll_ = 0;
    std::uint32_t busy_polled_idle_ = 0;    // cycles since busy_polled_ last moved something
    std::uint32_t reads_put_off_ = 0;       // cycles since busy_polled_ was last tried
    std::uint32_t busy_polled_cycles_ = 0;  // by callers, since busy_polled_ was set or attached
    bool last_epoll_was_single_ = true;
    MemoryPolling memory_;
    IdleCalls idle_;
};

}  // namespace xsock
