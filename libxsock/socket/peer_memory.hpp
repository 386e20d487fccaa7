// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a process remembers of the listeners that the registry has named: which were wrong, and
// which it has looked up just now. A look-up is some twenty system calls, a connection over TCP
// five. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/ip_address.hpp"

namespace xsock::sockets {

class PeerMemory {
  public:
    /// How long an answer holds: long enough for programs that connect again and again, short
    /// enough for no server to be stopped and another started meanwhile.
    static constexpr Time kHolds = 10 * kMillisecond;

    /// How long it holds that there is none: a program that waits for a server tries again, and is
    /// to find it.
    static constexpr Time kNoneHolds = kMillisecond;

    /// An answer holds for the same only.
    struct Place {
        std::uint64_t network = 0;  ///< its cookie or inode; 0, unknown: no answer holds
        std::uint32_t user = 0;     ///< effective
        std::uint32_t scope = 0;    ///< sin6_scope_id
        friend bool operator==(const Place&, const Place&) = default;
    };

    /// The listener at `peer` was found from `place` less than kHolds ago and is not known to be
    /// wrong.
    [[nodiscard]] bool holds(const IpEndpoint& peer, const Place& place, Time now) const noexcept;
    /// The listener at `peer` is the socket `cookie`, by a look-up that began at `now`. False: that
    /// one was wrong.
    bool found(const IpEndpoint& peer, std::uint64_t cookie, const Place& place, Time now) noexcept;
    /// There was no listener at `peer`, as seen from `place`, by a look-up that began at `now`.
    void found_none(const IpEndpoint& peer, const Place& place, Time now) noexcept;
    /// As found_none() said of it last, less than kNoneHolds ago.
    [[nodiscard]] bool has_none(const IpEndpoint& peer, const Place& place,
                                Time now) const noexcept;
    /// What was found there last is wrong. False: that is known, or nothing was found there.
    bool mark_wrong(const IpEndpoint& peer) noexcept;

  private:
    struct Found {
        IpEndpoint peer;
        std::uint64_t cookie = 0;
        Place place;
        Time at = 0;
        bool is_wrong = false;
    };

    [[nodiscard]] const Found* find(const IpEndpoint& peer) const noexcept;
    [[nodiscard]] Found* find(const IpEndpoint& peer) noexcept;

    std::array<Found, 256> found_;
    Found none_;  // the last one
    std::size_t used_ = 0;
    std::size_t next_to_go_ = 0;  // the oldest
};

}  // namespace xsock::sockets
