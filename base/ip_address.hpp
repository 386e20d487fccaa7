// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Addresses of IPv4 and IPv6 as one type, and networks of them. The policy compares them; any
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

struct sockaddr;

namespace xsock {

/// An IPv4 address is kept as IPv6 writes it, ::ffff:a.b.c.d (RFC 4291 §2.5.5.2): a connection of
/// an IPv6 socket to an IPv4 peer has the address that it has on an IPv4 socket.
struct IpAddress {
    std::array<std::uint8_t, 16> octets{};

    [[nodiscard]] bool is_ipv4() const noexcept;
    friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

struct IpEndpoint {
    IpAddress address;
    std::uint16_t port = 0;
    friend bool operator==(const IpEndpoint&, const IpEndpoint&) = default;
};

/// The addresses that share their first `length` bits, counted in the 128 of IpAddress.
struct IpNetwork {
    IpAddress address;  ///< what is behind `length` is zero: make_network()
    unsigned length = 0;

    [[nodiscard]] bool is_ipv4() const noexcept { return address.is_ipv4(); }
    /// No network of IPv6 has IPv4 addresses in it, [::]/0 neither.
    [[nodiscard]] bool contains(const IpAddress& other) const noexcept;
    friend bool operator==(const IpNetwork&, const IpNetwork&) = default;
};

/// The network that `address` lies in. @pre length <= 128
[[nodiscard]] IpNetwork make_network(const IpAddress& address, unsigned length) noexcept;

/// "10.0.0.5" or "2001:db8::1", without brackets and zone. Each number of an IPv4 address is
/// decimal, also behind leading zeros.
[[nodiscard]] std::optional<IpAddress> parse_ip_address(std::string_view text);
/// Digits only: a decimal number up to `high`, leading zeros or not.
[[nodiscard]] std::optional<unsigned> parse_decimal(std::string_view text, unsigned high);
/// Nothing when it is neither AF_INET nor AF_INET6, or `length` is too short for it.
[[nodiscard]] std::optional<IpEndpoint> endpoint_of(const sockaddr* address, std::size_t length);
/// sin6_scope_id; 0 where there is none.
[[nodiscard]] unsigned scope_of(const sockaddr* address, std::size_t length) noexcept;

/// "10.0.0.5", "2001:db8::1"
[[nodiscard]] std::string text_of(const IpAddress& address);
/// "10.0.0.0/8", "[2001:db8::]/32"; without the length where it is one address.
[[nodiscard]] std::string text_of(const IpNetwork& network);
/// "10.0.0.5:80", "[2001:db8::1]:80"
[[nodiscard]] std::string text_of(const IpEndpoint& endpoint);

}  // namespace xsock
