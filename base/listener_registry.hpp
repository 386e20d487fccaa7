// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Which TCP listeners of this machine take byte streams over iWARP (docs/policy.md): a process that
// listens in that mode says so in shared memory, and a client under the policy `both` asks there.
//
// A user's entries are files in /dev/shm/xsock-listeners-UID/PORT/; the name says all. A client
// believes its own user and root. It asks the kernel which socket a connection would reach
// (base/netlink.hpp), and looks for that socket's entry: so an entry cannot speak for another's
// socket, and one that was left behind speaks for none. A socket whose processes that said so have
// all gone is not believed either: who has it now may not know of us.
//
// XSOCK_REGISTRY: a folder in place of both, or `off`. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/ip_address.hpp"

namespace xsock {

/// The folder of a user's entries; empty: there shall be none.
[[nodiscard]] std::string registry_folder(uid_t user);

/// Says that the socket `cookie` (SO_COOKIE), which listens at `port`, takes byte streams by SDP,
/// in the name of this process. Also removes what processes that are gone have left.
/// @return the entry's path; empty with errno, or 0 when there shall be none
[[nodiscard]] std::string publish_listener(std::uint16_t port, std::uint64_t cookie);
/// Takes it back. `path` may be empty.
void withdraw_listener(const std::string& path) noexcept;

enum class PeerKnown : std::uint8_t {
    unlisted,   ///< no listener at that port says that it takes byte streams
    elsewhere,  ///< one does, but a connection would not reach it, or not on this machine
    gone,       ///< the processes that said so are gone
    sdp,        ///< takes byte streams by SDP
};
struct PeerKnowledge {
    PeerKnown known = PeerKnown::unlisted;
    std::uint64_t cookie = 0;  ///< of the socket; with `gone` and `sdp`
};
/// What is known of the listener at `to`. `scope` as in find_listener().
[[nodiscard]] PeerKnowledge look_up_listener(const IpEndpoint& to, unsigned scope);

}  // namespace xsock
