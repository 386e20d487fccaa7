// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/recv_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

namespace xsock {
namespace {

std::array<std::byte, 64> memory;

TEST(RecvQueue, gives_back_what_was_posted_oldest_first) {
    RecvQueue queue(8);
    const std::array sges{Sge{memory.data(), 10, 3}, Sge{memory.data() + 10, 5, 4}};
    ASSERT_TRUE(queue.post({.wr_id = 1, .sges = sges}));
    ASSERT_TRUE(queue.post({.wr_id = 2}));
    EXPECT_EQ(queue.size(), 2u);
    RecvWqe wqe;
    ASSERT_TRUE(queue.take(wqe));
    EXPECT_EQ(wqe.wr_id, 1u);
    EXPECT_EQ(wqe.length, 15u);
    ASSERT_EQ(wqe.sge_count, 2);
    EXPECT_EQ(wqe.sge[0].address, memory.data());
    EXPECT_EQ(wqe.sge[0].length, 10u);
    EXPECT_EQ(wqe.sge[0].lkey, 3u);
    EXPECT_EQ(wqe.sge[1].address, memory.data() + 10);
    EXPECT_EQ(wqe.sge[1].length, 5u);
    EXPECT_EQ(wqe.sge[1].lkey, 4u);
    ASSERT_TRUE(queue.take(wqe));
    EXPECT_EQ(wqe.wr_id, 2u);
    EXPECT_EQ(wqe.length, 0u);
    EXPECT_EQ(wqe.sge_count, 0);
    EXPECT_FALSE(queue.take(wqe));
}

TEST(RecvQueue, keeps_order_while_it_wraps_and_grows) {
    RecvQueue queue(100);
    RecvWqe wqe;
    std::uint64_t posted = 0, taken = 0;
    for (int round = 0; round < 30; ++round) {
        for (int i = 0; i < 7 && posted - taken < 100; ++i) {
            ASSERT_TRUE(queue.post({.wr_id = posted++}));
        }
        for (int i = 0; i < 4; ++i) {
            ASSERT_TRUE(queue.take(wqe));
            EXPECT_EQ(wqe.wr_id, taken++);
        }
    }
    while (queue.take(wqe)) EXPECT_EQ(wqe.wr_id, taken++);
    EXPECT_EQ(taken, posted);
}

TEST(RecvQueue, taking_ahead_shows_in_nothing) {
    RecvQueue queue(40, /*exclusive=*/true);
    RecvWqe wqe;
    std::uint64_t posted = 0, taken = 0;
    for (int round = 0; round < 200; ++round) {
        while (queue.size() < 40) {
            const std::array sges{Sge{memory.data(), static_cast<std::uint32_t>(posted), 1},
                                  Sge{memory.data(), 1, 2}};
            ASSERT_TRUE(queue.post({.wr_id = posted, .sges = std::span(sges).first(posted % 3)}));
            ++posted;
        }
        EXPECT_EQ(queue.post({}).error().code, ENOBUFS);
        for (int i = 0; i < 1 + round % 41 && queue.size() != 0; ++i) {
            ASSERT_TRUE(queue.take(wqe));
            ASSERT_EQ(wqe.wr_id, taken);
            ASSERT_EQ(wqe.sge_count, taken % 3);
            if (wqe.sge_count > 0) {
                EXPECT_EQ(wqe.sge[0].length, static_cast<std::uint32_t>(taken));
            }
            if (wqe.sge_count > 1) {
                EXPECT_EQ(wqe.sge[1].lkey, 2u);
            }
            ++taken;
            EXPECT_EQ(queue.size(), posted - taken);
        }
    }
    queue.close();
    while (queue.take(wqe)) EXPECT_EQ(wqe.wr_id, taken++);
    EXPECT_EQ(taken, posted);
    EXPECT_EQ(queue.size(), 0u);
}

TEST(RecvQueue, a_queue_found_empty_says_so_once) {
    RecvQueue queue(40, /*exclusive=*/true);
    RecvWqe wqe;
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(queue.post({}));
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(queue.take(wqe));
    EXPECT_FALSE(queue.take(wqe));
    EXPECT_TRUE(queue.post({}).value());
    EXPECT_FALSE(queue.post({}).value());
}

TEST(RecvQueue, is_full_at_its_very_depth) {
    RecvQueue queue(5);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(queue.post({}));
    EXPECT_EQ(queue.post({}).error().code, ENOBUFS);
    RecvWqe wqe;
    ASSERT_TRUE(queue.take(wqe));
    EXPECT_TRUE(queue.post({}));
    EXPECT_EQ(RecvQueue(0).post({}).error().code, ENOBUFS);
}

TEST(RecvQueue, refuses_what_is_malformed) {
    RecvQueue queue(8);
    const std::vector<Sge> many(kMaxSge + 1, Sge{memory.data(), 1, 0});
    EXPECT_EQ(queue.post({.sges = many}).error().code, EINVAL);
    const std::array sges{Sge{memory.data(), ~0u, 0}, Sge{memory.data(), 1, 0}};
    EXPECT_EQ(queue.post({.sges = sges}).error().code, EMSGSIZE);
    EXPECT_TRUE(queue.post({.sges = std::span(sges).first(1)}));
    EXPECT_EQ(queue.size(), 1u);
}

TEST(RecvQueue, post_tells_once_that_a_poller_went_away_empty_handed) {
    RecvQueue queue(8);
    RecvWqe wqe;
    EXPECT_FALSE(queue.post({}).value());
    ASSERT_TRUE(queue.take(wqe));
    EXPECT_FALSE(queue.take(wqe));
    EXPECT_FALSE(queue.take(wqe));
    EXPECT_TRUE(queue.post({}).value());
    EXPECT_FALSE(queue.post({}).value());
}

TEST(RecvQueue, closed_can_still_be_emptied) {
    RecvQueue queue(8);
    ASSERT_TRUE(queue.post({.wr_id = 9}));
    queue.close();
    EXPECT_EQ(queue.post({}).error().code, EPIPE);
    RecvWqe wqe;
    ASSERT_TRUE(queue.take(wqe));
    EXPECT_EQ(wqe.wr_id, 9u);
}

TEST(RecvQueue, limit_is_reached_once) {
    RecvQueue queue(8);
    RecvWqe wqe;
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(queue.post({}));
    queue.arm_limit(3);
    ASSERT_TRUE(queue.take(wqe));  // 3 left: not below
    EXPECT_FALSE(queue.limit_reached());
    ASSERT_TRUE(queue.take(wqe));
    EXPECT_TRUE(queue.limit_reached());
    EXPECT_FALSE(queue.limit_reached());
    ASSERT_TRUE(queue.take(wqe));  // disarmed
    EXPECT_FALSE(queue.limit_reached());
}

TEST(RecvQueue, tells_of_its_limit_once_for_each_arming) {
    RecvQueue queue(8);
    RecvWqe wqe;
    int told = 0;
    queue.set_limit_notifier([](void* count) { ++*static_cast<int*>(count); }, &told);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(queue.post({}));
    queue.arm_limit(4);
    ASSERT_TRUE(queue.take(wqe));
    ASSERT_TRUE(queue.take(wqe));
    EXPECT_EQ(told, 1);
    queue.arm_limit(2);
    ASSERT_TRUE(queue.take(wqe));
    EXPECT_EQ(told, 2);
}

TEST(RecvQueue, tells_at_once_of_a_limit_above_what_is_posted) {
    RecvQueue queue(8);
    int told = 0;
    queue.set_limit_notifier([](void* count) { ++*static_cast<int*>(count); }, &told);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(queue.post({}));
    queue.arm_limit(2);  // not below
    EXPECT_EQ(told, 0);
    queue.arm_limit(3);
    EXPECT_EQ(told, 1);
    EXPECT_TRUE(queue.limit_reached());
    RecvWqe wqe;
    ASSERT_TRUE(queue.take(wqe));  // disarmed
    EXPECT_EQ(told, 1);
}

TEST(RecvQueue, many_posters_many_pollers_each_receive_once) {
    constexpr std::uint64_t kThreads = 3, kEach = 10'000;
    RecvQueue queue(32);
    std::vector<std::atomic<int>> seen(kThreads * kEach);
    std::atomic<std::uint64_t> taken{0};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < kEach;) {
                if (queue.post({.wr_id = t * kEach + i})) {
                    ++i;
                } else {
                    std::this_thread::yield();
                }
            }
        });
        threads.emplace_back([&] {
            RecvWqe wqe;
            while (taken.load() < kThreads * kEach) {
                if (queue.take(wqe)) {
                    ++seen[wqe.wr_id];
                    ++taken;
                } else {
                    std::this_thread::yield();
                }
            }
        });
    }
    for (std::thread& t : threads) t.join();
    for (const auto& n : seen) ASSERT_EQ(n.load(), 1);
}

}  // namespace
}  // namespace xsock
