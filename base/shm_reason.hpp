// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Why the data of a connection go over TCP and not through shared memory: a number in the extension
// frame of the initiator (docs/wire.md), a name in all that is shown (docs/troubleshooting.md).
#pragma once

#include <cstdint>

namespace xsock::shm {

/// Why a connection does not use shared memory. Its number travels, its name is shown.
enum class Reason : std::uint8_t {
    none,
    off,             ///< a setting says so
    capture,         ///< what is in memory cannot be captured
    markers,         ///< the program asked for a wire format
    remote,          ///< the peer is not on this host
    addresses,       ///< something between changes them: NAT, a proxy
    unreachable,     ///< the peer's name is in another network namespace, or gone
    user,            ///< the peer is another user's
    version,         ///< of the layout
    limits,          ///< descriptors, memory or slots have run out
    timeout,         ///< the peer did not say ok in time
    kernel,          ///< the kernel module was required
    extensions_off,  ///< there are no extension frames
    peer_off,        ///< the peer has not offered, or not answered: a setting, or an older xsock
    kCount
};
/// E.g. "extensions-off"; of a number that we do not know "unknown". Static storage.
[[nodiscard]] const char* name_of(Reason reason) noexcept;

}  // namespace xsock::shm
