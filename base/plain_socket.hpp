// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Why a TCP socket of a program is not carried: the reasons, which logs, summaries and `xsock stat
// --all` call by the same codes (docs/troubleshooting.md), and the record that a process publishes
// of such a socket (base/stats_page.hpp).
#pragma once

#include <cstdint>

namespace xsock {

enum class PlainReason : std::uint8_t {
    none,  ///< of a listener: it takes byte streams
    policy_tcp,
    unknown_peer,
    not_mpa,
    server_first,
    eof,
    slow,
    no_watch,
    async,
    off,
    fast_open,
    // What a reader calls sockets without a record.
    undecided,
    unseen,
    kCount
};

/// "policy-tcp"; "" of none and of what is no reason. Static storage.
[[nodiscard]] const char* plain_reason_code(PlainReason reason) noexcept;
/// A clause in words. Static storage.
[[nodiscard]] const char* plain_reason_text(PlainReason reason) noexcept;
/// none: no code of a reason.
[[nodiscard]] PlainReason plain_reason_of(const char* code) noexcept;

enum class PlainRole : std::uint8_t { client, server, listener };

/// Written once, when the program's socket has turned out to be plain, at the place of its
/// descriptor, and not taken back at close(): the inode tells readers whether the process still
/// has that socket.
struct PlainRecord {
    std::uint64_t inode;  ///< of the socket; 0: none. Stored last. As the rest, accessed atomically
    std::uint32_t since;  ///< seconds of CLOCK_REALTIME
    std::uint8_t reason;  ///< PlainReason
    std::uint8_t role;    ///< PlainRole
    std::uint8_t reserved[2];
};
static_assert(sizeof(PlainRecord) == 16);

}  // namespace xsock
