// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/epoch.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace xsock {
namespace {

TEST(Epochs, no_reader_to_wait_for) {
    Epochs epochs;
    epochs.wait_for_readers();
    Epochs::Reader reader(epochs);
    epochs.wait_for_readers();
    reader.enter();
    reader.leave();
    epochs.wait_for_readers();
}

TEST(Epochs, waits_for_the_section_under_way) {
    Epochs epochs;
    Epochs::Reader reader(epochs);
    std::atomic<bool> returned{false};
    reader.enter();
    std::thread revoker([&] {
        epochs.wait_for_readers();
        returned = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(returned.load());
    reader.leave();
    revoker.join();
    EXPECT_TRUE(returned.load());
}

TEST(Epochs, does_not_wait_for_later_sections) {
    Epochs epochs;
    std::atomic<bool> stop{false};
    std::atomic<int> sections{0};
    std::thread poller([&] {
        Epochs::Reader reader(epochs);
        while (!stop.load()) {
            reader.enter();
            ++sections;
            reader.leave();
        }
    });
    while (sections.load() == 0) std::this_thread::yield();
    for (int i = 0; i < 200; ++i) epochs.wait_for_readers();
    stop = true;
    poller.join();
}

TEST(Epochs, readers_come_and_go) {
    Epochs epochs;
    auto a = std::make_unique<Epochs::Reader>(epochs);
    auto b = std::make_unique<Epochs::Reader>(epochs);
    a->enter();
    a->leave();
    a.reset();
    epochs.wait_for_readers();
    Epochs::Reader c(epochs);
    b->enter();
    b->leave();
    epochs.wait_for_readers();
}

// A new poller may start inside a section while a thread waits for that section.
TEST(Epochs, a_reader_may_be_made_during_a_wait) {
    Epochs epochs;
    Epochs::Reader reader(epochs);
    reader.enter();
    std::thread revoker([&] { epochs.wait_for_readers(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    { Epochs::Reader another(epochs); }
    reader.leave();
    revoker.join();
}

void on_processor_of(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

std::int64_t milliseconds(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1'000'000;
}

// It must not keep the reader, which has a lower priority, from the processor that both share.
// (Linux lets others have 50 ms of each second, or nothing.) Other programs may have the processor
// too, so the time that counts is a share of the wait.
TEST(Epochs, a_thread_of_real_time_priority_sleeps_while_it_waits) {
    Epochs epochs;
    const int cpu = sched_getcpu();
    std::atomic<bool> inside{false}, waiting{false}, allowed{true};
    std::thread revoker([&] {
        on_processor_of(cpu);
        while (!inside) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const sched_param priority{1};
        allowed = pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority) == 0;
        waiting = true;
        const std::int64_t start = milliseconds(CLOCK_MONOTONIC);
        if (allowed) epochs.wait_for_readers();
        const std::int64_t waited = milliseconds(CLOCK_MONOTONIC) - start;
        EXPECT_LT(milliseconds(CLOCK_THREAD_CPUTIME_ID), 100 + waited / 2)
            << "ms of processor time, of " << waited;
    });
    std::thread reader([&] {
        on_processor_of(cpu);
        Epochs::Reader section(epochs);
        section.enter();
        inside = true;
        while (!waiting) std::this_thread::yield();
        for (int i = 0; i < 200; ++i) sched_yield();  // work that takes the processor
        section.leave();
    });
    revoker.join();
    reader.join();
    if (!allowed) GTEST_SKIP() << "no right to a real-time priority";
}

// What is replaced and, after waiting, written to is never seen half by a section.
TEST(Epochs, protects_what_readers_look_at) {
    struct Pair {
        int a = 0, b = 0;
    };
    Epochs epochs;
    Pair pairs[2];
    std::atomic<Pair*> current{&pairs[0]};
    std::atomic<bool> stop{false};
    std::atomic<int> torn{0}, polling{0};
    std::vector<std::thread> pollers;
    for (int i = 0; i < 2; ++i) {
        pollers.emplace_back([&] {
            Epochs::Reader reader(epochs);
            ++polling;
            while (!stop.load(std::memory_order_relaxed)) {
                reader.enter();
                const Pair* const p = current.load(std::memory_order_seq_cst);
                torn += p->a != p->b;
                reader.leave();
            }
        });
    }
    while (polling != 2) std::this_thread::yield();
    for (int i = 1; i <= 500; ++i) {
        Pair& idle = pairs[i % 2];
        idle.a = i;
        idle.b = i;
        current.store(&idle, std::memory_order_seq_cst);
        epochs.wait_for_readers();
    }
    stop = true;
    for (std::thread& t : pollers) t.join();
    EXPECT_EQ(torn.load(), 0);
}

}  // namespace
}  // namespace xsock
