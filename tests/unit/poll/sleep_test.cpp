// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a wait of xsock.h does before it sleeps.
#include "libxsock/sleep.hpp"

#include <gtest/gtest.h>

#include <string>

#include "libxsock/api.hpp"
#include "tests/unit/fake_group.hpp"

namespace xsock::api {
namespace {

class Group final : public test::FakeGroup {
  public:
    void poll() override { did += "poll "; }
    bool spin(const Done& done, Time) override {
        did += "spin ";
        return done();
    }
    bool yield(const Done&) override {
        did += "yield ";
        return finds;
    }
    bool yields_first() const noexcept override { return first; }

    std::string did;
    bool first = false;  // yielding has paid
    bool finds = false;  // it does
};

/// True: the wait was over without sleeping.
bool wait(Group& group, int timeout_ms) {
    PollGroup* const groups[] = {&group};
    xsock_sleep sleep{};
    const bool over = wait_outside(
        sleep, groups, [] { return false; }, timeout_ms);
    if (!over) sleep_end(&sleep);
    return over;
}

TEST(Sleep, comes_behind_a_poll_a_spin_and_a_yield) {
    Group group;
    EXPECT_FALSE(wait(group, -1));
    EXPECT_EQ(group.did, "poll spin yield ");
}

TEST(Sleep, is_spared_by_a_yield) {
    Group group;
    group.finds = true;
    EXPECT_TRUE(wait(group, -1));
    EXPECT_EQ(group.did, "poll spin yield ");
    group.did.clear();
    group.first = true;
    EXPECT_TRUE(wait(group, -1));
    EXPECT_EQ(group.did, "yield ");
}

TEST(Sleep, comes_behind_one_yield_that_was_first) {
    Group group;
    group.first = true;
    EXPECT_FALSE(wait(group, -1));
    EXPECT_EQ(group.did, "yield poll spin ");
}

TEST(Sleep, has_no_yield_ahead_where_there_is_no_time) {
    Group group;
    group.first = group.finds = true;
    EXPECT_TRUE(wait(group, 0));
    EXPECT_EQ(group.did, "poll ");
}

}  // namespace
}  // namespace xsock::api
