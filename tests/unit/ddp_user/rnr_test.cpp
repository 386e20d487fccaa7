// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/rnr.hpp"

#include <gtest/gtest.h>

namespace xsock::ddp {
namespace {

constexpr Time kEvery = 10, kBegin = 1000;

/// As Connection asks.
bool tells(RnrWait& wait, Time now, Time every = kEvery, bool given = true) {
    if (!wait.notice_due(now)) return false;
    wait.noticed(now, every, given);
    return given;
}

TEST(RnrWait, tells_at_the_end_of_each_time_and_seven_times_at_most) {
    RnrWait wait;
    wait.begin(kBegin, kNever, kEvery);
    for (Time i = 1; i <= 7; ++i) {
        EXPECT_EQ(wait.next_timeout(), kBegin + i * kEvery);
        EXPECT_FALSE(tells(wait, kBegin + i * kEvery - 1));
        EXPECT_TRUE(tells(wait, kBegin + i * kEvery));
        EXPECT_FALSE(tells(wait, kBegin + i * kEvery));
    }
    EXPECT_EQ(wait.next_timeout(), kNever);
    EXPECT_FALSE(wait.over(kNever - 1));
    EXPECT_TRUE(wait.begun());
}

TEST(RnrWait, tells_once_for_times_that_have_passed_together) {
    RnrWait wait;
    wait.begin(kBegin, kNever, kEvery);
    EXPECT_TRUE(tells(wait, kBegin + 100 * kEvery));
    EXPECT_FALSE(tells(wait, kBegin + 100 * kEvery));
    EXPECT_EQ(wait.next_timeout(), kBegin + 101 * kEvery);
}

TEST(RnrWait, what_could_not_be_told_does_not_count) {
    RnrWait wait;
    wait.begin(kBegin, kNever, kEvery);
    Time now = kBegin;
    for (int i = 0; i < 20; ++i) {
        now = wait.next_timeout();
        EXPECT_FALSE(tells(wait, now, kEvery, false));
    }
    EXPECT_GT(wait.next_timeout() - now, 100'000 * kEvery) << "tried less often";
    now = wait.next_timeout();
    EXPECT_TRUE(tells(wait, now));
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(tells(wait, now += kEvery));
    EXPECT_FALSE(tells(wait, now += kEvery));
}

TEST(RnrWait, tells_nothing_without_a_time) {
    RnrWait wait;
    wait.begin(kBegin, kNever, 0);
    EXPECT_EQ(wait.next_timeout(), kNever);
    EXPECT_FALSE(wait.notice_due(kNever - 1));
    // One that is taken away ends it.
    wait.begin(kBegin, kNever, kEvery);
    EXPECT_TRUE(tells(wait, kBegin + kEvery, 0));
    EXPECT_EQ(wait.next_timeout(), kNever);
}

TEST(RnrWait, is_over_at_its_limit) {
    RnrWait wait;
    wait.begin(kBegin, 25, kEvery);
    EXPECT_TRUE(tells(wait, kBegin + 10));
    EXPECT_TRUE(tells(wait, kBegin + 20));
    EXPECT_EQ(wait.next_timeout(), kBegin + 25);
    EXPECT_FALSE(wait.over(kBegin + 24));
    EXPECT_TRUE(wait.over(kBegin + 25));
    wait.end();
    EXPECT_FALSE(wait.begun());
    EXPECT_EQ(wait.next_timeout(), kNever);
    EXPECT_FALSE(wait.over(kBegin + 1000));
}

TEST(RnrRetries, are_used_up_by_one_more_than_the_most) {
    for (std::uint8_t most = 0; most < kRnrForever; ++most) {
        RnrRetries retries;
        retries.set_most(most);
        for (int i = 0; i < most; ++i) retries.notice();
        EXPECT_FALSE(retries.exceeded()) << int{most};
        retries.notice();
        EXPECT_TRUE(retries.exceeded()) << int{most};
    }
}

TEST(RnrRetries, are_those_of_one_message) {
    RnrRetries retries;
    retries.set_most(1);
    for (std::uint32_t messages = 0; messages < 10; ++messages) {
        retries.taken(messages);
        retries.notice();
        EXPECT_FALSE(retries.exceeded());
    }
    retries.taken(9);
    retries.notice();
    EXPECT_TRUE(retries.exceeded());
    retries.taken(10);
    EXPECT_FALSE(retries.exceeded());
}

TEST(RnrRetries, are_endless_unless_set) {
    RnrRetries retries;
    for (int i = 0; i < 1000; ++i) retries.notice();
    EXPECT_FALSE(retries.exceeded());
}

TEST(RnrRetries, count_what_was_told_before_the_most_was_set) {
    RnrRetries retries;
    for (int i = 0; i < 7; ++i) retries.notice();
    retries.set_most(6);
    EXPECT_TRUE(retries.exceeded());
    retries.set_most(kRnrForever);
    EXPECT_FALSE(retries.exceeded());
}

}  // namespace
}  // namespace xsock::ddp
