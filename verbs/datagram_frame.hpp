// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One datagram as it goes over TCP between two xsocks: 24 octets, then the payload, together one
// RDMAP Send (docs/wire.md). And the 40 octets that a program finds ahead of the payload. Sans-IO.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "verbs/gid_greeting.hpp"

namespace xsock::verbs {

inline constexpr std::size_t kDatagramHeader = 24;
inline constexpr std::size_t kDatagramPayload = 4096;  ///< at most: the device's MTU
inline constexpr std::size_t kGrhBytes = 40;
inline constexpr std::uint16_t kDefaultPkey = 0xffff;

struct DatagramHeader {
    bool immediate = false;  ///< `data` is the program's
    bool solicited = false;
    std::uint16_t pkey = kDefaultPkey;
    std::uint32_t to = 0;    ///< QP number, 24 bits
    std::uint32_t from = 0;  ///< the same. Told to the program, and never believed
    std::uint32_t qkey = 0;
    std::array<std::byte, 4> data{};  ///< the immediate, as the program gave it; else zero
    std::uint8_t traffic_class = 0;
    std::uint32_t flow_label = 0;  ///< 20 bits

    bool operator==(const DatagramHeader&) const = default;
};

/// @pre numbers and flow label are no wider than that
std::array<std::byte, kDatagramHeader> encode(const DatagramHeader& header) noexcept;

struct DecodedDatagram {
    DatagramHeader header;
    ConstBytes payload;  ///< part of what was decoded
};
/// Nothing: shorter than a header, more payload than kDatagramPayload, another version, a flag that
/// is not known, a number wider than it may be, or an immediate without its flag.
std::optional<DecodedDatagram> decode_datagram(ConstBytes frame) noexcept;

using GidOctets = std::array<std::uint8_t, 16>;
/// What lies ahead of the payload in a receive: an IPv6 header (InfiniBand volume 1, §8.3; also
/// where the addresses are IPv4 ones, mapped). `payload_bytes` <= kDatagramPayload
std::array<std::byte, kGrhBytes> make_grh(const DatagramHeader& header, const GidOctets& from,
                                          const GidOctets& to, std::size_t payload_bytes) noexcept;

}  // namespace xsock::verbs
