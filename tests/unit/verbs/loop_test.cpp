// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The loop is used from the tests' thread, with its mutex held, while its own thread sleeps or
// calls handlers.
#include "verbs/loop.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <vector>

#include "tests/unit/loopback.hpp"
#include "transport/clock.hpp"
#include "transport/event_fd.hpp"

namespace xsock::verbs {
namespace {

std::mutex mutex;

// One for all tests: its thread does not end.
Loop& loop() {
    static Loop* const made = Loop::create(mutex)->release();
    return *made;
}

template <typename F>
auto locked(F&& f) {
    const std::lock_guard lock(mutex);
    return f();
}

bool comes_true(const std::function<bool()>& done) {
    const Time limit = monotonic_now() + 10 * kSecond;  // only reached by a failure
    while (!done()) {
        if (monotonic_now() > limit) return false;
        usleep(500);
    }
    return true;
}
void a_moment() { usleep(20'000); }

TEST(Loop, a_handler_without_memory_is_called_again) {
    EventFd event;
    ASSERT_TRUE(event.open());
    std::atomic<int> calls{0};
    const auto token = locked([&] {
        return loop().watch(event.fd(), Loop::kReadable, [&](unsigned) {
            if (++calls < 3) throw std::bad_alloc();
            event.take();
        });
    });
    event.notify();
    EXPECT_TRUE(comes_true([&] { return calls == 3; }));
    locked([&] { loop().forget(token); });
}

TEST(Loop, pauses_until_resumed_or_for_a_time) {
    EventFd event;
    ASSERT_TRUE(event.open());
    std::atomic<int> calls{0};
    std::atomic<Loop::Token> token{0};
    std::atomic<Time> pause{100 * kSecond};
    token = locked([&] {
        return loop().watch(event.fd(), Loop::kReadable, [&](unsigned) {
            ++calls;
            loop().pause(token, pause);
        });
    });
    event.notify();
    EXPECT_TRUE(comes_true([&] { return calls == 1; }));
    a_moment();
    EXPECT_EQ(calls, 1);
    pause = kMillisecond;
    locked([&] { loop().resume(token); });
    EXPECT_TRUE(comes_true([&] { return calls >= 5; }));
    locked([&] { loop().forget(token); });
}

TEST(Loop, calls_while_readable_and_not_when_forgotten) {
    EventFd event;
    ASSERT_TRUE(event.open());
    std::atomic<int> calls{0};
    const auto token = locked([&] {
        return loop().watch(event.fd(), Loop::kReadable, [&](unsigned readiness) {
            EXPECT_EQ(readiness, unsigned{Loop::kReadable});
            if (++calls >= 3) event.take();
        });
    });
    ASSERT_NE(token, 0u);
    a_moment();
    EXPECT_EQ(calls, 0);
    event.notify();
    EXPECT_TRUE(comes_true([&] { return calls == 3; }));  // level-triggered
    a_moment();
    EXPECT_EQ(calls, 3);
    locked([&] { loop().forget(token); });
    event.notify();
    a_moment();
    EXPECT_EQ(calls, 3);
    locked([&] { loop().forget(token); });  // unknown by now
}

// The number may be another file's at once, and watched anew.
TEST(Loop, a_number_closed_behind_forget_may_be_watched_again) {
    for (int i = 0; i < 200; ++i) {
        int ends[2];
        ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
        std::atomic<int> calls{0};
        const auto token = locked([&] {
            return loop().watch(ends[0], Loop::kReadable, [&](unsigned) {
                char byte = 0;
                if (read(ends[0], &byte, 1) == 1) ++calls;
            });
        });
        ASSERT_NE(token, 0u);
        ASSERT_EQ(write(ends[1], "x", 1), 1);
        ASSERT_TRUE(comes_true([&] { return calls == 1; }));
        locked([&] {
            loop().forget(token);
            close(ends[0]);
        });
        close(ends[1]);
    }
}

TEST(Loop, a_handler_may_forget_itself_and_watch_anew) {
    EventFd first, second;
    ASSERT_TRUE(first.open());
    ASSERT_TRUE(second.open());
    std::atomic<int> firsts{0}, seconds{0};
    Loop::Token token = 0, next = 0;
    locked([&] {
        token = loop().watch(first.fd(), Loop::kReadable, [&](unsigned) {
            ++firsts;
            loop().forget(token);
            next = loop().watch(second.fd(), Loop::kReadable, [&](unsigned) {
                second.take();
                ++seconds;
            });
        });
    });
    second.notify();
    first.notify();
    EXPECT_TRUE(comes_true([&] { return seconds == 1; }));
    a_moment();  // the first is still readable
    EXPECT_EQ(firsts, 1);
    locked([&] { loop().forget(next); });
}

TEST(Loop, refuses_what_epoll_refuses) {
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ASSERT_GE(file, 0);
    locked([&] {
        errno = 0;
        EXPECT_EQ(loop().watch(file, Loop::kReadable, [](unsigned) {}), 0u);
        EXPECT_EQ(errno, EPERM);
    });
    close(file);
}

TEST(Loop, an_error_is_told_once) {
    const auto pair = test::loopback_pair();
    const int client = pair.client, server = pair.server;  // (clang 14 captures no bindings)
    std::atomic<int> calls{0};
    const auto token = locked(
        [&] { return loop().watch(client, Loop::kPeerFinished, [&](unsigned) { ++calls; }); });
    const linger reset{1, 0};
    setsockopt(server, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(server);
    EXPECT_TRUE(comes_true([&] { return calls != 0; }));
    a_moment();
    EXPECT_EQ(calls, 1);
    locked([&] { loop().forget(token); });
    close(client);
}

TEST(Loop, timers_come_in_order_once_and_not_when_forgotten) {
    std::vector<int> order;
    std::atomic<bool> last{false};
    locked([&] {
        // With the lock held: no turn of the loop is later, to which some of these were past.
        const Time begin = monotonic_now();
        loop().at(begin + 30 * kMillisecond, [&] { order.push_back(30); });
        loop().at(begin + 10 * kMillisecond, [&, begin] {
            EXPECT_GE(monotonic_now(), begin + 10 * kMillisecond);
            order.push_back(10);
            throw std::bad_alloc();  // the others come all the same
        });
        const auto never = loop().at(begin + 20 * kMillisecond, [&] { order.push_back(20); });
        loop().at(begin + 5 * kMillisecond, [&, never] { loop().forget(never); });
        loop().at(begin + 40 * kMillisecond, [&] {
            loop().at(0, [&] { last = true; });  // past already: at once
        });
    });
    EXPECT_TRUE(comes_true([&] { return last.load(); }));
    EXPECT_EQ(locked([&] { return order; }), (std::vector<int>{10, 30}));
}

// A sleep that has begun is cut short by an earlier timer, or it would come late.
TEST(Loop, an_earlier_timer_of_another_thread_is_not_late) {
    std::atomic<bool> came{false};
    const auto late = locked([&] { return loop().at(monotonic_now() + 3600 * kSecond, [] {}); });
    a_moment();
    const Time begin = monotonic_now();
    locked([&] { loop().at(begin + kMillisecond, [&] { came = true; }); });
    EXPECT_TRUE(comes_true([&] { return came.load(); }));
    EXPECT_LT(monotonic_now() - begin, 5 * kSecond);
    locked([&] { loop().forget(late); });
}

TEST(Loop, what_was_only_looked_at_wakes_when_there_is_more) {
    const auto pair = test::loopback_pair();
    const int client = pair.client, server = pair.server;  // (clang 14 captures no bindings)
    std::atomic<int> calls{0};
    std::atomic<ssize_t> seen{0};
    std::atomic<bool> finished{false};
    const auto token = locked([&] {
        return loop().watch(server, Loop::kReadable | Loop::kPeerFinished, [&](unsigned readiness) {
            char bytes[64];
            ++calls;
            seen = recv(server, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
            finished = (readiness & Loop::kPeerFinished) != 0;
            expect_more_than(server, static_cast<std::size_t>(seen));
        });
    });
    ASSERT_EQ(send(client, "abc", 3, 0), 3);
    EXPECT_TRUE(comes_true([&] { return seen == 3; }));
    a_moment();
    const int calls_for_three = calls;
    EXPECT_LE(calls_for_three, 3);
    a_moment();
    EXPECT_EQ(calls, calls_for_three);  // no turn after turn for the same three
    ASSERT_EQ(send(client, "de", 2, 0), 2);
    EXPECT_TRUE(comes_true([&] { return seen == 5; }));
    EXPECT_FALSE(finished);
    shutdown(client, SHUT_WR);
    EXPECT_TRUE(comes_true([&] { return finished.load(); }));
    locked([&] { loop().forget(token); });
    close(client);
    close(server);
}

}  // namespace
}  // namespace xsock::verbs
