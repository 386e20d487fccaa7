// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// loss_bench: round trips on a path that loses segments, one at a time, both ends asleep meanwhile.
// 64 bytes there and 64 back, and 1 MiB there (a Write, and a Send that tells of it) and 64 bytes
// back; by plain TCP, by plain TCP with the two timers that xsock sets, by xsock without them, and
// by xsock. The path is made by loss.sh.
//
//   loss_bench NETNS-A NETNS-B ADDRESS-IN-A SECONDS ROUNDS
//
// One line for each sample, comma-separated: operation, variant, round, count, and the 50th, 99th
// and 99.9th percentile in us.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/endpoint.hpp"
#include "bench/socket.hpp"

namespace xsock::bench {
namespace {

constexpr std::uint32_t kSmall = 64;
constexpr std::uint32_t kLarge = 1024 * 1024;
using Note = std::array<std::uint8_t, kSmall>;  // byte 0: 1 in the last one

/// Figures: 0 count, 1 to 3 percentiles in us. Only the last call has true.
template <typename RoundTrip>
Figures time_tails(const Run& run, RoundTrip round_trip) {
    for (int i = 0; i < 20; ++i) round_trip(false);
    std::vector<double> took;
    for (std::int64_t now = now_ns(), end = now + to_ns(run.seconds); now < end;) {
        const std::int64_t before = now;
        round_trip(false);
        now = now_ns();
        took.push_back(static_cast<double>(now - before) / 1e3);
    }
    round_trip(true);
    std::sort(took.begin(), took.end());
    const auto at = [&](double share) {
        return took[static_cast<std::size_t>(share * static_cast<double>(took.size() - 1))];
    };
    return {static_cast<double>(took.size()), at(0.5), at(0.99), at(0.999)};
}

// ---- plain TCP ----

void set_timers(int fd) {
    constexpr int kRtoMinUs = 45, kDelackMaxUs = 46;
    const int ack_us = 8000, rto_us = 12000;
    if (setsockopt(fd, IPPROTO_TCP, kDelackMaxUs, &ack_us, sizeof ack_us) != 0 ||
        setsockopt(fd, IPPROTO_TCP, kRtoMinUs, &rto_us, sizeof rto_us) != 0) {
        fail_errno("TCP_RTO_MIN_US");
    }
}

template <std::uint32_t size, bool timers>
void tcp_server(Child& child, const Run& run) {
    const int fd = tcp_server_socket(child, run);
    if (timers) set_timers(fd);
    std::vector<std::uint8_t> in(size);
    const Note out{};
    do {
        if (!receive_all(fd, in.data(), size, 0)) fail("unexpected end of stream");
        send_all(fd, out.data(), kSmall);
    } while (in[0] != 1);
}

template <std::uint32_t size, bool timers>
void tcp_client(Child& child, const Run& run) {
    const int fd = tcp_client_socket(child, run);
    if (timers) set_timers(fd);
    std::vector<std::uint8_t> out(size);
    Note in{};
    child.report(time_tails(run, [&](bool last) {
        out[0] = last;
        send_all(fd, out.data(), size);
        if (!receive_all(fd, in.data(), kSmall, 0)) fail("unexpected end of stream");
    }));
}

// ---- xsock ----

void post(const Endpoint& end, Note& note) {
    must(xsock_recv(end.ep, 0, note.data(), kSmall), "xsock_recv");
}

void send(const Endpoint& end, const Note& note) {
    must(xsock_send(end.ep, 0, note.data(), kSmall, XSOCK_INLINE | XSOCK_UNSIGNALED), "xsock_send");
}

void server(Child& child, const Run& run) {
    const Endpoint end = server_endpoint(child, run);
    Completions completions(end.cq);
    std::vector<std::uint8_t> target(kLarge);
    Note in{};
    post(end, in);
    share_memory(child, target.data(), kLarge, XSOCK_REMOTE_WRITE);
    child.meet();
    for (bool last = false; !last;) {
        completions.wait();
        last = in[0] == 1;
        post(end, in);
        send(end, Note{});
    }
}

template <bool large>
void client(Child& child, const Run& run) {
    const Endpoint end = client_endpoint(child, run);
    Completions completions(end.cq);
    const xsock_remote target = shared_memory(child);
    const std::vector<std::uint8_t> out(kLarge);
    Note in{}, note{};
    post(end, in);
    child.meet();
    child.report(time_tails(run, [&](bool last) {
        if (large) {
            must(xsock_write(end.ep, 0, out.data(), kLarge, &target, 0, XSOCK_UNSIGNALED),
                 "xsock_write");
        }
        note[0] = last;
        send(end, note);
        completions.wait();
        post(end, in);
    }));
}

struct Subject {
    const char* operation;
    Variant variant;
    const char* short_rto;  ///< XSOCK_SHORT_RTO
};

constexpr Subject kSubjects[] = {
    {"64 B", {"TCP", tcp_server<kSmall, false>, tcp_client<kSmall, false>}, "0"},
    {"64 B", {"TCP with timers", tcp_server<kSmall, true>, tcp_client<kSmall, true>}, "0"},
    {"64 B", {"xsock without", server, client<false>}, "0"},
    {"64 B", {"xsock", server, client<false>}, "1"},
    {"1 MiB", {"TCP", tcp_server<kLarge, false>, tcp_client<kLarge, false>}, "0"},
    {"1 MiB", {"TCP with timers", tcp_server<kLarge, true>, tcp_client<kLarge, true>}, "0"},
    {"1 MiB", {"xsock without", server, client<true>}, "0"},
    {"1 MiB", {"xsock", server, client<true>}, "1"},
};

int measure(const Run& run, int rounds) {
    for (int round = 0; round < rounds && !interrupted(); ++round) {
        for (const Subject& s : kSubjects) {
            setenv("XSOCK_SHORT_RTO", s.short_rto, 1);
            const Outcome outcome = run_pair(s.variant, run, static_cast<int>(run.seconds) + 120);
            if (!outcome.ok) {
                std::fprintf(stderr, "loss_bench: %s, %s: %s\n", s.operation, s.variant.name,
                             outcome.error.c_str());
                return 1;
            }
            const Figures& f = outcome.figures;
            std::printf("%s,%s,%d,%.0f,%.1f,%.1f,%.1f\n", s.operation, s.variant.name, round, f[0],
                        f[1], f[2], f[3]);
            std::fflush(stdout);
        }
    }
    return 0;
}

}  // namespace
}  // namespace xsock::bench

int main(int argc, char** argv) {
    using namespace xsock::bench;
    if (argc != 6) {
        std::fputs("usage: loss_bench NETNS-A NETNS-B ADDRESS-IN-A SECONDS ROUNDS\n", stderr);
        return 2;
    }
    Run run;
    run.server_netns = argv[1];
    run.client_netns = argv[2];
    run.server_address = argv[3];
    run.seconds = std::atof(argv[4]);
    const int rounds = std::atoi(argv[5]);
    if (!(run.seconds > 0) || rounds < 1) {
        std::fputs("loss_bench: SECONDS and ROUNDS are positive numbers\n", stderr);
        return 2;
    }
    catch_interrupts();
    return measure(run, rounds);
}
