// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A packet of a capture -> the TCP segment in it: Ethernet (with VLAN tags), Linux cooked v1 and
// v2, loopback and raw IP; IPv4 and IPv6 (with extension headers); unfragmented only. No state.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.hpp"
#include "tools/decode/capture_file.hpp"

namespace xsock::decode {

struct Endpoint {
    std::array<std::uint8_t, 16> address{};  ///< IPv4: the first four bytes
    bool ipv6 = false;
    std::uint16_t port = 0;
    friend auto operator<=>(const Endpoint&, const Endpoint&) = default;
    /// "127.0.0.1:4711" or "[::1]:4711"
    [[nodiscard]] std::string text() const;
    [[nodiscard]] std::string address_text() const;
};

struct TcpSegment {
    Endpoint source, destination;
    std::uint32_t sequence = 0;
    bool syn = false, fin = false, reset = false;
    ConstBytes payload;             ///< as far as it was captured
    std::size_t payload_bytes = 0;  ///< on the wire
};

/// Nothing when the packet holds no TCP segment, or not enough of it.
[[nodiscard]] std::optional<TcpSegment> tcp_segment(const Packet& packet);

/// LINKTYPE_* values that tcp_segment() knows.
[[nodiscard]] bool link_type_known(std::uint16_t link_type) noexcept;

}  // namespace xsock::decode
