// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/spin_score.hpp"

#include <gtest/gtest.h>

namespace xsock {
namespace {

// Waits, all with the same luck; answers how many of them spun.
int spins(SpinScore& score, int waits, bool found) {
    int spun = 0;
    for (int i = 0; i < waits; ++i) {
        if (!score.worth_while()) continue;
        score.count(found);
        ++spun;
    }
    return spun;
}

TEST(SpinScore, spins_as_long_as_it_finds) {
    SpinScore score;
    EXPECT_EQ(spins(score, 1000, true), 1000);
}

TEST(SpinScore, a_few_failures_change_nothing) {
    SpinScore score;
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(spins(score, 5, false), 5);
        EXPECT_EQ(spins(score, 4, true), 4);
    }
}

TEST(SpinScore, gives_up_when_it_never_finds_and_tries_ever_more_seldom) {
    SpinScore score;
    EXPECT_EQ(spins(score, 8, false), 8);
    EXPECT_EQ(spins(score, 9, false), 1);
    EXPECT_EQ(spins(score, 17, false), 1);
    spins(score, 2000, false);
    EXPECT_LE(spins(score, 100'000, false), 200);  // and goes on trying
    EXPECT_GE(spins(score, 100'000, false), 190);
}

TEST(SpinScore, one_stroke_of_luck_is_not_enough) {
    SpinScore score;
    spins(score, 5000, false);
    while (!score.worth_while()) {
    }
    score.count(true);
    EXPECT_LE(spins(score, 512, false), 3);
}

TEST(SpinScore, comes_back_when_it_finds_again) {
    SpinScore score;
    spins(score, 5000, false);
    spins(score, 513, true);  // until it tried, and found
    EXPECT_EQ(spins(score, 1000, true), 1000);
    EXPECT_EQ(spins(score, 8, false), 8);  // as at the beginning
    EXPECT_EQ(spins(score, 9, false), 1);
}

TEST(SpinScore, that_begins_without_proof_pays_once_it_has_found) {
    SpinScore score(false);
    EXPECT_TRUE(score.worth_while());
    EXPECT_FALSE(score.pays());
    score.count(true);
    EXPECT_TRUE(score.pays());
}

TEST(SpinScore, pays_while_it_finds_each_time) {
    SpinScore score;
    EXPECT_TRUE(score.pays());
    score.count(false);
    EXPECT_FALSE(score.pays());
    score.count(true);
    EXPECT_TRUE(score.pays());
    spins(score, 5000, false);
    while (!score.worth_while()) {
    }
    score.count(true);
    EXPECT_FALSE(score.pays()) << "once, after many failures";
    spins(score, 3, true);
    EXPECT_TRUE(score.pays());
}

TEST(SpinScore, is_not_tried_for_ever_more_waits_if_it_is_given_up_again_and_again) {
    SpinScore score;
    for (const int waits : {64, 256, 1024, 4096, 16384, 16384}) {
        score.give_up();
        EXPECT_FALSE(score.pays());
        EXPECT_EQ(spins(score, waits, true), 0);
        EXPECT_TRUE(score.worth_while());
    }
    EXPECT_EQ(spins(score, 4, true), 4);
    EXPECT_TRUE(score.pays());
    score.give_up();
    EXPECT_EQ(spins(score, 65, true), 1) << "as at the beginning";
}

}  // namespace
}  // namespace xsock
