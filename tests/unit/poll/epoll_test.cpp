// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// epoll: what Linux does is what we must do.
#include <gtest/gtest.h>

#include "tests/unit/poll/world.hpp"

namespace xsock::readiness {
namespace {

constexpr std::uint32_t kET = EPOLLET, kOne = EPOLLONESHOT;

TEST(Epoll, a_level_is_told_until_it_is_over) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect();
        log.push_back(std::to_string(w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 7)));
        log.push_back(text_of(w.wait(8, 0)));
        w.peer_send(a, 10);
        log.push_back(text_of(w.wait(8, 1000)));
        log.push_back(text_of(w.wait(8, 0)));
        w.recv(a, 4);
        log.push_back(text_of(w.wait(8, 0)));
        w.recv(a, 6);
        log.push_back(text_of(w.wait(8, 0)));
        w.peer_send(a, 1);
        log.push_back(text_of(w.wait(8, 1000)));
    });
}

TEST(Epoll, an_edge_is_told_once_for_each_arrival) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect();
        w.ctl(EPOLL_CTL_ADD, a, EPOLLIN | EPOLLOUT | kET, 1);
        log.push_back(text_of(w.wait(8, 0)));
        log.push_back(text_of(w.wait(8, 0)));
        w.peer_send(a, 10);
        log.push_back(text_of(w.wait(8, 1000)));
        log.push_back(text_of(w.wait(8, 0)));
        w.peer_send(a, 10);  // more, though the first was not read
        log.push_back(text_of(w.wait(8, 1000)));
        w.recv(a, 5);
        log.push_back(text_of(w.wait(8, 0)));
        w.recv(a, 100);
        log.push_back(text_of(w.wait(8, 0)));
        w.peer_send(a, 1);
        log.push_back(text_of(w.wait(8, 1000)));
    });
}

TEST(Epoll, an_edge_that_was_there_before_is_told_when_added_and_when_modified) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect();
        w.peer_send(a, 1);
        w.ctl(EPOLL_CTL_ADD, a, EPOLLIN | kET, 1);
        log.push_back(text_of(w.wait(8, 1000)));
        log.push_back(text_of(w.wait(8, 0)));
        w.ctl(EPOLL_CTL_MOD, a, EPOLLIN | kET, 2);
        log.push_back(text_of(w.wait(8, 0)));
        log.push_back(text_of(w.wait(8, 0)));
    });
}

TEST(Epoll, writable_ends_and_begins_again) {
    for (const std::uint32_t how : {0u, kET, kOne}) {
        expect_same([how](World& w, Log& log) {
            const auto a = w.connect();
            w.ctl(EPOLL_CTL_ADD, a, EPOLLOUT | how, 1);
            log.push_back(text_of(w.wait(8, 0)));
            w.fill(a);
            if (how == kOne) w.ctl(EPOLL_CTL_MOD, a, EPOLLOUT | how, 2);
            log.push_back(text_of(w.wait(8, 0)));
            w.peer_drain(a);
            log.push_back(text_of(w.wait(8, 2000)));
            if (how != 0) log.push_back(text_of(w.wait(8, 0)));
        });
    }
}

TEST(Epoll, oneshot_is_silent_until_armed_again) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect();
        w.ctl(EPOLL_CTL_ADD, a, EPOLLIN | kOne, 1);
        w.peer_send(a, 1);
        log.push_back(text_of(w.wait(8, 1000)));
        w.peer_send(a, 1);
        log.push_back(text_of(w.wait(8, 20)));
        w.ctl(EPOLL_CTL_MOD, a, EPOLLIN | kOne, 2);
        log.push_back(text_of(w.wait(8, 0)));
        // Silent of hang-ups too.
        w.peer_finish(a);
        w.finish(a);
        log.push_back(text_of(w.wait(8, 20)));
        w.ctl(EPOLL_CTL_MOD, a, EPOLLOUT | kOne | kET, 3);
        log.push_back(text_of(w.wait(8, 1000)));
        log.push_back(text_of(w.wait(8, 0)));
    });
}

TEST(Epoll, ends_of_the_stream) {
    for (const std::uint32_t how : {0u, kET}) {
        expect_same([how](World& w, Log& log) {
            const auto a = w.connect();
            w.ctl(EPOLL_CTL_ADD, a, EPOLLIN | EPOLLRDHUP | how, 1);
            const auto b = w.connect();
            w.ctl(EPOLL_CTL_ADD, b, EPOLLOUT | EPOLLIN | how, 2);
            log.push_back(text_of(w.wait(8, 0)));
            w.peer_finish(a);
            log.push_back(text_of(w.wait(1, 1000)));
            log.push_back(std::to_string(w.recv(a, 1)));
            w.close(a);
            w.peer_reset(b);
            log.push_back(text_of(w.wait(8, 1000)));
        });
    }
}

TEST(Epoll, hang_up_is_told_unrequested) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect();
        w.ctl(EPOLL_CTL_ADD, a, 0, 1);
        w.peer_send(a, 1);
        log.push_back(text_of(w.wait(8, 20)));
        w.peer_reset(a);
        log.push_back(text_of(w.wait(8, 1000)));
    });
}

TEST(Epoll, normal_data_bits_are_told_if_asked) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect();
        w.ctl(EPOLL_CTL_ADD, a, EPOLLRDNORM | EPOLLWRNORM, 1);
        w.peer_send(a, 1);
        log.push_back(text_of(w.wait(8, 1000)));
    });
}

TEST(Epoll, errors_of_ctl) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect(), b = w.connect();
        const auto say = [&](int result) { log.push_back(std::to_string(result)); };
        say(w.ctl(EPOLL_CTL_MOD, a, EPOLLIN, 1));
        say(w.ctl(EPOLL_CTL_DEL, a, EPOLLIN, 1));
        say(w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 1));
        say(w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 1));
        say(w.ctl(EPOLL_CTL_MOD, a, EPOLLIN | EPOLLEXCLUSIVE, 1));
        say(w.ctl(EPOLL_CTL_DEL, a, 0, 0));
        say(w.ctl(EPOLL_CTL_DEL, a, 0, 0));
        say(w.ctl(EPOLL_CTL_ADD, a, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
        say(w.ctl(EPOLL_CTL_ADD, a, EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP, 1));
        say(w.ctl(EPOLL_CTL_ADD, a, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 1));
        say(w.ctl(EPOLL_CTL_MOD, a, EPOLLIN, 1));
        say(w.ctl(EPOLL_CTL_ADD, b, 0xffffffff & ~std::uint32_t{EPOLLEXCLUSIVE}, 1));
        say(w.ctl(EPOLL_CTL_MOD, b, EPOLLIN, 1));
    });
}

TEST(Epoll, a_taken_out_member_is_silent) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect();
        w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 1);
        w.peer_send(a, 1);
        log.push_back(text_of(w.wait(8, 1000)));
        w.ctl(EPOLL_CTL_DEL, a, 0, 0);
        log.push_back(text_of(w.wait(8, 20)));
        w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 2);
        log.push_back(text_of(w.wait(8, 0)));
    });
}

TEST(Epoll, a_closed_member_is_gone) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect(), b = w.connect();
        w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 1);
        w.ctl(EPOLL_CTL_ADD, b, EPOLLIN, 2);
        w.peer_send(a, 1);
        w.peer_send(b, 1);
        usleep(20000);
        w.close(a);
        log.push_back(text_of(w.wait(8, 1000)));
    });
}

TEST(Epoll, level_triggered_members_take_turns) {
    expect_same([](World& w, Log& log) {
        for (std::uint64_t i = 0; i < 5; ++i) {
            w.ctl(EPOLL_CTL_ADD, w.connect(), EPOLLOUT, i);
        }
        for (int i = 0; i < 6; ++i) log.push_back(text_of(w.wait(2, 0)));
    });
}

TEST(Epoll, order_is_that_of_arrival) {
    expect_same([](World& w, Log& log) {
        for (std::uint64_t i = 0; i < 4; ++i) {
            w.ctl(EPOLL_CTL_ADD, w.connect(), EPOLLIN | kET, i);
        }
        for (const std::size_t i : {2u, 0u, 3u}) {
            w.peer_send(i, 1);
            usleep(5000);
            log.push_back(text_of(w.wait(1, 1000)));
        }
        log.push_back(text_of(w.wait(8, 0)));
    });
}

TEST(Epoll, an_interest_may_change_while_ready) {
    expect_same([](World& w, Log& log) {
        const auto a = w.connect();
        w.ctl(EPOLL_CTL_ADD, a, EPOLLIN | EPOLLOUT, 1);
        w.peer_send(a, 1);
        usleep(5000);
        w.wait(8, 0);  // brings the byte in
        log.push_back(text_of(w.wait(8, 0)));
        w.ctl(EPOLL_CTL_MOD, a, EPOLLIN, 2);
        log.push_back(text_of(w.wait(8, 0)));
        w.ctl(EPOLL_CTL_MOD, a, EPOLLRDHUP, 3);
        log.push_back(text_of(w.wait(8, 0)));
        w.ctl(EPOLL_CTL_MOD, a, EPOLLOUT, 4);
        log.push_back(text_of(w.wait(8, 0)));
    });
}

}  // namespace
}  // namespace xsock::readiness
