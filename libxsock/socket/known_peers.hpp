// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a client under the policy `both` knows of the server at an address: what the registry of
// this machine says (base/listener_registry.hpp), unless that has proved wrong. Any thread.
#pragma once

#include "base/ip_address.hpp"

namespace xsock::sockets {

/// It takes byte streams by SDP.
[[nodiscard]] bool takes_streams(const IpEndpoint& peer, unsigned scope);
/// It did not: the socket that listened there when takes_streams() was asked is not believed any
/// more in this process.
void forget_peer(const IpEndpoint& peer) noexcept;

}  // namespace xsock::sockets
