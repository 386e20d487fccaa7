// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How soon a lost segment is repaired between two xsocks. TCP repeats the last segments of a
// message after its retransmission time-out, 200 ms at least, because a receiver may hold its ACK
// back for 40 ms and more. An end that limits the delay of its ACKs says so in its extension frame
// (docs/wire.md); toward such a peer the least time-out is lowered too, and toward no other: it
// would repeat what has come. Linux 6.15 has both options. Any thread.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"

namespace xsock {

/// How long this machine's ACKs are delayed at most when asked to be quick: two ticks of the
/// kernel, in milliseconds. 0: the kernel does not have the options.
[[nodiscard]] std::uint16_t shortest_delayed_ack_ms() noexcept;

/// ACKs of this connection are delayed by no more than shortest_delayed_ack_ms().
void limit_delayed_ack(int fd) noexcept;
/// What is lost on the way to a peer that delays its ACKs by `peer_ms` at most is repeated as soon
/// as that allows.
void shorten_retransmission(int fd, std::uint16_t peer_ms) noexcept;

}  // namespace xsock
