// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/biased_lock.hpp"

#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace xsock {
namespace {

bool kernel_has_barriers() {
    const long known = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    return known > 0 && (known & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0;
}

class BiasedLockTest : public testing::Test {
  protected:
    void SetUp() override { BiasedLock::prepare(); }
};

void lock_often(BiasedLock& lock, int times) {
    for (int i = 0; i < times; ++i) const BiasedLock::Guard guard(lock);
}

TEST_F(BiasedLockTest, a_thread_that_locks_again_and_again_becomes_the_bias_owner) {
    if (!kernel_has_barriers()) GTEST_SKIP() << "no membarrier()";
    BiasedLock lock;
    lock_often(lock, BiasedLock::kFirstStreak / 2);
    EXPECT_FALSE(lock.biased());
    lock_often(lock, BiasedLock::kFirstStreak);
    EXPECT_TRUE(lock.biased());
    lock_often(lock, 10);
    EXPECT_TRUE(lock.biased());
}

TEST_F(BiasedLockTest, another_thread_takes_the_privilege_away) {
    BiasedLock lock;
    lock_often(lock, 2 * BiasedLock::kFirstStreak);
    std::thread([&] { lock_often(lock, 1); }).join();
    EXPECT_FALSE(lock.biased());
    lock_often(lock, 4 * BiasedLock::kFirstStreak);
    EXPECT_EQ(lock.biased(), kernel_has_barriers()) << "and it can be had again";
}

TEST_F(BiasedLockTest, waits_for_the_bias_owner_inside) {
    BiasedLock lock;
    lock_often(lock, 2 * BiasedLock::kFirstStreak);
    std::atomic<bool> left{false};
    std::thread other;
    {
        const BiasedLock::Guard guard(lock);
        other = std::thread([&] {
            const BiasedLock::Guard its(lock);
            EXPECT_TRUE(left.load());
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        left.store(true);
    }
    other.join();
}

TEST_F(BiasedLockTest, the_bias_owner_waits_for_the_holder) {
    BiasedLock lock;
    lock_often(lock, 2 * BiasedLock::kFirstStreak);
    std::atomic<bool> held{false}, left{false};
    std::thread other([&] {
        const BiasedLock::Guard guard(lock);
        held.store(true);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        left.store(true);
    });
    while (!held.load()) std::this_thread::yield();
    {
        const BiasedLock::Guard guard(lock);
        EXPECT_TRUE(left.load());
    }
    other.join();
}

// The tag of a thread that has ended may be given to the next one: all live at the same time.
TEST_F(BiasedLockTest, few_threads_can_be_bias_owners) {
    if (!kernel_has_barriers()) GTEST_SKIP() << "no membarrier()";
    constexpr int kThreads = 6;
    BiasedLock lock;
    std::atomic<int> turn{0};
    int bias_owners = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            while (turn.load() != t) std::this_thread::yield();
            lock_often(lock, 64 * BiasedLock::kFirstStreak + 1);
            if (lock.biased()) ++bias_owners;
            turn.store(t + 1);
            while (turn.load() != kThreads) std::this_thread::yield();
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(bias_owners, 4);
}

// Long streaks of each thread, met by the others at any moment: nothing is counted twice or lost.
TEST_F(BiasedLockTest, excludes_threads_that_come_and_go) {
    constexpr int kThreads = 3, kRounds = 60, kStreak = 3000;
    BiasedLock lock;
    long count = 0, mirror = 0;  // two words: a torn update shows
    bool torn = false;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            for (int round = 0; round < kRounds; ++round) {
                for (int i = 0; i < kStreak; ++i) {
                    const BiasedLock::Guard guard(lock);
                    torn = torn || count != mirror;
                    ++count;
                    ++mirror;
                }
                std::this_thread::sleep_for(std::chrono::microseconds(100 * (t + 1)));
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(torn);
    EXPECT_EQ(count, long{kThreads} * kRounds * kStreak);
    EXPECT_EQ(mirror, count);
}

}  // namespace
}  // namespace xsock
