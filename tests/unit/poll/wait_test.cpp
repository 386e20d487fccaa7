// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sleeping and being woken: time limits, signals, other threads, plain descriptors, the lead.
#include "libxsock/poll/wait.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <thread>

#include "tests/unit/poll/world.hpp"
#include "tests/unit/yield_hook.hpp"

namespace xsock::readiness {
namespace {

constexpr int kLong = 20'000;  // ms; nothing that works comes near it

/// Runs `later` in another thread, some time after the test has begun to wait.
class Later {
  public:
    explicit Later(std::function<void()> later, int ms = 50)
        : thread_([f = std::move(later), ms] {
              std::this_thread::sleep_for(std::chrono::milliseconds(ms));
              f();
          }) {}
    ~Later() { thread_.join(); }

  private:
    std::thread thread_;
};

TEST(Wait, a_sleeping_thread_is_woken_by_the_peer) {
    EngineWorld w;
    const auto a = w.connect();
    w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 5);
    const Later later([&] { w.peer_send(a, 1); });
    EXPECT_EQ(text_of(w.wait_woken(4)), "5:IN ");
}

TEST(Wait, what_comes_while_the_processor_is_yielded_is_told_though_the_time_is_over) {
    EngineWorld w;
    const auto a = w.connect();
    const int event = eventfd(0, EFD_CLOEXEC);
    std::vector<pollfd> fds{{w.fd(a), POLLIN, 0}, {event, POLLIN, 0}};
    int yields = 0;
    const test::YieldHook busy([&] {
        if (++yields != 1) return;
        const std::uint64_t one = 1;
        EXPECT_EQ(write(event, &one, sizeof one), 8);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    });
    int found = 0;
    while (yields == 0) found = w.poll(fds, 1);  // not in each wait
    EXPECT_EQ(found, 1);
    EXPECT_EQ(fds[1].revents, POLLIN);
    ::close(event);
}

TEST(Wait, a_sleeping_thread_is_woken_by_a_plain_member) {
    EngineWorld w;
    w.ctl(EPOLL_CTL_ADD, w.connect(), EPOLLIN, 5);
    const int event = eventfd(0, EFD_CLOEXEC);
    epoll_event plain{};
    plain.events = EPOLLIN;
    plain.data.u64 = 6;
    ASSERT_EQ(w.set().add(event, nullptr, plain), 0);
    {
        const Later later([&] {
            const std::uint64_t one = 1;
            EXPECT_EQ(write(event, &one, sizeof one), 8);
        });
        EXPECT_EQ(text_of(w.wait(4, kLong)), "6:IN ");
    }
    ASSERT_EQ(w.set().remove(event, nullptr), 0);
    close(event);
}

TEST(Wait, a_sleeping_thread_is_woken_by_what_another_thread_does) {
    EngineWorld w;
    const auto a = w.connect(), b = w.connect();
    w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 1);
    {
        const Later later([&] { w.sources[a]->inject(1); });
        EXPECT_EQ(text_of(w.wait_woken(4)), "1:IN ");
        w.recv(a, 1);
    }
    {
        const Later later([&] { w.ctl(EPOLL_CTL_ADD, b, EPOLLOUT | EPOLLONESHOT, 2); });
        EXPECT_EQ(text_of(w.wait_woken(4)), "2:OUT ");
    }
    {
        const Later later([&] { w.ctl(EPOLL_CTL_MOD, b, EPOLLOUT | EPOLLONESHOT, 3); });
        EXPECT_EQ(text_of(w.wait_woken(4)), "3:OUT ");
    }
    {  // Another thread polls and finds it.
        const Later later([&] {
            w.peer_send(a, 1);
            test_progress().poll();
        });
        EXPECT_EQ(text_of(w.wait_woken(4)), "1:IN ");
    }
}

TEST(Wait, the_time_limit_is_not_undercut) {
    EngineWorld w;
    w.ctl(EPOLL_CTL_ADD, w.connect(), EPOLLIN, 5);
    for (const int ms : {1, 10, 40}) {
        const Time begin = monotonic_now();
        EXPECT_TRUE(w.wait(4, ms).empty());
        EXPECT_GE(monotonic_now() - begin, static_cast<Time>(ms) * kMillisecond);
    }
}

std::atomic<int> handled{0};

TEST(Wait, a_signal_ends_it_and_the_mask_holds_only_meanwhile) {
    EngineWorld w;
    w.ctl(EPOLL_CTL_ADD, w.connect(), EPOLLIN, 5);
    struct sigaction action {};
    action.sa_handler = [](int) { ++handled; };
    action.sa_flags = SA_RESTART;  // poll and epoll_wait are never restarted
    struct sigaction before {};
    sigaction(SIGUSR1, &action, &before);
    const pthread_t self = pthread_self();
    epoll_event out[2];

    handled = 0;
    {
        const Later later([&] { pthread_kill(self, SIGUSR1); });
        EXPECT_EQ(w.set().wait(out, 2, EngineWorld::deadline(kLong), nullptr), -EINTR);
        EXPECT_EQ(handled, 1);
    }
    // Blocked outside, let through inside: also one that is pending already.
    sigset_t usr1, none, current;
    sigemptyset(&none);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
    pthread_kill(self, SIGUSR1);
    EXPECT_EQ(handled, 1);
    EXPECT_EQ(w.set().wait(out, 2, EngineWorld::deadline(kLong), &none), -EINTR);
    EXPECT_EQ(handled, 2);
    pthread_sigmask(SIG_SETMASK, nullptr, &current);
    EXPECT_EQ(sigismember(&current, SIGUSR1), 1);
    // Let through outside, blocked inside: runs afterwards.
    pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);
    {
        const Later later([&] { pthread_kill(self, SIGUSR1); }, 20);
        EXPECT_EQ(w.set().wait(out, 2, EngineWorld::deadline(100), &usr1), 0);
    }
    EXPECT_EQ(handled, 3);
    // Events go before signals.
    w.sources[0]->inject(1);
    pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
    pthread_kill(self, SIGUSR1);
    EXPECT_EQ(w.set().wait(out, 2, EngineWorld::deadline(kLong), &none), 1);
    pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);
    sigaction(SIGUSR1, &before, nullptr);
}

#if defined(__x86_64__)
// A sandbox that traps system calls and does them in its handler of SIGSYS: a process in which that
// is held back is killed.
TEST(Wait, system_calls_may_be_trapped) {
    EngineWorld w;
    w.ctl(EPOLL_CTL_ADD, w.connect(), EPOLLIN, 5);
    struct sigaction action {};
    action.sa_sigaction = [](int, siginfo_t*, void* context) {
        ++handled;
        static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = 0;  // no events
    };
    action.sa_flags = SA_SIGINFO;
    struct sigaction before {};
    sigaction(SIGSYS, &action, &before);
    handled = 0;
    bool trapped = false;
    std::thread sandboxed([&] {
        sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_wait, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const sock_fprog program{std::size(filter), filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
            return;
        }
        trapped = true;
        epoll_event out[2];
        EXPECT_EQ(w.set().wait(out, 2, EngineWorld::deadline(50), nullptr), 0);
        EXPECT_GT(handled, 0);
    });
    sandboxed.join();
    sigaction(SIGSYS, &before, nullptr);
    if (!trapped) GTEST_SKIP() << "no seccomp here";
}
#endif

// Signals that come at any moment of a wait, the spin and the edges of the sleep included: none may
// be followed by a sleep.
TEST(Wait, no_signal_is_slept_over) {
    EngineWorld w;
    w.ctl(EPOLL_CTL_ADD, w.connect(), EPOLLIN, 5);
    struct sigaction action {};
    action.sa_handler = [](int) { ++handled; };
    struct sigaction before {};
    sigaction(SIGUSR1, &action, &before);
    sigset_t usr1, none;
    sigemptyset(&none);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
    const pthread_t self = pthread_self();
    std::atomic<int> round{0};
    constexpr int kRounds = 300;
    std::thread sender([&] {
        for (int i = 1; i <= kRounds; ++i) {
            while (round.load() != i) std::this_thread::yield();
            for (std::atomic<int> spin{0}; spin < i * 37; ++spin) {
            }
            pthread_kill(self, SIGUSR1);
        }
    });
    epoll_event out[2];
    for (int i = 1; i <= kRounds; ++i) {
        round = i;
        ASSERT_EQ(w.set().wait(out, 2, EngineWorld::deadline(kLong), &none), -EINTR) << i;
    }
    sender.join();
    pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);
    sigaction(SIGUSR1, &before, nullptr);
}

/// A set that gets its Progress at the worst moment: after the roles for a sleep were taken, and
/// after those that slept by then were notified.
class LateProgress final : public Target {
  public:
    int check(Kernel) override {
        if (asleep_) known_ = 1;
        return asleep_ && test_progress().has_leader() ? 1 : 0;
    }
    std::span<PollGroup* const> progresses() override { return {&progress_, known_}; }
    KernelSet kernel() override { return {fds_, 0}; }
    void prepare_wait(Waiter&) override { asleep_ = true; }
    void finish_wait(Waiter&) override { asleep_ = false; }

  private:
    bool asleep_ = false;
    std::size_t known_ = 0;
    PollGroup* const progress_ = &test_progress();
    std::array<pollfd, kExtraFds> fds_{};
};

TEST(Wait, a_progress_that_joins_while_a_thread_begins_to_wait_is_led) {
    LateProgress target;
    EXPECT_EQ(wait_for(target, time_after(monotonic_now(), 2 * kSecond), nullptr), 1);
}

// Two threads wait for sockets of one Progress, in sets of their own: one leads, the other follows,
// and each is woken for what is its own, also when the leader has left.
TEST(Wait, followers_are_woken_and_take_the_lead) {
    EngineWorld first, second;
    const auto a = first.connect();
    const auto b = second.connect();
    first.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 1);
    second.ctl(EPOLL_CTL_ADD, b, EPOLLIN, 2);
    std::string seen;
    std::thread follower([&] {
        for (int i = 0; i < 3; ++i) {
            seen += text_of(second.wait(4, kLong));
            second.recv(b, 10);
        }
    });
    for (int i = 0; i < 3; ++i) {
        usleep(20000);
        const Later later([&] { first.peer_send(a, 1); }, 20);
        EXPECT_EQ(text_of(first.wait(4, kLong)), "1:IN ");
        first.recv(a, 10);
        second.peer_send(b, 1);  // only the follower may lead
    }
    follower.join();
    EXPECT_EQ(seen, "2:IN 2:IN 2:IN ");
}

TEST(Wait, many_threads_on_one_set_take_each_event_once) {
    EngineWorld w;
    constexpr int kThreads = 6;
    constexpr std::size_t kConnections = 40;
    for (std::size_t i = 0; i < kConnections; ++i) {
        w.ctl(EPOLL_CTL_ADD, w.connect(), EPOLLIN | EPOLLET, i);
    }
    std::atomic<std::size_t> seen{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&] {
            while (seen < kConnections) {
                for (const epoll_event& event : w.wait(1, 200)) {
                    EXPECT_EQ(w.recv(event.data.u64, 10), 1);
                    ++seen;
                }
            }
        });
    }
    usleep(30000);
    for (std::size_t i = 0; i < kConnections; ++i) w.peer_send(i, 1);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(seen, kConnections);
}

TEST(Wait, poll_followers_are_woken_for_their_own) {
    EngineWorld w;
    const auto a = w.connect(), b = w.connect();
    std::thread leader([&] {
        std::vector<pollfd> fds{{w.fd(a), POLLIN, 0}};
        EXPECT_EQ(w.poll(fds, kLong), 1);
    });
    usleep(30000);
    std::thread follower([&] {
        std::vector<pollfd> fds{{w.fd(b), POLLIN, 0}};
        EXPECT_EQ(w.poll(fds, kLong), 1);
    });
    usleep(30000);
    const Time begin = monotonic_now();
    w.peer_send(b, 1);
    follower.join();
    w.peer_send(a, 1);
    leader.join();
    EXPECT_LT(monotonic_now() - begin, static_cast<Time>(kLong) / 2 * kMillisecond);
}

}  // namespace
}  // namespace xsock::readiness
