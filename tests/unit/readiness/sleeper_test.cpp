// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sleep of a poll(): doorbell, then an eventfd that is written once. Every interleaving of
// some producers and the sleeper is walked through; tests/unit/base/doorbell_test.cpp explains the
// way.
#include "libxsock/readiness/sleeper.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <tuple>
#include <vector>

#include "base/doorbell.hpp"

namespace xsock::readiness {
namespace {

constexpr int kMostProducers = 3;
int producers = 0;  // of this walk

struct World {
    int work = 0;         // published, not yet taken
    int taken = 0;        // by the consumer
    bool asleep = false;  // the doorbell's flag
    bool rung = false;    // the ring's
    int event = 0;        // the eventfd's count
    std::vector<int> log[1 + kMostProducers];
    bool done[1 + kMostProducers] = {};
    [[nodiscard]] auto key() const {
        return std::tuple(work, taken, asleep, rung, event, log[0], log[1], log[2], log[3], done[0],
                          done[1], done[2], done[3]);
    }
};

struct StepMade {};
struct CannotStep {};

World* world = nullptr;
int side = 0;
std::size_t position = 0;

template <typename Operation>
int step(Operation operation) {
    std::vector<int>& log = world->log[side];
    if (position < log.size()) return log[position++];
    log.push_back(operation());
    throw StepMade{};
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
    void write() {
        step([] { return ++world->event; });
    }
    void read() {
        step([] { return world->event = 0; });
    }
};

using Bell = BasicDoorbell<ModelFlag<&World::asleep>>;
using Ring = RingOnce<ModelFlag<&World::rung>, ModelEvent>;

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
        if (world->event == 0) throw CannotStep{};
        return 0;
    });
}

void take_ring() {
    Ring ring;
    ModelEvent event;
    ring.take(event);
}
// What RingOnce::take() must not do.
void take_ring_carelessly() {
    ModelFlag<&World::rung> rung(false);
    ModelEvent event;
    rung.store(false, std::memory_order_seq_cst);
    event.read();
}

// A sleeper with a doorbell, as in poll(): rung only while it sleeps.
void consumer_with_bell() {
    Bell bell;
    for (int got = 0; got < producers;) {
        got += take_work();
        if (got == producers) break;
        bell.begin_sleep();
        if (!work_waits()) {
            poll_event();
            take_ring();
        }
        bell.end_sleep();
    }
}
void producer_with_bell() {
    step([] { return ++world->work; });
    Bell bell;
    if (!bell.should_ring()) return;
    Ring ring;
    ModelEvent event;
    ring.ring(event);
}

// A sleeper that is rung at any time, as by a Progress whose lead is free.
void consumer_without_bell() {
    for (int got = 0; got < producers;) {
        got += take_work();
        if (got == producers) break;
        poll_event();
        take_ring();
    }
}
void careless_consumer() {
    for (int got = 0; got < producers;) {
        got += take_work();
        if (got == producers) break;
        poll_event();
        take_ring_carelessly();
    }
}
void producer_without_bell() {
    step([] { return ++world->work; });
    Ring ring;
    ModelEvent event;
    ring.ring(event);
}

struct Verdict {
    std::size_t states = 0;
    std::size_t lost = 0;  // somebody sleeps for ever
};

Verdict walk_all(void (*sleeper)(), void (*producer)(), int count) {
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
            world = &next;
            side = who;
            position = 0;
            try {
                (who == 0 ? sleeper : producer)();
                next.done[who] = true;
            } catch (const StepMade&) {
            } catch (const CannotStep&) {
                continue;
            }
            moved = true;
            to_visit.push_back(next);
        }
        if (!moved && !(w.done[0] && w.taken == producers)) ++verdict.lost;
    }
    verdict.states = seen.size();
    return verdict;
}

TEST(Sleeper, loses_no_wake_up_in_any_interleaving) {
    const Verdict with_bell = walk_all(consumer_with_bell, producer_with_bell, 2);
    EXPECT_GT(with_bell.states, 500u);
    EXPECT_EQ(with_bell.lost, 0u);
    const Verdict without_bell = walk_all(consumer_without_bell, producer_without_bell, 3);
    EXPECT_GT(without_bell.states, 100u);
    EXPECT_EQ(without_bell.lost, 0u);
}

TEST(Sleeper, the_walk_finds_a_sleeper_that_clears_in_the_wrong_order) {
    // It takes a third one to find what the ring of the second has left.
    EXPECT_GT(walk_all(careless_consumer, producer_without_bell, 3).lost, 0u);
}

TEST(Sleeper, is_lent_clean) {
    {
        auto lent = SleeperPool::instance().lend();
        ASSERT_TRUE(lent);
        (*lent)->ring();
        (*lent)->ring();
        EXPECT_TRUE((*lent)->rung());
    }
    auto again = SleeperPool::instance().lend();
    ASSERT_TRUE(again);
    EXPECT_FALSE((*again)->rung());
    pollfd readable{(*again)->fd(), POLLIN, 0};
    EXPECT_EQ(poll(&readable, 1, 0), 0);
}

// A child that shared its parent's eventfds would wake it, or take its wake-ups.
TEST(Sleeper, is_not_shared_with_a_child) {
    { ASSERT_TRUE(SleeperPool::instance().lend()); }  // one lies idle
    const pid_t child = fork();
    if (child == 0) {
        auto lent = SleeperPool::instance().lend();
        if (lent) (*lent)->ring();
        _exit(lent ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    auto lent = SleeperPool::instance().lend();
    ASSERT_TRUE(lent);
    pollfd readable{(*lent)->fd(), POLLIN, 0};
    EXPECT_EQ(poll(&readable, 1, 0), 0);
}

}  // namespace
}  // namespace xsock::readiness
