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
    std::string server_address = "127.0.0.1";
    std::string server_netns;  ///< name of a network namespace, "" for our own
    std::string client_netns;
};

class Child;
using Body = void (*)(Child&, const Run&);

struct Variant {
    const char* name;
    Body server;
    Body client;                    ///< the one that reports the Figures
    const char* spin_us = nullptr;  ///< XSOCK_SPIN_US for both processes, or the default
    bool is_tcp = false;
};

enum class Better { lower, higher };

struct Row {
    const char* name;
    const char* what;    ///< one sentence for the reader
    std::size_t figure;  ///< index into Figures
    const char* unit;
    Better better;
    std::size_t subject;  ///< index of a variant
    std::size_t base;     ///< another; kNone: the figure itself is judged
    double must;          ///< 0: shown without a verdict
    double aim;
    static constexpr std::size_t kNone = ~std::size_t{0};
};

struct Experiment {
    const char* name;
    std::vector<Variant> variants;
    std::vector<Row> rows;
    unsigned depth = 1;
    unsigned connections = 1;
    unsigned mtu = 0;    ///< not 0: over veth between two network namespaces
    bool quick = false;  ///< part of --quick
    int timeout_s = 20;  ///< a sample that takes longer has hung
};

/// All rows there are, in the order of the table.
std::vector<Experiment> all_experiments();

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
void tcp_poll_server(Child&, const Run&);
void tcp_poll_client(Child&, const Run&);
void tcp_block_server(Child&, const Run&);
void tcp_block_client(Child&, const Run&);
void message_poll_server(Child&, const Run&);
void message_poll_client(Child&, const Run&);
void message_block_server(Child&, const Run&);
void message_block_client(Child&, const Run&);
void send_poll_server(Child&, const Run&);
void send_poll_client(Child&, const Run&);
void send_block_server(Child&, const Run&);
void send_block_client(Child&, const Run&);
void write_poll_server(Child&, const Run&);
void write_poll_client(Child&, const Run&);
void write_block_server(Child&, const Run&);
void write_block_client(Child&, const Run&);
void read_server(Child&, const Run&);
void read_client(Child&, const Run&);
}  // namespace latency
namespace event {
void tcp_poll_server(Child&, const Run&);
void tcp_poll_client(Child&, const Run&);
void tcp_epoll_server(Child&, const Run&);
void tcp_epoll_client(Child&, const Run&);
void tcp_block_server(Child&, const Run&);
void tcp_block_client(Child&, const Run&);
void message_epoll_server(Child&, const Run&);
void message_epoll_client(Child&, const Run&);
void queue_server(Child&, const Run&);
void queue_client(Child&, const Run&);
void verbs_poll_server(Child&, const Run&);
void verbs_poll_client(Child&, const Run&);
void verbs_epoll_server(Child&, const Run&);
void verbs_epoll_client(Child&, const Run&);
void verbs_block_server(Child&, const Run&);
void verbs_block_client(Child&, const Run&);
}  // namespace event
namespace stream {
void tcp_server(Child&, const Run&);
void tcp_client(Child&, const Run&);
void message_server(Child&, const Run&);
void message_client(Child&, const Run&);
void write_server(Child&, const Run&);
void write_client(Child&, const Run&);
}  // namespace stream
namespace rate {
void tcp_block_server(Child&, const Run&);
void tcp_poll_server(Child&, const Run&);
void tcp_client(Child&, const Run&);
void send_server(Child&, const Run&);
void send_client(Child&, const Run&);
}  // namespace rate
namespace memory {
void register_server(Child&, const Run&);
void register_client(Child&, const Run&);
void idle_server(Child&, const Run&);
void idle_client(Child&, const Run&);
}  // namespace memory
namespace many_connections {
void tcp_server(Child&, const Run&);
void tcp_client(Child&, const Run&);
void echo_server(Child&, const Run&);
void echo_client(Child&, const Run&);
}  // namespace many_connections

}  // namespace xsock::bench
