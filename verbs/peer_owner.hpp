// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whose a connection's other end is, when it is on this machine: the kernel knows the user of each
// socket (NETLINK_SOCK_DIAG; where that is not there, /proc/net/tcp).
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace xsock::verbs {

enum class PeerPlace : std::uint8_t {
    elsewhere,  ///< its address is none of this machine's
    ours,       ///< a process of this user, or of root
    others,     ///< a process of another user; also where the kernel does not say
};

/// Of a connected TCP socket. Any thread; does not wait for the peer.
PeerPlace place_of_peer(int fd) noexcept;

/// The user whose socket is at `peer` and connected to `own`; nothing: the kernel knows none, or
/// its process has closed it.
std::optional<uid_t> owner_of_socket(const sockaddr_storage& peer,
                                     const sockaddr_storage& own) noexcept;

}  // namespace xsock::verbs
