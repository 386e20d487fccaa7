// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/connection_owner.hpp"

#include <utility>
#include <vector>

#include "transport/clock.hpp"

namespace xsock {

void ConnectionOwner::answer(ddp::Connection& connection) const {
    std::vector<std::byte> reply;
    const bool accepted =
        calls_.on_request(calls_.argument, connection.private_data(), reply) &&
        connection.accept(reply, connection.depths().ird, connection.depths().ord, monotonic_now());
    if (!accepted) (void)connection.reject({}, monotonic_now());
}

// A stream has data that wait for its peer's program: its linger time.
template <typename Asked>
bool ConnectionOwner::still_sends(Asked asked) {
    bool brief = false;
    const bool sends = asked(brief);
    exit_limit_ = brief ? 0 : linger_;
    return sends;
}

bool ConnectionOwner::draining(const ddp::Connection& connection, const TcpSocket& socket,
                               bool ends) {
    if (connection.draining()) {
        if (waits_at_exit()) exit_limit_ = calls_.exits_briefly ? 0 : linger_;
        return true;
    }
    if (!waits_at_exit()) return false;
    if (!connection.closing() && !connection.ended()) {
        return still_sends([&](bool& brief) {
                   return calls_.on_exit(calls_.argument, ExitStep::waits, brief);
               }) ||
               ends;
    }
    // A stream's peer answers what it gets. Once the kernel has closed the socket such an answer is
    // met by a reset, which drops what the kernel has not delivered yet.
    exit_limit_ = calls_.exits_briefly ? 0 : linger_;
    const bool waits_for_start = !connection.is_started() && !connection.ended();
    return waits_for_start || (connection.fin_sent() && socket.peer_info().waiting);
}

bool ConnectionOwner::unsent(const ddp::Connection& connection, const TcpSocket& socket) {
    if (calls_.on_exec == nullptr) return connection.tx_wanted();
    const auto on_exec = [&](bool& brief) { return calls_.on_exec(calls_.argument, brief); };
    if (!connection.closing() && still_sends(on_exec)) return true;
    if (connection.closing()) exit_limit_ = linger_;
    // Before the peer's first frame nothing can have gone, and the stream's end is to go at least.
    return !connection.is_started() || connection.tx_wanted() || socket.peer_info().waiting;
}

// Closed now, the socket of a stream would answer the peer's next message by a reset, and TCP drop
// the rest.
bool ConnectionOwner::still_delivers(const ddp::Connection& connection, const TcpSocket& socket) {
    if (!waits_at_exit() || !connection.closing()) return false;
    const TcpSocket::PeerInfo info = socket.peer_info();
    return info.waiting && info.acknowledged != std::exchange(delivered_, info.acknowledged);
}

}  // namespace xsock
