// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A link of shared memory (shm/link.hpp) in a Progress: polled with the memory of others, or, while
// it is armed, served when the other process wakes us by an octet over their socket. The end of
// that socket tells that the other process is gone. Everything runs in the poller.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm/link.hpp"
#include "transport/link_channels.hpp"
#include "transport/made_link.hpp"
#include "transport/memory_polling.hpp"
#include "transport/ring_memory.hpp"

namespace xsock {

class ShmLink final : public PolledMemory, private shm::Link::Owner {
  public:
    class Owner {
      public:
        /// The peer has opened a slot for the connection of this token; null: there is none.
        virtual shm::Stream* on_open(ShmLink& link, std::uint64_t token) = 0;
        /// It has ended, or had no connections for a while. Its socket is closed, and it is
        /// destroyed behind this poll cycle unless others keep it.
        virtual void on_link_closed(ShmLink& link) = 0;

      protected:
        ~Owner() = default;
    };

    /// How long a link without connections stays.
    static constexpr Time kIdleLimit = 10 * kSecond;
    /// Until a wake-up of the peer that could not be sent is sent again.
    static constexpr Time kWakePause = kMillisecond;

    /// Takes the memory and the socket. Both outlive it.
    ShmLink(MadeLink made, Progress& progress, Owner& owner);
    ~ShmLink() override;

    /// Once, before all else.
    Result<void> start(PollCycle& cycle);

    // -- connections --

    /// Takes a slot for `stream`. False: none is free, or the link has ended.
    bool open(shm::Stream& stream, std::uint64_t token, PollCycle& cycle);
    /// Takes all that the peer has published by now.
    void poll_now(PollCycle& cycle);
    /// Its connection feeds these queues: the channel of each is readable with the link's socket
    /// (link_channels.hpp), until leave_channels() or the link's end.
    void join_channels(const std::shared_ptr<CqCore>& sends,
                       const std::shared_ptr<CqCore>& receives);
    void leave_channels(const CqCore& sends, const CqCore& receives) noexcept;
    /// Something was published: the peer is woken, if it sleeps, at the end of this cycle.
    void published();

    [[nodiscard]] std::uint64_t id() const noexcept { return made_.id; }
    [[nodiscard]] const shm::Key& peer() const noexcept { return made_.peer; }
    [[nodiscard]] std::size_t connections() const noexcept { return link_.connections(); }
    [[nodiscard]] bool ended() const noexcept { return link_.ended(); }
    /// It does not end soon for idleness, at the other end either: that one began to count within
    /// some milliseconds of this one.
    [[nodiscard]] bool takes_slots(Time now) const noexcept {
        return !closed_ && (idle_since_ == kNever || now - idle_since_ < kIdleLimit - kSecond);
    }
    /// The poll cycle in which a stream's owner is called.
    [[nodiscard]] PollCycle& cycle() const noexcept { return *cycle_; }

    // -- the end --

    /// All connections of it are told. `none`: the other process is gone.
    void end(StreamError why, PollCycle& cycle);

    // -- PolledMemory --

    bool poll_memory(PollCycle& cycle) override;
    bool arm() override;
    void disarm() override;
    [[nodiscard]] bool is_relied_on() const noexcept override {
        return !channels_.empty() && channels_.may_sleep();
    }
    void on_ready(std::uint32_t events, PollCycle& cycle) override;
    void on_notify(PollCycle& cycle) override;
    void on_time(PollCycle& cycle) override;
    void on_cycle_end(PollCycle& cycle) override;
    void on_failure(PollCycle& cycle) noexcept override;

  private:
    shm::Stream* on_open(std::uint64_t token) override;

    bool poll(std::size_t byte_budget, PollCycle& cycle);
    void resume_polling(PollCycle& cycle);
    void wake_peer(PollCycle& cycle);
    void send_wake_up(PollCycle& cycle);
    void count_idle_time(PollCycle& cycle);
    void grow(PollCycle& cycle);
    void set_timer();
    void close();

    MadeLink made_;
    Progress& progress_;
    Owner& owner_;
    shm::Link link_;
    RingMemory ring_memory_;
    LinkChannels channels_;
    PollCycle* cycle_ = nullptr;  // while it is polled, opened or ended
    bool armed_ = false;
    bool idle_ = false;  // the last poll found nothing
    bool closed_ = false;
    Time idle_since_ = kNever;  // it has no connections
    Time idle_check_ = kNever;  // a timer for that
    Time ring_check_ = kNever;  // one for ring_memory_
    Time wake_again_ = kNever;  // one for a wake-up that could not be sent
};

}  // namespace xsock
