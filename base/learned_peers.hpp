// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which servers of other machines took byte streams lately: what connections of this user have
// found (docs/policy.md, XSOCK_POLICY_LEARN), kept for the programs that come after.
//
// An entry is an empty file in the folder `learned` of the user's registry
// (base/listener_registry.hpp): its name is the server and what it did, its time the last time that
// it did. So nothing in it can be half written, and no content has to be checked. A user believes
// no entries but the own ones. Needs no descriptor but to tidy up. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "base/ip_address.hpp"

namespace xsock {

/// How long an entry holds.
inline constexpr Time kLearnedFor = 600 * kSecond;
/// Of one user. When there are so many, none is made until some are too old.
inline constexpr unsigned kMostLearned = 4096;

/// XSOCK_POLICY_LEARN: 1 is true. Nothing: it is neither 0 nor 1.
[[nodiscard]] std::optional<bool> learn_setting() noexcept;

/// A server, as seen from here.
struct LearnedPlace {
    std::uint64_t network = 0;    ///< SO_NETNS_COOKIE; 0, unknown: nothing is learned
    std::uint32_t interface = 0;  ///< that the socket is bound to, or of a link-local address
    IpEndpoint peer;
    friend bool operator==(const LearnedPlace&, const LearnedPlace&) = default;
};
/// Of the TCP socket `fd`, on its way to `peer`. `scope`: sin6_scope_id.
[[nodiscard]] LearnedPlace learned_place(int fd, const IpEndpoint& peer, unsigned scope) noexcept;

/// Times are those of base/wall_clock.hpp, as files have them.
struct Learned {
    enum class State : std::uint8_t {
        unknown,
        answered,  ///< it took a byte stream, and has failed for none since, within kLearnedFor
        failed,    ///< it failed for one within kLearnedFor
    };
    State state = State::unknown;
    Time age = 0;  ///< since it last did so
};
[[nodiscard]] Learned look_up_learned(const LearnedPlace& place, Time now);
/// It took a byte stream. False with errno: there is no entry of that.
bool note_answered(const LearnedPlace& place, Time now);
/// It was asked and did not take one. True: there was an entry that it does.
bool note_failed(const LearnedPlace& place, Time now);

}  // namespace xsock
