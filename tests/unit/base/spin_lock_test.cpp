// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/spin_lock.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace xsock {
namespace {

TEST(SpinLock, try_lock_takes_it_only_where_it_is_free) {
    SpinLock lock;
    EXPECT_TRUE(lock.try_lock());
    EXPECT_FALSE(lock.try_lock());
    lock.unlock();
    EXPECT_TRUE(lock.try_lock());
    lock.unlock();
}

TEST(SpinLock, one_thread_has_it_at_a_time) {
    constexpr int kThreads = 4, kTimes = 20'000;
    SpinLock lock;
    int waited = 0, tried = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            for (int n = 0; n < kTimes; ++n) {
                {
                    const std::lock_guard hold(lock);
                    ++waited;
                }
                std::unique_lock hold(lock, std::try_to_lock);
                if (!hold) hold.lock();
                ++tried;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(waited, kThreads * kTimes);
    EXPECT_EQ(tried, kThreads * kTimes);
}

}  // namespace
}  // namespace xsock
