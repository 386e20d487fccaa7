// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a process has one of, whatever it uses: the functions of xsock.h, sockets in DDPMODE and
// verbs are clients of the same device, and so of the same threads, staging memory and memory
// table.
#pragma once

#include "base/bytes.hpp"
#include "base/device.hpp"
#include "transport/config.hpp"

namespace xsock::runtime {

/// `needed`: the client's callers wait in ways that the engine does not see, and connections must
/// go on meanwhile. From then on XSOCK_PROGRESS=app is taken as `both`, for all clients.
enum class Threads { as_configured, needed };

/// The device of this process, made on first use and never destroyed (other threads may still be
/// in it at exit); a forked child makes its own. Null with errno when there can be none.
Device* device(Threads threads = Threads::as_configured) noexcept;

/// XSOCK_*, as read when the device was made.
/// @pre device() was not null in this process
const TransportConfig& config() noexcept;

/// Sends what is queued on all connections of this process, for at most `timeout_ms` (negative: as
/// long as exit() waits). Ends none. Does nothing without a device.
void flush(int timeout_ms) noexcept;

/// The process ends: ends all connections in good order and sends what is queued, for as long as
/// exit() waits. Does nothing without a device.
void drain() noexcept;

/// Another thread has called exit(), quick_exit() or _exit(), and drain() has begun.
bool ends_elsewhere() noexcept;

/// exit() was called by a signal handler that interrupted this thread while it moved bytes: what it
/// held then is never given back. drain() does nothing, and nothing else that asks connections may
/// be tried.
bool interrupted() noexcept;

/// Called by exit() and quick_exit() behind the last sending, whenever the device was made. Once
/// for each handler; static storage; throws std::bad_alloc.
void call_at_exit(void (*handler)());

}  // namespace xsock::runtime
