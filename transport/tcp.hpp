// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the transport asks of a TCP socket; every system call on a connection's descriptor is here.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "base/tx_batch.hpp"

namespace xsock::tcp {

/// ENOTSOCK, EBADF, EPROTOTYPE (not TCP), ENOTCONN.
Result<void> check_connected(int fd);
/// ENOTSOCK, EBADF, EPROTOTYPE, EINVAL (not listening).
Result<void> check_listening(int fd);

Result<void> make_nonblocking(int fd);

/// The time limits of an idle connection, and of one whose peer is silent.
struct Limits {
    std::uint32_t keepalive_s = 0;  ///< idle time before the peer is asked; 0: never
    Time silence = 0;               ///< then, or while something is unacknowledged; 0: no limit
};
/// Non-blocking (unless the flags are shared with the program), no Nagle, time limits. An idle peer
/// that leaves six questions unanswered is given up by TCP itself: after keepalive_s and the limit.
Result<void> prepare(int fd, const Limits& limits, bool shared = false);

/// When TCP asks an idle peer for a sign of life.
struct Keepalive {
    bool on = false;
    int idle_s = 0, interval_s = 0;
    friend bool operator==(const Keepalive&, const Keepalive&) = default;
};
[[nodiscard]] Keepalive keepalive(int fd) noexcept;
/// Holds at once: a peer that has been idle for longer is asked now.
void set_keepalive(int fd, const Keepalive& keepalive) noexcept;

/// Effective maximum segment size towards the peer, bytes; 0 when unknown.
[[nodiscard]] std::size_t emss(int fd) noexcept;

/// How far TCP has come with what it was given.
struct PeerInfo {
    bool waiting = false;            ///< bytes are unsent or unacknowledged
    bool window_closed = false;      ///< the peer takes no more: it does not read
    unsigned attempts = 0;           ///< repetitions or probes in a row, unanswered
    std::uint64_t acknowledged = 0;  ///< bytes, since the connection began
    Time since_heard = 0;            ///< since anything came from the peer
};
/// All zero when unknown.
[[nodiscard]] PeerInfo peer_info(int fd) noexcept;

/// Writes a batch without blocking: one sendmsg, or for separate groups one sendmmsg whose messages
/// end records (MSG_EOR), so that TCP does not join neighbours into one segment.
///
/// @return bytes taken by TCP (perhaps fewer than offered), or -errno when none were.
[[nodiscard]] long send(int fd, const TxBatch& batch) noexcept;

/// The same for bytes that lie together.
[[nodiscard]] long send(int fd, ConstBytes bytes) noexcept;

/// recv without blocking. @return bytes, 0 at end of stream, or -errno.
[[nodiscard]] long receive(int fd, Bytes into) noexcept;

/// "127.0.0.1:4711" or "[::1]:4711"; "?" when unknown.
[[nodiscard]] std::string peer_name(int fd);
/// The same of our end.
[[nodiscard]] std::string local_name(int fd);

/// SO_ERROR, cleared by asking.
[[nodiscard]] int pending_error(int fd) noexcept;

/// FIN. Errors do not matter: the connection is then already gone.
void finish(int fd) noexcept;
/// Close so that the peer sees a reset.
void reset(int fd) noexcept;
/// The same, now, although other descriptors of the socket stay open (it becomes unconnected).
void disconnect(int fd) noexcept;
/// Close, with both directions at an end although other descriptors of the socket stay open.
void finish_and_close(int fd) noexcept;

}  // namespace xsock::tcp
