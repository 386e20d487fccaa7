// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Rows of two processes that share memory (XSOCK_SHM=require: a sample that went over TCP fails),
// beside plain TCP. The bodies are those of the other rows.
#include "bench/bench.hpp"

namespace xsock::bench {
namespace same_host {
namespace {

using enum Better;

Variant memory(const char* name, Body server, Body client, const char* spin_us = nullptr) {
    return {.name = name, .server = server, .client = client, .spin_us = spin_us, .shm = "require"};
}

Experiment polling(const char* name, const char* what, Body server, Body client, std::size_t figure,
                   double limit, double aim) {
    return {.name = name,
            .variants = {tcp(latency::tcp_poll_server, latency::tcp_poll_client),
                         memory("memory", server, client)},
            .rows = {{name, what, figure, "us", lower, 1, 0, limit, aim}}};
}

Experiment blocking() {
    using namespace latency;
    return {
        .name = "shm_lat_64_block",
        .variants = {tcp(tcp_block_server, tcp_block_client),
                     memory("polling", message_poll_server, message_poll_client),
                     memory("blocking", message_block_server, message_block_client),
                     memory("blocking, no spin", send_block_server, send_block_client, "0")},
        .rows = {{"shm_message_lat_64_block",
                  "64 B send() and recv() on sockets in DDPMODE through shared memory, one way; "
                  "against the same with MSG_DONTWAIT.",
                  0, "us", lower, 2, 1, 1.3, 1.1},
                 {"shm_send_lat_64_block_nospin",
                  "64 B Send, one way, both sides in xsock_cq_wait() with XSOCK_SPIN_US=0; "
                  "against TCP, both sides blocking in recv().",
                  0, "us", lower, 3, 0, 1.05, 0.9}}};
}

Experiment message_rate(const char* name, const char* what, unsigned depth, double limit,
                        double aim) {
    using namespace rate;
    return {
        .name = name,
        .variants = {tcp(tcp_block_server, tcp_client), memory("memory", send_server, send_client)},
        .rows = {{name, what, 0, "M/s", higher, 1, 0, limit, aim}},
        .depth = depth};
}

Experiment write_bandwidth() {
    using namespace stream;
    return {
        .name = "shm_write_bw_1m",
        .variants = {tcp(tcp_server, tcp_client), memory("memory", write_server, write_client)},
        .rows = {{"shm_write_bw_1m",
                  "1 MiB Writes, 8 outstanding, both sides waiting; against TCP with 256 KiB "
                  "send() and recv().",
                  0, "GB/s", higher, 1, 0, 1.0, 2.0},
                 {"shm_cpu_per_gib", "CPU seconds of both processes for each GiB of the row above.",
                  1, "s/GiB", lower, 1, 0, 1.0, 0.7}}};
}

Experiment message_bandwidth() {
    using namespace stream;
    return {
        .name = "shm_message_bw_1m",
        .variants = {tcp(tcp_server, tcp_client), memory("memory", message_server, message_client)},
        .rows = {{"shm_message_bw_1m",
                  "1 MiB messages on sockets in DDPMODE; against TCP with 256 KiB send() and "
                  "recv().",
                  0, "GB/s", higher, 1, 0, 1.1, 1.5}}};
}

Variant xsock_on_tcp(const char* name, Body server, Body client) {
    return {.name = name, .server = server, .client = client, .shm = "off"};
}

Experiment against_two_copies() {
    using namespace stream;
    return {.name = "shm_write_bw_copies",
            .variants = {{"two copies", two_copies_server, two_copies_client},
                         memory("memory", write_server, write_client)},
            .rows = {{"shm_write_bw_copies",
                      "1 MiB Writes, 8 outstanding; against a bare ring of 1 MiB with two copies, "
                      "both sides polling.",
                      0, "GB/s", higher, 1, 0, 0.8, 0.95}}};
}

Experiment tail_beside_writes() {
    return {.name = "shm_p99_beside_writes",
            .variants = {xsock_on_tcp("xsock on TCP", beside_writes_server, beside_writes_client),
                         memory("memory", beside_writes_server, beside_writes_client)},
            .rows = {{"shm_p99_beside_writes",
                      "99th percentile of a 64 B Send, one way, beside 1 MiB Writes on another "
                      "connection of the same processes, all polling; against xsock on TCP.",
                      1, "us", lower, 1, 0, 1.0, 0.3}}};
}

Experiment ten_thousand() {
    using namespace many_connections;
    return {.name = "shm_conn_10k",
            .variants = {tcp(tcp_server, tcp_client), memory("memory", echo_server, echo_client)},
            .rows = {{"shm_conn_10k",
                      "64 B echoes, 64 under way on random ones of 10,000 connections, one "
                      "completion queue and one shared receive queue a process; against TCP "
                      "with epoll.",
                      0, "k/s", higher, 1, 0, 2, 3}},
            .depth = 64,
            .connections = 10'000,
            .descriptors = 2,
            .timeout_s = 90};
}

Experiment thousand_processes() {
    return {.name = "shm_processes_1k",
            .variants = {tcp(many_connections::tcp_server, processes::tcp_client),
                         memory("memory", many_connections::echo_server, processes::echo_client)},
            .rows = {{"shm_processes_1k",
                      "64 B echoes of 1,000 processes, each with one connection to the same "
                      "server and one echo under way, asleep until it comes; against TCP, where "
                      "the server has epoll.",
                      0, "k/s", higher, 1, 0, 1, 1.5}},
            .depth = 1000,
            .connections = 1000,
            .descriptors = 4,  // links take a quarter of RLIMIT_NOFILE
            .timeout_s = 90};
}

Experiment beside_idle() {
    return {.name = "shm_beside_10k_idle",
            .variants = {memory("alone", latency::send_poll_server, latency::send_poll_client),
                         memory("memory", beside_idle_server, beside_idle_client)},
            .rows = {{"shm_beside_10k_idle",
                      "Median of a 64 B Send, one way, both sides polling, beside 10,000 idle "
                      "connections between the same processes; against the same without them.",
                      0, "us", lower, 1, 0, 1.05, 1}},
            .connections = 10'000,
            .descriptors = 2,
            .timeout_s = 90};
}

Experiment start_up() {
    return {.name = "shm_startup",
            .variants = {{"memory", startup_server, startup_client, nullptr, "auto"}},
            .rows = {{"shm_startup_first",
                      "CPU time of both processes for their first connection through shared "
                      "memory, above that of one over TCP.",
                      0, "us", lower, 0, Row::kNone, 200, 100},
                     {"shm_startup_later", "The same for each of 1,000 later ones.", 1, "us", lower,
                      0, Row::kNone, 5, 2}},
            .connections = 1000};
}

Experiment memory_above_tcp() {
    return {.name = "shm_memory",
            .variants = {{"memory", memory_server, memory_client, nullptr, "auto"}},
            .rows = {{"shm_idle_end",
                      "Bytes of an idle end above one over TCP, of the heavier process, over "
                      "2,000 connections; both count the slots that they share.",
                      0, "B", lower, 0, Row::kNone, 256, 128},
                     {"shm_link_memory",
                      "Memory and page tables of both processes for a link, shared pages once; "
                      "without some 7 KiB of the kernel's objects.",
                      1, "KiB", lower, 0, Row::kNone, 41, 25}},
            .connections = 2000};
}

}  // namespace
}  // namespace same_host

std::vector<Experiment> same_host_experiments() {
    using namespace latency;
    return {
        same_host::polling("shm_send_lat_64_poll",
                           "Median of a 64 B Send through shared memory, one way, both sides in "
                           "xsock_cq_poll(); against TCP with MSG_DONTWAIT.",
                           send_poll_server, send_poll_client, 0, 0.12, 0.08),
        same_host::polling(
            "shm_write_lat_64_poll",
            "Median of a 64 B Write, one way, both sides watching the last byte while they "
            "call xsock_cq_poll(); against the same TCP.",
            write_poll_server, write_poll_client, 0, 0.12, 0.08),
        same_host::polling(
            "shm_read_lat_64",
            "Median of a whole 64 B RDMA Read, both sides polling; against a TCP round trip.",
            read_server, read_client, 2, 0.13, 0.09),
        same_host::polling(
            "shm_message_lat_64_poll",
            "64 B send() and recv(MSG_DONTWAIT) on sockets in DDPMODE, one way; against the "
            "same calls on TCP.",
            message_poll_server, message_poll_client, 0, 0.18, 0.12),
        same_host::blocking(),
        same_host::message_rate(
            "shm_rate_64_16",
            "64 B Sends, each posted by a call of its own, 16 outstanding, receiver in "
            "xsock_cq_wait(); against one TCP send() each, receiver blocking in recv().",
            16, 15, 35),
        same_host::message_rate("shm_rate_64_256", "The same, 256 outstanding.", 256, 25, 60),
        same_host::write_bandwidth(),
        same_host::against_two_copies(),
        same_host::message_bandwidth(),
        same_host::tail_beside_writes(),
        same_host::ten_thousand(),
        same_host::thousand_processes(),
        same_host::beside_idle(),
        same_host::start_up(),
        same_host::memory_above_tcp(),
    };
}

}  // namespace xsock::bench
