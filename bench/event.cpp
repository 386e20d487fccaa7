// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One message of 64 bytes there and back, both processes asleep in epoll_wait() or poll() until
// their descriptor is readable. Figures: 0 median of a round trip in us, 1 CPU time of both
// processes for each round trip in us, 2 99th percentile of a round trip in us.
#include "bench/event.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bench/endpoint.hpp"
#include "bench/socket.hpp"

namespace xsock::bench::event {

Waiter::Waiter(int fd, Way way) : fd_(fd), way_(way) {
    if (way != Way::epoll) return;
    epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_fd_ < 0 || epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) fail_errno("epoll");
}

void Waiter::sleep() const {
    if (way_ == Way::block) return;
    for (;;) {
        epoll_event event{};
        pollfd descriptor{fd_, POLLIN, 0};
        const int n =
            way_ == Way::epoll ? epoll_wait(epoll_fd_, &event, 1, -1) : ::poll(&descriptor, 1, -1);
        if (n == 1) return;
        if (n >= 0 || errno != EINTR) fail_errno("poll");
    }
}

void report_round_trips(Child& child, const Run& run, RoundTrip round_trip, void* argument) {
    constexpr std::size_t kMost = 1'000'000;
    std::vector<std::uint32_t> took_ns(kMost, 0);  // touched now, not while the clock runs
    std::size_t count = 0;
    for (const auto end = now_ns() + to_ns(warm_up_seconds(run)); now_ns() < end;) {
        round_trip(argument, Stamp::warm_up);
    }
    round_trip(argument, Stamp::begin);
    const std::int64_t cpu_before = cpu_ns();
    std::int64_t before = now_ns();
    const std::int64_t end = before + to_ns(run.seconds);
    while (before < end && count < kMost) {
        round_trip(argument, Stamp::timed);
        const std::int64_t after = now_ns();
        took_ns[count++] = static_cast<std::uint32_t>(after - before);
        before = after;
    }
    const std::int64_t cpu_here = cpu_ns() - cpu_before;
    round_trip(argument, Stamp::last);
    if (count == 0) fail("no round trip ended in time");
    took_ns.resize(count);
    std::sort(took_ns.begin(), took_ns.end());
    const auto cpu = static_cast<double>(cpu_here + child.hear<std::int64_t>());
    child.report({took_ns[(count - 1) / 2] / 1e3, cpu / 1e3 / static_cast<double>(count),
                  took_ns[(count - 1) * 99 / 100] / 1e3, 0});
}

void CpuOfTimedPart::answer(std::uint8_t stamp) {
    if (stamp == Stamp::begin) before_ = cpu_ns();
    if (stamp == Stamp::last) child_.tell(cpu_ns() - before_);
}

namespace {

void echo_server(Child& child, int fd, Way way) {
    const Waiter waiter(fd, way);
    CpuOfTimedPart cpu(child);
    Message message{};
    do {
        waiter.sleep();
        if (!receive_all(fd, message.data(), kSize, 0)) fail("unexpected end of stream");
        send_all(fd, message.data(), kSize);
        cpu.answer(message[0]);
    } while (message[0] != Stamp::last);
}

struct SocketClient {
    int fd;
    const Waiter& waiter;
    Message message{};
};

void echo_client(Child& child, const Run& run, int fd, Way way) {
    const Waiter waiter(fd, way);
    SocketClient client{fd, waiter};
    report_round_trips(
        child, run,
        [](void* argument, std::uint8_t stamp) {
            auto& self = *static_cast<SocketClient*>(argument);
            self.message[0] = stamp;
            send_all(self.fd, self.message.data(), kSize);
            self.waiter.sleep();
            if (!receive_all(self.fd, self.message.data(), kSize, 0)) {
                fail("unexpected end of stream");
            }
        },
        &client);
}

void tcp_server(Child& child, const Run& run, Way way) {
    echo_server(child, tcp_server_socket(child, run), way);
}
void tcp_client(Child& child, const Run& run, Way way) {
    echo_client(child, run, tcp_client_socket(child, run), way);
}

// An endpoint whose completion queue is watched by its descriptor.
class Queue {
  public:
    explicit Queue(const Endpoint& end)
        : end_(end), completions_(end.cq), waiter_(xsock_cq_fd(end.cq), Way::epoll) {
        for (std::uint64_t slot = 0; slot < slots_.size(); ++slot) post(slot);
        while (!completions_.poll().empty()) continue;  // a queue is asleep only when it is empty
    }
    void send(const Message& message) {
        must(xsock_send(end_.ep, 0, message.data(), kSize, XSOCK_INLINE | XSOCK_UNSIGNALED),
             "xsock_send");
    }
    /// Sleeps until a message is there.
    Message receive() {
        for (;;) {
            waiter_.sleep();
            bool found = false;
            Message message{};
            for (auto taken = completions_.poll(); !taken.empty(); taken = completions_.poll()) {
                if (found || taken.size() != 1) fail("more than one message at a time");
                message = slots_[taken[0].wr_id];
                post(taken[0].wr_id);
                found = true;
            }
            if (found) return message;
        }
    }

  private:
    void post(std::uint64_t slot) {
        must(xsock_recv(end_.ep, slot, slots_[slot].data(), kSize), "xsock_recv");
    }
    Endpoint end_;
    Completions completions_;
    Waiter waiter_;
    std::array<Message, 16> slots_{};
};

}  // namespace

void tcp_poll_server(Child& c, const Run& r) { tcp_server(c, r, Way::poll); }
void tcp_poll_client(Child& c, const Run& r) { tcp_client(c, r, Way::poll); }
void tcp_epoll_server(Child& c, const Run& r) { tcp_server(c, r, Way::epoll); }
void tcp_epoll_client(Child& c, const Run& r) { tcp_client(c, r, Way::epoll); }
void tcp_block_server(Child& c, const Run& r) { tcp_server(c, r, Way::block); }
void tcp_block_client(Child& c, const Run& r) { tcp_client(c, r, Way::block); }
void message_epoll_server(Child& child, const Run& run) {
    echo_server(child, message_server_socket(child, run), Way::epoll);
}
void message_epoll_client(Child& child, const Run& run) {
    echo_client(child, run, message_client_socket(child, run), Way::epoll);
}

void queue_server(Child& child, const Run& run) {
    Queue queue(server_endpoint(child, run));
    child.meet();
    answer_by(queue, child);
}

void queue_client(Child& child, const Run& run) {
    Queue queue(client_endpoint(child, run));
    child.meet();
    ask_by(queue, child, run);
}

}  // namespace xsock::bench::event
