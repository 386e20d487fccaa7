// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Many threads on the same sets at once. What is checked is that nothing is lost: every byte that
// was sent is seen by some thread, edge-triggered and one-shot, however many wait, come and go.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/random.hpp"
#include "tests/unit/poll/world.hpp"

namespace xsock::readiness {
namespace {

constexpr int kWaiters = 3;
constexpr std::size_t kConnections = 12;
constexpr std::size_t kRounds = 150;

void stress(std::uint32_t how) {
    EngineWorld w;
    EngineWorld aside;  // another set over the same Progress, so that leads are fought for
    for (std::size_t i = 0; i < kConnections; ++i) {
        w.ctl(EPOLL_CTL_ADD, w.connect(), EPOLLIN | how, i);
        aside.ctl(EPOLL_CTL_ADD, aside.connect(), EPOLLIN, i);
    }
    const auto last = w.connect();  // is added when it is over
    std::atomic<std::size_t> seen{0};
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    const auto receive_all = [&](std::size_t i) {
        for (;;) {
            const ssize_t n = w.recv(i, 7);
            if (n <= 0) break;
            seen += static_cast<std::size_t>(n);
        }
    };
    for (int t = 0; t < kWaiters; ++t) {
        threads.emplace_back([&, t] {
            while (!over) {
                for (const epoll_event& event : w.wait(1 + t, 60'000)) {
                    const std::uint64_t i = event.data.u64;
                    if (i >= kConnections) continue;  // says that it is over
                    receive_all(i);
                    if ((how & EPOLLONESHOT) != 0) w.ctl(EPOLL_CTL_MOD, i, EPOLLIN | how, i);
                }
            }
        });
    }
    threads.emplace_back([&] {  // waits by poll for what is another set's
        while (!over) {
            std::vector<pollfd> fds;
            for (std::size_t i = 0; i < kConnections; ++i) {
                fds.push_back({aside.fd(i), POLLIN, 0});
            }
            if (aside.poll(fds, 20) <= 0) continue;
            for (std::size_t i = 0; i < kConnections; ++i) {
                if (fds[i].revents != 0) aside.recv(i, 100);
            }
        }
    });
    threads.emplace_back([&] {  // comes and goes
        while (!over) {
            const auto [ours, peer] = tcp_pair();
            auto source = TcpSource::make(test_progress(), ours, random_u32() % 2 == 0);
            epoll_event event{};
            event.events = EPOLLIN | how;
            event.data.u64 = kConnections;
            EXPECT_EQ(w.set().add(ours, source.get(), event), 0);
            EXPECT_EQ(::send(peer, "x", 1, 0), 1);
            if (random_u32() % 2 == 0) {
                source->kernel_ready() ? source->become_engine() : source->become_kernel_ready();
            }
            if (random_u32() % 3 == 0) {
                EXPECT_EQ(w.set().remove(ours, source.get()), 0);
            }
            source->close();
            ::close(peer);
        }
    });
    for (std::size_t round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < kConnections; ++i) {
            w.peer_send(i, 1);
            if (i % 3 == 0) aside.peer_send(i, 1);
        }
        // Sometimes all threads fall asleep in between.
        if (round % 16 == 0) usleep(3000);
        // Shorter than the threads' waits, whose end would find a lost event too.
        const Time limit = monotonic_now() + 20 * kSecond;
        while (seen < (round + 1) * kConnections && monotonic_now() < limit) usleep(50);
        ASSERT_EQ(seen, (round + 1) * kConnections);
    }
    over = true;
    // Wakes the threads that still sleep, one after the other.
    w.ctl(EPOLL_CTL_ADD, last, EPOLLOUT, kConnections + 1);
    for (std::thread& thread : threads) thread.join();
}

TEST(Stress, edge_triggered) { stress(EPOLLET); }
TEST(Stress, level_triggered) { stress(0); }
TEST(Stress, one_shot) { stress(EPOLLONESHOT); }

}  // namespace
}  // namespace xsock::readiness
