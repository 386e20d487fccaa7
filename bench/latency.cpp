// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Ping-pong of 64 bytes. Figures: 0 median one way, 1 99th percentile one way, 2 median of the
// whole round trip or operation; all in us. Byte 0 of a message is 1 in the last one.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "bench/endpoint.hpp"
#include "bench/round_trips.hpp"
#include "bench/socket.hpp"

namespace xsock::bench::latency {
namespace {

constexpr std::size_t kSize = 64;
using Message = std::array<std::uint8_t, kSize>;

// Small messages leave the caller's buffer at once, as they do with send(); their completions
// would tell nothing that the answer does not.
constexpr std::uint32_t kFlags = XSOCK_INLINE | XSOCK_UNSIGNALED;

// ---- plain TCP, and sockets in DDPMODE ----

using OpenSocket = int (*)(Child& child, const Run& run);
constexpr int kNow = MSG_DONTWAIT;

void echo_server(Child& child, const Run& run, OpenSocket open, int flags) {
    const int fd = open(child, run);
    Message message{};
    do {
        if (!receive_all(fd, message.data(), kSize, flags)) fail("unexpected end of stream");
        send_all(fd, message.data(), kSize);
    } while (message[0] == 0);
}

void echo_client(Child& child, const Run& run, OpenSocket open, int flags) {
    const int fd = open(child, run);
    Message message{};
    child.report(time_round_trips(run, [&](bool last) {
        message[0] = last;
        send_all(fd, message.data(), kSize);
        if (!receive_all(fd, message.data(), kSize, flags)) fail("unexpected end of stream");
    }));
}

// ---- Send ----

using Take = std::span<const xsock_wc> (Completions::*)();

// Some receives ahead, so that posting the next one is never on the path of a message.
class Receives {
  public:
    explicit Receives(xsock_ep* ep) : ep_(ep) {
        for (std::uint64_t slot = 0; slot < slots_.size(); slot++) post(slot);
    }
    void post(std::uint64_t slot) {
        must(xsock_recv(ep_, slot, slots_[slot].data(), kSize), "xsock_recv");
    }
    [[nodiscard]] const Message& at(std::uint64_t slot) const { return slots_[slot]; }

  private:
    xsock_ep* ep_;
    std::array<Message, 16> slots_{};
};

void send_server(Child& child, const Run& run, Take take) {
    const Endpoint end = server_endpoint(child, run);
    Completions completions(end.cq);
    Receives receives(end.ep);
    child.meet();
    for (bool last = false; !last;) {
        for (const xsock_wc& wc : (completions.*take)()) {
            const Message& message = receives.at(wc.wr_id);
            last = message[0] != 0;
            must(xsock_send(end.ep, 0, message.data(), kSize, kFlags), "xsock_send");
            receives.post(wc.wr_id);
        }
    }
}

void send_client(Child& child, const Run& run, Take take) {
    const Endpoint end = client_endpoint(child, run);
    Completions completions(end.cq);
    Receives receives(end.ep);
    child.meet();
    Message message{};
    child.report(time_round_trips(run, [&](bool last) {
        message[0] = last;
        must(xsock_send(end.ep, 0, message.data(), kSize, kFlags), "xsock_send");
        for (const xsock_wc& wc : (completions.*take)()) receives.post(wc.wr_id);
    }));
}

// ---- Write ----

// A message in memory that the peer writes. It has come when its last byte changes: the library
// places in increasing order, the last byte last.
struct alignas(64) Mailbox {
    Message bytes{};

    [[nodiscard]] std::uint8_t stamp() {
        return std::atomic_ref(bytes[kSize - 1]).load(std::memory_order_acquire);
    }
};

std::uint8_t next_stamp(std::uint8_t stamp) { return static_cast<std::uint8_t>(stamp + 1); }

struct WriteSides {
    Mailbox inbox;
    Message outgoing{};
    xsock_remote peers_inbox{};

    void exchange(Child& child) {
        share_memory(child, inbox.bytes.data(), kSize, XSOCK_REMOTE_WRITE);
        peers_inbox = shared_memory(child);
        child.meet();
    }
    void write_to(const Endpoint& end, bool last, std::uint8_t stamp) {
        outgoing[0] = last;
        outgoing[kSize - 1] = stamp;
        must(xsock_write(end.ep, 0, outgoing.data(), kSize, &peers_inbox, 0, kFlags),
             "xsock_write");
    }
    void spin_until(std::uint8_t stamp, Completions& completions) {
        while (inbox.stamp() != stamp) completions.poll();
    }
};

}  // namespace

void tcp_poll_server(Child& c, const Run& r) { echo_server(c, r, tcp_server_socket, kNow); }
void tcp_poll_client(Child& c, const Run& r) { echo_client(c, r, tcp_client_socket, kNow); }
void tcp_block_server(Child& c, const Run& r) { echo_server(c, r, tcp_server_socket, 0); }
void tcp_block_client(Child& c, const Run& r) { echo_client(c, r, tcp_client_socket, 0); }
void message_poll_server(Child& c, const Run& r) { echo_server(c, r, message_server_socket, kNow); }
void message_poll_client(Child& c, const Run& r) { echo_client(c, r, message_client_socket, kNow); }
void message_block_server(Child& c, const Run& r) { echo_server(c, r, message_server_socket, 0); }
void message_block_client(Child& c, const Run& r) { echo_client(c, r, message_client_socket, 0); }

void send_poll_server(Child& child, const Run& run) { send_server(child, run, &Completions::spin); }
void send_poll_client(Child& child, const Run& run) { send_client(child, run, &Completions::spin); }
void send_block_server(Child& child, const Run& run) {
    send_server(child, run, &Completions::wait);
}
void send_block_client(Child& child, const Run& run) {
    send_client(child, run, &Completions::wait);
}

void write_poll_server(Child& child, const Run& run) {
    const Endpoint end = server_endpoint(child, run);
    Completions completions(end.cq);
    WriteSides sides;
    sides.exchange(child);
    std::uint8_t stamp = 0;
    bool last = false;
    while (!last) {
        stamp = next_stamp(stamp);
        sides.spin_until(stamp, completions);
        last = sides.inbox.bytes[0] != 0;
        sides.write_to(end, last, stamp);
    }
}

void write_poll_client(Child& child, const Run& run) {
    const Endpoint end = client_endpoint(child, run);
    Completions completions(end.cq);
    WriteSides sides;
    sides.exchange(child);
    std::uint8_t stamp = 0;
    child.report(time_round_trips(run, [&](bool last) {
        stamp = next_stamp(stamp);
        sides.write_to(end, last, stamp);
        sides.spin_until(stamp, completions);
    }));
}

// Nothing wakes the target of a Write, so a sleeping one needs a Send behind it: two posts.

void write_block_server(Child& child, const Run& run) {
    const Endpoint end = server_endpoint(child, run);
    Completions completions(end.cq);
    Receives receives(end.ep);
    WriteSides sides;
    sides.exchange(child);
    for (bool last = false; !last;) {
        for (const xsock_wc& wc : completions.wait()) {
            last = sides.inbox.bytes[0] != 0;
            sides.write_to(end, last, sides.inbox.stamp());
            must(xsock_send(end.ep, 0, nullptr, 0, kFlags), "xsock_send");
            receives.post(wc.wr_id);
        }
    }
}

void write_block_client(Child& child, const Run& run) {
    const Endpoint end = client_endpoint(child, run);
    Completions completions(end.cq);
    Receives receives(end.ep);
    WriteSides sides;
    sides.exchange(child);
    std::uint8_t stamp = 0;
    child.report(time_round_trips(run, [&](bool last) {
        stamp = next_stamp(stamp);
        sides.write_to(end, last, stamp);
        must(xsock_send(end.ep, 0, nullptr, 0, kFlags), "xsock_send");
        for (const xsock_wc& wc : completions.wait()) receives.post(wc.wr_id);
        if (sides.inbox.stamp() != stamp) fail("a Send overtook the Write before it");
    }));
}

// ---- Read ----

void read_server(Child& child, const Run& run) {
    const Endpoint end = server_endpoint(child, run);
    Completions completions(end.cq);
    Receives receives(end.ep);
    Message source{};
    std::fill(source.begin(), source.end(), std::uint8_t{0x5a});
    share_memory(child, source.data(), kSize, XSOCK_REMOTE_READ);
    child.meet();
    completions.spin();  // the Send that ends it: the Reads before leave no trace here
}

void read_client(Child& child, const Run& run) {
    const Endpoint end = client_endpoint(child, run);
    Completions completions(end.cq);
    const xsock_remote source = shared_memory(child);
    child.meet();
    Message sink{};
    child.report(time_round_trips(run, [&](bool last) {
        must(xsock_read(end.ep, 0, sink.data(), kSize, &source, 0, 0), "xsock_read");
        completions.spin();
        if (last) must(xsock_send(end.ep, 0, sink.data(), kSize, kFlags), "xsock_send");
    }));
    if (sink[0] != 0x5a || sink[kSize - 1] != 0x5a) fail("Reads brought the wrong bytes");
}

}  // namespace xsock::bench::latency
