// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "bench/many_connections.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bench/endpoint.hpp"
#include "bench/socket.hpp"

namespace xsock::bench::many_connections {
namespace {

constexpr int kEvents = 64;
constexpr int kStartupMs = 30'000;
constexpr std::uint32_t kLeastReceives = 256;
constexpr std::uint32_t kFlags = XSOCK_INLINE | XSOCK_UNSIGNALED;
using Message = std::array<std::uint8_t, kSize>;

// Which connection speaks next: one that has nothing under way, at random, the same each time.
class Dice {
  public:
    explicit Dice(unsigned sides) : busy_(sides, false) {}

    unsigned pick() {
        unsigned index = 0;
        do {
            state_ ^= state_ << 13;
            state_ ^= state_ >> 7;
            state_ ^= state_ << 17;
            index = static_cast<unsigned>(state_ % busy_.size());
        } while (busy_[index]);
        busy_[index] = true;
        return index;
    }
    void done(unsigned index) { busy_[index] = false; }

  private:
    std::vector<bool> busy_;
    std::uint64_t state_ = 0x9e3779b97f4a7c15;
};

// Keeps run.depth echoes under way on random connections. `send(index, message)` sends one,
// `answers(f)` waits and calls f(index, message) for each answer. Each has a number, so that one
// that is lost, or goes to another connection, is noticed. Figure 0: thousand echoes a second.
template <typename Send, typename Answers>
void time_echoes(Child& child, const Run& run, unsigned connections, Send send, Answers answers) {
    Dice dice(connections);
    Message message{};
    std::vector<std::uint64_t> expected(connections);
    std::uint64_t serial = 0;
    const auto ask = [&](unsigned index, bool last) {
        message[0] = last;
        expected[index] = ++serial;
        std::memcpy(&message[8], &serial, sizeof serial);
        send(index, message);
    };
    const auto check = [&](unsigned index, const Message& answer) {
        dice.done(index);
        if (std::memcmp(&answer[8], &expected[index], sizeof serial) != 0) fail("a wrong answer");
    };
    unsigned outstanding = 0;
    std::uint64_t echoes = 0;
    const auto echo_until = [&](std::int64_t end) {
        while (now_ns() < end) {
            answers([&](unsigned index, const Message& answer) {
                check(index, answer);
                ask(dice.pick(), false);
                echoes++;
            });
        }
    };
    for (; outstanding < std::min(run.depth, connections); outstanding++) ask(dice.pick(), false);
    echo_until(now_ns() + to_ns(warm_up_seconds(run)));
    echoes = 0;
    const std::int64_t before = now_ns();
    echo_until(before + to_ns(run.seconds));
    const auto took_ns = static_cast<double>(now_ns() - before);
    const auto counted = static_cast<double>(echoes);
    while (outstanding > 0) {
        answers([&](unsigned index, const Message& answer) {
            check(index, answer);
            outstanding--;
        });
    }
    ask(0, true);
    child.report({counted / took_ns * 1e6, 0, 0, 0});
}

void watch(int epoll, int fd, unsigned index) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = index;
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) fail_errno("epoll_ctl");
}

xsock_ep_attr attributes(const Connections& all) {
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = all.cq;
    attr.srq = all.srq;
    return attr;
}

std::uint32_t receives(const Run& run) { return std::max(kLeastReceives, run.depth); }

void make_queues(Connections& all, std::uint32_t shared_receives) {
    all.cq = xsock_cq_create(nullptr);
    if (all.cq == nullptr) fail_errno("xsock_cq_create");
    if (shared_receives == 0) return;
    all.srq = xsock_srq_create(shared_receives);
    if (all.srq == nullptr) fail_errno("xsock_srq_create");
}

// Buffers of a shared receive queue, all posted.
class SharedReceives {
  public:
    SharedReceives(xsock_srq* srq, const Run& run) : srq_(srq), slots_(receives(run)) {
        for (std::uint64_t slot = 0; slot < slots_.size(); slot++) post(slot);
    }
    void post(std::uint64_t slot) {
        const xsock_sge sge{.address = slots_[slot].data(), .length = kSize, .lkey = 0};
        must(xsock_srq_post_recv(srq_, slot, &sge, 1), "xsock_srq_post_recv");
    }
    [[nodiscard]] const Message& at(std::uint64_t slot) const { return slots_[slot]; }

  private:
    xsock_srq* srq_;
    std::vector<Message> slots_;
};

}  // namespace

Connections open_server(Child& child, const Run& run) {
    Connections all;
    make_queues(all, receives(run));
    const xsock_ep_attr attr = attributes(all);
    std::uint16_t port = 0;
    all.listener = xsock_listener_create(tcp_listen(run, port), &attr);
    if (all.listener == nullptr) fail_errno("xsock_listener_create");
    all.eps.reserve(run.connections);
    child.tell(port);
    return all;
}

void accept_some(Connections& all, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        xsock_ep* ep = xsock_accept(all.listener, kStartupMs);
        if (ep == nullptr) fail_errno("xsock_accept");
        must(xsock_ep_set_context(ep, ep), "xsock_ep_set_context");
        all.eps.push_back(ep);
    }
}

ClientConnections open_client(Child& child, bool shared_receives) {
    ClientConnections all;
    make_queues(all, shared_receives ? kLeastReceives : 0);
    all.port = child.hear<std::uint16_t>();
    return all;
}

void connect_some(ClientConnections& all, const Run& run, unsigned count) {
    // In small waves, so that the server's limit on half-open start-ups is not what we measure.
    constexpr unsigned kWave = 64;
    all.eps.reserve(run.connections);
    for (unsigned made = 0; made < count;) {
        const std::size_t first = all.eps.size();
        for (unsigned i = 0; i < kWave && made < count; i++, made++) {
            xsock_ep_attr attr = attributes(all);
            attr.shm = all.shm;
            attr.context = reinterpret_cast<void*>(all.eps.size());
            xsock_ep* ep = xsock_ep_create(tcp_connect(run, all.port), &attr);
            if (ep == nullptr) fail_errno("xsock_ep_create");
            all.eps.push_back(ep);
        }
        for (std::size_t i = first; i < all.eps.size(); i++) {
            must(xsock_ep_wait(all.eps[i], kStartupMs), "start-up");
        }
    }
}

namespace {

// Of plain ones the first: to ask of a socket that xsock does not know is dear among 10,000.
void check_paths(const std::vector<int>& fds, bool is_stream) {
    for (const int fd : fds) {
        check_path(fd, is_stream);
        if (!is_stream) return;
    }
}

// An ordinary program on sockets and epoll, whatever carries the bytes.
void socket_server(Child& child, const Run& run, bool is_stream) {
    std::uint16_t port = 0;
    const int listener = tcp_listen(run, port);
    if (is_stream) switch_to_streams(listener);
    child.tell(port);
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) fail_errno("epoll_create1");
    std::vector<int> fds(run.connections);
    for (unsigned i = 0; i < run.connections; i++) {
        fds[i] = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (fds[i] < 0) fail_errno("accept");
        set_nodelay(fds[i]);
        watch(epoll, fds[i], i);
    }
    child.meet();
    std::array<epoll_event, kEvents> events;
    for (bool last = false; !last;) {
        const int n = epoll_wait(epoll, events.data(), kEvents, -1);
        for (int i = 0; i < n; i++) {
            const int fd = fds[events[static_cast<std::size_t>(i)].data.u32];
            Message message;
            if (!receive_all(fd, message.data(), kSize, 0)) fail("unexpected end of stream");
            send_all(fd, message.data(), kSize);
            last = last || message[0] != 0;
        }
    }
    check_paths(fds, is_stream);
}

void socket_client(Child& child, const Run& run, bool is_stream) {
    const auto port = child.hear<std::uint16_t>();
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) fail_errno("epoll_create1");
    std::vector<int> fds(run.connections);
    for (unsigned i = 0; i < run.connections; i++) {
        fds[i] = tcp_connect(run, port, is_stream);
        set_nodelay(fds[i]);
        watch(epoll, fds[i], i);
    }
    child.meet();
    time_echoes(
        child, run, run.connections,
        [&](unsigned index, const Message& message) {
            send_all(fds[index], message.data(), kSize);
        },
        [&](auto answered) {
            std::array<epoll_event, kEvents> events;
            const int n = epoll_wait(epoll, events.data(), kEvents, -1);
            for (int i = 0; i < n; i++) {
                const unsigned index = events[static_cast<std::size_t>(i)].data.u32;
                Message answer;
                if (!receive_all(fds[index], answer.data(), kSize, 0)) fail("end of stream");
                answered(index, answer);
            }
        });
    check_paths(fds, is_stream);
}

}  // namespace

void tcp_server(Child& c, const Run& r) { socket_server(c, r, false); }
void tcp_client(Child& c, const Run& r) { socket_client(c, r, false); }
void stream_server(Child& c, const Run& r) { socket_server(c, r, true); }
void stream_client(Child& c, const Run& r) { socket_client(c, r, true); }

void echo_server(Child& child, const Run& run) {
    Connections all = open_server(child, run);
    accept_some(all, run.connections);
    SharedReceives receives(all.srq, run);
    Completions completions(all.cq);
    child.meet();
    for (bool last = false; !last;) {
        for (const xsock_wc& wc : completions.wait()) {
            const Message& message = receives.at(wc.wr_id);
            last = last || message[0] != 0;
            must(xsock_send(static_cast<xsock_ep*>(wc.context), 0, message.data(), kSize, kFlags),
                 "xsock_send");
            receives.post(wc.wr_id);
        }
    }
}

void echo_client(Child& child, const Run& run) {
    ClientConnections all = open_client(child, true);
    connect_some(all, run, run.connections);
    SharedReceives receives(all.srq, run);
    Completions completions(all.cq);
    child.meet();
    time_echoes(
        child, run, run.connections,
        [&](unsigned index, const Message& message) {
            must(xsock_send(all.eps[index], 0, message.data(), kSize, kFlags), "xsock_send");
        },
        [&](auto answered) {
            for (const xsock_wc& wc : completions.wait()) {
                answered(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(wc.context)),
                         receives.at(wc.wr_id));
                receives.post(wc.wr_id);
            }
        });
}

}  // namespace xsock::bench::many_connections
