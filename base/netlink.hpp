// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the kernel says of TCP sockets of this network namespace, whoever they belong to. Needs no
// privilege. Any thread; opens a descriptor for as long as the call takes.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ip_address.hpp"

namespace xsock {

/// The listening TCP socket that a connection from here to `to` would reach, by its cookie
/// (SO_COOKIE): by address, wildcards and IPv4 on IPv6 sockets included. `scope`: the interface of
/// a link-local address, or 0. Nothing: `to` is no address of this network namespace, or nobody
/// listens there, or the kernel does not tell.
[[nodiscard]] std::optional<std::uint64_t> find_listener(const IpEndpoint& to,
                                                         unsigned scope) noexcept;

/// `address` is one of this network namespace: loopback, or of an interface. `scope` as above.
/// False too where the kernel does not tell.
[[nodiscard]] bool is_own_address(const IpAddress& address, unsigned scope) noexcept;

/// SO_NETNS_COOKIE of the socket `fd`: its network namespace, by a number that none had before.
/// Opens no descriptor.
/// 0: not known (before Linux 5.14).
[[nodiscard]] std::uint64_t network_cookie(int fd) noexcept;

}  // namespace xsock
