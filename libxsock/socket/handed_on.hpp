// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A started byte stream belongs to the process that started it. Uses that would hand it to another
// one (docs/overlay.md, "Processes") are refused; here they are counted and told of. Any thread.
#pragma once

#include "base/ip_address.hpp"

namespace xsock::sockets {

/// `fd`: the program's number of the connection, or -1; `peer`: of one that this program, or its
/// parent, has connected, else with port 0. The first one of a process is told by a line in the
/// log, with the line of the policy that keeps such connections plain.
void note_refused(int fd, const IpEndpoint& peer) noexcept;

/// In this process. Async-signal-safe.
[[nodiscard]] unsigned long refused_uses() noexcept;

}  // namespace xsock::sockets
