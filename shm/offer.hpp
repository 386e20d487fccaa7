// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How two ends agree on shared memory: the values of two TLVs of the extension frames
// (docs/wire.md). The responder offers, the initiator answers; its answer is the decision.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "base/ip_address.hpp"
#include "base/shm_reason.hpp"

namespace xsock::shm {

/// Names a listener for links: random, of one progress object. It is no secret (/proc/net/unix has
/// it); the user ids at both ends protect.
using Key = std::array<std::byte, 16>;

/// 32 hexadecimal digits, in lower case.
[[nodiscard]] std::array<char, 33> text_of(const Key& key) noexcept;  // NUL-terminated

/// MPA_TLV_SHM_OFFER, in the responder's frame.
struct Offer {
    Key key{};                ///< of the progress object that owns the connection
    std::uint64_t token = 0;  ///< random, of this connection
    /// The TCP connection as the responder sees it.
    IpEndpoint local, peer;

    /// Does the initiator see the same connection? Else something between has changed addresses.
    [[nodiscard]] bool matches(const IpEndpoint& own, const IpEndpoint& remote) const noexcept {
        return local == remote && peer == own;
    }
    friend bool operator==(const Offer&, const Offer&) = default;
};

/// MPA_TLV_SHM_ANSWER, in the initiator's frame.
struct Answer {
    bool shared_memory = false;
    Reason reason = Reason::none;  ///< without shared memory
    std::uint64_t link = 0;        ///< id of the link, from its hello
    std::uint16_t slot = 0;
    std::uint32_t generation = 0;

    friend bool operator==(const Answer&, const Answer&) = default;
};

[[nodiscard]] std::vector<std::byte> encode(const Offer& offer);
[[nodiscard]] std::vector<std::byte> encode(const Answer& answer);
/// Nothing if the value is too short or of another version: then there is no shared memory. What
/// follows the fields is ignored.
[[nodiscard]] std::optional<Offer> decode_offer(ConstBytes value) noexcept;
[[nodiscard]] std::optional<Answer> decode_answer(ConstBytes value) noexcept;

}  // namespace xsock::shm
