// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/wake_flag.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/unit/interleaving.hpp"

namespace xsock {
namespace {

// ---- Every interleaving ---------------------------------------------------------------------

struct World {
    int work = 0;         // published, not yet taken
    bool asleep = false;  // the wake flag's flag
    int notified = 0;     // the eventfd
    std::vector<int> log[2];
    bool done[2] = {false, false};
    int taken = 0;
};

using Sides = test::Interleaving<World>;
World*& world = Sides::world;

template <typename Operation>
int step(Operation operation) {
    return Sides::step(operation);
}

struct ModelFlag {
    explicit ModelFlag(bool) {}
    void store(bool v, std::memory_order) {
        step([v] { return world->asleep = v, 0; });
    }
    bool load(std::memory_order) {
        return step([] { return static_cast<int>(world->asleep); });
    }
    bool exchange(bool v, std::memory_order) {
        return step([v] {
            const bool was = world->asleep;
            world->asleep = v;
            return static_cast<int>(was);
        });
    }
};
using TestFlag = BasicWakeFlag<ModelFlag>;

int take_work() {
    return step([] {
        const int n = world->work;
        world->work = 0;
        world->taken += n;
        return n;
    });
}
bool work_waits() {
    return step([] { return static_cast<int>(world->work != 0); });
}
void publish_work() {
    step([] { return ++world->work; });
}
void notify() {
    step([] { return ++world->notified; });
}
void sleep_until_notified() {
    step([] {
        if (world->notified == 0) throw test::CannotStep{};
        return world->notified = 0;
    });
}

struct Script {
    void (*consumer)(int items);
    void (*producer)(int items);
    int items;
};

void consumer(int items) {
    TestFlag wake_flag;
    for (int got = 0; got < items;) {
        got += take_work();
        if (got == items) break;
        wake_flag.begin_sleep();
        if (!work_waits()) sleep_until_notified();
        wake_flag.end_sleep();
    }
}

void producer(int items) {
    TestFlag wake_flag;
    for (int i = 0; i < items; ++i) {
        publish_work();
        if (wake_flag.should_notify()) notify();
    }
}

// How the class must not be used: checks first, announces its sleep after.
void careless_consumer(int items) {
    TestFlag wake_flag;
    for (int got = 0; got < items;) {
        got += take_work();
        if (got == items) break;
        if (!work_waits()) {
            wake_flag.begin_sleep();
            sleep_until_notified();
        }
        wake_flag.end_sleep();
    }
}

// Checks for a sleeping consumer before there is any work to be found.
void careless_producer(int items) {
    TestFlag wake_flag;
    for (int i = 0; i < items; ++i) {
        const bool must_notify = wake_flag.should_notify();
        publish_work();
        if (must_notify) notify();
    }
}

struct Verdict {
    long schedules = 0;
    long lost = 0;  // schedules in which a thread sleeps for ever
};

void walk(const World& w, const Script& script, Verdict& verdict) {
    bool moved = false;
    for (const int who : {0, 1}) {
        if (w.done[who]) continue;
        World next = w;
        const auto code = who == 0 ? script.consumer : script.producer;
        if (!Sides::advance(next, who, [&] { code(script.items); })) continue;
        moved = true;
        walk(next, script, verdict);
    }
    if (moved) return;
    ++verdict.schedules;
    const bool ended = w.done[0] && w.done[1] && w.taken == script.items;
    verdict.lost += !ended;
}

Verdict walk_all(const Script& script) {
    Verdict verdict;
    walk(World{}, script, verdict);
    return verdict;
}

TEST(WakeFlag, loses_no_wake_up_in_any_interleaving_of_one_item) {
    const Verdict verdict = walk_all({consumer, producer, 1});
    EXPECT_GT(verdict.schedules, 20);
    EXPECT_EQ(verdict.lost, 0);
}

TEST(WakeFlag, loses_no_wake_up_in_any_interleaving_of_two_items) {
    const Verdict verdict = walk_all({consumer, producer, 2});
    EXPECT_GT(verdict.schedules, 1000);
    EXPECT_EQ(verdict.lost, 0);
}

TEST(WakeFlag, the_walk_finds_a_consumer_that_looks_too_early) {
    EXPECT_GT(walk_all({careless_consumer, producer, 1}).lost, 0);
}

TEST(WakeFlag, the_walk_finds_a_producer_that_looks_too_early) {
    EXPECT_GT(walk_all({consumer, careless_producer, 1}).lost, 0);
}

// ---- The class itself -----------------------------------------------------------------------

TEST(WakeFlag, notifies_once_for_each_sleep) {
    WakeFlag wake_flag;
    EXPECT_FALSE(wake_flag.should_notify());
    wake_flag.begin_sleep();
    EXPECT_TRUE(wake_flag.should_notify());
    EXPECT_FALSE(wake_flag.should_notify());
    wake_flag.end_sleep();
    EXPECT_FALSE(wake_flag.should_notify());
    wake_flag.begin_sleep();
    wake_flag.end_sleep();
    EXPECT_FALSE(wake_flag.should_notify());
}

// For the thread sanitizer and the memory model: a lost wake-up hangs.
TEST(WakeFlag, two_producers_and_a_consumer) {
    constexpr int kEach = 20'000;
    WakeFlag wake_flag;
    std::atomic<int> work{0}, notified{0};
    auto produce = [&] {
        for (int i = 0; i < kEach; ++i) {
            work.fetch_add(1, std::memory_order_seq_cst);
            if (wake_flag.should_notify()) {
                notified.fetch_add(1, std::memory_order_release);
                notified.notify_one();
            }
            if (i % 64 == 0) std::this_thread::yield();
        }
    };
    std::thread a(produce), b(produce);
    for (int got = 0; got < 2 * kEach;) {
        got += work.exchange(0, std::memory_order_seq_cst);
        if (got == 2 * kEach) break;
        wake_flag.begin_sleep();
        if (work.load(std::memory_order_seq_cst) == 0) {
            while (notified.load(std::memory_order_acquire) == 0) notified.wait(0);
            notified.store(0, std::memory_order_relaxed);
        }
        wake_flag.end_sleep();
    }
    a.join();
    b.join();
    SUCCEED();
}

}  // namespace
}  // namespace xsock
