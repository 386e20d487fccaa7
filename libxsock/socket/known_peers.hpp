// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a client under the policy `both` knows of the server at an address: what the registry of
// this machine says (base/listener_registry.hpp), unless that has proved wrong; and with
// XSOCK_POLICY_LEARN=1 what connections to servers elsewhere have found (base/learned_peers.hpp).
// Any thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>

#include "base/ip_address.hpp"
#include "base/learned_peers.hpp"

namespace xsock::sockets {

enum class PeerTakes : std::uint8_t {
    unknown,
    listed,   ///< byte streams by SDP, as its process says
    learned,  ///< byte streams by SDP, as it did less than kLearnedFor ago
};
/// Of the server that the TCP socket `fd` is going to connect to. `scope`: sin6_scope_id.
[[nodiscard]] PeerTakes takes_streams(int fd, const IpEndpoint& peer, unsigned scope);

/// The server that one byte stream connects to, and what its start tells of it. set() comes before
/// the others, which are the poller's.
class AskedPeer {
  public:
    void set(int fd, const sockaddr* address, socklen_t length) noexcept;
    /// Port 0: none.
    [[nodiscard]] const IpEndpoint& endpoint() const noexcept { return place_.peer; }
    /// It took the byte stream.
    void answered() const noexcept;
    /// It did not: the socket that listened there when takes_streams() was asked is not believed
    /// any more in this process, and what was learned of it is forgotten.
    void failed() const noexcept;

  private:
    LearnedPlace place_;  // without a network: nothing is learned of it
};

}  // namespace xsock::sockets
