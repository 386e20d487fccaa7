// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One direction, as fast as it goes. Figures: 0 GB/s (1e9), 1 CPU seconds per GiB of both
// processes together. Both sides sleep when there is nothing to do. The pipe is drained and
// confirmed after warming up and at the end, so that what is counted has arrived.
#include <sys/socket.h>

#include <cstring>

#include "bench/endpoint.hpp"
#include "bench/socket.hpp"

namespace xsock::bench::stream {
namespace {

constexpr std::size_t kCall = std::size_t{256} * 1024;    // bytes per TCP send and recv
constexpr std::size_t kWrite = std::size_t{1024} * 1024;  // bytes per Write
constexpr unsigned kOutstanding = 8;
constexpr std::uint8_t kPattern = 0x5a;

// Runs `transfer(seconds)`, which answers the bytes confirmed, first to warm up, then timed.
template <typename Transfer>
void time_transfer(Child& child, const Run& run, Transfer transfer) {
    transfer(warm_up_seconds(run));
    child.meet();
    const std::int64_t cpu_before = cpu_ns();
    const std::int64_t before = now_ns();
    const auto bytes = static_cast<double>(transfer(run.seconds));
    const auto took_ns = static_cast<double>(now_ns() - before);
    const auto cpu = static_cast<double>(cpu_ns() - cpu_before + child.hear<std::int64_t>());
    const double gib = bytes / (1024.0 * 1024.0 * 1024.0);
    child.report({bytes / took_ns, cpu / 1e9 / gib, 0, 0});
}

// The other process: `absorb()` returns when all of one transfer is there and confirmed.
template <typename Absorb>
void absorb_transfers(Child& child, Absorb absorb) {
    absorb();
    child.meet();
    const std::int64_t cpu_before = cpu_ns();
    absorb();
    child.tell(cpu_ns() - cpu_before);
}

void socket_client(Child& child, const Run& run, int fd, std::size_t call) {
    std::vector<std::uint8_t> buffer(call, kPattern);
    time_transfer(child, run, [&](double seconds) {
        return send_until(now_ns() + to_ns(seconds), fd, buffer) * call;
    });
}

}  // namespace

// The first byte of each 256 KiB says whether it is the last 256 KiB of a transfer.

void tcp_server(Child& child, const Run& run) {
    const int fd = tcp_server_socket(child, run);
    std::vector<std::uint8_t> buffer(kCall);
    absorb_transfers(child, [&] {
        std::size_t at = 0;  // of the stream, modulo kCall
        bool last = false;
        for (bool done = false; !done;) {
            const ssize_t n = recv(fd, buffer.data(), kCall, 0);
            if (n <= 0) fail_errno("recv");
            const std::size_t to_next = (kCall - at) % kCall;
            if (static_cast<std::size_t>(n) > to_next) last = buffer[to_next] != 0;
            at = (at + static_cast<std::size_t>(n)) % kCall;
            done = last && at == 0;
        }
        send_all(fd, &last, 1);
    });
}

void tcp_client(Child& child, const Run& run) {
    socket_client(child, run, tcp_client_socket(child, run), kCall);
}

// The first byte of a message says whether it is the last one of a transfer.

void message_server(Child& child, const Run& run) {
    const int fd = message_server_socket(child, run);
    std::vector<std::uint8_t> buffer(kWrite);
    absorb_transfers(child, [&] {
        for (bool last = false; !last;) {
            if (recv(fd, buffer.data(), kWrite, 0) != static_cast<ssize_t>(kWrite)) {
                fail_errno("recv");
            }
            last = buffer[0] == 1;
        }
        const std::uint8_t confirmation = 1;
        send_all(fd, &confirmation, 1);
    });
}

void message_client(Child& child, const Run& run) {
    socket_client(child, run, message_client_socket(child, run), kWrite);
}

void write_server(Child& child, const Run& run) {
    const Endpoint end = server_endpoint(child, run);
    Completions completions(end.cq);
    std::vector<std::uint8_t> target(kWrite);
    std::uint8_t note = 0;
    must(xsock_recv(end.ep, 0, &note, 1), "xsock_recv");
    share_memory(child, target.data(), kWrite, XSOCK_REMOTE_WRITE);
    absorb_transfers(child, [&] {
        completions.wait();
        must(xsock_recv(end.ep, 0, &note, 1), "xsock_recv");
        must(xsock_send(end.ep, 0, &note, 1, XSOCK_INLINE | XSOCK_UNSIGNALED), "xsock_send");
    });
    for (const std::uint8_t byte : target) {
        if (byte != kPattern) fail("the Writes brought the wrong bytes");
    }
}

void write_client(Child& child, const Run& run) {
    const Endpoint end = client_endpoint(child, run, {.send = kOutstanding + 1});
    Completions completions(end.cq);
    std::vector<std::uint8_t> source(kWrite, kPattern);
    std::uint8_t note = 0;
    const xsock_remote target = shared_memory(child);
    time_transfer(child, run, [&](double seconds) {
        must(xsock_recv(end.ep, 0, &note, 1), "xsock_recv");
        std::uint64_t bytes = 0;
        unsigned outstanding = 0;
        const std::int64_t stop = now_ns() + to_ns(seconds);
        bool more = true;
        while (more || outstanding > 0) {
            for (; more && outstanding < kOutstanding; outstanding++, bytes += kWrite) {
                must(xsock_write(end.ep, 0, source.data(), kWrite, &target, 0, 0), "xsock_write");
                more = now_ns() < stop;
            }
            outstanding -= static_cast<unsigned>(completions.wait().size());
        }
        must(xsock_send(end.ep, 0, &note, 1, XSOCK_INLINE | XSOCK_UNSIGNALED), "xsock_send");
        completions.wait();  // the confirmation
        return bytes;
    });
}

}  // namespace xsock::bench::stream
