// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is to be called when nothing moves is called though nobody polls again, in whichever cycle
// it was added.
#include "transport/idle_calls.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "transport/clock.hpp"
#include "transport/progress.hpp"

namespace xsock {
namespace {

constexpr Time kLimit = 10 * kSecond;  // only reached by a failure

/// Asks to be called when idle by each cycle that finds something for it.
class Item final : public Pollable {
  public:
    explicit Item(Progress& progress)
        : fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)), progress_(progress) {}
    ~Item() override { close(fd); }

    void on_ready(std::uint32_t, PollCycle& cycle) override {
        std::uint64_t one = 0;
        if (read(fd, &one, sizeof one) < 0) return;  // a guess
        ++reads;
        find(cycle);
    }
    void on_notify(PollCycle& cycle) override { find(cycle); }
    void on_time(PollCycle&) override {}
    void on_failure(PollCycle&) noexcept override { ADD_FAILURE() << "no memory"; }
    bool on_idle(PollCycle&, bool due) override {
        if (due) waits = false;
        return due;
    }
    void find(PollCycle& cycle) {
        cycle.active = true;
        waits = true;
        progress_.call_when_idle(*this);
    }

    const int fd;
    std::atomic<std::uint64_t> reads{0};
    std::atomic<bool> waits{false};

  private:
    Progress& progress_;
};

/// Memory into which something comes while it is armed at the end of a cycle; that asks to be
/// called when idle.
class Memory final : public PolledMemory {
  public:
    explicit Memory(Progress& progress)
        : fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), progress_(progress) {}
    ~Memory() override { close(fd); }

    bool poll_memory(PollCycle&) override {
        if (!std::exchange(has_, false)) return false;
        waits = true;
        progress_.call_when_idle(*this);
        return true;
    }
    bool arm() override {
        has_ = std::exchange(comes, false);
        return !has_;
    }
    void disarm() override {}
    [[nodiscard]] bool is_relied_on() const noexcept override { return true; }
    void on_ready(std::uint32_t, PollCycle&) override {}
    void on_notify(PollCycle&) override {}
    void on_time(PollCycle&) override {}
    void on_failure(PollCycle&) noexcept override { ADD_FAILURE() << "no memory"; }
    bool on_idle(PollCycle&, bool due) override {
        if (due) waits = false;
        return due;
    }

    const int fd;
    bool comes = true;
    std::atomic<bool> waits{false};

  private:
    Progress& progress_;
    bool has_ = false;
};

class IdleCallsTest : public ::testing::Test {
  protected:
    void start(ProgressMode mode) {
        TransportConfig config;
        config.progress = mode;
        auto made = Progress::create(epochs, config, 0);
        ASSERT_TRUE(made);
        progress = std::move(*made);
        item = std::make_shared<Item>(*progress);
        progress->locked([&](PollCycle&) { EXPECT_TRUE(progress->add(item, item->fd, EPOLLIN)); });
        progress->ensure_thread();
    }
    void TearDown() override { progress.reset(); }
    template <typename Done>
    static bool soon(Done done) {
        const Time end = monotonic_now() + kLimit;
        while (!done() && monotonic_now() < end) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
        return done();
    }
    /// Else it would find out by its clock.
    void let_thread_sleep() {
        ASSERT_TRUE(soon([&] { return !progress->is_thread_ticking(); }));
    }

    Epochs epochs;
    std::unique_ptr<Progress> progress;
    std::shared_ptr<Item> item;
};

TEST_F(IdleCallsTest, of_a_holder_of_the_lock_are_made_by_the_sleeping_thread) {
    start(ProgressMode::both);
    let_thread_sleep();
    progress->locked([&](PollCycle& cycle) { item->find(cycle); });
    EXPECT_TRUE(soon([&] { return !item->waits; }));
}

TEST_F(IdleCallsTest, of_a_notification_are_made_by_the_sleeping_thread) {
    start(ProgressMode::both);
    let_thread_sleep();
    progress->notify_now(*item);
    EXPECT_TRUE(soon([&] { return !item->waits; }));
}

TEST_F(IdleCallsTest, of_what_comes_while_memory_is_armed_are_made_by_the_sleeping_thread) {
    start(ProgressMode::both);
    let_thread_sleep();
    const auto memory = std::make_shared<Memory>(*progress);
    progress->locked([&](PollCycle&) {
        ASSERT_TRUE(progress->add(memory, memory->fd, EPOLLIN));
        EXPECT_TRUE(progress->begin_memory_polling(*memory));
    });
    EXPECT_FALSE(memory->comes);
    EXPECT_TRUE(soon([&] { return !memory->waits; }));
}

TEST_F(IdleCallsTest, are_made_by_the_thread_however_many_events_have_woken_it) {
    for (std::uint64_t events = 1; events <= 40; ++events) {
        SCOPED_TRACE(events);
        start(ProgressMode::both);
        let_thread_sleep();
        ASSERT_EQ(write(item->fd, &events, sizeof events), static_cast<ssize_t>(sizeof events));
        EXPECT_TRUE(soon([&] { return item->reads == events && !item->waits; }));
        progress.reset();
    }
}

TEST_F(IdleCallsTest, are_made_by_an_embedding_loop_that_is_told) {
    start(ProgressMode::app);
    const int fd = progress->embed();
    const auto readable = [fd](int ms) {
        pollfd p{fd, POLLIN, 0};
        return poll(&p, 1, ms) == 1;
    };
    EXPECT_FALSE(readable(0));
    progress->locked([&](PollCycle& cycle) { item->find(cycle); });
    EXPECT_TRUE(readable(1000));
    for (int i = 0; i < 1000 && readable(0); ++i) progress->poll();
    EXPECT_FALSE(item->waits);
}

}  // namespace
}  // namespace xsock
