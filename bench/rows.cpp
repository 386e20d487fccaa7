// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The table: what is compared with what, and what must hold.
#include "bench/bench.hpp"

namespace xsock::bench {
namespace {

using enum Better;

Experiment polling_latency(const char* name, const char* what, Body server, Body client) {
    return {.name = name,
            .variants = {tcp(latency::tcp_poll_server, latency::tcp_poll_client),
                         {.name = "xsock", .server = server, .client = client}},
            .rows = {{name, what, 0, "us", lower, 1, 0, 1.10, 1.03}},
            .quick = true};
}

Experiment message_latency_polling() {
    Experiment e = polling_latency("message_lat_64_poll",
                                   "64 B send() and recv(MSG_DONTWAIT) on sockets in DDPMODE, one "
                                   "way; against the same calls on TCP.",
                                   latency::message_poll_server, latency::message_poll_client);
    e.rows[0].limit = 1.15;
    e.rows[0].aim = 1.05;
    e.quick = false;
    return e;
}

Experiment read_latency() {
    Experiment e =
        polling_latency("read_lat_64",
                        "Median of a whole 64 B RDMA Read, initiator polling, target's process in "
                        "xsock_cq_poll(); against a TCP round trip, both sides polling.",
                        latency::read_server, latency::read_client);
    e.rows[0].figure = 2;
    e.rows[0].limit = 1.15;
    e.rows[0].aim = 1.04;
    return e;
}

Experiment blocking_latency() {
    using namespace latency;
    return {.name = "lat_64_block",
            .variants = {tcp(tcp_block_server, tcp_block_client),
                         {"xsock, default spin", send_block_server, send_block_client},
                         {"xsock, no spin", send_block_server, send_block_client, "0"},
                         {"xsock, default spin", write_block_server, write_block_client},
                         {"xsock, no spin", write_block_server, write_block_client, "0"}},
            .rows = {{"send_lat_64_block",
                      "64 B Send one way, both sides in xsock_cq_wait(), which spins as long as it "
                      "finds that worth while; against TCP, both sides blocking in recv().",
                      0, "us", lower, 1, 0, 1.05, 1.01},
                     {"send_lat_64_block_nospin", "The same with XSOCK_SPIN_US=0: asleep at once.",
                      0, "us", lower, 2, 0, 1.05, 1.01},
                     {"write_lat_64_block",
                      "64 B Write and an empty Send that wakes the target, one way, both sides in "
                      "xsock_cq_wait(); against TCP, both sides blocking in recv().",
                      0, "us", lower, 3, 0, 1.05, 1.01},
                     {"write_lat_64_block_nospin", "The same with XSOCK_SPIN_US=0.", 0, "us", lower,
                      4, 0, 1.05, 1.01}}};
}

Experiment event_latency() {
    using namespace event;
    Experiment e{
        .name = "event_lat_64",
        .variants = {tcp(tcp_epoll_server, tcp_epoll_client),
                     tcp(tcp_poll_server, tcp_poll_client),
                     tcp(tcp_block_server, tcp_block_client),
                     {"DDPMODE", message_epoll_server, message_epoll_client},
                     {"xsock_cq_fd", queue_server, queue_client}},
        .rows = {{"event_lat_64_message",
                  "64 B there and back, both sides asleep in epoll_wait() on a socket in "
                  "DDPMODE; against TCP in epoll_wait().",
                  0, "us", lower, 3, 0, 1.3, 1.1},
                 {"event_cpu_64_message",
                  "CPU time of both processes for each round trip of the row above.", 1, "us",
                  lower, 3, 0, 0, 0},
                 {"event_lat_64_cq_fd", "The same, asleep on xsock_cq_fd().", 0, "us", lower, 4, 0,
                  1.5, 1.1},
                 {"event_cpu_64_cq_fd", "CPU time of the row above.", 1, "us", lower, 4, 0, 0, 0}}};
#ifdef XSOCK_BENCH_VERBS
    e.variants.insert(e.variants.end(),
                      {{"verbs, poll", verbs_poll_server, verbs_poll_client},
                       {"verbs, epoll", verbs_epoll_server, verbs_epoll_client},
                       {"verbs, ibv_get_cq_event", verbs_block_server, verbs_block_client},
                       {"the same, no spin", verbs_block_server, verbs_block_client, "0"}});
    e.rows.insert(
        e.rows.end(),
        {{"event_lat_64_verbs_poll",
          "64 B there and back by ibv_post_send(), both sides asleep in poll() on a completion "
          "channel; against TCP in poll().",
          0, "us", lower, 5, 1, 1.5, 1.1},
         {"event_cpu_64_verbs_poll", "CPU time of the row above.", 1, "us", lower, 5, 1, 0, 0},
         {"event_lat_64_verbs_epoll", "The same in epoll_wait(); against TCP in epoll_wait().", 0,
          "us", lower, 6, 0, 1.5, 1.1},
         {"event_cpu_64_verbs_epoll", "CPU time of the row above.", 1, "us", lower, 6, 0, 0, 0},
         {"event_lat_64_verbs_block",
          "The same in a blocking ibv_get_cq_event(), which polls for a moment before it sleeps; "
          "against TCP in recv().",
          0, "us", lower, 7, 2, 1.5, 1.1},
         {"event_cpu_64_verbs_block", "CPU time of the row above.", 1, "us", lower, 7, 2, 0, 0},
         {"event_lat_64_verbs_block_nospin", "The same with XSOCK_SPIN_US=0.", 0, "us", lower, 8, 2,
          1.5, 1.1},
         {"event_cpu_64_verbs_block_nospin", "CPU time of the row above.", 1, "us", lower, 8, 2, 0,
          0}});
#endif
    return e;
}

Experiment write_bandwidth() {
    return {.name = "write_bw_1m",
            .variants = {tcp(stream::tcp_server, stream::tcp_client),
                         {"xsock", stream::write_server, stream::write_client}},
            .rows = {{"write_bw_1m",
                      "1 MiB Writes, 8 outstanding, CRC on, confirmed by a Send, both sides "
                      "waiting, loopback; against TCP with 256 KiB send() and recv().",
                      0, "GB/s", higher, 1, 0, 0.85, 1.00},
                     {"cpu_per_gib",
                      "CPU seconds, user and system, of both processes for each GiB of the row "
                      "above.",
                      1, "s/GiB", lower, 1, 0, 1.4, 1.1}},
            .quick = true};
}

Experiment large_latency() {
    using namespace large;
    return {
        .name = "lat_64k",
        .variants = {tcp(tcp_server, tcp_client),
                     tcp(tcp_read_server, tcp_read_client),
                     {"Send", send_server, send_client},
                     {"Write", write_server, write_client},
                     {"Read", read_server, read_client}},
        .rows = {{"send_lat_64k",
                  "A 64 KiB Send there and a 64 B one back, both sides in xsock_cq_poll(), one at "
                  "a time; against the same by TCP with MSG_DONTWAIT.",
                  2, "us", lower, 2, 0, 1.2, 1.05},
                 {"write_lat_64k", "The same with a 64 KiB Write and a 64 B Send there.", 2, "us",
                  lower, 3, 0, 1.2, 1.05},
                 {"read_lat_64k",
                  "A 64 KiB Read, initiator polling, target's process in xsock_cq_poll(); against "
                  "64 B there and 64 KiB back by TCP.",
                  2, "us", lower, 4, 1, 1.15, 1.05}}};
}

Experiment read_bandwidth() {
    return {.name = "read_bw_1m",
            .variants = {{"Writes", stream::write_server, stream::write_client},
                         {"Reads", large::reads_server, large::reads_client}},
            .rows = {{"read_bw_1m",
                      "1 MiB Reads, 8 outstanding, CRC on, initiator waiting, loopback; against "
                      "1 MiB Writes.",
                      0, "GB/s", higher, 1, 0, 0.9, 1.0}}};
}

Experiment message_latency_blocking() {
    using namespace latency;
    return {.name = "message_lat_64_block",
            .variants = {tcp(tcp_block_server, tcp_block_client),
                         {"message, default spin", message_block_server, message_block_client},
                         {"message, no spin", message_block_server, message_block_client, "0"}},
            .rows = {{"message_lat_64_block",
                      "64 B send() and recv() on blocking sockets in DDPMODE, one way; against the "
                      "same calls on TCP.",
                      0, "us", lower, 1, 0, 1.15, 1.05},
                     {"message_lat_64_block_nospin", "The same with XSOCK_SPIN_US=0.", 0, "us",
                      lower, 2, 0, 1.15, 1.05}}};
}

Experiment message_latency_one_cpu() {
    using namespace latency;
    return {.name = "message_lat_64_one_cpu",
            .variants = {tcp(tcp_block_server, tcp_block_client),
                         {"message", message_block_server, message_block_client}},
            .rows = {{"message_lat_64_one_cpu",
                      "message_lat_64_block with both processes on the same processor.", 0, "us",
                      lower, 1, 0, 1.3, 1.1}},
            .one_cpu = true};
}

Experiment message_bandwidth() {
    return {.name = "message_bw_1m",
            .variants = {tcp(stream::tcp_server, stream::tcp_client),
                         {"message", stream::message_server, stream::message_client}},
            .rows = {{"message_bw_1m",
                      "1 MiB messages by send() and recv() on blocking sockets in DDPMODE, CRC on, "
                      "loopback; against TCP with 256 KiB calls.",
                      0, "GB/s", higher, 1, 0, 0.80, 0.95}}};
}

Experiment veth_bandwidth(const char* name, const char* cpu_name, const char* what, unsigned mtu,
                          double limit, double aim) {
    Experiment e = write_bandwidth();
    e.name = name;
    e.rows = {{name, what, 0, "GB/s", higher, 1, 0, limit, aim},
              {cpu_name, "CPU seconds of both processes for each GiB of the row above.", 1, "s/GiB",
               lower, 1, 0, 0, 0}};
    e.mtu = mtu;
    e.quick = false;
    return e;
}

/// What it costs to have a header where each segment starts. 1,442: a segment of 1,448 (MTU 1500,
/// timestamps) without the FPDU's length and CRC.
Experiment segment_fpdus() {
    Experiment e = write_bandwidth();
    const Variant& usual = e.variants[1];
    e.name = "write_bw_veth_1500_segments";
    e.variants.push_back({.name = "FPDUs of a segment",
                          .server = usual.server,
                          .client = usual.client,
                          .fpdu_limit = "1442"});
    e.rows = {{e.name, "write_bw_veth_1500 with FPDUs of a segment; against those of 64 KiB.", 0,
               "GB/s", higher, 2, 1, 0, 0},
              {"cpu_per_gib_veth_1500_segments",
               "CPU seconds of both processes for each GiB of the row above.", 1, "s/GiB", lower, 2,
               1, 0, 0}};
    e.mtu = 1500;
    e.quick = false;
    return e;
}

Experiment message_rate(const char* name, const char* polling_name, const char* what,
                        unsigned depth, double limit, double aim) {
    using namespace rate;
    return {
        .name = name,
        .variants = {tcp(tcp_block_server, tcp_client),
                     tcp(tcp_poll_server, tcp_client),
                     {"xsock", send_server, send_client}},
        .rows = {{name, what, 0, "M/s", higher, 2, 0, limit, aim},
                 {polling_name, "The same against a TCP receiver that polls and so is never woken.",
                  0, "M/s", higher, 2, 1, 0, 0}},
        .depth = depth,
        .quick = true};
}

Experiment stream_rate() {
    using namespace byte_stream;
    return {
        .name = "stream_rate_64",
        .variants = {tcp(tcp_rate_server, tcp_rate_client), {"stream", rate_server, rate_client}},
        .rows = {{"stream_rate_64",
                  "64 B send()s one way on sockets in DDPMODE_STREAM, options as they are, "
                  "received by 64 KiB recv()s; against the same program on TCP.",
                  0, "M/s", higher, 1, 0, 10, 14},
                 {"stream_rate_64_cpu", "CPU time of both processes for each of them.", 1, "ns",
                  lower, 1, 0, 0, 0}}};
}

Experiment stream_rate_nodelay() {
    using namespace byte_stream;
    return {.name = "stream_rate_64_nodelay",
            .variants = {tcp(tcp_nodelay_server, tcp_nodelay_client),
                         {"stream", nodelay_server, nodelay_client}},
            .rows = {{"stream_rate_64_nodelay", "The same, both with TCP_NODELAY.", 0, "M/s",
                      higher, 1, 0, 0.8, 1.0}}};
}

Experiment stream_latency() {
    using namespace byte_stream;
    return {.name = "stream_rtt_64",
            .variants = {tcp(tcp_echo_server, tcp_echo_client),
                         {"stream, default spin", stream_echo_server, stream_echo_client},
                         {"stream, no spin", stream_echo_server, stream_echo_client, "0"}},
            .rows = {{"stream_rtt_64",
                      "64 B there and back by blocking send() and recv() on sockets in "
                      "DDPMODE_STREAM; against the same program on TCP.",
                      0, "us", lower, 1, 0, 0.3, 0.1},
                     {"stream_rtt_64_cpu", "CPU time of both processes for each of them.", 1, "us",
                      lower, 1, 0, 1.0, 0.5},
                     {"stream_rtt_64_nospin", "The same with XSOCK_SPIN_US=0.", 0, "us", lower, 2,
                      0, 1.0, 0.9}}};
}

Experiment stream_latency_polling() {
    using namespace byte_stream;
    return {.name = "stream_rtt_64_poll",
            .variants = {tcp(tcp_polling_server, tcp_polling_client),
                         {"stream", polling_server, polling_client}},
            .rows = {{"stream_rtt_64_poll",
                      "The same, both ends in recv(MSG_DONTWAIT); against the same on TCP.", 0,
                      "us", lower, 1, 0, 1.15, 1.08}}};
}

Experiment stream_latency_one_cpu() {
    using namespace byte_stream;
    return {.name = "stream_rtt_64_one_cpu",
            .variants = {tcp(tcp_echo_server, tcp_echo_client),
                         {"stream", stream_echo_server, stream_echo_client}},
            .rows = {{"stream_rtt_64_one_cpu",
                      "stream_rtt_64 with both processes on the same processor.", 0, "us", lower, 1,
                      0, 1.3, 1.1}},
            .one_cpu = true};
}

Experiment stream_idle() {
    return {.name = "stream_idle",
            .variants = {{"stream", idle_streams::cpu_server, idle_streams::cpu_client}},
            .rows = {{"stream_idle_cpu",
                      "Processor time in a second of two processes with 100 connections in "
                      "DDPMODE_STREAM on which nothing happens, one of them in poll().",
                      0, "us", lower, 0, Row::kNone, 0, 0, true},
                     {"stream_idle_switches", "How often a thread of them ran in that second.", 1,
                      "", lower, 0, Row::kNone, 0, 0, true}},
            .connections = 100};
}

Experiment stream_memory() {
    return {.name = "stream_idle_memory",
            .variants = {{"stream", idle_streams::memory_server, idle_streams::memory_client}},
            .rows = {{"stream_idle_memory",
                      "Growth of RssAnon for each of 2,000 connections in DDPMODE_STREAM after a "
                      "64 B echo on each, of the heavier process.",
                      0, "KiB", lower, 0, Row::kNone, 16, 4}},
            .connections = 2000,
            .descriptors = 2,
            .timeout_s = 60};
}

Experiment stream_used_memory() {
    return {.name = "stream_used_memory",
            .variants = {{"stream", idle_streams::memory_server, idle_streams::memory_client}},
            .rows = {{"stream_used_memory",
                      "The same for each of 500 connections after 200 echoes on each, one by one.",
                      0, "KiB", lower, 0, Row::kNone, 16, 4}},
            .depth = 200,
            .connections = 500,
            .descriptors = 2,
            .timeout_s = 60};
}

Experiment stream_ten_thousand() {
    using namespace many_connections;
    return {.name = "stream_conn_10k",
            .variants = {tcp(tcp_server, tcp_client), {"stream", stream_server, stream_client}},
            .rows = {{"stream_conn_10k",
                      "64 B echoes, 64 under way on random ones of 10,000 connections in "
                      "DDPMODE_STREAM, both ends in epoll_wait(); against the same program on TCP.",
                      0, "k/s", higher, 1, 0, 0.7, 0.95}},
            .depth = 64,
            .connections = 10'000,
            .descriptors = 2,
            .timeout_s = 90};
}

Experiment stream_bandwidth() {
    using namespace byte_stream;
    return {
        .name = "stream_bw_1m",
        .variants = {tcp(tcp_large_server, tcp_large_client),
                     {"stream", large_server, large_client}},
        .rows = {{"stream_bw_1m",
                  "1 MiB send()s on sockets in DDPMODE_STREAM, received by 256 KiB recv()s, CRC "
                  "on, loopback; against the same program on TCP.",
                  0, "GB/s", higher, 1, 0, 0.80, 0.95},
                 {"stream_bw_1m_cpu", "CPU seconds of both processes for each GiB.", 1, "s/GiB",
                  lower, 1, 0, 0, 0}}};
}

Experiment stream_bandwidth_veth() {
    Experiment e = stream_bandwidth();
    e.name = "stream_bw_veth_9000";
    e.rows = {{"stream_bw_veth_9000",
               "stream_bw_1m between two network namespaces over veth, MTU 9000, offload on.", 0,
               "GB/s", higher, 1, 0, 0.75, 0.94},
              {"stream_bw_veth_9000_cpu", "CPU seconds of both processes for each GiB.", 1, "s/GiB",
               lower, 1, 0, 0, 0}};
    e.mtu = 9000;
    return e;
}

Experiment registration() {
    return {.name = "register_1g",
            .variants = {{"xsock", memory::register_server, memory::register_client}},
            .rows = {{"register_1g", "xsock_mr_register() of 1 GiB of untouched memory.", 0, "ns",
                      lower, 0, Row::kNone, 1000, 50}}};
}

Experiment idle_memory() {
    return {.name = "idle_memory",
            .variants = {{"xsock", memory::idle_server, memory::idle_client}},
            .rows = {{"idle_memory",
                      "Growth of RssAnon for each of 2,000 connections after a 64 B echo on "
                      "each, of the heavier process.",
                      0, "KiB", lower, 0, Row::kNone, 16, 2}},
            .connections = 2000,
            .timeout_s = 60};
}

Experiment used_memory() {
    return {.name = "used_memory",
            .variants = {{"xsock", memory::idle_server, memory::idle_client}},
            .rows = {{"used_memory",
                      "The same for each of 500 connections after 200 echoes on each, one by one: "
                      "more than its queues are deep.",
                      0, "KiB", lower, 0, Row::kNone, 16, 2}},
            .depth = 200,
            .connections = 500,
            .timeout_s = 60};
}

Experiment ten_thousand() {
    return {.name = "conn_10k",
            .variants = {tcp(many_connections::tcp_server, many_connections::tcp_client),
                         {"xsock", many_connections::echo_server, many_connections::echo_client}},
            .rows = {{"conn_10k",
                      "64 B echoes, 64 under way on random ones of 10,000 connections, one "
                      "completion queue and one shared receive queue a process; against TCP "
                      "with epoll.",
                      0, "k/s", higher, 1, 0, 0.7, 0.95}},
            .depth = 64,
            .connections = 10'000,
            .timeout_s = 90};
}

}  // namespace

std::vector<Experiment> all_experiments() {
    std::vector<Experiment> all = {
        polling_latency("send_lat_64_poll",
                        "Median of a 64 B Send one way (half a ping-pong), both sides in "
                        "xsock_cq_poll(); against TCP with MSG_DONTWAIT.",
                        latency::send_poll_server, latency::send_poll_client),
        polling_latency("write_lat_64_poll",
                        "Median of a 64 B Write one way, both sides watching the last byte "
                        "while they call xsock_cq_poll(); against the same TCP.",
                        latency::write_poll_server, latency::write_poll_client),
        read_latency(),
        blocking_latency(),
        message_latency_polling(),
        message_latency_blocking(),
        message_latency_one_cpu(),
        event_latency(),
        large_latency(),
        write_bandwidth(),
        read_bandwidth(),
        message_bandwidth(),
        veth_bandwidth("write_bw_veth_9000", "cpu_per_gib_veth_9000",
                       "write_bw_1m between two network namespaces over veth, MTU 9000, "
                       "offload on.",
                       9000, 0.80, 0.94),
        veth_bandwidth("write_bw_veth_1500", "cpu_per_gib_veth_1500", "The same with MTU 1500.",
                       1500, 0.65, 0.85),
        segment_fpdus(),
        message_rate("rate_64_16", "rate_64_16_polled",
                     "64 B Sends, each posted by a call of its own, 16 outstanding, receiver in "
                     "xsock_cq_wait(); against one TCP send() each, receiver blocking in recv().",
                     16, 8, 13),
        message_rate("rate_64_256", "rate_64_256_polled", "The same, 256 outstanding.", 256, 30,
                     70),
        stream_rate(),
        stream_rate_nodelay(),
        stream_latency(),
        stream_latency_polling(),
        stream_latency_one_cpu(),
        stream_idle(),
        stream_bandwidth(),
        stream_bandwidth_veth(),
        stream_ten_thousand(),
        stream_memory(),
        stream_used_memory(),
        registration(),
        idle_memory(),
        used_memory(),
        ten_thousand(),
    };
    const std::vector<Experiment> more = same_host_experiments();
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

}  // namespace xsock::bench
