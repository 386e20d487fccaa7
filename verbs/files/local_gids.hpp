// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The GID table of the RoCE-like device: one entry for each address of this machine that peers can
// use, in an order that programs count on. `xsock run` computes it once and writes it as files
// (tree.hpp), the engine reads it from there: what is queried and what is read never differ.
// Nothing here knows verbs.h or the engine.
#pragma once

#include <net/if.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace xsock::verbs {

/// An address of an interface that is up. IPv6 link-local ones are left out: they need a scope that
/// a GID has no room for.
struct LocalAddress {
    sockaddr_storage address{};
    unsigned interface = 0;  ///< its index
    std::array<char, IF_NAMESIZE> name{};
    bool loopback = false;
};
/// In the kernel's order.
std::vector<LocalAddress> interface_addresses();

struct GidEntry {
    std::array<std::uint8_t, 16> gid{};  ///< an IPv6 address, or ::ffff:a.b.c.d
    std::string interface;               ///< its name

    bool operator==(const GidEntry&) const = default;
};
using GidList = std::vector<GidEntry>;

/// Most GIDs that a table may have.
inline constexpr std::size_t kMaxGids = 256;

/// The GID of an address; all zero for families other than AF_INET and AF_INET6.
std::array<std::uint8_t, 16> gid_octets(const sockaddr& address) noexcept;

/// Orders addresses for programs that take the first GID that suits: `wanted` interfaces only, in
/// that order; or, where it is empty, all: that of a default route first, then as they come, and
/// loopback interfaces only when there is no other (a peer on another machine that is told
/// 127.0.0.1 finds itself). Of an interface, IPv4 before IPv6.
GidList ordered_gids(const std::vector<LocalAddress>& all, const std::vector<std::string>& wanted,
                     const std::string& default_interface);

/// The interface of the default route with the lowest metric, from the text of /proc/net/route;
/// empty: there is none.
std::string default_interface_v4(std::string_view proc_net_route);
/// The same from /proc/net/ipv6_route.
std::string default_interface_v6(std::string_view proc_net_ipv6_route);

/// "eth0,eth1": empty where a name could be none of an interface.
std::vector<std::string> parse_interfaces(std::string_view text);

/// That of this machine now, as `interfaces` (XSOCK_VERBS_INTERFACES) chooses.
GidList local_gids(const std::vector<std::string>& interfaces);

/// As sysfs writes it: 0000:0000:0000:0000:0000:ffff:0a00:0001.
std::string gid_text(const std::array<std::uint8_t, 16>& gid);
std::optional<std::array<std::uint8_t, 16>> parse_gid(std::string_view text);

/// The table that the files below `tree` have (tree.hpp).
Result<GidList> read_gids(const std::string& tree);

}  // namespace xsock::verbs
