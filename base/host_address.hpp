// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which addresses count as one host where the places of a table are shared out.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace xsock {

/// An IPv4 address in its mapped form (::ffff:a.b.c.d), or the first 64 bits of an IPv6 address: a
/// host has as many addresses behind them as it likes.
using HostAddress = std::array<std::byte, 16>;

inline constexpr std::array<std::byte, 12> kIpv4Mapped{
    {{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, std::byte{0xff}, std::byte{0xff}}};

/// The last four bytes are an IPv4 address.
inline bool is_ipv4(std::span<const std::byte, 16> address) noexcept {
    return std::equal(kIpv4Mapped.begin(), kIpv4Mapped.end(), address.begin());
}

/// @param address in network byte order, IPv4 in the mapped form
inline HostAddress host_of(std::span<const std::byte, 16> address) noexcept {
    constexpr std::size_t kPrefixBytes = 8;
    HostAddress host{};
    std::copy_n(address.begin(), is_ipv4(address) ? address.size() : kPrefixBytes, host.begin());
    return host;
}

}  // namespace xsock
