// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Vocabulary of the benchmark. A sample is one run of two fresh processes, a server and a client.
// An experiment takes samples of several variants (plain TCP first) in turn, round by round, so
// that a slow minute of the machine hits all of them. A row of the table compares two variants
// within each round.
#pragma once

#include <array>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

namespace xsock::bench {

/// What one sample yields; each experiment says which place holds what.
using Figures = std::array<double, 4>;

/// Everything that both processes of a sample are told.
struct Run {
    double seconds = 0.4;  ///< timed part; a quarter of it is spent before, to warm up
    unsigned depth = 1;    ///< outstanding operations
    unsigned connections = 1;
    bool one_cpu = false;  ///< both processes on the same one
    std::string server_address = "127.0.0.1";
    std::string server_netns;  ///< name of a network namespace, "" for our own
    std::string client_netns;
};

class Child;
using Side = void(Child&, const Run&);
using Body = Side*;

struct Variant {
    const char* name;
    Body server;
    Body client;                       ///< the one that reports the Figures
    const char* spin_us = nullptr;     ///< XSOCK_SPIN_US for both processes, or the default
    const char* shm = nullptr;         ///< XSOCK_SHM for both, or what is set already
    const char* fpdu_limit = nullptr;  ///< XSOCK_FPDU_LIMIT for both, or what is set already
    bool is_tcp = false;
};

inline Variant tcp(Body server, Body client) {
    return {.name = "tcp", .server = server, .client = client, .is_tcp = true};
}

enum class Better { lower, higher };

struct Row {
    const char* name;
    const char* what;    ///< one sentence for the reader
    std::size_t figure;  ///< index into Figures
    const char* unit;
    Better better;
    std::size_t subject;  ///< index of a variant
    std::size_t base;     ///< another; kNone: the figure itself is judged
    double limit;         ///< 0: shown without a verdict, unless
    double aim;
    bool zero = false;  ///< the figure must be 0
    static constexpr std::size_t kNone = ~std::size_t{0};
};

struct Experiment {
    const char* name;
    std::vector<Variant> variants;
    std::vector<Row> rows;
    unsigned depth = 1;
    unsigned connections = 1;
    unsigned descriptors = 1;  ///< of each connection, where it takes most
    bool one_cpu = false;      ///< both processes on the same one
    unsigned mtu = 0;          ///< not 0: over veth between two network namespaces
    bool quick = false;        ///< part of --quick
    int timeout_s = 20;        ///< a sample that takes longer has hung
};

/// All rows there are, in the order of the table.
std::vector<Experiment> all_experiments();
/// The last of them, which same_host.sh measures.
std::vector<Experiment> same_host_experiments();

inline std::int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
    timespec t{};
    clock_gettime(clock, &t);
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// CPU time of this process, all threads, user and system.
inline std::int64_t cpu_ns() { return now_ns(CLOCK_PROCESS_CPUTIME_ID); }

inline std::int64_t to_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

inline double warm_up_seconds(const Run& run) { return run.seconds / 4; }

// The measured bodies, by file.
namespace latency {
Side tcp_poll_server, tcp_poll_client, tcp_block_server, tcp_block_client, message_poll_server,
    message_poll_client, message_block_server, message_block_client, send_poll_server,
    send_poll_client, send_block_server, send_block_client, write_poll_server, write_poll_client,
    write_block_server, write_block_client, read_server, read_client;
}  // namespace latency
namespace large {
Side tcp_server, tcp_client, tcp_read_server, tcp_read_client, send_server, send_client,
    write_server, write_client, read_server, read_client, reads_server, reads_client;
}  // namespace large
namespace event {
Side tcp_poll_server, tcp_poll_client, tcp_epoll_server, tcp_epoll_client, tcp_block_server,
    tcp_block_client, message_epoll_server, message_epoll_client, queue_server, queue_client,
    verbs_poll_server, verbs_poll_client, verbs_epoll_server, verbs_epoll_client,
    verbs_block_server, verbs_block_client;
}  // namespace event
namespace stream {
Side tcp_server, tcp_client, message_server, message_client, write_server, write_client;
}  // namespace stream
namespace byte_stream {
Side tcp_rate_server, tcp_rate_client, rate_server, rate_client, tcp_nodelay_server,
    tcp_nodelay_client, nodelay_server, nodelay_client, tcp_echo_server, tcp_echo_client,
    stream_echo_server, stream_echo_client, tcp_polling_server, tcp_polling_client, polling_server,
    polling_client, tcp_large_server, tcp_large_client, large_server, large_client;
}  // namespace byte_stream
namespace idle_streams {
Side memory_server, memory_client, cpu_server, cpu_client;
}  // namespace idle_streams
namespace rate {
Side tcp_block_server, tcp_poll_server, tcp_client, send_server, send_client;
}  // namespace rate
namespace memory {
Side register_server, register_client, idle_server, idle_client;
}  // namespace memory
namespace many_connections {
Side tcp_server, tcp_client, stream_server, stream_client, echo_server, echo_client;
}  // namespace many_connections
namespace processes {
Side tcp_client, echo_client;  // beside many_connections' servers
}  // namespace processes
namespace same_host {
Side beside_writes_server, beside_writes_client, beside_idle_server, beside_idle_client,
    startup_server, startup_client, memory_server, memory_client, two_copies_server,
    two_copies_client;
}  // namespace same_host

}  // namespace xsock::bench
