// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What two ends that GIDs and QP numbers have brought together say to each other: the private data
// of the MPA Request and Reply (docs/wire.md). Sans-IO.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"

namespace xsock::verbs {

inline constexpr std::uint32_t kQpNumMax = 0xffffff;

enum class GreetingKind : std::uint8_t {
    rejected = 0,  ///< of a Reply that rejects
    rc = 1,
    uc = 2,
    datagrams = 3,
};

/// Why a responder does not want a connection, as on the wire.
enum class GreetingRefusal : std::uint8_t {
    none = 0,
    no_such_qp = 1,
    other_peer = 2,  ///< the QP is to be connected to another one, or by another address
    other_kind = 3,
    other_version = 4,
    too_many = 5,
    not_permitted = 6,  ///< the dialer is another user's
    already_connected = 7,
};
const char* text_of(GreetingRefusal why) noexcept;

struct Greeting {
    GreetingKind kind = GreetingKind::rc;
    GreetingRefusal refusal = GreetingRefusal::none;  ///< kind `rejected` only
    std::uint32_t from = 0;  ///< QP number of the sender; in a Reply, of who answers
    std::uint32_t to = 0;    ///< QP number of the receiver
    std::uint32_t attempt =
        0;  ///< random, of the Request; the Reply repeats it, or has a name instead
    /// Kind `datagrams`: by this connection they may come, too; it goes both ways if each end says
    /// so.
    bool both_ways = false;

    bool operator==(const Greeting&) const = default;
};

inline constexpr std::size_t kGreetingBytes = 24;
std::array<std::byte, kGreetingBytes> encode(const Greeting& greeting) noexcept;

struct DecodedGreeting {
    Greeting greeting;  ///< where `refusal` is none
    /// other_version: a greeting of another version; other_kind: a kind that is not known.
    GreetingRefusal refusal = GreetingRefusal::none;
};
/// Nothing: these octets are no greeting. More octets than a greeting has are none, either.
std::optional<DecodedGreeting> decode(ConstBytes data) noexcept;

}  // namespace xsock::verbs
