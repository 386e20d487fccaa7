// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// poll and select: what Linux does is what we must do.
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "tests/unit/poll/world.hpp"

namespace xsock::readiness {
namespace {

// The result and what it says of each descriptor.
std::string polled(World& w, std::vector<pollfd>& fds, int timeout_ms) {
    std::string text = std::to_string(w.poll(fds, timeout_ms)) + " ";
    for (const pollfd& entry : fds) {
        text += text_of(static_cast<std::uint16_t>(entry.revents)) + " ";
    }
    return text;
}

TEST(Poll, tells_what_was_asked_and_ends_of_the_stream) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect(), b = w.connect(), c = w.connect();
        std::vector<pollfd> fds{{w.fd(a), POLLIN, 0},
                                {w.fd(b), POLLIN | POLLOUT, 0},
                                {w.fd(c), POLLRDHUP, 0},
                                {-1, POLLIN, 0}};
        const auto poll = [&](int timeout_ms) {
            // Several times: beside what is ready all the time, news may take a few calls.
            for (int i = 0; i < 10; ++i) w.poll(fds, 0);
            log.push_back(polled(w, fds, timeout_ms));
        };
        poll(0);
        w.peer_send(a, 3);
        usleep(5000);
        poll(1000);
        w.recv(a, 3);
        w.peer_finish(c);
        usleep(5000);
        poll(1000);
        w.peer_reset(b);
        usleep(5000);
        poll(1000);
        w.fill(a);
        fds[0].events = POLLOUT;
        poll(0);
        w.peer_drain(a);
        poll(1000);
    });
}

TEST(Poll, plain_descriptors_beside_sockets_and_closed_numbers) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect();
        const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        const int closed = dup(event);
        close(closed);
        std::vector<pollfd> fds{{event, POLLIN, 0}, {w.fd(a), POLLIN, 0}, {event, POLLOUT, 0}};
        const auto poll = [&](int timeout_ms) { log.push_back(polled(w, fds, timeout_ms)); };
        poll(0);
        w.peer_send(a, 1);
        usleep(5000);
        poll(1000);
        const std::uint64_t one = 1;
        ASSERT_EQ(write(event, &one, sizeof one), 8);
        poll(1000);
        fds.push_back({closed, POLLIN, 0});
        poll(1000);
        fds[0].fd = ~fds[0].fd;
        fds[2].fd = -1;
        poll(0);
        close(event);
    });
}

TEST(Poll, does_not_return_before_the_time_is_over) {
    EngineWorld w;
    const auto a = w.connect();
    std::vector<pollfd> fds{{w.fd(a), POLLIN, 0}};
    for (const int ms : {1, 7, 30}) {
        const Time begin = monotonic_now();
        EXPECT_EQ(w.poll(fds, ms), 0);
        EXPECT_GE(monotonic_now() - begin, static_cast<Time>(ms) * kMillisecond);
    }
}

TEST(Select, sets_and_counts) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect(), b = w.connect();
        const int top = std::max(w.fd(a), w.fd(b)) + 1;
        const auto select = [&](int timeout_ms) {
            fd_set r, wr, x;
            for (fd_set* set : {&r, &wr, &x}) {
                FD_ZERO(set);
                FD_SET(w.fd(a), set);
            }
            FD_SET(w.fd(b), &r);
            FD_SET(w.fd(b), &x);
            std::string line = std::to_string(w.select(top, &r, &wr, &x, timeout_ms));
            for (const fd_set* set : {&r, &wr, &x}) {
                line += FD_ISSET(w.fd(a), set) ? " a" : " -";
                line += FD_ISSET(w.fd(b), set) ? " b" : " -";
            }
            log.push_back(line);
        };
        select(0);
        w.peer_send(b, 1);
        usleep(5000);
        select(1000);
        w.recv(b, 1);
        w.fill(a);
        select(0);
        w.peer_finish(a);
        usleep(5000);
        select(1000);
        w.peer_reset(b);
        usleep(5000);
        select(1000);
    });
}

TEST(Select, a_hang_up_does_not_end_a_wait_for_exceptions) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect(), b = w.connect();
        fd_set x, r;
        FD_ZERO(&x);
        FD_ZERO(&r);
        FD_SET(w.fd(a), &x);
        FD_SET(w.fd(b), &r);
        // A plain descriptor that hangs up, only in the set of exceptions.
        const auto [plain, peer] = tcp_pair();
        FD_SET(plain, &x);
        shutdown(plain, SHUT_WR);
        close(peer);
        w.peer_finish(a);
        w.finish(a);
        usleep(5000);
        const int top = std::max({w.fd(a), w.fd(b), plain}) + 1;
        const Time begin = monotonic_now();
        log.push_back(std::to_string(w.select(top, &r, nullptr, &x, 30)));
        log.push_back(monotonic_now() - begin >= 29 * kMillisecond ? "waited" : "ended");
        close(plain);
    });
}

TEST(Select, a_closed_number_is_an_error) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect();
        fd_set r;
        FD_ZERO(&r);
        FD_SET(w.fd(a), &r);
        const int closed = dup(w.fd(a));
        close(closed);
        FD_SET(closed, &r);
        log.push_back(
            std::to_string(w.select(std::max(closed, w.fd(a)) + 1, &r, nullptr, nullptr, 1000)));
        log.push_back(FD_ISSET(w.fd(a), &r) ? "unchanged" : "changed");
    });
}

}  // namespace
}  // namespace xsock::readiness
