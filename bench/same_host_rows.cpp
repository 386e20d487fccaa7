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
                   double must, double aim) {
    return {.name = name,
            .variants = {tcp(latency::tcp_poll_server, latency::tcp_poll_client),
                         memory("memory", server, client)},
            .rows = {{name, what, figure, "us", lower, 1, 0, must, aim}}};
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

Experiment message_rate(const char* name, const char* what, unsigned depth, double must,
                        double aim) {
    using namespace rate;
    return {
        .name = name,
        .variants = {tcp(tcp_block_server, tcp_client), memory("memory", send_server, send_client)},
        .rows = {{name, what, 0, "M/s", higher, 1, 0, must, aim}},
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
        same_host::message_bandwidth(),
    };
}

}  // namespace xsock::bench
