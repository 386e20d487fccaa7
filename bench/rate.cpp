// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// 64-byte messages one way, as many as possible. Figure 0: millions a second. Every message is a
// call of its own, send() or xsock_send(); byte 0 is 1 in the last one, which is confirmed.
#include <sys/socket.h>

#include <cerrno>

#include "bench/endpoint.hpp"
#include "bench/socket.hpp"

namespace xsock::bench::rate {
namespace {

constexpr std::size_t kSize = 64;
// On either side the clock is read so seldom that it does not count.
constexpr std::uint64_t kMessagesPerClock = 256;
constexpr std::uint64_t kReceive = std::uint64_t{1} << 32;  // in wr_id: not one of the sends
using Message = std::array<std::uint8_t, kSize>;

// Runs `burst(seconds)`, which answers how many messages arrived, first to warm up, then timed.
template <typename Burst>
void time_burst(Child& child, const Run& run, Burst burst) {
    burst(warm_up_seconds(run));
    const std::int64_t before = now_ns();
    const auto messages = static_cast<double>(burst(run.seconds));
    const auto took_ns = static_cast<double>(now_ns() - before);
    child.report({messages / took_ns * 1e3, 0, 0, 0});
}

void tcp_server(Child& child, const Run& run, int flags) {
    constexpr std::size_t kCall = std::size_t{64} * 1024;
    const int fd = tcp_server_socket(child, run);
    std::vector<std::uint8_t> buffer(kCall);
    for (int bursts = 0; bursts < 2; bursts++) {
        std::size_t at = 0;  // of the stream, modulo kSize
        bool last = false;
        for (bool done = false; !done;) {
            const ssize_t n = recv(fd, buffer.data(), kCall, flags);
            if (n < 0 && errno == EAGAIN) continue;
            if (n <= 0) fail_errno("recv");
            const auto got = static_cast<std::size_t>(n);
            // Nothing follows the last message before it is confirmed: only the last one counts.
            const std::size_t end = at + got;
            const std::size_t last_start = (end - 1) / kSize * kSize;
            if (last_start >= at) last = buffer[last_start - at] != 0;
            at = end % kSize;
            done = last && at == 0;
        }
        send_all(fd, &last, 1);
    }
}

}  // namespace

void tcp_block_server(Child& child, const Run& run) { tcp_server(child, run, 0); }
void tcp_poll_server(Child& child, const Run& run) { tcp_server(child, run, MSG_DONTWAIT); }

void tcp_client(Child& child, const Run& run) {
    const int fd = tcp_client_socket(child, run);
    Message message{};
    time_burst(child, run, [&](double seconds) {
        return send_until(now_ns() + to_ns(seconds), fd, message, kMessagesPerClock);
    });
}

void send_server(Child& child, const Run& run) {
    constexpr std::uint32_t kReceives = 2048;
    const Endpoint end = server_endpoint(child, run, {.receive = kReceives});
    Completions completions(end.cq);
    std::vector<Message> slots(kReceives);
    const auto post = [&](std::uint64_t slot) {
        must(xsock_recv(end.ep, slot, slots[slot].data(), kSize), "xsock_recv");
    };
    for (std::uint64_t slot = 0; slot < kReceives; slot++) post(slot);
    child.meet();
    for (int bursts = 0; bursts < 2;) {
        for (const xsock_wc& wc : completions.wait()) {
            const bool last = slots[wc.wr_id][0] != 0;
            post(wc.wr_id);
            if (!last) continue;
            bursts++;
            must(xsock_send(end.ep, 0, &last, 1, XSOCK_INLINE | XSOCK_UNSIGNALED), "xsock_send");
        }
    }
}

void send_client(Child& child, const Run& run) {
    const Endpoint end = client_endpoint(child, run, {.send = run.depth});
    Completions completions(end.cq);
    Message message{};
    Message final_message{1};
    std::uint8_t confirmation = 0;
    child.meet();
    time_burst(child, run, [&](double seconds) {
        must(xsock_recv(end.ep, kReceive, &confirmation, 1), "xsock_recv");
        std::uint64_t messages = 0;
        unsigned outstanding = 0;
        bool confirmed = false;
        const auto take = [&] {
            for (const xsock_wc& wc : completions.poll()) {
                if (wc.wr_id == kReceive) {
                    confirmed = true;
                } else {
                    outstanding--;
                }
            }
        };
        const std::int64_t stop = now_ns() + to_ns(seconds);
        std::uint64_t next_look = 0;
        for (;;) {
            if (messages >= next_look) {
                if (now_ns() >= stop) break;
                next_look = messages + kMessagesPerClock;
            }
            for (; outstanding < run.depth; outstanding++, messages++) {
                must(xsock_send(end.ep, messages & 0xffffffff, message.data(), kSize, 0),
                     "xsock_send");
            }
            take();
        }
        while (outstanding > 0) take();
        must(xsock_send(end.ep, 0, final_message.data(), kSize, 0), "xsock_send");
        outstanding++;
        messages++;
        while (!confirmed || outstanding > 0) take();
        return messages;
    });
}

}  // namespace xsock::bench::rate
