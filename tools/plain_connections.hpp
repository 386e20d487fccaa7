// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The TCP connections of this user's programs that are not carried, for `xsock stat --all`: the
// reason is what the program has published (base/plain_socket.hpp); which socket still exists, and
// its addresses, is what the kernel says in /proc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/plain_socket.hpp"

namespace xsock::tools {

struct ProcessStats;

/// Of the page of a process, as it was read.
struct PublishedPlain {
    std::uint64_t inode = 0;
    std::uint32_t since = 0;  ///< seconds of CLOCK_REALTIME
    PlainReason reason = PlainReason::none;
    PlainRole role = PlainRole::client;
};

struct PlainConnection {
    std::uint32_t since = 0;  ///< 0: not known
    PlainReason reason = PlainReason::unseen;
    PlainRole role = PlainRole::client;
    const char* state = "";  ///< TCP's, static storage
    std::string local, peer;
};

/// Adds to each process its own; a process that publishes nothing but has such a connection (it was
/// forked by one that does, or was given the socket) is added. `folders` are those that `processes`
/// were read from. A connection that several processes have is the first one's.
void find_plain_connections(const std::vector<std::string>& folders,
                            std::vector<ProcessStats>& processes);

/// A line of /proc/net/tcp or tcp6.
struct TcpLine {
    std::string local, peer;  ///< "127.0.0.1:80", "[::1]:80", as in the statistics
    unsigned state = 0;       ///< TCP_ESTABLISHED ...
    std::uint64_t inode = 0;
};
/// False: it is no such line.
[[nodiscard]] bool parse_tcp_line(const char* line, TcpLine& out);

}  // namespace xsock::tools
