// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Members of a set: sockets that become plain or begin while they are in it, duplicates, nested
// sets, both kinds side by side, thousands, and forks.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <set>
#include <thread>

#include "libxsock/poll/eventpoll_info.hpp"
#include "tests/unit/poll/world.hpp"

namespace xsock::readiness {
namespace {

epoll_event event_of(std::uint32_t events, std::uint64_t data) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = data;
    return event;
}

TEST(Member, a_fallback_goes_on_in_the_kernel_and_loses_nothing) {
    for (const std::uint32_t how : {0u, std::uint32_t{EPOLLET}}) {
        EngineWorld w;
        const auto a = w.connect();
        w.ctl(EPOLL_CTL_ADD, a, EPOLLIN | how, 77);
        w.sources[a]->become_kernel_ready();
        w.peer_send(a, 3);  // lies in the kernel's queue
        EXPECT_EQ(text_of(w.wait(4, 5000)), "77:IN ");
        char bytes[8];
        EXPECT_EQ(::recv(w.fd(a), bytes, sizeof bytes, 0), 3);
        EXPECT_EQ(text_of(w.wait(4, 20)), "nothing");
        w.peer_send(a, 1);
        EXPECT_EQ(text_of(w.wait(4, 5000)), "77:IN ");
        EXPECT_EQ(w.ctl(EPOLL_CTL_MOD, a, EPOLLOUT, 78), 0);
        EXPECT_EQ(text_of(w.wait(4, 5000)), "78:OUT ");
        EXPECT_EQ(w.ctl(EPOLL_CTL_DEL, a, 0, 0), 0);
        EXPECT_EQ(text_of(w.wait(4, 20)), "nothing");
        EXPECT_EQ(w.ctl(EPOLL_CTL_DEL, a, 0, 0), -ENOENT);
    }
}

TEST(Member, a_fallback_wakes_its_waiters) {
    EngineWorld w;
    const auto a = w.connect();
    w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 77);
    std::thread later([&] {
        usleep(50000);
        w.sources[a]->become_kernel_ready();
        usleep(50000);
        w.peer_send(a, 3);
    });
    EXPECT_EQ(text_of(w.wait_woken(4)), "77:IN ");
    later.join();
}

// The thin layer forgets a plain socket: the set must go on with the kernel's, known by its number.
TEST(Member, a_fallback_outlives_its_handle) {
    EngineWorld w;
    const auto a = w.connect(), b = w.connect();
    w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 1);
    w.ctl(EPOLL_CTL_ADD, b, EPOLLIN | EPOLLONESHOT, 2);
    w.peer_send(b, 1);
    EXPECT_EQ(text_of(w.wait(4, 5000)), "2:IN ");  // and is disabled
    w.recv(b, 1);
    for (const auto i : {a, b}) {
        w.sources[i]->become_kernel_ready();
        w.sources[i]->retire_for_test();
    }
    w.peer_send(a, 1);
    w.peer_send(b, 1);
    EXPECT_EQ(text_of(w.wait(4, 5000)), "1:IN ");
    EXPECT_EQ(w.set().modify(w.fd(a), nullptr, event_of(0, 0)), 0);
    EXPECT_EQ(w.set().modify(w.fd(b), nullptr, event_of(EPOLLIN, 3)), 0);
    EXPECT_EQ(text_of(w.wait(4, 5000)), "3:IN ");
    EXPECT_EQ(w.set().remove(w.fd(a), nullptr), 0);
    EXPECT_EQ(w.set().remove(w.fd(b), nullptr), 0);
    EXPECT_EQ(w.set().remove(w.fd(b), nullptr), -ENOENT);
}

// Socket 0 is in the set for EPOLLIN with data 9, and kernel-ready; messages come before and after
// it begins.
void expect_events_over_its_beginning(EngineWorld& w) {
    w.peer_send(0, 2);
    EXPECT_EQ(text_of(w.wait(4, 5000)), "9:IN ");
    w.sources[0]->become_engine();
    EXPECT_EQ(text_of(w.wait(4, 5000)), "9:IN ");
    EXPECT_EQ(w.recv(0, 10), 2);
    // The kernel's queue would say so too; ours must, and alone.
    w.peer_send(0, 2);
    EXPECT_EQ(text_of(w.wait(4, 5000)), "9:IN ");
    EXPECT_EQ(w.recv(0, 10), 2);
    EXPECT_EQ(text_of(w.wait(4, 20)), "nothing");
}

TEST(Member, a_socket_that_begins_leaves_the_kernel) {
    EngineWorld w;
    w.connect(/*kernel-ready=*/true);
    w.ctl(EPOLL_CTL_ADD, 0, EPOLLIN, 9);
    expect_events_over_its_beginning(w);
}

TEST(Member, attends_to_those_that_are_waited_for) {
    EngineWorld w;
    const auto a = w.connect();
    w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 9);
    EXPECT_EQ(w.sources[a]->watched, 1);
    std::vector<pollfd> fds{{w.fd(a), POLLIN, 0}};
    w.poll(fds, 0);
    EXPECT_EQ(w.sources[a]->watched, 2);
}

TEST(Member, duplicates_are_members_of_their_own) {
    EngineWorld w;
    const auto a = w.connect();
    TcpSource& source = *w.sources[a];
    const int other = dup(source.program_fd);
    EXPECT_EQ(w.set().add(source.program_fd, &source, event_of(EPOLLIN, 1)), 0);
    EXPECT_EQ(w.set().add(other, &source, event_of(EPOLLIN, 2)), 0);
    w.peer_send(a, 1);
    EXPECT_EQ(w.wait(4, 5000).size(), 2u);
    EXPECT_EQ(w.set().remove(other, &source), 0);
    EXPECT_EQ(text_of(w.wait(4, 0)), "1:IN ");
    close(other);
}

TEST(Member, was_in_the_kernels_set_before) {
    EngineWorld w;
    const auto a = w.connect();
    epoll_event event = event_of(EPOLLIN, 1);
    ASSERT_EQ(epoll_ctl(w.epfd(), EPOLL_CTL_ADD, w.fd(a), &event), 0);
    EXPECT_EQ(w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 1), -EEXIST);
    ASSERT_EQ(epoll_ctl(w.epfd(), EPOLL_CTL_DEL, w.fd(a), &event), 0);
}

// A kernel-ready source that the kernel's set knows already.
class AdoptedMember : public ::testing::Test {
  protected:
    void SetUp() override { w.connect(/*kernel-ready=*/true); }
    void put_into_kernels(int fd, std::uint32_t events, std::uint64_t data) {
        epoll_event event = event_of(events, data);
        ASSERT_EQ(epoll_ctl(w.epfd(), EPOLL_CTL_ADD, fd, &event), 0);
    }
    int adopt() { return w.set().adopt(w.fd(0), *w.sources[0]); }
    EngineWorld w;
};

TEST_F(AdoptedMember, goes_on_with_its_events_and_data) {
    put_into_kernels(w.fd(0), EPOLLIN, 9);
    ASSERT_EQ(adopt(), 0);
    ASSERT_EQ(adopt(), 0);  // again is harmless
    expect_events_over_its_beginning(w);
    EXPECT_EQ(w.ctl(EPOLL_CTL_ADD, 0, EPOLLIN, 1), -EEXIST);
    EXPECT_EQ(w.ctl(EPOLL_CTL_MOD, 0, EPOLLOUT, 3), 0);
    EXPECT_EQ(text_of(w.wait(4, 5000)), "3:OUT ");
    EXPECT_EQ(w.ctl(EPOLL_CTL_DEL, 0, 0, 0), 0);
    EXPECT_EQ(w.ctl(EPOLL_CTL_DEL, 0, 0, 0), -ENOENT);
    EXPECT_EQ(text_of(w.wait(4, 20)), "nothing");
}

TEST_F(AdoptedMember, may_have_begun_already) {
    put_into_kernels(w.fd(0), EPOLLIN | EPOLLET, 9);
    w.sources[0]->become_engine();
    w.peer_send(0, 2);
    ASSERT_EQ(adopt(), 0);
    EXPECT_EQ(text_of(w.wait(4, 5000)), "9:IN ");
    EXPECT_EQ(text_of(w.wait(4, 20)), "nothing");  // once for the edge, and not by the kernel
    EXPECT_EQ(w.recv(0, 10), 2);
}

TEST_F(AdoptedMember, stays_silent_when_its_one_shot_has_fired) {
    put_into_kernels(w.fd(0), EPOLLOUT | EPOLLONESHOT, 9);
    epoll_event event{};
    ASSERT_EQ(epoll_wait(w.epfd(), &event, 1, 5000), 1);
    ASSERT_EQ(adopt(), 0);
    w.sources[0]->become_engine();
    EXPECT_EQ(text_of(w.wait(4, 20)), "nothing");
    EXPECT_EQ(w.ctl(EPOLL_CTL_MOD, 0, EPOLLOUT | EPOLLONESHOT, 4), 0);
    EXPECT_EQ(text_of(w.wait(4, 5000)), "4:OUT ");
    EXPECT_EQ(text_of(w.wait(4, 20)), "nothing");
}

TEST_F(AdoptedMember, by_each_of_its_numbers_that_is_still_open) {
    const int other = dup(w.fd(0)), gone = dup(w.fd(0));
    put_into_kernels(w.fd(0), EPOLLIN, 1);
    put_into_kernels(other, EPOLLIN, 2);
    put_into_kernels(gone, EPOLLIN, 3);
    close(gone);
    ASSERT_EQ(adopt(), 0);
    w.sources[0]->become_engine();
    w.sources[0]->inject(1);
    std::multiset<std::uint64_t> told;
    for (const epoll_event& event : w.wait(8, 5000)) told.insert(event.data.u64);
    EXPECT_EQ(told, (std::multiset<std::uint64_t>{1, 2}));
    EXPECT_EQ(w.set().add(w.fd(0), w.sources[0].get(), event_of(EPOLLIN, 1)), -EEXIST);
    EXPECT_EQ(w.set().add(other, w.sources[0].get(), event_of(EPOLLIN, 1)), -EEXIST);
    EXPECT_EQ(w.set().remove(gone, w.sources[0].get()), -EBADF);
    EXPECT_EQ(w.set().remove(other, w.sources[0].get()), 0);
    close(other);
}

TEST_F(AdoptedMember, is_found_in_every_set_of_the_program) {
    const int plain = epoll_create1(EPOLL_CLOEXEC), another = epoll_create1(EPOLL_CLOEXEC);
    const int elsewhere = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event = event_of(EPOLLIN, 1);
    for (const int epfd : {plain, another}) {
        ASSERT_EQ(epoll_ctl(epfd, EPOLL_CTL_ADD, w.fd(0), &event), 0);
    }
    ASSERT_EQ(epoll_ctl(elsewhere, EPOLL_CTL_ADD, w.peers[0], &event), 0);
    std::set<int> found;
    for (int epfd = -1; (epfd = next_registered(w.fd(0), epfd)) >= 0;) found.insert(epfd);
    EXPECT_EQ(found, (std::set<int>{plain, another}));
    for (const int epfd : {plain, another, elsewhere}) close(epfd);
}

/// Is woken at the worst of moments: while it is asked.
class RestlessSource final : public Source {
  public:
    std::uint32_t events() const noexcept override {
        if (restless) const_cast<RestlessSource*>(this)->wake(EPOLLIN);
        return EPOLLIN;
    }
    bool kernel_ready() const noexcept override { return false; }
    Progress* progress() const noexcept override { return &test_progress(); }
    void end() { retire(); }
    bool restless = true;
};

TEST(Member, is_told_once_in_one_answer_though_it_is_woken_meanwhile) {
    for (const std::uint32_t how : {0u, std::uint32_t{EPOLLET}}) {
        EngineWorld w;
        const auto a = w.connect();  // lends its number
        RestlessSource source;
        ASSERT_EQ(w.set().add(w.fd(a), &source, event_of(EPOLLIN | how, 1)), 0);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(text_of(w.wait(8, 1000)), "1:IN ");
        source.restless = false;
        EXPECT_EQ(text_of(w.wait(8, 1000)), "1:IN ");  // the last wake-up
        EXPECT_EQ(text_of(w.wait(8, 0)), how == 0 ? "1:IN " : "nothing");
        source.end();
        EXPECT_EQ(text_of(w.wait(8, 0)), "nothing");
    }
}

TEST(Member, only_epoll_descriptors_become_sets) {
    const int pipe_end = eventfd(0, EFD_CLOEXEC);
    auto made = EpollSet::create(pipe_end);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, EINVAL);
    close(pipe_end);
    made = EpollSet::create(pipe_end);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, EBADF);
}

// Neither the plain members nor ours keep the other ones from being told, however little room.
TEST(Member, both_kinds_take_turns) {
    EngineWorld w;
    std::vector<int> plain;
    for (std::uint64_t i = 0; i < 4; ++i) {
        w.ctl(EPOLL_CTL_ADD, w.connect(), EPOLLOUT, i);
        plain.push_back(eventfd(1, EFD_CLOEXEC));
        ASSERT_EQ(w.set().add(plain.back(), nullptr, event_of(EPOLLIN, 100 + i)), 0);
    }
    for (const int room : {1, 2, 3}) {
        std::multiset<std::uint64_t> told;
        for (int i = 0; i < 24; ++i) {
            const auto events = w.wait(room, 0);
            EXPECT_EQ(events.size(), static_cast<std::size_t>(room));
            for (const epoll_event& event : events) told.insert(event.data.u64);
        }
        for (std::uint64_t i = 0; i < 4; ++i) {
            EXPECT_GE(told.count(i), static_cast<std::size_t>(room)) << room;
            EXPECT_GE(told.count(100 + i), static_cast<std::size_t>(room)) << room;
        }
    }
    EXPECT_EQ(w.wait(64, 0).size(), 8u);
    for (const int fd : plain) close(fd);
}

TEST(Member, nested_sets_are_readable_from_outside) {
    EngineWorld w;
    const auto a = w.connect();
    w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 1);
    const int outer = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event = event_of(EPOLLIN, 5), out{};
    w.set().allow_outside_watch();
    ASSERT_EQ(epoll_ctl(outer, EPOLL_CTL_ADD, w.epfd(), &event), 0);
    EXPECT_EQ(epoll_wait(outer, &out, 1, 0), 0);
    w.peer_send(a, 1);
    // No thread polls but the one that sleeps outside: it is woken to do so.
    ASSERT_EQ(epoll_wait(outer, &out, 1, 20000), 1);
    EXPECT_EQ(out.data.u64, 5u);
    EXPECT_EQ(text_of(w.wait(4, 1000)), "1:IN ");
    w.recv(a, 1);
    EXPECT_EQ(text_of(w.wait(4, 0)), "nothing");
    EXPECT_EQ(epoll_wait(outer, &out, 1, 20), 0);
    // Another thread's cycle is told, too.
    w.sources[a]->inject(1);
    EXPECT_EQ(epoll_wait(outer, &out, 1, 20000), 1);
    // What is ours in there is never shown.
    EXPECT_EQ(text_of(w.wait(1, 1000)), "1:IN ");
    close(outer);
}

// The arriving segment itself wakes the program: this Progress has no thread that could.
TEST(Member, nested_sets_need_no_background_thread) {
    TransportConfig config;
    config.progress = ProgressMode::both;
    static Epochs epochs;
    auto progress = Progress::create(epochs, config, 0);
    ASSERT_TRUE(progress);
    const int inner = epoll_create1(EPOLL_CLOEXEC), outer = epoll_create1(EPOLL_CLOEXEC);
    auto set = EpollSet::create(inner);
    ASSERT_TRUE(set);
    const auto [ours, peer] = tcp_pair();
    auto source = TcpSource::make(**progress, ours);
    ASSERT_EQ((*set)->add(ours, source.get(), event_of(EPOLLIN, 1)), 0);
    (*set)->allow_outside_watch();
    epoll_event event = event_of(EPOLLIN, 5), out{};
    ASSERT_EQ(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event), 0);
    EXPECT_EQ(epoll_wait(outer, &out, 1, 0), 0);
    ASSERT_EQ(send(peer, "x", 1, 0), 1);
    EXPECT_EQ(epoll_wait(outer, &out, 1, 20000), 1);
    EXPECT_FALSE((*progress)->has_thread());
    epoll_event ready{};
    EXPECT_EQ((*set)->wait(&ready, 1, 0, nullptr), 1);
    EXPECT_EQ(ready.data.u64, 1u);
    source->close();
    set->reset();
    for (const int fd : {inner, outer, peer}) close(fd);
}

TEST(Member, a_set_that_was_nested_before_it_became_one) {
    const int inner = epoll_create1(EPOLL_CLOEXEC), outer = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event = event_of(EPOLLIN, 5), out{};
    ASSERT_EQ(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event), 0);
    auto set = EpollSet::create(inner);
    ASSERT_TRUE(set);
    const auto [ours, peer] = tcp_pair();
    auto source = TcpSource::make(test_progress(), ours);
    ASSERT_EQ((*set)->add(ours, source.get(), event_of(EPOLLIN, 1)), 0);
    EXPECT_EQ(epoll_wait(outer, &out, 1, 20), 0);
    source->inject(1);
    EXPECT_EQ(epoll_wait(outer, &out, 1, 20000), 1);
    source->close();
    set->reset();
    for (const int fd : {inner, outer, peer}) close(fd);
}

TEST(Member, poll_of_a_set_polls_and_sleeps) {
    EngineWorld w;
    const auto a = w.connect();
    w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 1);
    const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT_EQ(w.set().add(event, nullptr, event_of(EPOLLIN, 2)), 0);
    std::vector<pollfd> fds{{w.epfd(), POLLIN, 0}};
    const std::vector<Handle> handles{Handle(&w.set())};
    const auto poll = [&](int ms) {
        PollTarget target(fds, handles);
        const int n = wait_for(target, EngineWorld::deadline(ms), nullptr);
        return std::to_string(n) + text_of(static_cast<std::uint16_t>(fds[0].revents));
    };
    EXPECT_EQ(poll(20), "0-");
    {
        std::thread later([&] {
            usleep(50000);
            w.peer_send(a, 1);
        });
        const Time begin = monotonic_now();
        EXPECT_EQ(poll(20000), "1IN");
        EXPECT_LT(monotonic_now() - begin, 10 * kSecond) << "no thread was woken for it";
        later.join();
    }
    EXPECT_EQ(text_of(w.wait(4, 0)), "1:IN ");
    w.recv(a, 1);
    EXPECT_EQ(poll(0), "0-");
    const std::uint64_t one = 1;
    ASSERT_EQ(write(event, &one, sizeof one), 8);
    EXPECT_EQ(poll(0), "1IN");
    close(event);
}

// What a wait costs must not depend on how many wait in silence.
TEST(Member, thousands) {
    constexpr std::size_t kMembers = 4000;
    EngineWorld w;
    const auto active = w.connect();
    // All on one connection's descriptor: duplicates are members of their own, and a rlimit of
    // descriptors is not what is tested.
    std::vector<std::shared_ptr<TcpSource>> quiet;
    std::vector<int> fds;
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 2 * kMembers + 1000);
    setrlimit(RLIMIT_NOFILE, &limit);
    const std::size_t members = std::min<std::size_t>(kMembers, limit.rlim_cur / 2 - 100);
    if (members < 2000) GTEST_SKIP() << "too few descriptors may be open";
    auto silent = TcpSource::make(test_progress(), dup(w.fd(active)), /*kernel-ready=*/false);
    silent->detach_for_test();
    w.ctl(EPOLL_CTL_ADD, active, EPOLLIN, 1);
    const auto best_round = [&] {
        Time best = kNever;
        for (int i = 0; i < 200; ++i) {
            const Time begin = monotonic_now();
            w.sources[active]->inject(1);
            EXPECT_EQ(w.wait(64, 1000).size(), 1u);
            w.recv(active, 1);
            EXPECT_EQ(w.wait(64, 0).size(), 0u);
            best = std::min(best, monotonic_now() - begin);
        }
        return best;
    };
    const Time alone = best_round();
    for (std::size_t i = 0; i < members; ++i) {
        fds.push_back(dup(w.fd(active)));
        ASSERT_GE(fds.back(), 0);
        ASSERT_EQ(w.set().add(fds.back(), silent.get(), event_of(EPOLLIN, 10 + i)), 0);
    }
    w.wait(64, 0);
    // A check of each of them would take a hundred times as long.
    EXPECT_LT(best_round(), 4 * alone);
    // And all of them at once, in small helpings, each once.
    silent->inject(1);
    std::set<std::uint64_t> seen;
    while (seen.size() < members) {
        const auto events = w.wait(100, 0);
        ASSERT_FALSE(events.empty());
        for (const epoll_event& event : events) seen.insert(event.data.u64);
    }
    silent->retire_for_test();
    EXPECT_EQ(w.wait(64, 0).size(), 0u);
    for (const int fd : fds) close(fd);
}

// A child has the kernel's part of an inherited set, and may build on it.
TEST(Member, a_forked_child_starts_afresh) {
    EngineWorld w;
    const auto a = w.connect();
    w.ctl(EPOLL_CTL_ADD, a, EPOLLIN, 1);
    w.peer_send(a, 1);
    const int event = eventfd(1, EFD_CLOEXEC);
    ASSERT_EQ(w.set().add(event, nullptr, event_of(EPOLLIN, 2)), 0);
    const pid_t child = fork();
    if (child == 0) {
        const bool plain_only = text_of(w.wait(4, 0)) == "2:IN ";
        const bool gone = w.ctl(EPOLL_CTL_DEL, a, 0, 0) == -ENOENT;
        _exit(plain_only ? (gone ? 0 : 2) : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    std::set<std::uint64_t> seen;
    for (const epoll_event& e : w.wait(4, 1000)) seen.insert(e.data.u64);
    EXPECT_EQ(seen, (std::set<std::uint64_t>{1, 2}));
    close(event);
}

}  // namespace
}  // namespace xsock::readiness
