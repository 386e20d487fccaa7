// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Waits that yield the processor to a peer. The peer is what the test does in the place of
// sched_yield().
#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "tests/unit/transport/event_item.hpp"
#include "tests/unit/transport/polled_progress.hpp"
#include "tests/unit/yield_hook.hpp"
#include "transport/clock.hpp"

namespace xsock {
namespace {

using test::YieldHook;

constexpr Time kLimit = 10 * kSecond;  // only reached by a failure
constexpr int kMostYields = 2;         // of a wait

class Item final : public test::EventItem {
  public:
    void on_ready(std::uint32_t, PollCycle& cycle) override {
        const std::uint64_t count = take();
        if (count == 0) return;
        reads += count;
        cycle.active = true;
    }
    void on_notify(PollCycle&) override { ++notifies; }
    void on_time(PollCycle&) override {}
    void on_failure(PollCycle&) noexcept override {}

    std::atomic<std::uint64_t> reads{0};
    std::atomic<int> notifies{0};
};

class ProgressYield : public test::PolledProgressTest {
  protected:
    void SetUp() override {
        TransportConfig config;
        config.spin = 0;
        progress = make_progress(0, config);
        ASSERT_TRUE(progress);
        item = std::make_shared<Item>();
        progress->locked([&](PollCycle&) { EXPECT_TRUE(progress->add(item, item->fd, EPOLLIN)); });
    }
    /// Waits for what comes. True: it came.
    bool wait(Time limit) {
        const std::uint64_t before = item->reads;
        return progress->wait([&] { return item->reads != before; },
                              limit == 0 ? 0 : monotonic_now() + limit);
    }
    void prove() {
        const YieldHook peer([&] { item->make_readable(); });
        // (On a busy machine one may take long, and is given up for a while.)
        for (int i = 0; i < 1000 && !progress->yields_first(); ++i) wait(kMillisecond);
        EXPECT_TRUE(progress->yields_first());
    }

    std::shared_ptr<Item> item;
};

TEST_F(ProgressYield, finds_what_came_meanwhile) {
    YieldHook peer([&] { item->make_readable(); });
    EXPECT_FALSE(progress->yields_first()) << "nothing is known yet";
    EXPECT_TRUE(wait(kLimit));
    EXPECT_EQ(peer.yields, 1);
}

TEST_F(ProgressYield, comes_ahead_of_the_first_poll_once_it_has_paid) {
    prove();
    YieldHook peer([&] { item->make_readable(); });
    const std::uint64_t cycles = progress->caller_cycles();
    EXPECT_TRUE(wait(kLimit));
    EXPECT_EQ(peer.yields, 1);
    EXPECT_EQ(progress->caller_cycles() - cycles, 1u);
}

TEST_F(ProgressYield, is_tried_twice_at_most_in_a_wait_for_what_does_not_come) {
    for (const bool proven : {false, true}) {
        SCOPED_TRACE(proven);
        if (proven) prove();
        YieldHook nobody;
        EXPECT_FALSE(wait(5 * kMillisecond));
        EXPECT_GE(nobody.yields, 1);
        EXPECT_LE(nobody.yields, kMostYields);
    }
}

TEST_F(ProgressYield, is_no_part_of_a_wait_without_time) {
    for (const bool proven : {false, true}) {
        SCOPED_TRACE(proven);
        if (proven) prove();
        YieldHook peer([&] { item->make_readable(); });
        EXPECT_FALSE(wait(0));
        EXPECT_EQ(peer.yields, 0);
    }
}

TEST_F(ProgressYield, comes_behind_what_waits_to_be_sent) {
    prove();
    progress->notify_later(*item);
    EXPECT_FALSE(progress->yields_first());
    int sent = -1;
    YieldHook peer([&] {
        sent = item->notifies;
        item->make_readable();
    });
    EXPECT_TRUE(wait(kLimit));
    EXPECT_EQ(peer.yields, 1);
    EXPECT_EQ(sent, 1);
}

TEST_F(ProgressYield, is_given_up_where_it_takes_long_and_behind_one_more_look) {
    prove();
    {
        const std::uint64_t before = item->reads;
        YieldHook busy([&] {
            item->make_readable();
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        });
        EXPECT_TRUE(progress->yield([&] { return item->reads != before; }));
        EXPECT_EQ(busy.yields, 1);
    }
    YieldHook peer([&] { item->make_readable(); });
    EXPECT_FALSE(progress->yields_first());
    for (int i = 0; i < 64; ++i) EXPECT_FALSE(wait(kMillisecond));
    EXPECT_EQ(peer.yields, 0);
    EXPECT_TRUE(wait(kLimit));
    EXPECT_EQ(peer.yields, 1);
}

TEST_F(ProgressYield, is_for_callers_that_poll) {
    TransportConfig config;
    config.progress = ProgressMode::thread;
    auto made = Progress::create(epochs, config, 1);
    ASSERT_TRUE(made);
    (*made)->ensure_thread();
    YieldHook peer;
    EXPECT_FALSE((*made)->wait([] { return false; }, monotonic_now() + 5 * kMillisecond));
    EXPECT_EQ(peer.yields, 0);
}

}  // namespace
}  // namespace xsock
