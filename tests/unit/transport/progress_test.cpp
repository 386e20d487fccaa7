// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Progress with items that are event counters instead of connections.
#include "transport/progress.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/sanitizers.hpp"
#include "tests/unit/transport/event_item.hpp"
#include "tests/unit/transport/failing_allocations.hpp"
#include "transport/descriptors.hpp"

namespace xsock {
namespace {

constexpr Time kLimit = 10 * kSecond;  // only reached by a failure

class Item final : public test::EventItem {
  public:
    void on_ready(std::uint32_t, PollCycle& cycle) override {
        const std::uint64_t count = take();
        if (count == 0) return;  // a guess
        if (exhausted) throw std::bad_alloc();
        reads += count;
        cycle.active = true;
    }
    void on_notify(PollCycle& cycle) override {
        if (exhausted) throw std::bad_alloc();
        const std::uint64_t now_posted = posted.load();
        if (served.exchange(now_posted) != now_posted) cycle.active = true;
        ++notifies;
    }
    void on_time(PollCycle& cycle) override {
        if (exhausted) throw std::bad_alloc();
        ++times;
        cycle.active = true;
    }
    void on_failure(PollCycle&) noexcept override { ++failures; }
    void on_exit(PollCycle&) override { ++exits; }
    void on_exit_limit(PollCycle&) override { drained_at_limit.push_back(!draining()); }
    [[nodiscard]] bool draining() const override { return drains && times == 0; }
    [[nodiscard]] Time exit_limit() const override { return limit; }

    std::atomic<std::uint64_t> reads{0}, posted{0}, served{0};
    std::atomic<int> notifies{0}, times{0}, failures{0}, exits{0};
    std::atomic<bool> exhausted{false};
    bool drains = false;
    std::vector<bool> drained_at_limit;  // each time that it was told
    Time limit = 0;
};

class ProgressTest : public ::testing::TestWithParam<ProgressMode> {
  protected:
    void exit_of_process(Time begin, Time limit) {
        progress->begin_exit();
        progress->drain(begin, limit);
        progress->end_exit();
    }
    void start(ProgressMode mode, Time spin = 0) {
        TransportConfig config;
        config.progress = mode;
        config.spin = spin;
        auto made = Progress::create(epochs, config, 0);
        ASSERT_TRUE(made);
        progress = std::move(*made);
        progress->ensure_thread();
    }
    std::shared_ptr<Item> add(std::uint32_t events = EPOLLIN) {
        auto item = std::make_shared<Item>();
        progress->locked([&](PollCycle&) { EXPECT_TRUE(progress->add(item, item->fd, events)); });
        return item;
    }
    void TearDown() override { progress.reset(); }
    void set_deadline(Item& item, Time deadline) {
        progress->locked([&](PollCycle&) { progress->set_deadline(item, deadline); });
    }
    static Time in(Time t) { return monotonic_now() + t; }
    // A wait checks once more at its deadline: what is found only then woke no thread.
    bool woken(const std::function<bool()>& done) {
        const Time due = in(kLimit);
        return progress->wait(done, due) && monotonic_now() < due;
    }

    Epochs epochs;
    std::unique_ptr<Progress> progress;
};

TEST_F(ProgressTest, a_immediate_notification_is_served_before_it_returns) {
    start(ProgressMode::app);
    const auto item = add();
    progress->notify_now(*item);
    EXPECT_EQ(item->notifies, 1);
}

TEST_F(ProgressTest, callers_are_idle_from_their_note_to_their_next_cycle) {
    start(ProgressMode::app);
    EXPECT_FALSE(progress->idle_since(progress->caller_cycles()));
    progress->poll();
    progress->note_idle();
    EXPECT_TRUE(progress->idle_since(progress->caller_cycles()));
    progress->poll();
    EXPECT_FALSE(progress->idle_since(progress->caller_cycles()));
}

TEST_F(ProgressTest, a_later_notification_is_served_once_by_the_next_cycle) {
    start(ProgressMode::app);
    const auto item = add();
    progress->notify_later(*item);
    progress->notify_later(*item);
    EXPECT_EQ(item->notifies, 0);
    EXPECT_TRUE(progress->work_waiting());
    progress->poll();
    progress->poll();
    EXPECT_EQ(item->notifies, 1);
    EXPECT_FALSE(progress->work_waiting());
}

TEST_F(ProgressTest, a_pause_lasts_its_time) {
    start(ProgressMode::app);
    progress->locked([&](PollCycle&) {
        const Time begin = monotonic_now();
        progress->pause(5 * kMillisecond);
        EXPECT_GE(monotonic_now() - begin, 5 * kMillisecond);
    });
}

TEST_F(ProgressTest, a_pause_is_called_back_by_a_notification) {
    start(ProgressMode::app);
    const auto item = add();
    std::atomic<bool> pausing{false};
    std::thread poster([&] {
        while (!pausing) std::this_thread::yield();
        progress->notify_now(*item);  // leaves it to the thread that polls
    });
    const Time begin = monotonic_now();
    progress->locked([&](PollCycle&) {
        pausing = true;
        progress->pause(kLimit);
    });
    poster.join();
    EXPECT_LT(monotonic_now() - begin, kLimit);
    EXPECT_EQ(item->notifies, 1);
}

TEST_F(ProgressTest, a_removed_item_is_left_alone) {
    start(ProgressMode::app);
    const auto item = add();
    set_deadline(*item, in(kMillisecond));
    progress->notify_later(*item);
    item->make_readable();
    progress->locked([&](PollCycle&) { progress->remove(*item); });
    EXPECT_EQ(progress->size(), 0u);
    EXPECT_FALSE(progress->wait([] { return false; }, in(10 * kMillisecond)));
    EXPECT_EQ(item->notifies + item->times, 0);
    EXPECT_EQ(item->reads, 0u);
}

TEST_F(ProgressTest, a_descriptor_registered_before_stays_registered) {
    start(ProgressMode::app);
    auto ours = std::make_shared<Item>(), theirs = std::make_shared<Item>();
    register_internal_fd(ours->fd);
    progress->locked([&](PollCycle&) {
        ASSERT_TRUE(progress->add(ours, ours->fd, EPOLLIN));
        ASSERT_TRUE(progress->add(theirs, theirs->fd, EPOLLIN));
        EXPECT_TRUE(is_internal_fd(theirs->fd));
        progress->remove(*ours);
        progress->remove(*theirs);
    });
    EXPECT_TRUE(is_internal_fd(ours->fd));
    EXPECT_FALSE(is_internal_fd(theirs->fd));
    unregister_internal_fd(ours->fd);
}

TEST_F(ProgressTest, what_cannot_be_watched_is_refused) {
    start(ProgressMode::app);
    const auto item = std::make_shared<Item>();
    progress->locked([&](PollCycle&) {
        const auto added = progress->add(item, -1, EPOLLIN);
        ASSERT_FALSE(added);
        EXPECT_EQ(added.error().code, EBADF);
    });
    EXPECT_EQ(progress->size(), 0u);
}

TEST_F(ProgressTest, an_item_without_a_descriptor_is_notified_and_due) {
    start(ProgressMode::app);
    const auto item = std::make_shared<Item>();
    progress->locked([&](PollCycle&) { EXPECT_TRUE(progress->add(item)); });
    EXPECT_EQ(progress->size(), 1u);
    progress->notify_now(*item);
    EXPECT_EQ(item->notifies, 1);
    progress->notify_later(*item);
    progress->poll();
    EXPECT_EQ(item->notifies, 2);
    set_deadline(*item, in(kMillisecond));
    EXPECT_TRUE(progress->wait([&] { return item->times == 1; }, in(kLimit)));
    exit_of_process(monotonic_now(), kLimit);
    EXPECT_EQ(item->exits, 1);
    set_deadline(*item, in(kMillisecond));
    progress->notify_later(*item);
    progress->locked([&](PollCycle&) {
        progress->join_channels(*item);
        progress->remove(*item);
    });
    EXPECT_EQ(progress->size(), 0u);
    EXPECT_FALSE(progress->wait([] { return false; }, in(10 * kMillisecond)));
    EXPECT_EQ(item->notifies, 2);
    EXPECT_EQ(item->times, 1);
    EXPECT_FALSE(is_internal_fd(item->fd));
}

// Polled for long, the other item leaves epoll, and is asked alone most of the time.
TEST_F(ProgressTest, an_item_without_a_descriptor_is_due_beside_a_busy_polled_one) {
    start(ProgressMode::app);
    const auto busy = add(), item = std::make_shared<Item>();
    progress->locked([&](PollCycle&) { EXPECT_TRUE(progress->add(item)); });
    for (std::uint64_t round = 1; round <= 1000; ++round) {
        busy->make_readable();
        progress->poll();
    }
    EXPECT_EQ(busy->reads, 1000u);
    set_deadline(*item, in(kMillisecond));
    const Time limit = in(kLimit);
    while (item->times == 0 && monotonic_now() < limit) progress->poll();
    EXPECT_EQ(item->times, 1);
    progress->locked([&](PollCycle&) { progress->remove(*busy); });
    set_deadline(*item, in(kMillisecond));
    EXPECT_TRUE(progress->wait([&] { return item->times == 2; }, in(kLimit)));
}

TEST_F(ProgressTest, polling_finds_every_item_also_beside_a_busy_polled_one) {
    start(ProgressMode::app);
    const auto busy = add(), quiet = add();
    for (std::uint64_t round = 1; round <= 1000; ++round) {
        busy->make_readable();
        if (round % 100 == 0) quiet->make_readable();
        progress->poll();
    }
    for (int i = 0; i < 100; ++i) progress->poll();
    EXPECT_EQ(busy->reads, 1000u);
    EXPECT_EQ(quiet->reads, 10u);
}

TEST_F(ProgressTest, a_deadline_comes_once_and_not_early) {
    start(ProgressMode::app);
    const auto item = add(), other = add();
    const Time due = in(20 * kMillisecond);
    set_deadline(*item, in(5 * kMillisecond));
    set_deadline(*item, due);  // put off
    set_deadline(*other, in(kMillisecond));
    set_deadline(*other, kNever);  // called off
    EXPECT_TRUE(progress->wait([&] { return item->times != 0; }, in(kLimit)));
    EXPECT_GE(monotonic_now(), due);
    EXPECT_FALSE(progress->wait([] { return false; }, in(10 * kMillisecond)));
    EXPECT_EQ(item->times, 1);
    EXPECT_EQ(other->times, 0);
}

TEST_F(ProgressTest, an_embedding_loop_sees_notifications_events_and_deadlines) {
    start(ProgressMode::app);
    const auto item = add();
    const int fd = progress->embed();
    const auto readable = [fd](int ms) {
        pollfd p{fd, POLLIN, 0};
        return poll(&p, 1, ms) == 1;
    };
    EXPECT_FALSE(readable(0));
    progress->notify_later(*item);
    EXPECT_TRUE(readable(0));
    // A poll cycle may leave epoll out; a loop goes on until nothing is readable.
    for (int i = 0; i < 1000 && readable(0); ++i) progress->poll();
    EXPECT_FALSE(readable(0));
    item->make_readable();
    EXPECT_TRUE(readable(0));
    for (int i = 0; i < 1000 && readable(0); ++i) progress->poll();
    EXPECT_EQ(item->reads, 1u);
    set_deadline(*item, in(kMillisecond));
    EXPECT_TRUE(readable(5000));
    for (int i = 0; i < 1000 && readable(0); ++i) progress->poll();
    EXPECT_EQ(item->times, 1);
}

// ---- the end of a cycle -------------------------------------------------------

// Items of which each writes down what it is called for, by its name.
class Logged final : public Pollable {
  public:
    Logged(Progress& progress, std::string& log, char name)
        : progress_(progress), log_(log), name_(name) {}
    void on_ready(std::uint32_t, PollCycle&) override {}
    void on_notify(PollCycle& cycle) override {
        log_.append(1, name_).append(1, ' ');
        for (int i = 0; i < asks; ++i) progress_.call_at_cycle_end(*this);
        cycle.active = true;
        if (removes_itself) progress_.remove(*this);
    }
    void on_time(PollCycle&) override {}
    void on_cycle_end(PollCycle&) override {
        if (exhausted) throw std::bad_alloc();
        log_.append("end-").append(1, name_).append(1, ' ');
        if (next != nullptr) progress_.call_at_cycle_end(*next);
    }
    void on_failure(PollCycle&) noexcept override { ++failures; }

    int asks = 0, failures = 0;
    bool removes_itself = false, exhausted = false;
    Logged* next = nullptr;

  private:
    Progress& progress_;
    std::string& log_;
    const char name_;
};

class CycleEndTest : public ProgressTest {
  protected:
    void SetUp() override {
        start(ProgressMode::app);
        for (const char name : {'a', 'b', 'c'}) {
            items.push_back(std::make_shared<Logged>(*progress, log, name));
            progress->locked([&](PollCycle&) { EXPECT_TRUE(progress->add(items.back())); });
        }
    }
    // One cycle in which all are notified.
    std::string cycle() {
        for (const auto& item : items) progress->notify_later(*item);
        log.clear();
        progress->poll();
        return log;
    }
    std::string log;
    std::vector<std::shared_ptr<Logged>> items;
};

TEST_F(CycleEndTest, is_said_to_those_that_asked_once_and_when_all_were_served) {
    EXPECT_EQ(cycle(), "a b c ");
    items[0]->asks = 3;
    items[1]->asks = 1;
    EXPECT_EQ(cycle(), "a b c end-a end-b ");
    items[0]->asks = items[1]->asks = 0;
    EXPECT_EQ(cycle(), "a b c ");
}

TEST_F(CycleEndTest, is_said_in_every_kind_of_cycle) {
    items[0]->asks = 1;
    progress->notify_now(*items[0]);
    EXPECT_EQ(log, "a end-a ");
    log.clear();
    progress->locked([&](PollCycle&) {
        progress->call_at_cycle_end(*items[1]);
        EXPECT_EQ(log, "");
    });
    EXPECT_EQ(log, "end-b ");
    log.clear();
    progress->notify_later(*items[0]);
    EXPECT_EQ(progress->thread_cycle(false), Progress::ThreadCycle::moved);
    EXPECT_EQ(log, "a end-a ");
}

// The item that has the descriptor sends what the others have made of it.
TEST_F(CycleEndTest, may_be_asked_for_another_item_at_the_end) {
    items[2]->asks = items[0]->asks = items[1]->asks = 1;
    items[0]->next = items[1]->next = items[2].get();
    EXPECT_EQ(cycle(), "a b c end-a end-b end-c ");
    items[0]->next = nullptr;
    items[2]->next = items[0].get();
    EXPECT_EQ(cycle(), "a b c end-a end-b end-c end-a ");
}

TEST_F(CycleEndTest, can_be_asked_for_without_memory) {
#ifdef XSOCK_TEST_ASAN
    GTEST_SKIP() << "AddressSanitizer wants the allocator for itself: no allocation fails";
#endif
    items[2]->next = items[0].get();  // the fourth of three
    log.reserve(100);
    bool happened = true;
    {
        const test::FailAllocation fail(0, /*all=*/true);
        progress->locked([&](PollCycle&) {
            for (const auto& item : items) progress->call_at_cycle_end(*item);
        });
        happened = fail.happened();
    }
    EXPECT_FALSE(happened);
    EXPECT_EQ(log, "end-a end-b end-c end-a ");
    for (const auto& item : items) EXPECT_EQ(item->failures, 0);
}

TEST_F(CycleEndTest, is_not_said_to_a_removed_item) {
    items[1]->asks = items[2]->asks = 1;
    items[1]->removes_itself = true;
    EXPECT_EQ(cycle(), "a b c end-c ");
    EXPECT_EQ(cycle(), "a c end-c ");
}

TEST_F(CycleEndTest, fails_alone_one_that_runs_out_of_memory) {
    items[0]->asks = items[1]->asks = 1;
    items[0]->exhausted = true;
    EXPECT_EQ(cycle(), "a b c end-b ");
    EXPECT_EQ(items[0]->failures, 1);
}

// One descriptor for several items: the one that has it passes on what it reads, and each member
// does its work of the whole cycle at the end.
TEST_F(ProgressTest, items_may_share_the_descriptor_of_another) {
    start(ProgressMode::app);
    class Member final : public Pollable {
      public:
        explicit Member(Progress& p) : progress_(p) {}
        void received() {
            ++waiting;
            progress_.call_at_cycle_end(*this);
        }
        void on_ready(std::uint32_t, PollCycle&) override { ADD_FAILURE(); }
        void on_notify(PollCycle&) override {}
        void on_time(PollCycle&) override {}
        void on_cycle_end(PollCycle&) override { answers.push_back(std::exchange(waiting, 0)); }
        void on_failure(PollCycle&) noexcept override {}
        int waiting = 0;
        std::vector<int> answers;

      private:
        Progress& progress_;
    };
    class Carrier final : public Pollable {
      public:
        void on_ready(std::uint32_t, PollCycle& cycle) override {
            for (char to = 0; read(fds[0], &to, 1) == 1; cycle.active = true) {
                members.at(static_cast<std::size_t>(to - '0'))->received();
            }
        }
        void on_notify(PollCycle&) override {}
        void on_time(PollCycle&) override {}
        void on_failure(PollCycle&) noexcept override {}
        std::array<int, 2> fds{};
        std::vector<std::shared_ptr<Member>> members;
    };
    const auto carrier = std::make_shared<Carrier>();
    ASSERT_EQ(pipe2(carrier->fds.data(), O_CLOEXEC | O_NONBLOCK), 0);
    progress->locked([&](PollCycle&) {
        EXPECT_TRUE(progress->add(carrier, carrier->fds[0], EPOLLIN));
        for (int i = 0; i < 2; ++i) {
            carrier->members.push_back(std::make_shared<Member>(*progress));
            EXPECT_TRUE(progress->add(carrier->members.back()));
        }
    });
    const auto& first = carrier->members[0]->answers;
    const auto& second = carrier->members[1]->answers;
    ASSERT_EQ(write(carrier->fds[1], "01000", 5), 5);
    EXPECT_TRUE(progress->wait([&] { return !first.empty(); }, in(kLimit)));
    EXPECT_EQ(first, std::vector{4});
    EXPECT_EQ(second, std::vector{1});
    progress->locked([&](PollCycle&) {
        progress->remove(*carrier);
        for (const auto& member : carrier->members) progress->remove(*member);
    });
    for (const int fd : carrier->fds) close(fd);
}

// ---- out of memory ---------------------------------------------------------

TEST_F(ProgressTest, an_item_that_runs_out_of_memory_ends_alone) {
    start(ProgressMode::app);
    const auto victim = add(), other = add();
    victim->exhausted = true;
    progress->notify_now(*victim);
    EXPECT_EQ(victim->failures, 1);
    progress->notify_later(*victim);
    progress->notify_later(*other);
    progress->poll();
    EXPECT_EQ(victim->failures, 2);
    EXPECT_EQ(other->notifies, 1);
    victim->make_readable();
    other->make_readable();
    EXPECT_TRUE(progress->wait([&] { return other->reads == 1; }, in(kLimit)));
    EXPECT_TRUE(progress->wait([&] { return victim->failures == 3; }, in(kLimit)));
    set_deadline(*victim, in(kMillisecond));
    EXPECT_TRUE(progress->wait([&] { return victim->failures == 4; }, in(kLimit)));
    progress->notify_now(*other);  // served at once only if the progress lock is free
    EXPECT_EQ(other->notifies, 2);
}

TEST_F(ProgressTest, what_throws_as_poller_lets_go_of_the_lock) {
    start(ProgressMode::app);
    const auto item = add();
    EXPECT_THROW(progress->locked([](PollCycle&) { throw std::bad_alloc(); }), std::bad_alloc);
    progress->notify_now(*item);
    EXPECT_EQ(item->notifies, 1);
}

// ---- sleeping and waking --------------------------------------------------

INSTANTIATE_TEST_SUITE_P(Modes, ProgressTest,
                         ::testing::Values(ProgressMode::app, ProgressMode::thread,
                                           ProgressMode::both),
                         [](const auto& mode) {
                             return std::string(mode.param == ProgressMode::app      ? "app"
                                                : mode.param == ProgressMode::thread ? "thread"
                                                                                     : "both");
                         });

TEST_P(ProgressTest, wait_ends_at_its_deadline) {
    start(GetParam());
    const Time due = in(20 * kMillisecond);
    EXPECT_FALSE(progress->wait([] { return false; }, due));
    EXPECT_GE(monotonic_now(), due);
    EXPECT_LT(monotonic_now(), due + kLimit);
    EXPECT_FALSE(progress->wait([] { return false; }, 0));
    EXPECT_TRUE(progress->wait([] { return true; }, 0));
}

TEST_P(ProgressTest, a_waiter_sees_a_ready_descriptor) {
    start(GetParam());
    const auto item = add();
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        item->make_readable();
    });
    EXPECT_TRUE(woken([&] { return item->reads == 1; }));
    other.join();
}

// A waiter only checks; the edge is for the cycle.
TEST_P(ProgressTest, an_edge_is_not_lost_to_a_waiter) {
    start(GetParam());
    const auto item = add(EPOLLIN | EPOLLET);
    for (std::uint64_t round = 1; round <= 200; ++round) {
        std::thread other([&] {
            if (round % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            item->make_readable();
        });
        EXPECT_TRUE(woken([&] { return item->reads == round; })) << round;
        other.join();
    }
}

// Two threads race for the wake flag and the lock: one waits for what the other posts.
TEST_P(ProgressTest, no_wake_up_is_lost_between_a_poster_and_a_waiter) {
    for (const Time spin : {Time{0}, Time{50'000}}) {
        start(GetParam(), spin);
        const auto item = add();
        constexpr std::uint64_t kRounds = 5'000;
        std::atomic<std::uint64_t> seen{0};
        std::atomic<bool> hung{false};
        std::thread poster([&] {
            for (std::uint64_t round = 1; round <= kRounds && !hung; ++round) {
                item->posted.store(round);
                if (round % 3 == 0) {
                    progress->notify_later(*item);
                    if (progress->has_leader()) progress->notify_now(*item);
                } else {
                    progress->notify_now(*item);
                }
                seen.wait(round - 1);
            }
        });
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
            if (!woken([&] { return item->served >= round; })) {
                hung = true;
                ADD_FAILURE() << "round " << round << " never came";
                break;
            }
            seen.store(round);
            seen.notify_one();
        }
        if (hung) {
            seen.store(kRounds + 1);
            seen.notify_one();
        }
        poster.join();
        progress.reset();
    }
}

// One of them leads; it must pass the lead on, and wake those whose turn it is.
TEST_P(ProgressTest, leader_and_followers_all_wake) {
    start(GetParam());
    constexpr std::size_t kWaiters = 4;
    constexpr std::uint64_t kRounds = 300;
    std::vector<std::shared_ptr<Item>> items;
    for (std::size_t i = 0; i < kWaiters; ++i) items.push_back(add());
    std::atomic<bool> hung{false};
    std::array<std::atomic<std::uint64_t>, kWaiters> seen{};
    std::vector<std::thread> waiters;
    for (std::size_t i = 0; i < kWaiters; ++i) {
        waiters.emplace_back([&, i] {
            for (std::uint64_t round = 1; round <= kRounds && !hung; ++round) {
                const Item& mine = *items[i];
                if (!woken([&] { return mine.reads >= round || hung; })) {
                    hung = true;
                    ADD_FAILURE() << "waiter " << i << " missed round " << round;
                }
                seen[i].store(round);
            }
        });
    }
    for (std::uint64_t round = 1; round <= kRounds && !hung; ++round) {
        // A different one is left behind, asleep, each time.
        for (std::size_t k = 0; k < kWaiters; ++k) {
            const std::size_t i = (k + round) % kWaiters;
            items[i]->make_readable();
            while (seen[i].load() < round && !hung) std::this_thread::yield();
        }
    }
    for (std::thread& waiter : waiters) waiter.join();
}

// ---- exit -----------------------------------------------------------------

TEST_F(ProgressTest, drain_tells_everybody_and_ends_when_none_is_left_or_time_is) {
    start(ProgressMode::app);
    const auto slow = add(), stuck = add();
    slow->drains = true;
    set_deadline(*slow, in(5 * kMillisecond));
    const Time first = monotonic_now();
    exit_of_process(first, kLimit);
    EXPECT_LT(monotonic_now() - first, kLimit);
    EXPECT_EQ(slow->exits, 1);
    EXPECT_EQ(stuck->exits, 1);
    EXPECT_EQ(slow->times, 1);
    EXPECT_THAT(slow->drained_at_limit, testing::ElementsAre(true)) << "told behind its waiting";
    EXPECT_THAT(stuck->drained_at_limit, testing::ElementsAre(true));
    stuck->drains = true;
    const Time begin = monotonic_now(), due = begin + 20 * kMillisecond;
    exit_of_process(begin, 20 * kMillisecond);
    EXPECT_GE(monotonic_now(), due);
    EXPECT_THAT(stuck->drained_at_limit, testing::ElementsAre(true, false));
}

TEST_F(ProgressTest, drain_waits_for_an_item_with_a_limit_of_its_own) {
    start(ProgressMode::app);
    const auto slow = add();
    slow->drains = true;
    slow->limit = kLimit;
    set_deadline(*slow, in(30 * kMillisecond));
    exit_of_process(monotonic_now(), kMillisecond);
    EXPECT_EQ(slow->times, 1);
}

// ---- signals ----------------------------------------------------------------

std::atomic<int> signals{0};

bool holds_back(pid_t thread, int signal) {
    std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
    for (std::string word; status >> word;) {
        std::string mask;
        if (word != "SigBlk:" || !(status >> mask)) continue;
        return (std::stoull(mask, nullptr, 16) >> (signal - 1) & 1) != 0;
    }
    return false;
}

// A call that blocks while others move bytes is awake half of the time, and a handler that runs
// then ends it as well.
TEST_F(ProgressTest, a_signal_ends_a_wait_whatever_it_is_doing) {
    constexpr int kRounds = 40;
    start(ProgressMode::both);
    struct sigaction action {
    }, before{};
    action.sa_handler = [](int) { signals.fetch_add(1); };
    sigaction(SIGUSR1, &action, &before);
    const auto item = add();
    std::atomic<bool> stop{false};
    std::thread traffic([&] {
        for (std::uint64_t n = 1; !stop; ++n) {
            item->make_readable();
            progress->wait([&] { return item->reads >= n; }, in(kLimit));
        }
    });
    for (int round = 0; round < kRounds; ++round) {
        std::atomic<pid_t> thread{0};
        std::atomic<bool> ended{false}, give_up{false};
        auto result = Progress::Waited::done;
        std::thread waiter([&] {
            thread = gettid();
            result = progress->wait_interruptibly([&] { return give_up.load(); }, kNever, false);
            ended = true;
        });
        // One that comes before it has slept for the first time ends nothing, as with system calls.
        const Time limit = in(kLimit);
        while ((thread == 0 || !holds_back(thread, SIGUSR1)) && monotonic_now() < limit) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(round % 4));
        const int handled = signals;
        pthread_kill(waiter.native_handle(), SIGUSR1);
        while (!ended && monotonic_now() < limit) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_TRUE(ended) << "round " << round;
        give_up = true;
        progress->wake_waiters();
        waiter.join();
        EXPECT_GT(signals, handled);
        EXPECT_EQ(result, Progress::Waited::interrupted);
    }
    stop = true;
    traffic.join();
    sigaction(SIGUSR1, &before, nullptr);
}

// Posters that never pause must not leave the last of them to a leader that sleeps.
TEST_F(ProgressTest, what_many_posters_queue_last_wakes_the_leader) {
    constexpr int kLength = 1000;
    start(ProgressMode::both);
    class Chain final : public Pollable {
      public:
        explicit Chain(Progress& p) : progress_(p) {}
        void on_ready(std::uint32_t, PollCycle&) override {}
        void on_notify(PollCycle& cycle) override {
            cycle.active = true;
            if (++notifies < kLength) progress_.notify_now(*this);
        }
        void on_time(PollCycle&) override {}
        void on_failure(PollCycle&) noexcept override {}
        std::atomic<int> notifies{0};

      private:
        Progress& progress_;
    };
    const auto chain = std::make_shared<Chain>(*progress);
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    progress->locked([&](PollCycle&) { EXPECT_TRUE(progress->add(chain, fd, EPOLLIN)); });
    std::thread leader([&] {
        EXPECT_TRUE(progress->wait([&] { return chain->notifies >= kLength; }, in(kLimit)));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    progress->notify_now(*chain);
    leader.join();
    progress->locked([&](PollCycle&) { progress->remove(*chain); });
    close(fd);
}

// The thread leaves posts to a caller that polls; when the caller stops, the thread must still send
// the last ones.
TEST_F(ProgressTest, the_thread_serves_what_a_busy_caller_leaves_behind) {
    start(ProgressMode::both);
    const auto item = add();
    for (std::uint64_t round = 1; round <= 40; ++round) {
        // Up to the longest tick and a little more, so that the last post meets each of its phases.
        const Time until = in(round % 10 * kMillisecond);
        while (monotonic_now() < until) {
            progress->notify_later(*item);
            progress->poll();
        }
        item->posted = round;
        progress->notify_later(*item);
        const Time limit = in(kLimit);
        while (item->served != round && monotonic_now() < limit) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        ASSERT_EQ(item->served, round);
    }
}

// A signal handler may run in the middle of a poll cycle, and many call exit() or fork().
TEST_F(ProgressTest, a_fork_in_the_middle_of_a_cycle_ends_and_leaves_the_parent_its_cycle) {
    start(ProgressMode::both);
    const auto item = add();
    progress->locked([&](PollCycle&) {
        EXPECT_TRUE(progress->polled_by_this_thread());
        const pid_t child = fork();
        if (child == 0) _exit(7);
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        EXPECT_TRUE(progress->polled_by_this_thread());
    });
    EXPECT_FALSE(progress->polled_by_this_thread());
    std::thread other([&] {
        progress->locked([](PollCycle&) {});
        EXPECT_FALSE(progress->polled_by_this_thread());
    });
    other.join();
    item->make_readable();
    EXPECT_TRUE(progress->wait([&] { return item->reads == 1; }, in(kLimit)));
}

TEST_F(ProgressTest, one_that_is_due_again_at_once_does_not_keep_the_poller) {
    start(ProgressMode::app);
    class Overdue final : public Pollable {
      public:
        explicit Overdue(Progress& p) : progress_(p) {}
        void on_ready(std::uint32_t, PollCycle&) override {}
        void on_notify(PollCycle&) override {}
        void on_time(PollCycle&) override {
            if (++times < 1000) progress_.set_deadline(*this, 1);
        }
        void on_failure(PollCycle&) noexcept override {}
        int times = 0;

      private:
        Progress& progress_;
    };
    const auto item = std::make_shared<Overdue>(*progress);
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    progress->locked([&](PollCycle&) {
        EXPECT_TRUE(progress->add(item, fd, EPOLLIN));
        progress->set_deadline(*item, 1);
    });
    for (int i = 0; i < 100 && item->times == 0; ++i) progress->try_poll_thoroughly();
    EXPECT_GT(item->times, 0);
    EXPECT_LT(item->times, 1000);
    progress->locked([&](PollCycle&) { progress->remove(*item); });
    close(fd);
}

}  // namespace
}  // namespace xsock
