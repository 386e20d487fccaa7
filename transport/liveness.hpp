// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Is the peer slow, or is it dead? Checked a few times within the silence limit, from what TCP
// tells (TcpSocket::PeerInfo). Used by the poller of one connection.
//
// TCP_USER_TIMEOUT would not do: Linux also counts the time during which a peer that answers every
// probe keeps its window closed, and such a peer may wait for a receive for any time. A peer is
// dead that leaves what TCP repeats unacknowledged, or its probes unanswered: the probes of a
// closed window, and, where TCP has nothing to send although an answer to a Read is owed, keepalive
// probes.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "transport/tcp_socket.hpp"

namespace xsock {

class Liveness {
  public:
    /// From now on. `limit`: the longest silence; 0: any.
    void begin(Time limit, Time now) noexcept;
    /// When to check; kNever without a limit.
    [[nodiscard]] Time due() const noexcept { return due_; }

    /// Checks the socket and, while an answer is owed and nothing comes, has TCP send probes.
    ///
    /// @param owed the peer has taken a request that it has not answered (a Read, an Atomic)
    /// @return true when the peer is dead; silence() and attempts() say why
    [[nodiscard]] bool check(TcpSocket& socket, bool owed, Time now) noexcept;

    /// The decision alone, without the socket.
    [[nodiscard]] bool is_dead(const TcpSocket::PeerInfo& peer_info, bool owed, Time now) noexcept;
    /// After is_dead(): TCP shall probe an idle peer before its usual keepalive time.
    [[nodiscard]] bool wants_probes() const noexcept { return wants_probes_; }

    [[nodiscard]] Time silence() const noexcept { return silence_; }
    [[nodiscard]] unsigned attempts() const noexcept { return attempts_; }

  private:
    Time limit_ = 0;
    Time due_ = kNever;
    Time stuck_since_ = 0;  // nothing more was acknowledged since
    std::uint64_t acknowledged_ = 0;
    Time silence_ = 0;
    unsigned attempts_ = 0;
    bool wants_probes_ = false;
    std::optional<TcpSocket::Keepalive> usual_;  // while TCP probes for us: what held before
};

}  // namespace xsock
