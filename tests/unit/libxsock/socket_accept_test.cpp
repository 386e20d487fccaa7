// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// accept() on listening sockets with DDPREQUIRE, in the situations that end or fail it with TCP.
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <optional>

#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"
#include "tests/unit/resource_limit.hpp"
#include "tests/unit/sanitizers.hpp"

namespace xsock::test {
namespace {

using namespace std::chrono_literals;

short kernel_events(const Sock& s) {
    pollfd p{s.fd(), POLLIN, 0};
    ::poll(&p, 1, 0);
    return p.revents;
}

TEST(SockAccept, shutdown_ends_a_blocked_accept) {
    Sock listener = listening(true);
    for (int round = 0; round < 2; ++round) {
        std::atomic<int> error{0};
        std::thread acceptor([&] {
            const Sock none = listener.accept();
            error = none.fd() < 0 ? errno : -1;
        });
        std::this_thread::sleep_for(50ms);
        ASSERT_EQ(listener.shutdown(SHUT_WR), 0);  // nothing, on a listening socket
        std::this_thread::sleep_for(20ms);
        EXPECT_EQ(error.load(), 0);
        ASSERT_EQ(listener.shutdown(SHUT_RDWR), 0);
        EXPECT_TRUE(soon([&] { return error.load() != 0; }));
        EXPECT_EQ(error.load(), EINVAL);
        acceptor.join();
        EXPECT_EQ(listener.accept().fd(), -1);
        EXPECT_EQ(errno, EINVAL);
        EXPECT_NE(kernel_events(listener) & POLLHUP, 0);
        // As a TCP socket it may listen again.
        ASSERT_EQ(engine().socket_listen(listener.handle(), listener.fd(), 4), 0);
        Sock client = Sock::fresh(), server;
        ASSERT_EQ(client.set(DDPMODE, DDPMODE_MESSAGE), 0);
        std::thread peer([&] { server = listener.accept(); });
        EXPECT_EQ(client.connect(listener.port()), 0) << strerror(errno);
        peer.join();
        ASSERT_GE(server.fd(), 0) << strerror(errno);
        EXPECT_EQ(client.send("again"), 5);
        EXPECT_EQ(server.recv(), "again");
    }
}

// For sanitizers: what a poll asks may not go with a shutdown.
TEST(SockAccept, may_be_polled_while_another_thread_shuts_it_down) {
    Sock listener = listening(true);
    const auto poll_once = [&] {
        const timespec none{};
        pollfd entry{listener.fd(), POLLIN, 0};
        xsock_socket* const handle = listener.handle();
        return engine().socket_poll(&entry, 1, &handle, &none, nullptr);
    };
    std::atomic<bool> over{false};
    std::vector<std::thread> pollers;
    for (int i = 0; i < 2; ++i) {
        pollers.emplace_back([&] {
            while (!over) ASSERT_GE(poll_once(), 0);
        });
    }
    for (int round = 0; round < 500; ++round) {
        ASSERT_EQ(engine().socket_listen(listener.handle(), listener.fd(), 4), 0);
        ASSERT_GE(poll_once(), 0);  // it accepts in the background from now on
        ASSERT_EQ(listener.shutdown(SHUT_RDWR), 0);
    }
    over = true;
    for (std::thread& poller : pollers) poller.join();
}

TEST(SockAccept, goes_on_as_tcp_when_ddpmode_is_switched_off) {
    Sock listener = listening(true);
    Sock server;
    std::atomic<bool> accepted{false};
    std::thread acceptor([&] {
        server = Sock(static_cast<int>([&] {
            xsock_socket* handle = nullptr;
            const int fd = listener.fd();
            const int n =
                engine().socket_accept(listener.handle(), fd, nullptr, nullptr, 0, &handle);
            return n == XSOCK_PLAIN || n == XSOCK_PASS ? ::accept(fd, nullptr, nullptr) : n;
        }()));
        accepted = true;
    });
    std::this_thread::sleep_for(50ms);
    const int off = DDPMODE_OFF;
    EXPECT_EQ(engine().socket_setsockopt(listener.handle(), listener.fd(), SOL_XSOCK, DDPMODE, &off,
                                         sizeof off),
              XSOCK_PLAIN);
    std::this_thread::sleep_for(50ms);
    EXPECT_FALSE(accepted.load());  // it blocks, as the program has it
    RawPeer raw(listener.port());
    EXPECT_TRUE(soon([&] { return accepted.load(); }));
    acceptor.join();
    ASSERT_GE(server.fd(), 0) << strerror(errno);
    raw.say("plain");
    EXPECT_EQ(server.recv().substr(0, 5), "plain");
}

// Threads in accept() find it half switched off in many of the rounds.
TEST(SockAccept, leaves_o_nonblock_alone_while_ddpmode_is_switched_off) {
    constexpr int kRounds = 400;
    for (int round = 0; round < kRounds && !HasFailure(); ++round) {
        Sock listener = listening(true);
        const timeval at_once{-1, 0};  // accept() blocks, and its wait is over at once
        listener.set(SOL_SOCKET, SO_RCVTIMEO, &at_once, sizeof at_once);
        std::atomic<int> begun{0};
        std::vector<std::thread> acceptors;
        for (int i = 0; i < 2; ++i) {
            acceptors.emplace_back([&] {
                for (int n = -1; n == -1; ++begun) {
                    xsock_socket* accepted = nullptr;
                    n = engine().socket_accept(listener.handle(), listener.fd(), nullptr, nullptr,
                                               0, &accepted);
                    if (n != -1) {
                        EXPECT_TRUE(n == XSOCK_PLAIN || n == XSOCK_PASS) << n;
                    } else if (errno != EAGAIN) {
                        ADD_FAILURE() << "round " << round << ": " << strerrorname_np(errno);
                    }
                }
            });
        }
        EXPECT_TRUE(soon([&] { return begun >= 2; }));
        const int off = DDPMODE_OFF;
        EXPECT_EQ(engine().socket_setsockopt(listener.handle(), listener.fd(), SOL_XSOCK, DDPMODE,
                                             &off, sizeof off),
                  XSOCK_PLAIN);
        for (std::thread& acceptor : acceptors) acceptor.join();
        EXPECT_EQ(::fcntl(listener.fd(), F_GETFL) & O_NONBLOCK, 0) << "round " << round;
    }
}

TEST(SockAccept, does_not_block_for_a_connection_that_has_ended) {
    Sock listener = listening(true);
    const timeval limit{5, 0};
    ASSERT_NE(engine().socket_setsockopt(listener.handle(), listener.fd(), SOL_SOCKET, SO_RCVTIMEO,
                                         &limit, sizeof limit),
              -1);
    const auto readable = [&] {
        const timespec none{};
        pollfd entry{listener.fd(), POLLIN, 0};
        xsock_socket* const handle = listener.handle();
        return engine().socket_poll(&entry, 1, &handle, &none, nullptr) == 1;
    };
    EXPECT_FALSE(readable());  // it accepts in the background from now on
    {
        Sock client = Sock::fresh();
        ASSERT_EQ(client.set(DDPMODE, DDPMODE_MESSAGE), 0);
        ASSERT_EQ(client.connect(listener.port()), 0) << strerror(errno);
        ASSERT_TRUE(soon(readable));
        const linger reset{1, 0};
        ASSERT_NE(engine().socket_setsockopt(client.handle(), client.fd(), SOL_SOCKET, SO_LINGER,
                                             &reset, sizeof reset),
                  -1);
        ::setsockopt(client.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    std::this_thread::sleep_for(200ms);
    EXPECT_TRUE(readable());
    EXPECT_EQ(listener.accept().fd(), -1);
    EXPECT_EQ(errno, ECONNABORTED);
}

TEST(SockAccept, says_that_descriptors_are_wanting) {
    Sock listener = listening(true);
    listener.nonblocking();
    EXPECT_EQ(listener.accept().fd(), -1);
    EXPECT_EQ(errno, EAGAIN);
    listener.nonblocking(false);
    std::optional<ResourceLimit> few(std::in_place, RLIMIT_NOFILE, 256);
    // The thread begins and ends while there are descriptors: UBSan looks at its object through a
    // pipe.
    std::vector<int> errors;
    std::atomic<bool> begun{false}, none_left{false}, done{false}, some_left{false};
    std::thread acceptor([&] {
        begun = true;
        while (!none_left) std::this_thread::sleep_for(1ms);
        for (int i = 0; i < 3; ++i) {
            const Sock none = listener.accept();
            errors.push_back(none.fd() < 0 ? errno : 0);
        }
        done = true;
        while (!some_left) std::this_thread::sleep_for(1ms);
    });
    ASSERT_TRUE(soon([&] { return begun.load(); }));
    std::vector<int> taken;
    for (int fd = ::open("/dev/null", O_RDONLY); fd >= 0; fd = ::open("/dev/null", O_RDONLY)) {
        taken.push_back(fd);
    }
    EXPECT_EQ(errno, EMFILE);
    ::close(taken.back());
    taken.pop_back();
    const RawPeer raw(listener.port());  // has the last one; there is none to accept it with
    ASSERT_TRUE(raw.connected());
    none_left = true;
    EXPECT_TRUE(soon([&] { return done.load(); }));
    for (const int fd : taken) ::close(fd);
    few.reset();
    some_left = true;
    if (!done) listener.shutdown(SHUT_RD);
    acceptor.join();
    EXPECT_EQ(errors, (std::vector<int>{EMFILE, EMFILE, EMFILE}));
    // With room again it waits for a peer that speaks, as before.
    listener.timeout(SO_RCVTIMEO, 50);
    EXPECT_EQ(listener.accept().fd(), -1);
    EXPECT_EQ(errno, EAGAIN);
}

// Children of a server whose threads accept must not find a lock that one of those held.
TEST(SockAccept, forked_children_accept_beside_their_parents_threads) {
    constexpr int kChildren = 40;
    Sock listener = listening(true);
    listener.nonblocking();
    EXPECT_EQ(listener.accept().fd(), -1);  // begins; the next test is about that
    std::atomic<bool> stop{false};
    std::vector<std::thread> acceptors;
    for (int i = 0; i < 2; ++i) {
        acceptors.emplace_back([&] {
            xsock_socket* accepted = nullptr;
            while (!stop) {
                engine().socket_accept(listener.handle(), listener.fd(), nullptr, nullptr, 0,
                                       &accepted);
            }
        });
    }
    int failed = 0;
    for (int i = 0; i < kChildren && failed == 0; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            xsock_socket* accepted = nullptr;
            const int fd = engine().socket_accept(listener.handle(), listener.fd(), nullptr,
                                                  nullptr, 0, &accepted);
            _exit(fd == -1 && errno == EAGAIN ? 0 : 1);
        }
        waitpid(child, &failed, 0);
    }
    stop = true;
    for (std::thread& acceptor : acceptors) acceptor.join();
    EXPECT_EQ(failed, 0);
}

// The same while those threads make the first use of sockets in the process, which takes its time.
// Each round is a process of its own that has not used any.
TEST(SockAccept, children_begin_beside_their_parents_beginning_threads) {
#if defined(XSOCK_TEST_ASAN) || defined(XSOCK_TEST_TSAN)
    GTEST_SKIP() << "a sanitizer's allocator stops in a child that was forked beside a thread";
#endif
    constexpr int kRounds = 60;
    constexpr int kStepUs = 25;
    Sock listener = listening(true);
    listener.nonblocking();
    const auto accepts = [&] {
        xsock_socket* accepted = nullptr;
        const int fd = engine().socket_accept(listener.handle(), listener.fd(), nullptr, nullptr, 0,
                                              &accepted);
        return fd == -1 && errno == EAGAIN;
    };
    for (int i = 0; i < kRounds; ++i) {
        const pid_t parent = fork();
        if (parent == 0) {
            std::thread beginning(accepts);
            std::this_thread::sleep_for(std::chrono::microseconds(i * kStepUs));
            const pid_t child = fork();
            if (child == 0) {
                alarm(60);
                _exit(accepts() ? 0 : 1);
            }
            int status = -1;
            waitpid(child, &status, 0);
            beginning.join();
            _exit(status == 0 ? 0 : 1);
        }
        int status = -1;
        waitpid(parent, &status, 0);
        ASSERT_EQ(status, 0) << "round " << i;
    }
}

// What a child does to the listening socket that it shares must not wake its parent's threads,
// which it has not: the numbers of the descriptors that they sleep on are others' by then.
TEST(SockAccept, a_child_writes_into_no_other_file_when_it_shuts_the_socket_down) {
    constexpr int kFiles = 64;
    // libuv makes a pipe of its own in a child: it gets these two, and not those of interest.
    std::array<int, 2> low{};
    const auto take_low = [&] {
        for (int& fd : low) fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    };
    take_low();
    for (const bool off : {false, true}) {
        Sock listener = listening(true);
        std::atomic<int> error{0};
        std::thread acceptor([&] {
            xsock_socket* accepted = nullptr;
            const int fd = engine().socket_accept(listener.handle(), listener.fd(), nullptr,
                                                  nullptr, 0, &accepted);
            error = fd < 0 ? errno : -1;
        });
        std::this_thread::sleep_for(100ms);
        for (const int fd : low) ::close(fd);
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            std::vector<int> files;
            for (int i = 0; i < kFiles; ++i) files.push_back(memfd_create("other", MFD_CLOEXEC));
            const int mode = DDPMODE_OFF;
            const int result =
                off ? engine().socket_setsockopt(listener.handle(), listener.fd(), SOL_XSOCK,
                                                 DDPMODE, &mode, sizeof mode)
                    : engine().socket_shutdown(listener.handle(), listener.fd(), SHUT_RDWR);
            for (const int file : files) {
                if (lseek(file, 0, SEEK_END) != 0) _exit(2);
            }
            const bool nonblocking = (::fcntl(listener.fd(), F_GETFL) & O_NONBLOCK) != 0;
            if (off && !nonblocking)
                _exit(3);  // the parent accepts in poll cycles, which must not block
            _exit(result == (off ? XSOCK_PLAIN : 0) ? 0 : 1);
        }
        take_low();
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
        // The parent's socket is as it was when the child has fallen back to TCP, and shut down, as
        // a TCP socket would be, when that is what the child did.
        if (off) {
            std::this_thread::sleep_for(50ms);
            EXPECT_EQ(error.load(), 0);
            listener.shutdown(SHUT_RD);
        }
        EXPECT_TRUE(soon([&] { return error.load() != 0; }));
        EXPECT_EQ(error.load(), EINVAL);
        if (error == 0) listener.shutdown(SHUT_RD);
        acceptor.join();
    }
    for (const int fd : low) ::close(fd);
}

TEST(SockAccept, does_not_turn_round_on_a_socket_that_was_shut_down_elsewhere) {
    Sock listener = listening(true);
    listener.nonblocking();
    EXPECT_EQ(listener.accept().fd(), -1);
    EXPECT_EQ(errno, EAGAIN);
    ASSERT_EQ(::shutdown(listener.fd(), SHUT_RDWR), 0);
    EXPECT_TRUE(soon([&] {
        xsock_socket* accepted = nullptr;
        return engine().socket_accept(listener.handle(), listener.fd(), nullptr, nullptr, 0,
                                      &accepted) == -1 &&
               errno == EINVAL;
    }));
    timespec before{}, after{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    std::this_thread::sleep_for(500ms);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    const long used_ms =
        (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1'000'000;
    EXPECT_LT(used_ms, 100);
    // As a TCP socket it may listen again.
    ASSERT_EQ(::listen(listener.fd(), 4), 0);
    Sock client = Sock::fresh(), server;
    ASSERT_EQ(client.set(DDPMODE, DDPMODE_MESSAGE), 0);
    std::thread peer([&] {
        EXPECT_TRUE(soon([&] {
            server = listener.accept();
            return server.fd() >= 0;
        }));
    });
    EXPECT_EQ(client.connect(listener.port()), 0) << strerror(errno);
    peer.join();
}

}  // namespace
}  // namespace xsock::test
