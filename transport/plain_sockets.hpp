// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Publishes why a socket of the program is not carried, for `xsock stat --all`. The record lies in
// the same page as the statistics of connections (transport/stats.cpp).
#pragma once

#include "base/plain_socket.hpp"

namespace xsock {

/// `fd`, the program's number for it, has turned out to be plain; a listener with
/// PlainReason::none takes byte streams. One fstat(); nothing where nothing is published
/// (XSOCK_STAT=off). The record goes when the number gets another one; readers leave it out as soon
/// as the process has no such socket any more. errno stays. Any thread, not in a signal handler.
void note_plain_socket(int fd, PlainReason reason, PlainRole role) noexcept;

/// Of a process that ends without exit(): its page goes. Any thread, also in a signal handler.
void remove_stats_page() noexcept;

}  // namespace xsock
