// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The same program on a plain TCP socket and on one in DDPMODE_STREAM: small sends one way, small
// requests and their responses, large writes.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "bench/socket.hpp"
#include "include/xsock/xsock.h"

namespace xsock::bench::byte_stream {
namespace {

constexpr std::size_t kSmall = 64;
constexpr std::size_t kLarge = std::size_t{1024} * 1024;
constexpr std::size_t kRead = std::size_t{64} * 1024;
constexpr std::uint64_t kMessagesPerClock = 256;

struct Kind {
    bool stream;    ///< DDPMODE_STREAM
    bool nodelay;   ///< else all options are as the kernel has them
    int flags = 0;  ///< of recv() while requests go round
};

int prepare(int fd, Kind kind, int role) {
    if (kind.nodelay) set_nodelay(fd);
    if (!kind.stream) return fd;
    const int mode = DDPMODE_STREAM;
    if (setsockopt(fd, SOL_XSOCK, DDPROLE, &role, sizeof role) != 0) fail_errno("DDPROLE");
    if (setsockopt(fd, SOL_XSOCK, DDPMODE, &mode, sizeof mode) != 0) fail_errno("DDPMODE");
    return fd;
}

int server_socket(Child& child, const Run& run, Kind kind) {
    std::uint16_t port = 0;
    const int listener = tcp_listen(run, port);
    child.tell(port);
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) fail_errno("accept");
    return prepare(fd, kind, XSOCK_ROLE_RESPONDER);
}

int client_socket(Child& child, const Run& run, Kind kind) {
    return prepare(tcp_connect(run, child.hear<std::uint16_t>()), kind, XSOCK_ROLE_INITIATOR);
}

// Records of `size` bytes, byte 0 of the last one is 1. All that come are read and counted.
void absorb(int fd, std::size_t size, std::vector<std::uint8_t>& buffer) {
    std::uint64_t at = 0;
    bool last = false;
    for (bool done = false; !done;) {
        const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
        if (n <= 0) fail_errno("recv");
        const std::uint64_t end = at + static_cast<std::uint64_t>(n);
        // Nothing follows the last record before it is confirmed: only the newest one counts.
        const std::uint64_t newest = (end - 1) / size * size;
        if (newest >= at) last = buffer[newest - at] != 0;
        at = end;
        done = last && at % size == 0;
    }
    send_all(fd, &last, 1);
}

// Figures: 0 records in M/s, or GB/s; 1 CPU time of both processes in ns for each record, or in
// seconds for each GiB.
void one_way_server(Child& child, const Run& run, Kind kind, std::size_t size) {
    const int fd = server_socket(child, run, kind);
    std::vector<std::uint8_t> buffer(size == kSmall ? kRead : 4 * kRead);
    absorb(fd, size, buffer);
    child.meet();
    const std::int64_t cpu_before = cpu_ns();
    absorb(fd, size, buffer);
    child.tell(cpu_ns() - cpu_before);
    check_path(fd, kind.stream);
}

void one_way_client(Child& child, const Run& run, Kind kind, std::size_t size) {
    const int fd = client_socket(child, run, kind);
    std::vector<std::uint8_t> record(size);
    const std::uint64_t per_clock = size == kSmall ? kMessagesPerClock : 1;
    send_until(now_ns() + to_ns(warm_up_seconds(run)), fd, record, per_clock);
    child.meet();
    const std::int64_t cpu_before = cpu_ns(), before = now_ns();
    const auto records =
        static_cast<double>(send_until(before + to_ns(run.seconds), fd, record, per_clock));
    const auto took_ns = static_cast<double>(now_ns() - before);
    const auto cpu = static_cast<double>(cpu_ns() - cpu_before + child.hear<std::int64_t>());
    check_path(fd, kind.stream);
    if (size == kSmall) {
        child.report({records / took_ns * 1e3, cpu / records, 0, 0});
        return;
    }
    const double bytes = records * static_cast<double>(size);
    child.report({bytes / took_ns, cpu / 1e9 / (bytes / 1024 / 1024 / 1024), 0, 0});
}

// Figures: 0 mean time of a round trip in us, 1 CPU time of both processes for each, in us.
void echo_server(Child& child, const Run& run, Kind kind) {
    const int fd = server_socket(child, run, kind);
    std::array<std::uint8_t, kSmall> message{};
    const auto serve = [&] {
        for (bool last = false; !last;) {
            if (!receive_all(fd, message.data(), kSmall, kind.flags)) fail("the client has gone");
            last = message[0] != 0;
            send_all(fd, message.data(), kSmall);
        }
    };
    serve();
    child.meet();
    const std::int64_t cpu_before = cpu_ns();
    serve();
    child.tell(cpu_ns() - cpu_before);
    check_path(fd, kind.stream);
}

void echo_client(Child& child, const Run& run, Kind kind) {
    const int fd = client_socket(child, run, kind);
    std::array<std::uint8_t, kSmall> message{};
    const auto ask = [&](double seconds) {
        const std::int64_t end = now_ns() + to_ns(seconds);
        std::uint64_t trips = 0;
        for (bool last = false; !last; trips++) {
            last = now_ns() >= end;
            message[0] = last;
            send_all(fd, message.data(), kSmall);
            if (!receive_all(fd, message.data(), kSmall, kind.flags)) fail("the server has gone");
        }
        return trips;
    };
    ask(warm_up_seconds(run));
    child.meet();
    const std::int64_t cpu_before = cpu_ns(), before = now_ns();
    const auto trips = static_cast<double>(ask(run.seconds));
    const auto took_ns = static_cast<double>(now_ns() - before);
    const auto cpu = static_cast<double>(cpu_ns() - cpu_before + child.hear<std::int64_t>());
    check_path(fd, kind.stream);
    child.report({took_ns / trips / 1e3, cpu / trips / 1e3, 0, 0});
}

constexpr Kind kTcp{false, false}, kTcpNodelay{false, true}, kStream{true, false},
    kStreamNodelay{true, true}, kTcpPolling{false, false, MSG_DONTWAIT},
    kStreamPolling{true, false, MSG_DONTWAIT};

}  // namespace

void tcp_rate_server(Child& c, const Run& r) { one_way_server(c, r, kTcp, kSmall); }
void tcp_rate_client(Child& c, const Run& r) { one_way_client(c, r, kTcp, kSmall); }
void rate_server(Child& c, const Run& r) { one_way_server(c, r, kStream, kSmall); }
void rate_client(Child& c, const Run& r) { one_way_client(c, r, kStream, kSmall); }
void tcp_nodelay_server(Child& c, const Run& r) { one_way_server(c, r, kTcpNodelay, kSmall); }
void tcp_nodelay_client(Child& c, const Run& r) { one_way_client(c, r, kTcpNodelay, kSmall); }
void nodelay_server(Child& c, const Run& r) { one_way_server(c, r, kStreamNodelay, kSmall); }
void nodelay_client(Child& c, const Run& r) { one_way_client(c, r, kStreamNodelay, kSmall); }
void tcp_echo_server(Child& c, const Run& r) { echo_server(c, r, kTcp); }
void tcp_echo_client(Child& c, const Run& r) { echo_client(c, r, kTcp); }
void stream_echo_server(Child& c, const Run& r) { echo_server(c, r, kStream); }
void stream_echo_client(Child& c, const Run& r) { echo_client(c, r, kStream); }
void tcp_polling_server(Child& c, const Run& r) { echo_server(c, r, kTcpPolling); }
void tcp_polling_client(Child& c, const Run& r) { echo_client(c, r, kTcpPolling); }
void polling_server(Child& c, const Run& r) { echo_server(c, r, kStreamPolling); }
void polling_client(Child& c, const Run& r) { echo_client(c, r, kStreamPolling); }
void tcp_large_server(Child& c, const Run& r) { one_way_server(c, r, kTcp, kLarge); }
void tcp_large_client(Child& c, const Run& r) { one_way_client(c, r, kTcp, kLarge); }
void large_server(Child& c, const Run& r) { one_way_server(c, r, kStream, kLarge); }
void large_client(Child& c, const Run& r) { one_way_client(c, r, kStream, kLarge); }

}  // namespace xsock::bench::byte_stream
