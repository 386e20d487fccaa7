// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Many connections between two processes. The server has one completion queue and one shared
// receive queue; the client has a completion queue and receives of each endpoint's own, or a
// shared queue too.
#pragma once

#include <xsock/xsock.h>

#include <vector>

#include "bench/pair.hpp"

namespace xsock::bench::many_connections {

constexpr std::size_t kSize = 64;

struct Connections {
    xsock_cq* cq = nullptr;
    xsock_srq* srq = nullptr;  ///< null: receives of their own
    xsock_listener* listener = nullptr;
    std::vector<xsock_ep*> eps;  ///< context of each: itself (server), its index (client)
};

/// Makes queues, with receives for run.depth messages or 256, and a listener; and tells the client
/// the port.
Connections open_server(Child& child, const Run& run);
/// Accepts `count` more connections.
void accept_some(Connections& all, unsigned count);

/// What open_client() leaves to connect to.
struct ClientConnections : Connections {
    std::uint16_t port = 0;
    xsock_shm shm = XSOCK_SHM_DEFAULT;  ///< of the connections made from now on
};
ClientConnections open_client(Child& child, bool shared_receives);
/// Makes `count` more connections and waits until all are established.
void connect_some(ClientConnections& all, const Run& run, unsigned count);

}  // namespace xsock::bench::many_connections
