// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The list of items whose memory is polled, with items that do as they are told.
#include "transport/memory_polling.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <vector>

#include "tests/unit/transport/polled_progress.hpp"

namespace xsock {
namespace {

class Item final : public PolledMemory {
  public:
    bool poll_memory(PollCycle&) override {
        ++polls;
        if (exhausted) throw std::bad_alloc();
        if (ends != nullptr) ends->end(*other);
        if (has == 0) return false;
        --has;
        return true;
    }
    bool arm() override {
        ++arms;
        armed = has == 0;
        return armed;
    }
    void disarm() override { armed = false; }
    [[nodiscard]] bool is_relied_on() const noexcept override { return relied_on; }
    void on_ready(std::uint32_t, PollCycle&) override {}
    void on_notify(PollCycle&) override {}
    void on_time(PollCycle&) override {}
    void on_failure(PollCycle&) noexcept override { ++failures; }

    int has = 0;  // so many polls find something
    int polls = 0, arms = 0, failures = 0;
    bool armed = true, exhausted = false, relied_on = false;
    MemoryPolling* ends = nullptr;  // which poll_memory() ends `other` of
    Item* other = nullptr;
};

class MemoryPollingTest : public test::PolledProgressTest {
  protected:
    template <typename F>
    auto in_cycle(F&& f) {
        return progress->locked([&](PollCycle& cycle) { return f(cycle); });
    }
    bool poll() {
        return in_cycle([&](PollCycle& cycle) { return polling.poll(cycle); });
    }
    bool arm_all() {
        return in_cycle([&](PollCycle& cycle) { return polling.arm_all(cycle); });
    }
    bool arm_relied_on() {
        return in_cycle([&](PollCycle& cycle) { return polling.arm_relied_on(cycle); });
    }

    MemoryPolling polling;
    Item a, b;
};

TEST_F(MemoryPollingTest, polls_what_has_begun_until_it_ends) {
    EXPECT_TRUE(polling.begin(a));
    EXPECT_TRUE(polling.begin(a));  // nothing happens the second time
    EXPECT_EQ(polling.size(), 1U);
    EXPECT_FALSE(a.armed);
    a.has = 1;
    EXPECT_TRUE(poll());
    EXPECT_FALSE(poll());
    EXPECT_EQ(a.polls, 2);
    polling.end(a);
    polling.end(a);
    EXPECT_FALSE(poll());
    EXPECT_EQ(a.polls, 2);
}

TEST_F(MemoryPollingTest, is_detached_while_it_has_items) {
    EXPECT_FALSE(polling.is_detached());
    polling.begin(a);
    polling.begin(b);
    polling.end(a);
    EXPECT_TRUE(polling.is_detached());
    polling.end(b);
    EXPECT_FALSE(polling.is_detached());
}

TEST_F(MemoryPollingTest, takes_no_more_than_it_can_poll) {
    std::vector<Item> all(MemoryPolling::kMost);
    for (Item& item : all) EXPECT_TRUE(polling.begin(item));
    EXPECT_FALSE(polling.begin(a));
    EXPECT_TRUE(a.armed);
    polling.end(all[3]);
    EXPECT_TRUE(polling.begin(a));
    EXPECT_FALSE(a.armed);
}

TEST_F(MemoryPollingTest, arms_one_of_several_that_was_idle_for_long) {
    polling.begin(a);
    polling.begin(b);
    for (std::uint32_t i = 0; i < MemoryPolling::kIdleCycles; ++i) {
        EXPECT_EQ(polling.size(), 2U);
        b.has = 1;
        poll();
    }
    EXPECT_EQ(polling.size(), 1U);
    EXPECT_TRUE(a.armed);
    EXPECT_FALSE(b.armed);
}

TEST_F(MemoryPollingTest, does_not_arm_a_single_one_that_is_idle) {
    polling.begin(a);
    for (std::uint32_t i = 0; i <= MemoryPolling::kIdleCycles; ++i) poll();
    EXPECT_EQ(polling.size(), 1U);
    EXPECT_EQ(a.arms, 0);
}

TEST_F(MemoryPollingTest, arm_all_polls_once_what_has_more_and_keeps_it_if_there_is_still_some) {
    polling.begin(a);
    polling.begin(b);
    a.has = 1;
    b.has = 2;
    EXPECT_FALSE(arm_all());
    EXPECT_TRUE(a.armed);
    EXPECT_FALSE(b.armed);
    EXPECT_EQ(a.polls, 1);
    EXPECT_EQ(b.polls, 1);
    EXPECT_TRUE(polling.is_detached());
    poll();
    EXPECT_TRUE(arm_all());
    EXPECT_FALSE(polling.is_detached());
}

TEST_F(MemoryPollingTest, arms_what_is_relied_on_and_polls_the_others_on) {
    polling.begin(a);
    polling.begin(b);
    EXPECT_TRUE(arm_relied_on());
    EXPECT_EQ(polling.size(), 2U);
    b.relied_on = true;
    EXPECT_TRUE(arm_relied_on());
    EXPECT_EQ(polling.size(), 1U);
    EXPECT_FALSE(a.armed);
    EXPECT_TRUE(b.armed);
    EXPECT_TRUE(polling.is_detached());
    polling.begin(b);
    b.has = 2;
    EXPECT_FALSE(arm_relied_on());
    EXPECT_EQ(polling.size(), 2U);
    EXPECT_FALSE(b.armed);
}

TEST_F(MemoryPollingTest, an_item_may_end_itself_or_another_while_it_is_polled) {
    polling.begin(a);
    polling.begin(b);
    b.ends = &polling;
    b.other = &a;
    poll();
    EXPECT_EQ(a.polls, 0);
    EXPECT_EQ(polling.size(), 1U);
    b.other = &b;
    poll();
    EXPECT_TRUE(polling.empty());
}

TEST_F(MemoryPollingTest, fails_alone_an_item_that_runs_out_of_memory) {
    polling.begin(a);
    polling.begin(b);
    b.exhausted = true;
    a.has = 1;
    EXPECT_TRUE(poll());
    EXPECT_EQ(a.failures, 0);
    EXPECT_EQ(b.failures, 1);
}

TEST_F(MemoryPollingTest, epoll_is_due_where_it_must_be_asked_next) {
    in_cycle([&](PollCycle& cycle) {
        polling.epoll_asked(cycle);
        EXPECT_FALSE(polling.epoll_due(cycle));
        polling.ask_epoll_next();
        EXPECT_TRUE(polling.epoll_due(cycle));
    });
}

}  // namespace
}  // namespace xsock
