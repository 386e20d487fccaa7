// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tools/perf/connections.hpp"
#include "tools/text.hpp"

namespace xsock::tools::perf {
namespace {

constexpr std::size_t kReceiveBytes = 256 * 1024;  // as a careful program reads
constexpr std::size_t kQuestionBytes = 16;         // what a Read Request is to TCP
constexpr std::size_t kAckBytes = 1;

/// Sleeps until the socket is ready; with `spin`, returns at once.
void wait_for(int fd, short events, bool spin, std::uint64_t& stalled_since) {
    const std::uint64_t now = now_ns();
    if (interrupted()) fail("interrupted");
    if (stalled_since == 0) stalled_since = now;
    if (now - stalled_since > std::uint64_t{kStallMs} * 1'000'000u) {
        fail("nothing moved for {} s", kStallMs / 1000);
    }
    if (spin) return;
    pollfd p{fd, events, 0};
    poll(&p, 1, 200);
}

/// n > 0: moved; 0: not now. Throws when the connection is gone.
std::size_t moved(ssize_t n, bool receiving) {
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0 && receiving) fail("the other end closed a plain connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR) fail_errno("a plain connection");
    return 0;
}

}  // namespace

TcpConnections::TcpConnections(std::uint32_t size)
    : out_(std::max<std::size_t>(size, kQuestionBytes), 'o'),
      in_(std::max<std::size_t>(size, kReceiveBytes)) {}

void TcpConnections::adopt(Fd fd, std::uint32_t index) {
    if (fds_.size() <= index) fds_.resize(index + 1);
    if (fds_[index].good()) fail("two connections with one number");
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const timeval look_up{0, 200'000};  // for receive_all()
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &look_up, sizeof look_up);
    fds_[index] = std::move(fd);
}

double TcpConnections::run(const Sample& sample) {
    return sample.test == Test::latency ? run_latency(sample) : run_stream(sample);
}

void TcpConnections::send_all(int fd, std::size_t bytes, bool spin) {
    std::uint64_t stalled = 0;
    for (std::size_t sent = 0; sent < bytes;) {
        const std::size_t n =
            moved(::send(fd, out_.data() + sent, bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT), false);
        sent += n;
        if (n == 0) wait_for(fd, POLLOUT, spin, stalled);
    }
}

void TcpConnections::receive_all(int fd, std::size_t bytes, bool spin) {
    std::uint64_t stalled = 0;
    for (std::size_t have = 0; have < bytes;) {
        // A blocking recv() is one system call; SO_RCVTIMEO lets it look up now and then.
        const std::size_t n =
            moved(recv(fd, in_.data(), std::min(in_.size(), bytes - have), spin ? MSG_DONTWAIT : 0),
                  true);
        have += n;
        if (n == 0) wait_for(fd, POLLIN, true, stalled);
    }
}

double TcpConnections::run_latency(const Sample& sample) {
    const int fd = fds_.at(0).get();
    const bool spin = sample.polling;
    const std::size_t ask = sample.op == Op::read ? kQuestionBytes : sample.size;
    const std::uint64_t begin = now_ns();
    std::uint64_t before = begin;
    for (std::uint64_t i = 0; i < sample.count; ++i) {
        if (!sample.client) {
            receive_all(fd, ask, spin);
            send_all(fd, sample.size, spin);
            continue;
        }
        send_all(fd, ask, spin);
        receive_all(fd, sample.size, spin);
        const std::uint64_t now = now_ns();
        if (sample.times != nullptr) sample.times->push_back(static_cast<double>(now - before));
        before = now;
    }
    return static_cast<double>(now_ns() - begin);
}

double TcpConnections::run_stream(const Sample& sample) {
    struct Flow {
        std::uint64_t to_send = 0, to_receive = 0;
        std::size_t in_message = 0;  // bytes of the message under way that are sent
        bool ack_owed = false;
    };
    // What a Read fetches flows the other way.
    const bool forwards = sample.op != Op::read;
    const bool sends = sample.both_ways || sample.client == forwards;
    const bool receives = sample.both_ways || !sends;
    const std::uint64_t bytes = std::uint64_t{sample.size} * sample.count;
    std::vector<Flow> flows(fds_.size());
    for (Flow& flow : flows) {
        flow.to_send = sends ? bytes : 0;
        // Behind the payload each receiver says that all has come.
        flow.to_receive = (receives ? bytes : 0) + (sends ? kAckBytes : 0);
        flow.ack_owed = receives;
    }
    std::vector<pollfd> polled(fds_.size());
    std::uint64_t stalled = 0;
    const std::uint64_t begin = now_ns();
    if (sample.op == Op::read && !sample.both_ways) {
        // Reads begin when the reader asks, and so does its clock.
        for (const Fd& fd : fds_) {
            if (sample.client) send_all(fd.get(), kAckBytes, sample.polling);
        }
        for (const Fd& fd : fds_) {
            if (!sample.client) receive_all(fd.get(), kAckBytes, sample.polling);
        }
    }
    for (;;) {
        bool any = false;
        bool finished = true;
        for (std::size_t i = 0; i < flows.size(); ++i) {
            Flow& flow = flows[i];
            const int fd = fds_[i].get();
            if (flow.to_send > 0) {
                // One call for each message, as programs do; what TCP did not take comes next.
                const std::size_t n = moved(::send(fd, out_.data(), sample.size - flow.in_message,
                                                   MSG_NOSIGNAL | MSG_DONTWAIT),
                                            false);
                flow.to_send -= n;
                flow.in_message = (flow.in_message + n) % sample.size;
                any = any || n > 0;
            }
            // A pure sender looks for the ack only once it is due, as other programs would.
            if (flow.to_receive > 0 && (receives || flow.to_send == 0)) {
                const std::size_t room = std::min<std::uint64_t>(in_.size(), flow.to_receive);
                const std::size_t n = moved(recv(fd, in_.data(), room, MSG_DONTWAIT), true);
                flow.to_receive -= n;
                any = any || n > 0;
            }
            const std::uint64_t ack_in = sends ? kAckBytes : 0;
            if (flow.ack_owed && flow.to_send == 0 && flow.to_receive <= ack_in) {
                const std::size_t n =
                    moved(::send(fd, out_.data(), kAckBytes, MSG_NOSIGNAL | MSG_DONTWAIT), false);
                flow.ack_owed = n == 0;
                any = any || n > 0;
            }
            polled[i] = {fd,
                         static_cast<short>(
                             (flow.to_receive > 0 && (receives || flow.to_send == 0) ? POLLIN : 0) |
                             (flow.to_send > 0 || flow.ack_owed ? POLLOUT : 0)),
                         0};
            finished = finished && flow.to_send == 0 && flow.to_receive == 0 && !flow.ack_owed;
        }
        if (finished) return static_cast<double>(now_ns() - begin);
        if (any) {
            stalled = 0;
            continue;
        }
        wait_for(-1, 0, true, stalled);
        if (!sample.polling) poll(polled.data(), polled.size(), 200);
    }
}

}  // namespace xsock::tools::perf
