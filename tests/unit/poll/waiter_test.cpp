// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sleep of a poll(): wake flag, then an eventfd that is written once. Every interleaving of
// some producers and the waiter is walked through; tests/unit/interleaving.hpp explains the way.
#include "libxsock/poll/waiter.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <tuple>
#include <vector>

#include "base/wake_flag.hpp"
#include "tests/unit/interleaving.hpp"

namespace xsock::readiness {
namespace {

constexpr int kMostProducers = 3;
int producers = 0;  // of this walk

struct World {
    int work = 0;           // published, not yet taken
    int taken = 0;          // by the consumer
    bool asleep = false;    // the wake flag's flag
    bool notified = false;  // NotifyOnce's flag
    int event = 0;          // the eventfd's count
    std::vector<int> log[1 + kMostProducers];
    bool done[1 + kMostProducers] = {};
    [[nodiscard]] auto key() const {
        return std::tuple(work, taken, asleep, notified, event, log[0], log[1], log[2], log[3],
                          done[0], done[1], done[2], done[3]);
    }
};

using Sides = test::Interleaving<World>;
World*& world = Sides::world;

template <typename Operation>
int step(Operation operation) {
    return Sides::step(operation);
}

template <bool World::*word>
struct ModelFlag {
    explicit ModelFlag(bool) {}
    void store(bool v, std::memory_order) {
        step([v] { return world->*word = v, 0; });
    }
    [[nodiscard]] bool load(std::memory_order) const {
        return step([] { return static_cast<int>(world->*word); });
    }
    bool exchange(bool v, std::memory_order) {
        return step([v] { return static_cast<int>(std::exchange(world->*word, v)); });
    }
};
struct ModelEvent {
    void notify() {
        step([] { return ++world->event; });
    }
    void take() {
        step([] { return world->event = 0; });
    }
};

using TestFlag = BasicWakeFlag<ModelFlag<&World::asleep>>;
using Notice = NotifyOnce<ModelFlag<&World::notified>, ModelEvent>;

bool work_waits() {
    return step([] { return static_cast<int>(world->work != 0); });
}
int take_work() {
    return step([] {
        const int n = std::exchange(world->work, 0);
        world->taken += n;
        return n;
    });
}
void poll_event() {
    step([] {
        if (world->event == 0) throw test::CannotStep{};
        return 0;
    });
}

void take_notice() {
    Notice notify;
    ModelEvent event;
    notify.take(event);
}
// What NotifyOnce::take() must not do.
void take_notice_carelessly() {
    ModelFlag<&World::notified> notified(false);
    ModelEvent event;
    notified.store(false, std::memory_order_seq_cst);
    event.take();
}

// A waiter with a wake flag, as in poll(): notified only while it sleeps.
void consumer_with_flag() {
    TestFlag wake_flag;
    for (int got = 0; got < producers;) {
        got += take_work();
        if (got == producers) break;
        wake_flag.begin_sleep();
        if (!work_waits()) {
            poll_event();
            take_notice();
        }
        wake_flag.end_sleep();
    }
}
void producer_with_flag() {
    step([] { return ++world->work; });
    TestFlag wake_flag;
    if (!wake_flag.should_notify()) return;
    Notice notify;
    ModelEvent event;
    notify.notify(event);
}

// A waiter that is notified at any time, as by a Progress whose lead is free.
template <void (*take)()>
void consumer_without_flag() {
    for (int got = 0; got < producers;) {
        got += take_work();
        if (got == producers) break;
        poll_event();
        take();
    }
}
void producer_without_flag() {
    step([] { return ++world->work; });
    Notice notify;
    ModelEvent event;
    notify.notify(event);
}

struct Verdict {
    std::size_t states = 0;
    std::size_t lost = 0;  // schedules in which a thread sleeps for ever
};

Verdict walk_all(void (*waiter)(), void (*producer)(), int count) {
    producers = count;
    Verdict verdict;
    std::set<decltype(World{}.key())> seen;
    std::vector<World> to_visit{World{}};
    while (!to_visit.empty()) {
        const World w = to_visit.back();
        to_visit.pop_back();
        if (!seen.insert(w.key()).second) continue;
        bool moved = false;
        for (int who = 0; who <= producers; ++who) {
            if (w.done[who]) continue;
            World next = w;
            if (!Sides::advance(next, who, who == 0 ? waiter : producer)) continue;
            moved = true;
            to_visit.push_back(next);
        }
        if (!moved && !(w.done[0] && w.taken == producers)) ++verdict.lost;
    }
    verdict.states = seen.size();
    return verdict;
}

TEST(Waiter, loses_no_wake_up_in_any_interleaving) {
    const Verdict with_flag = walk_all(consumer_with_flag, producer_with_flag, 2);
    EXPECT_GT(with_flag.states, 500u);
    EXPECT_EQ(with_flag.lost, 0u);
    const Verdict without_flag =
        walk_all(consumer_without_flag<take_notice>, producer_without_flag, 3);
    EXPECT_GT(without_flag.states, 100u);
    EXPECT_EQ(without_flag.lost, 0u);
}

TEST(Waiter, the_walk_finds_a_waiter_that_clears_in_the_wrong_order) {
    // It takes a third one to find what the notification of the second has left.
    const auto careless = consumer_without_flag<take_notice_carelessly>;
    EXPECT_GT(walk_all(careless, producer_without_flag, 3).lost, 0u);
}

TEST(Waiter, is_acquired_clean) {
    {
        auto lease = WaiterPool::instance().acquire();
        ASSERT_TRUE(lease);
        (*lease)->notify();
        (*lease)->notify();
        EXPECT_TRUE((*lease)->notified());
    }
    auto again = WaiterPool::instance().acquire();
    ASSERT_TRUE(again);
    EXPECT_FALSE((*again)->notified());
    pollfd readable{(*again)->fd(), POLLIN, 0};
    EXPECT_EQ(poll(&readable, 1, 0), 0);
}

// A child that shared its parent's eventfds would wake it, or take its wake-ups.
TEST(Waiter, is_not_shared_with_a_child) {
    { ASSERT_TRUE(WaiterPool::instance().acquire()); }  // one lies idle
    const pid_t child = fork();
    if (child == 0) {
        auto lease = WaiterPool::instance().acquire();
        if (lease) (*lease)->notify();
        _exit(lease ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    auto lease = WaiterPool::instance().acquire();
    ASSERT_TRUE(lease);
    pollfd readable{(*lease)->fd(), POLLIN, 0};
    EXPECT_EQ(poll(&readable, 1, 0), 0);
}

}  // namespace
}  // namespace xsock::readiness
