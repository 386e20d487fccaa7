// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/rnr.hpp"

#include <gtest/gtest.h>

namespace xsock::ddp {
namespace {

constexpr Time kEvery = 10, kBegin = 1000;

TEST(RnrWait, tells_at_the_end_of_each_time_and_seven_times_at_most) {
    RnrWait wait;
    wait.begin(kBegin, kNever, kEvery);
    for (Time i = 1; i <= 7; ++i) {
        EXPECT_EQ(wait.next_timeout(), kBegin + i * kEvery);
        EXPECT_FALSE(wait.notice_due(kBegin + i * kEvery - 1, kEvery));
        EXPECT_TRUE(wait.notice_due(kBegin + i * kEvery, kEvery));
        EXPECT_FALSE(wait.notice_due(kBegin + i * kEvery, kEvery));
    }
    EXPECT_EQ(wait.next_timeout(), kNever);
    EXPECT_FALSE(wait.over(kNever - 1));
    EXPECT_TRUE(wait.begun());
}

TEST(RnrWait, tells_once_for_times_that_have_passed_together) {
    RnrWait wait;
    wait.begin(kBegin, kNever, kEvery);
    EXPECT_TRUE(wait.notice_due(kBegin + 100 * kEvery, kEvery));
    EXPECT_FALSE(wait.notice_due(kBegin + 100 * kEvery, kEvery));
    EXPECT_EQ(wait.next_timeout(), kBegin + 101 * kEvery);
}

TEST(RnrWait, tells_nothing_without_a_time) {
    RnrWait wait;
    wait.begin(kBegin, kNever, 0);
    EXPECT_EQ(wait.next_timeout(), kNever);
    EXPECT_FALSE(wait.notice_due(kNever - 1, 0));
    // One that is taken away ends it.
    wait.begin(kBegin, kNever, kEvery);
    EXPECT_TRUE(wait.notice_due(kBegin + kEvery, 0));
    EXPECT_EQ(wait.next_timeout(), kNever);
}

TEST(RnrWait, is_over_at_its_limit) {
    RnrWait wait;
    wait.begin(kBegin, 25, kEvery);
    EXPECT_TRUE(wait.notice_due(kBegin + 10, kEvery));
    EXPECT_TRUE(wait.notice_due(kBegin + 20, kEvery));
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
        for (int i = 0; i < most; ++i) EXPECT_FALSE(retries.exceeded_by(0)) << int{most};
        EXPECT_TRUE(retries.exceeded_by(0)) << int{most};
    }
}

TEST(RnrRetries, are_those_of_one_message) {
    RnrRetries retries;
    retries.set_most(1);
    for (std::uint32_t taken = 0; taken < 10; ++taken) EXPECT_FALSE(retries.exceeded_by(taken));
    EXPECT_TRUE(retries.exceeded_by(9));
}

TEST(RnrRetries, are_endless_unless_set) {
    RnrRetries retries;
    for (int i = 0; i < 1000; ++i) EXPECT_FALSE(retries.exceeded_by(0));
    retries.set_most(6);
    EXPECT_TRUE(retries.exceeded_by(0));
}

}  // namespace
}  // namespace xsock::ddp
