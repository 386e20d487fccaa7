// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Leaders, followers and wake-ups without a Progress: nothing is polled here.
#include "transport/wait_group.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>

#include "transport/clock.hpp"
#include "transport/signal_blocker.hpp"

namespace xsock {
namespace {

constexpr Time kHang = 10 * kSecond;  // only reached by a failure
constexpr bool kMayLead = true;

class CountingFollower final : public WaitGroup::Follower {
  public:
    void on_lead_free() noexcept override { ++told; }
    int told = 0;
};

class WaitGroupTest : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_TRUE(group.open()); }
    void TearDown() override { group.close(); }
    [[nodiscard]] bool wake_flag_is_set() const {
        pollfd p{group.wake_fd(), POLLIN, 0};
        return poll(&p, 1, 0) == 1;
    }
    WaitGroup group;
};

TEST_F(WaitGroupTest, has_one_leader_at_a_time) {
    EXPECT_FALSE(group.has_leader());
    EXPECT_TRUE(group.try_lead());
    EXPECT_TRUE(group.has_leader());
    EXPECT_FALSE(group.try_lead());
    group.end_lead();
    EXPECT_TRUE(group.try_lead());
}

TEST_F(WaitGroupTest, notifies_a_leader_only_while_it_sleeps) {
    ASSERT_TRUE(group.try_lead());
    group.wake();
    EXPECT_FALSE(wake_flag_is_set());
    group.begin_sleep();
    group.wake();
    EXPECT_TRUE(wake_flag_is_set());
    EXPECT_TRUE(group.sleep_as_leader(-1, monotonic_now() + kHang, nullptr));
    group.end_sleep(true);
    EXPECT_FALSE(wake_flag_is_set());
    group.wake();
    EXPECT_FALSE(wake_flag_is_set());
}

TEST_F(WaitGroupTest, offers_the_lead_to_one_follower_after_the_other) {
    CountingFollower first, second;
    ASSERT_TRUE(group.try_lead());
    group.follow(first, kMayLead);
    group.follow(second, kMayLead);
    EXPECT_EQ(first.told, 0);
    group.end_lead();
    group.offer_lead();
    EXPECT_EQ(first.told, 1);
    EXPECT_EQ(second.told, 0);
    group.unfollow(first, kMayLead);
    EXPECT_EQ(second.told, 1);
    group.unfollow(second, kMayLead);
}

TEST_F(WaitGroupTest, tells_a_follower_at_once_that_the_lead_is_free) {
    CountingFollower follower;
    group.follow(follower, !kMayLead);
    EXPECT_EQ(follower.told, 0);
    group.unfollow(follower, !kMayLead);
    group.follow(follower, kMayLead);
    EXPECT_EQ(follower.told, 1);
    group.unfollow(follower, kMayLead);
}

TEST_F(WaitGroupTest, a_follower_that_is_done_or_may_lead_does_not_sleep) {
    SignalBlocker blocker(true);
    const Time begin = monotonic_now();
    EXPECT_TRUE(group.sleep_as_follower([] { return false; }, kMayLead, begin + kHang));
    EXPECT_TRUE(group.sleep_interruptibly([] { return false; }, kMayLead, begin + kHang, blocker));
    ASSERT_TRUE(group.try_lead());
    EXPECT_TRUE(group.sleep_as_follower([] { return true; }, kMayLead, begin + kHang));
    EXPECT_TRUE(group.sleep_interruptibly([] { return true; }, kMayLead, begin + kHang, blocker));
    EXPECT_LT(monotonic_now() - begin, kHang);
}

TEST_F(WaitGroupTest, wakes_followers_of_either_kind) {
    constexpr int kRounds = 500;
    ASSERT_TRUE(group.try_lead());
    std::atomic<int> round{0}, seen{0}, seen_by_interruptible{0};
    const auto follow = [&](std::atomic<int>& mine, bool interruptible) {
        SignalBlocker blocker(true);
        const Time limit = monotonic_now() + kHang;
        const auto done = [&] { return round > mine; };
        while (mine < kRounds && monotonic_now() < limit) {
            if (interruptible) {
                EXPECT_TRUE(group.sleep_interruptibly(done, kMayLead, limit, blocker));
            } else {
                group.sleep_as_follower(done, kMayLead, limit);
            }
            if (done()) ++mine;
        }
    };
    std::thread follower([&] { follow(seen, false); });
    std::thread interruptible([&] { follow(seen_by_interruptible, true); });
    const Time limit = monotonic_now() + kHang;
    while (round < kRounds && monotonic_now() < limit) {
        ++round;
        group.wake();
        while ((seen < round || seen_by_interruptible < round) && monotonic_now() < limit) {
            std::this_thread::yield();
        }
    }
    follower.join();
    interruptible.join();
    EXPECT_EQ(seen, kRounds);
    EXPECT_EQ(seen_by_interruptible, kRounds);
}

}  // namespace
}  // namespace xsock
