// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// IP addresses: those that this host has, as GIDs, and small things about sockaddr.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "verbs/files/local_gids.hpp"
#include "verbs/table.h"

namespace xsock::verbs {

/// Addresses of interfaces that are up, without IPv6 link-local ones (they need a scope that a GID
/// has no room for): other IPv4 first, then 127.0.0.1, then IPv6.
std::vector<LocalAddress> local_addresses();

/// The GID of an address: an IPv6 address as it is, an IPv4 one mapped (::ffff:a.b.c.d).
union ibv_gid gid_of(const sockaddr_storage& address) noexcept;

/// 0 for families other than AF_INET and AF_INET6.
socklen_t length_of(const sockaddr* address) noexcept;
/// Host order.
std::uint16_t port_of(const sockaddr* address) noexcept;
void set_port(sockaddr* address, std::uint16_t port) noexcept;
/// The port that TCP has, of one that the program names (XSOCK_VERBS_PORT_OFFSET): `offset` more. 0
/// stays 0. False, and nothing changes: that is no port.
[[nodiscard]] bool to_tcp_port(sockaddr* address, int offset) noexcept;
/// The program's number of a port that TCP has: `offset` less. Below 1 it goes on from 65535, above
/// that from 1, so that no two ports have one number; to_tcp_port() refuses such numbers.
void to_program_port(sockaddr* address, int offset) noexcept;
bool is_wildcard(const sockaddr* address) noexcept;
bool copy_address(sockaddr_storage& to, const sockaddr* from) noexcept;
std::string text_of(const sockaddr* address);

}  // namespace xsock::verbs
