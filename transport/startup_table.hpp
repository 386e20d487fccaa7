// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The connections of one listener whose start-up has not ended, by the address of their peer, and
// which of them is closed when there is room for no other. Every listener has one: ListenSocket
// (in its poller), verbs (with the engine's mutex held).
//
// A crowd of peers that connect and say nothing, or not enough, must not keep others out. So the
// oldest connection of the address that holds most gives way: as long as there is room nothing is
// closed, and peers of other addresses are served beside the crowd. In IPv6 a host has as many
// addresses as it likes: those of one /64 count as one.
//
// What counts is a start-up that has not ended: the first frame is incomplete, or the RTR message
// is missing. A connection that has started is not in here any more, and never closed.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>

#include "base/bytes.hpp"
#include "base/host_address.hpp"

namespace xsock {

class StartupTable {
  public:
    /// A connection, as its listener knows it.
    using Id = void*;

    /// @param capacity connections; at most half of the descriptors that the process may have count
    explicit StartupTable(std::size_t capacity);
    StartupTable(const StartupTable&) = delete;
    StartupTable& operator=(const StartupTable&) = delete;

    [[nodiscard]] bool empty() const noexcept { return places_.empty(); }
    [[nodiscard]] bool full() const noexcept { return places_.size() >= capacity_; }

    /// Throws std::bad_alloc; the connection then is not in it.
    ///
    /// @param fd connected: its peer's address counts
    void add(Id id, int fd, Time now);
    void add(Id id, const sockaddr& peer, Time now);
    /// @return false: it was not in it
    bool remove(Id id) noexcept;
    /// The same for one whose start-up has failed.
    bool remove_failed(Id id, Time now) noexcept;

    void clear() noexcept;

    /// Which connection to close so that another may come. It is counted (`xsock stat`) and there
    /// is a line in the log, one for each address and minute; the caller removes it. Null: none is
    /// as old as `min_age`.
    [[nodiscard]] Id make_room(Time now, Time min_age = 0) noexcept;

    /// Start-ups younger than this may well be about to end.
    static constexpr Time kMinAge = 200 * kMillisecond;
    /// After a sign of a crowd, for so long each that comes gets a place at once.
    static constexpr Time kCrowdTime = 10 * kSecond;

    /// Before another is accepted: it shall rather stay in the listen queue for a moment. That is
    /// while the table is full of young start-ups of one address: they may well be about to end, a
    /// burst of healthy ones, and so far no other address is kept out. But others come by the same
    /// listen queue: not for kCrowdTime after a start-up had to make room that was not young, or
    /// failed while the table was full.
    [[nodiscard]] bool should_wait(Time now) const noexcept;

    /// Calls `f` with each Id. It must not change the table.
    template <typename F>
    void for_each(F&& f) const {
        for (const auto& place : places_) f(place.first);
    }

  private:
    struct Start {
        Id id;
        Time since;
    };
    using Starts = std::map<std::uint64_t, Start>;  // the oldest first
    struct Place {
        HostAddress address;
        std::uint64_t number;
        bool makes_room = false;
    };
    /// The first is the next to give way.
    struct Rank {
        std::size_t held;
        std::uint64_t oldest;
        HostAddress address;
        bool operator<(const Rank& other) const noexcept {
            return held != other.held ? held > other.held : oldest < other.oldest;
        }
    };
    struct Closed {
        Time logged;
        std::uint64_t since_logged;
    };

    static HostAddress address_of(const sockaddr& peer) noexcept;
    static Rank rank_of(const HostAddress& address, const Starts& starts) noexcept;
    /// Of the address that holds most. @pre not empty()
    [[nodiscard]] const Start& next_to_go() const noexcept;
    void erase(const HostAddress& address, std::uint64_t number) noexcept;
    void report(const Rank& rank, Time now);

    const std::size_t capacity_;
    std::uint64_t numbers_ = 0;
    Time crowded_until_ = 0;
    std::map<HostAddress, Starts> addresses_;  // none of them empty
    std::set<Rank> ranks_;                     // one for each of addresses_
    std::unordered_map<Id, Place> places_;
    std::map<HostAddress, Closed> closed_;  // in the last minute
};

}  // namespace xsock
