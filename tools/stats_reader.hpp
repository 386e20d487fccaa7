// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reads the pages that the user's processes publish (base/stats_page.hpp). Nothing in them is
// trusted: sizes are checked against the file's, text is bounded, a file that shrinks under us is
// a file that cannot be read. Pages of processes that are gone are removed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stats_page.hpp"
#include "tools/plain_connections.hpp"

namespace xsock::tools {

struct ConnectionStats {
    std::uint32_t slot = 0;
    std::uint64_t tx_bytes = 0, rx_bytes = 0;
    Counters counters;
    StreamCounters stream;
    std::uint64_t placed_early = 0;  ///< by the kernel module, bytes
    StatsDescription description;    // text is NUL-terminated
};

struct ProcessStats {
    std::uint32_t pid = 0;
    bool foreign = false;  ///< of another pid namespace: whether it still runs is not known here
    std::string program, library;
    std::uint64_t opened_ns = 0;
    std::uint64_t connections_ever = 0, unlisted = 0, startups_dropped = 0, plain_unlisted = 0;
    std::uint64_t unpinned[kernel::kUnpinnedReasons]{};  ///< regions, by kernel::Unpinned
    std::vector<ConnectionStats> connections;
    std::vector<PublishedPlain> published;  ///< perhaps of sockets that are closed
    std::vector<PlainConnection> plain;     ///< of find_plain_connections()
};

/// Every process that publishes in `folders`, by pid. What could not be read goes to `errors`,
/// a sentence each.
[[nodiscard]] std::vector<ProcessStats> read_stats(const std::vector<std::string>& folders,
                                                   std::vector<std::string>& errors);

/// "endpoint", "message", "stream", "verbs"; "?" for anything else. Static storage.
[[nodiscard]] const char* api_name(std::uint8_t api);
/// What the connection's data go by: "sdp" for byte streams, else "iwarp". Static storage.
[[nodiscard]] const char* wire_name(std::uint8_t api);
/// What carries the data: "tcp" or "shm"; "?" for what is no DataPath.
[[nodiscard]] const char* path_name(std::uint8_t path);
/// "established" and so on; "?" for what is no QpState.
[[nodiscard]] const char* state_name(std::uint8_t state);

/// Messages of like kinds together.
struct Operations {
    std::uint64_t sends = 0, writes = 0, reads = 0, read_responses = 0, atomics = 0, immediates = 0,
                  terminates = 0;
};
/// Of one direction: Counters::tx_messages or rx_messages.
[[nodiscard]] Operations operations(const std::uint64_t (&messages)[16]);

}  // namespace xsock::tools
