// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// 64 KiB one way and 64 bytes the other, both sides polling, one at a time; and 1 MiB Reads, 8
// outstanding. Figures of the former as of round_trips.hpp; of the latter 0 GB/s (1e9).
#include <sys/socket.h>

#include <cstring>

#include "bench/endpoint.hpp"
#include "bench/round_trips.hpp"
#include "bench/socket.hpp"

namespace xsock::bench::large {
namespace {

constexpr std::uint32_t kLarge = 64 * 1024;
constexpr std::uint32_t kSmall = 64;
constexpr std::uint32_t kRead = 1024 * 1024;
constexpr unsigned kOutstanding = 8;
constexpr std::uint8_t kPattern = 0x5a;
constexpr std::uint32_t kFlags = XSOCK_INLINE | XSOCK_UNSIGNALED;

using Note = std::array<std::uint8_t, kSmall>;  // byte 0: 1 in the last one

void post(const Endpoint& end, void* to, std::uint32_t size) {
    must(xsock_recv(end.ep, 0, to, size), "xsock_recv");
}

void check_pattern(const std::uint8_t* bytes, std::size_t size) {
    for (std::size_t i = 1; i < size; i++) {
        if (bytes[i] != kPattern) fail("the wrong bytes came");
    }
}

}  // namespace

// ---- TCP: `there` bytes, and `back` ----

namespace {

void tcp_serve(Child& child, const Run& run, std::size_t there, std::size_t back) {
    const int fd = tcp_server_socket(child, run);
    std::vector<std::uint8_t> in(there), out(back, kPattern);
    do {
        if (!receive_all(fd, in.data(), there, MSG_DONTWAIT)) fail("unexpected end of stream");
        send_all(fd, out.data(), back);
    } while (in[0] != 1);
}

void tcp_ask(Child& child, const Run& run, std::size_t there, std::size_t back) {
    const int fd = tcp_client_socket(child, run);
    std::vector<std::uint8_t> out(there, kPattern), in(back);
    child.report(time_round_trips(run, [&](bool last) {
        out[0] = last;
        send_all(fd, out.data(), there);
        if (!receive_all(fd, in.data(), back, MSG_DONTWAIT)) fail("unexpected end of stream");
    }));
}

}  // namespace

void tcp_server(Child& child, const Run& run) { tcp_serve(child, run, kLarge, kSmall); }
void tcp_client(Child& child, const Run& run) { tcp_ask(child, run, kLarge, kSmall); }
void tcp_read_server(Child& child, const Run& run) { tcp_serve(child, run, kSmall, kLarge); }
void tcp_read_client(Child& child, const Run& run) { tcp_ask(child, run, kSmall, kLarge); }

// ---- a Send ----

void send_server(Child& child, const Run& run) {
    const Endpoint end = server_endpoint(child, run);
    Completions completions(end.cq);
    std::vector<std::uint8_t> in(kLarge);
    const Note note{};
    post(end, in.data(), kLarge);
    child.meet();
    for (bool last = false; !last;) {
        completions.spin();
        last = in[0] == 1;
        must(xsock_send(end.ep, 0, note.data(), kSmall, kFlags), "xsock_send");
        post(end, in.data(), kLarge);
    }
    check_pattern(in.data(), kLarge);
}

void send_client(Child& child, const Run& run) {
    const Endpoint end = client_endpoint(child, run);
    Completions completions(end.cq);
    std::vector<std::uint8_t> out(kLarge, kPattern);
    Note note{};
    post(end, note.data(), kSmall);
    child.meet();
    child.report(time_round_trips(run, [&](bool last) {
        out[0] = last;
        must(xsock_send(end.ep, 0, out.data(), kLarge, XSOCK_UNSIGNALED), "xsock_send");
        completions.spin();
        post(end, note.data(), kSmall);
    }));
}

// ---- a Write, and a Send that tells of it ----

void write_server(Child& child, const Run& run) {
    const Endpoint end = server_endpoint(child, run);
    Completions completions(end.cq);
    std::vector<std::uint8_t> target(kLarge);
    Note note{};
    post(end, note.data(), kSmall);
    share_memory(child, target.data(), kLarge, XSOCK_REMOTE_WRITE);
    child.meet();
    for (bool last = false; !last;) {
        completions.spin();
        last = note[0] == 1;
        must(xsock_send(end.ep, 0, note.data(), kSmall, kFlags), "xsock_send");
        post(end, note.data(), kSmall);
    }
    check_pattern(target.data(), kLarge);
}

void write_client(Child& child, const Run& run) {
    const Endpoint end = client_endpoint(child, run);
    Completions completions(end.cq);
    const xsock_remote target = shared_memory(child);
    std::vector<std::uint8_t> out(kLarge, kPattern);
    Note in{}, note{};
    post(end, in.data(), kSmall);
    child.meet();
    child.report(time_round_trips(run, [&](bool last) {
        note[0] = last;
        must(xsock_write(end.ep, 0, out.data(), kLarge, &target, 0, XSOCK_UNSIGNALED),
             "xsock_write");
        must(xsock_send(end.ep, 0, note.data(), kSmall, kFlags), "xsock_send");
        completions.spin();
        post(end, in.data(), kSmall);
    }));
}

// ---- a Read; and Reads as fast as they go ----

namespace {

void serve_reads(Child& child, const Run& run, std::size_t size, bool polling) {
    const Endpoint end = server_endpoint(child, run);
    Completions completions(end.cq);
    std::vector<std::uint8_t> source(size, kPattern);
    Note note{};
    post(end, note.data(), kSmall);
    share_memory(child, source.data(), size, XSOCK_REMOTE_READ);
    child.meet();
    // The Send that ends it: the Reads before leave no trace here.
    if (polling) {
        completions.spin();
    } else {
        completions.wait();
    }
}

}  // namespace

void read_server(Child& child, const Run& run) { serve_reads(child, run, kLarge, true); }
void reads_server(Child& child, const Run& run) { serve_reads(child, run, kRead, false); }

void read_client(Child& child, const Run& run) {
    const Endpoint end = client_endpoint(child, run);
    Completions completions(end.cq);
    const xsock_remote source = shared_memory(child);
    std::vector<std::uint8_t> sink(kLarge);
    child.meet();
    child.report(time_round_trips(run, [&](bool last) {
        must(xsock_read(end.ep, 0, sink.data(), kLarge, &source, 0, 0), "xsock_read");
        completions.spin();
        if (last) must(xsock_send(end.ep, 0, sink.data(), kSmall, kFlags), "xsock_send");
    }));
    check_pattern(sink.data(), kLarge);
}

void reads_client(Child& child, const Run& run) {
    const Endpoint end = client_endpoint(child, run);
    Completions completions(end.cq);
    const xsock_remote source = shared_memory(child);
    std::vector<std::uint8_t> sink(kRead);
    child.meet();
    const auto transfer = [&](double seconds) {
        std::uint64_t bytes = 0;
        unsigned outstanding = 0;
        const std::int64_t stop = now_ns() + to_ns(seconds);
        bool more = true;
        while (more || outstanding > 0) {
            for (; more && outstanding < kOutstanding; outstanding++, bytes += kRead) {
                must(xsock_read(end.ep, 0, sink.data(), kRead, &source, 0, 0), "xsock_read");
                more = now_ns() < stop;
            }
            outstanding -= static_cast<unsigned>(completions.wait().size());
        }
        return static_cast<double>(bytes);
    };
    transfer(warm_up_seconds(run));
    const std::int64_t before = now_ns();
    const double bytes = transfer(run.seconds);
    child.report({bytes / static_cast<double>(now_ns() - before), 0, 0, 0});
    must(xsock_send(end.ep, 0, sink.data(), kSmall, kFlags), "xsock_send");
    check_pattern(sink.data(), kRead);
}

}  // namespace xsock::bench::large
