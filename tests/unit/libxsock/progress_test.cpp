// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sleeping threads are woken, and threads without work sleep: progress as a program sees it.
#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/pair.hpp"

namespace xsock::test {
namespace {

using std::chrono::milliseconds;

void expect_local_invalidate_wakes() {
    Pair pair;
    char memory[64];
    xsock_mr* mr =
        xsock_mr_register(nullptr, memory, sizeof memory, XSOCK_REMOTE_WRITE, pair.client);
    ASSERT_NE(mr, nullptr);
    XSOCK_INIT(xsock_wr, wr);
    wr.wr_id = 5;
    wr.op = XSOCK_OP_INVALIDATE;
    wr.remote.stag = xsock_mr_stag(mr);
    std::this_thread::sleep_for(milliseconds(20));  // the thread sleeps
    std::thread poster([&] {
        std::this_thread::sleep_for(milliseconds(20));  // the waiter too
        EXPECT_EQ(xsock_post(pair.client, &wr), 0);
    });
    const auto before = std::chrono::steady_clock::now();
    xsock_wc wc{};
    EXPECT_EQ(xsock_cq_wait(pair.client_cq, &wc, 1, 1, 2000), 1);
    EXPECT_EQ(wc.wr_id, 5u);
    EXPECT_LT(std::chrono::steady_clock::now() - before, milliseconds(1900)) << "not woken";
    poster.join();
    EXPECT_EQ(xsock_mr_deregister(mr), 0);
}

// It sends nothing, so no byte tells the waiter of it.
TEST(ProgressOf, local_invalidate_wakes_a_waiter) {
    for (const char* mode : {"thread", "both", "app"}) {
        with_environment("XSOCK_PROGRESS", mode, expect_local_invalidate_wakes);
    }
}

TEST(ProgressOf, waiters_for_one_completion_never_come_back_with_none) {
    Pair pair;
    constexpr uint64_t kWaiters = 4, kRounds = 500, kStop = 0;
    std::atomic<uint64_t> taken{0};
    std::atomic<int> empty{0};
    std::vector<std::thread> waiters;
    for (uint64_t i = 0; i < kWaiters; ++i) {
        waiters.emplace_back([&] {
            for (;;) {
                xsock_wc wc{};
                if (xsock_cq_wait(pair.client_cq, &wc, 1, 1, kLimitMs) != 1) {
                    ++empty;
                    continue;
                }
                ++taken;
                if (wc.wr_id == kStop) return;
            }
        });
    }
    const xsock_remote nothing{};
    for (uint64_t i = 1; i <= kRounds; ++i) {
        ASSERT_EQ(xsock_write(pair.client, i, nullptr, 0, &nothing, 0, 0), 0);
        while (taken.load() < i) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::microseconds(300));  // all fall asleep
    }
    for (uint64_t i = 0; i < kWaiters; ++i) {
        ASSERT_EQ(xsock_write(pair.client, kStop, nullptr, 0, &nothing, 0, 0), 0);
    }
    for (std::thread& waiter : waiters) waiter.join();
    EXPECT_EQ(empty.load(), 0);
}

// A queue is first fed by one Progress; its waiters learn that another feeds it too.
TEST(ProgressOf, a_waiter_learns_of_a_second_source) {
    with_environment("XSOCK_THREADS", "2", [] {
        xsock_cq* first = xsock_cq_create(nullptr);
        xsock_cq* second = xsock_cq_create(nullptr);
        int got = -1;
        const auto begin = std::chrono::steady_clock::now();
        std::thread waiter([&] {
            xsock_wc wc[2];
            got = xsock_cq_wait(second, wc, 2, 2, 2000);
        });
        std::this_thread::sleep_for(milliseconds(50));
        const auto cross = [&](xsock_ep_attr& client, xsock_ep_attr& server) {
            client.send_cq = server.send_cq = first;
            client.recv_cq = server.recv_cq = second;
            client.flags = server.flags = XSOCK_EP_EVENTS;
        };
        const Pair pair({.adjust = cross});
        waiter.join();
        EXPECT_EQ(got, 2);
        EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1900)) << "not woken";
    });
}

double cpu_ms() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

// A wake-up for a leader that is gone must not keep the thread busy.
TEST(ProgressOf, no_thread_burns_cpu_when_nothing_happens) {
    Pair pair;
    constexpr int kRounds = 25;
    std::atomic<int> asked{0}, answered{0};
    char in[8], out[8] = {};
    std::thread waiter([&] {
        for (int round = 1; round <= kRounds; ++round) {
            while (asked.load() < round)
                std::this_thread::sleep_for(std::chrono::microseconds(100));
            xsock_recv(pair.server, 1, in, sizeof in);
            next(pair.server_cq);
            answered.store(round);
        }
    });
    double worst = 0;
    int busy_at_first = 0;
    for (int round = 1; round <= kRounds; ++round) {
        asked.store(round);
        std::this_thread::sleep_for(milliseconds(2));
        ASSERT_EQ(xsock_send(pair.client, 2, out, sizeof out, 0), 0);
        while (answered.load() < round) std::this_thread::sleep_for(std::chrono::microseconds(100));
        xsock_wc wc[8];
        xsock_cq_poll(pair.client_cq, wc, 8);
        std::this_thread::sleep_for(milliseconds(10));
        // A real busy loop stays busy: a single busy measurement is a busy machine's, which sleeps
        // longer.
        double least = 10;
        for (int looks = 0; looks < 20 && least >= 8; ++looks) {
            const double before = cpu_ms();
            std::this_thread::sleep_for(milliseconds(10));
            least = std::min(least, cpu_ms() - before);
            if (looks == 0 && least >= 8) ++busy_at_first;
        }
        worst = std::max(worst, least);
    }
    waiter.join();
    EXPECT_LT(worst, 8) << "ms of 10, twenty times";
    EXPECT_LE(busy_at_first, 3) << "of " << kRounds << ": each message keeps it busy for a while";
    const double before = cpu_ms();
    std::this_thread::sleep_for(milliseconds(100));
    EXPECT_LT(cpu_ms() - before, 50) << "ms of 100";
}

}  // namespace
}  // namespace xsock::test
