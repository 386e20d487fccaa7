// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Both ends of a link at once, on real processors: each sleeps when it has nothing to do, and the
// other wakes it. For the memory model and the thread sanitizer; a lost wake-up hangs.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/unit/shm/link_pair.hpp"

namespace xsock::shm {
namespace {

constexpr std::uint64_t kConnections = 3;
constexpr std::size_t kUlpdus = 1500;

struct Wakeups {
    std::atomic<std::uint32_t> count{0};

    void wake() {
        count.fetch_add(1, std::memory_order_release);
        count.notify_one();
    }
};

bool over(Host& host) {
    for (const auto& [token, end] : host.ends) {
        if (end->ulp.done < kUlpdus || end->ulp.delivered.size() < kUlpdus) return false;
    }
    return true;
}

/// How often it slept.
unsigned run(Host& host, Wakeups& own, Wakeups& others) {
    unsigned sleeps = 0;
    for (std::uint32_t seen = 0;; seen = own.count.load(std::memory_order_acquire)) {
        bool busy = true;
        while (busy) {
            busy = host.link.poll(host.scratch, 20'000);
            for (const auto& [token, end] : host.ends) {
                const std::size_t done = end->ulp.done;
                end->send(8192);
                busy |= end->ulp.done != done;
            }
            if (host.link.end_cycle(!busy)) others.wake();
        }
        if (over(host)) return sleeps;
        if (host.link.begin_sleep()) {
            ++sleeps;
            own.count.wait(seen, std::memory_order_acquire);
            host.link.end_sleep();
        }
    }
}

TEST(ShmThreads, two_ends_that_sleep_exchange_everything) {
    LinkPair p;
    for (std::uint64_t token = 1; token <= kConnections; ++token) {
        p.connect(token);
        for (std::size_t i = 0; i < kUlpdus; ++i) {
            p.a.ends[token]->ulp.queue(18, (i * 37 + token) % 1500);
            p.b.ends[token]->ulp.queue(14, (i * 101 + token) % 900);
        }
    }
    Wakeups a, b;
    unsigned sleeps_of_b = 0;
    std::thread other([&] { sleeps_of_b = run(p.b, b, a); });
    const unsigned sleeps_of_a = run(p.a, a, b);
    other.join();
    EXPECT_GT(sleeps_of_a + sleeps_of_b, 0u);
    for (std::uint64_t token = 1; token <= kConnections; ++token) {
        EXPECT_TRUE(p.b.ends[token]->ulp.delivered == p.a.ends[token]->ulp.queued());
        EXPECT_TRUE(p.a.ends[token]->ulp.delivered == p.b.ends[token]->ulp.queued());
    }
}

}  // namespace
}  // namespace xsock::shm
