// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a Progress polls: its items, and one poll cycle as they see it. Everything here is the
// poller's, the thread that holds the progress lock (docs/threading.md).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/bytes.hpp"
#include "base/epoch.hpp"
#include "transport/clock.hpp"

namespace xsock {

class IdleCalls;
class PendingList;
class PollSet;
class Progress;
class SoftChannel;

/// One poll cycle of a poller, as the items that it polls see it.
class PollCycle {
  public:
    PollCycle(Bytes buffer, Epochs::Reader& reader) : staging(buffer), reader_(reader) {}

    /// The clock is read once in a poll cycle, at the first call.
    Time now() noexcept {
        if (now_ == 0) now_ = monotonic_now();
        return now_;
    }
    /// To be called before memory of the program is looked up or touched; the section lasts until
    /// the end of the cycle. Most polls find nothing, and need none.
    void enter_section() noexcept {
        if (!inside_) reader_.enter();
        inside_ = true;
    }
    void leave_section() noexcept {
        if (inside_) reader_.leave();
        inside_ = false;
    }
    enum class By : std::uint8_t {
        holder,  ///< a thread that needs the lock for something else
        caller,  ///< a thread of the program that polls
        thread,  ///< the background thread, which looks after what it leaves
    };
    Bytes staging;  ///< where received bytes go first; shared by all connections
    By by = By::holder;
    int rereads = 0;         ///< empty reads that are repeated at once
    bool active = false;     ///< bytes moved, work completed or a state changed
    bool sent_much = false;  ///< so much that an empty read costs nothing beside it
    bool thorough = false;   ///< asks epoll in any case

  private:
    Epochs::Reader& reader_;
    bool inside_ = false;
    Time now_ = 0;
};

/// Something that a Progress polls. It has a descriptor, or none: then it is served when it is
/// notified and when its deadline comes, and by another item, where that one has the descriptor
/// that both use. All functions are called by the poller.
class Pollable : public std::enable_shared_from_this<Pollable> {
  public:
    virtual ~Pollable() = default;
    /// The descriptor is ready (epoll bits), or might be (EPOLLIN tried on a guess). Never called
    /// without one.
    virtual void on_ready(std::uint32_t events, PollCycle& cycle) = 0;
    /// Called ahead of on_notify(), when a further notification would queue the item again: what a
    /// poster queued while it relied on the earlier notification is visible afterwards.
    virtual void sync_with_posters() {}
    /// Something was posted, or room was made.
    virtual void on_notify(PollCycle& cycle) = 0;
    /// The deadline given to Progress::set_deadline() has come.
    virtual void on_time(PollCycle& cycle) = 0;
    /// After Progress::call_at_cycle_end(): every item of this cycle has been served.
    virtual void on_cycle_end(PollCycle&) {}
    /// After Progress::call_when_idle(): a cycle has moved nothing. `due`: nothing has moved for
    /// long enough, or nothing may follow. True: it need not be called again.
    virtual bool on_idle(PollCycle&, bool /*due*/) { return true; }
    /// Something that it did ran out of memory: end, without asking for more.
    virtual void on_failure(PollCycle& cycle) noexcept = 0;
    /// The process is about to exit: finish what is queued.
    virtual void on_exit(PollCycle&) {}
    /// Behind on_exit(): draining() is not waited for any longer, and memory of the program may be
    /// gone soon: nothing is sent from there or placed there from now on. exit() may have
    /// interrupted a call of its thread that holds the lock of a queue: nothing completes.
    virtual void on_exit_limit(PollCycle&) {}
    /// Something that was queued has not been handed to TCP yet; of a byte stream, TCP has not
    /// delivered it yet.
    [[nodiscard]] virtual bool draining() const { return false; }
    /// exit() waits so long for it to drain, if that is longer than for any. Asked behind
    /// draining() or unsent().
    [[nodiscard]] virtual Time exit_limit() const { return 0; }
    /// Something that was queued could be sent, but for want of room.
    [[nodiscard]] virtual bool unsent() const { return false; }

  protected:
    /// The completion channels that its descriptor belongs to, each once. Before it is registered.
    void set_channels(std::array<std::shared_ptr<SoftChannel>, 2> channels) noexcept {
        channels_ = std::move(channels);
    }
    [[nodiscard]] const auto& channels() const noexcept { return channels_; }

  private:
    friend class IdleCalls;
    friend class PendingList;
    friend class PollSet;
    friend class Progress;
    std::atomic<bool> pending_{false};  // is in the PendingList
    bool registered_ = false;           // the poller only, as are the next
    bool owns_fd_ = false;              // registered fd_ as internal itself
    bool at_cycle_end_ = false;         // on_cycle_end() is to be called
    enum class Idle : std::uint8_t { no, waits } idle_ = Idle::no;  // on_idle() is
    int fd_ = -1;                                                   // -1: has none
    std::uint32_t events_ = 0;                                      // what epoll was asked for
    bool in_channels_ = false;                                      // channels_ watch fd_
    /// What fd_ tells of.
    enum class Tells : std::uint8_t {
        data,
        little,  ///< which may wait a millisecond while memory is polled
        end,     ///< an end, or a wake-up
    };
    Tells tells_ = Tells::data;
    Time deadline_ = kNever;
    std::array<std::shared_ptr<SoftChannel>, 2> channels_;  // may be null
    std::shared_ptr<Pollable> next_pending_;                // the PendingList's
};

/// Calls into an item by `f`. Out of memory fails that item alone.
template <typename F>
void call(Pollable& item, PollCycle& cycle, F&& f) noexcept {
    try {
        f();
    } catch (...) {
        item.on_failure(cycle);
    }
}

}  // namespace xsock
