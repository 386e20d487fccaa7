// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A byte stream over connected sockets in DDPMODE. Most cases are run against the kernel's TCP too:
// results, errno and readiness must be the same.
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <functional>
#include <memory>

#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"

namespace xsock::test {
namespace {

enum class Kind { tcp, stream, stream_accepted_undecided };

/// Two connected sockets.
struct Pair {
    Sock client, server;

    explicit Pair(Kind kind, const std::function<void(Sock&, bool)>& adjust = {}) {
        Sock listener = Sock::fresh();
        client = Sock::fresh();
        if (kind != Kind::tcp) {
            EXPECT_EQ(listener.set(DDPMODE, DDPMODE_STREAM), 0) << strerror(errno);
            EXPECT_EQ(client.set(DDPMODE, DDPMODE_STREAM), 0) << strerror(errno);
            EXPECT_EQ(listener.set(DDPREQUIRE, kind == Kind::stream ? 1 : 0), 0);
        }
        if (adjust) {
            adjust(listener, false);
            adjust(client, true);
        }
        EXPECT_EQ(listener.bind_and_listen(), 0) << strerror(errno);
        std::thread peer([&] {
            server = listener.accept();
            if (kind != Kind::stream_accepted_undecided) return;
            EXPECT_TRUE(soon([&] {
                server.recv(MSG_DONTWAIT | MSG_PEEK);
                return server.status().state == XSOCK_STATUS_OPEN;
            }));
        });
        EXPECT_EQ(client.connect(listener.port()), 0) << strerror(errno);
        peer.join();
        EXPECT_GE(server.fd(), 0);
    }
    static void set_int(Sock& s, int level, int name, int value) {
        EXPECT_EQ(s.set(level, name, &value, sizeof value), 0) << name;
    }
};

std::string result(ssize_t n) {
    return n >= 0 ? std::to_string(n) : std::string("!") + strerrorname_np(errno);
}

/// Up to `size` bytes by one call, as text.
std::string take(Sock& s, std::size_t size, int flags = 0) {
    std::string text(size, '\0');
    const ssize_t n = s.recv(text.data(), size, flags);
    if (n < 0) return result(n);
    text.resize(static_cast<std::size_t>(n));
    return text;
}

std::string words_of(int revents) {
    std::string words;
    const std::pair<int, const char*> bits[] = {{POLLIN, "in "},   {POLLPRI, "pri "},
                                                {POLLOUT, "out "}, {POLLRDHUP, "rdhup "},
                                                {POLLHUP, "hup "}, {POLLERR, "err "}};
    for (const auto& [bit, word] : bits) {
        if ((revents & bit) != 0) words += word;
    }
    return words;
}

/// What poll() says at once.
std::string readiness(Sock& s, short events = POLLIN | POLLOUT | POLLPRI | POLLRDHUP) {
    pollfd p{s.fd(), events, 0};
    if (s.plain()) {
        ::poll(&p, 1, 0);
        return words_of(p.revents);
    }
    xsock_socket* const handle = s.handle();
    const timespec none{};
    EXPECT_GE(engine().socket_poll(&p, 1, &handle, &none, nullptr), 0);
    return words_of(p.revents);
}

/// What a case saw, step by step.
using Steps = std::vector<std::string>;
using Case = std::function<void(Pair&, Steps&)>;

/// Waits until what was sent has come: both kinds need time.
void arrives(Sock& s, int bytes) {
    EXPECT_TRUE(soon([&] { return s.readable_bytes() >= bytes; })) << s.readable_bytes();
}

void same(const Case& run, const std::function<void(Sock&, bool)>& adjust = {}) {
    Steps expected;
    {
        Pair tcp(Kind::tcp, adjust);
        run(tcp, expected);
    }
    for (const Kind kind : {Kind::stream, Kind::stream_accepted_undecided}) {
        Steps seen;
        Pair ours(kind, adjust);
        EXPECT_FALSE(ours.client.plain());
        EXPECT_FALSE(ours.server.plain());
        run(ours, seen);
        EXPECT_EQ(seen, expected) << static_cast<int>(kind);
    }
}

// ---- data ---------------------------------------------------------------------

TEST(SockStream, carries_bytes_without_boundaries) {
    same([](Pair& p, Steps& steps) {
        steps.push_back(result(p.client.send("one ")));
        steps.push_back(result(p.client.send("two ")));
        steps.push_back(result(p.client.send("three")));
        arrives(p.server, 13);
        steps.push_back(take(p.server, 6));
        steps.push_back(take(p.server, 100));
        steps.push_back(take(p.server, 100, MSG_DONTWAIT));
        steps.push_back(result(p.server.send("")));
        steps.push_back(result(p.server.send("back")));
        steps.push_back(take(p.client, 4, MSG_WAITALL));
    });
}

TEST(SockStream, peek_trunc_and_waitall) {
    same([](Pair& p, Steps& steps) {
        p.client.send("0123456789");
        arrives(p.server, 10);
        steps.push_back(take(p.server, 4, MSG_PEEK));
        steps.push_back(std::to_string(p.server.readable_bytes()));
        steps.push_back(
            result(p.server.recv(static_cast<void*>(nullptr), std::size_t{3}, MSG_TRUNC)));
        steps.push_back(take(p.server, 2));
        std::thread later([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            p.client.send("abcde");
        });
        steps.push_back(take(p.server, 10, MSG_WAITALL));
        later.join();
        p.client.send("xyz");
        p.client.shutdown(SHUT_WR);
        steps.push_back(take(p.server, 10, MSG_WAITALL));
        steps.push_back(take(p.server, 10, MSG_WAITALL));
    });
}

TEST(SockStream, of_every_size_arrives_in_order) {
    for (const Kind kind : {Kind::stream, Kind::stream_accepted_undecided}) {
        Pair p(kind);
        for (const std::size_t n : {1u, 64u, 128u, 129u, 255u, 257u, 4096u, 65439u, 65440u, 65441u,
                                    200000u, 1u << 20, 9u << 20}) {
            const std::string sent = text_of(n, static_cast<unsigned>(n));
            std::thread sender([&] { EXPECT_EQ(p.client.send(sent), static_cast<ssize_t>(n)); });
            EXPECT_EQ(take(p.server, n, MSG_WAITALL), sent) << n;
            sender.join();
        }
    }
}

TEST(SockStream, many_small_sends_arrive_in_order) {
    for (const int nodelay : {0, 1}) {
        Pair p(Kind::stream);
        Pair::set_int(p.client, IPPROTO_TCP, TCP_NODELAY, nodelay);
        const std::string all = text_of(64 * 20'000);
        std::thread sender([&] {
            for (std::size_t at = 0; at < all.size(); at += 64) {
                ASSERT_EQ(p.client.send(all.data() + at, std::size_t{64}), 64);
            }
        });
        EXPECT_EQ(take(p.server, all.size(), MSG_WAITALL), all);
        sender.join();
    }
}

TEST(SockStream, what_was_gathered_arrives_although_nothing_is_called) {
    Pair p(Kind::stream);
    p.server.timeout(SO_RCVTIMEO, 10'000);
    p.client.send("first");
    for (int i = 0; i < 10; ++i) p.client.send("x");
    EXPECT_EQ(take(p.server, 15, MSG_WAITALL), "firstxxxxxxxxxx");
}

TEST(SockStream, both_ways_at_once) {
    Pair p(Kind::stream);
    const std::string a = text_of(3 << 20, 1), b = text_of(3 << 20, 2);
    std::thread writers[2] = {std::thread([&] { p.client.send(a); }),
                              std::thread([&] { p.server.send(b); })};
    std::string at_client;
    std::thread reader([&] { at_client = take(p.client, b.size(), MSG_WAITALL); });
    EXPECT_EQ(take(p.server, a.size(), MSG_WAITALL), a);
    reader.join();
    EXPECT_EQ(at_client, b);
    for (std::thread& t : writers) t.join();
}

TEST(SockStream, several_writers_lose_nothing) {
    Pair p(Kind::stream);
    constexpr std::size_t kWrite = 50'000, kWrites = 20;
    std::vector<std::thread> writers;
    for (char c = 'a'; c < 'e'; ++c) {
        writers.emplace_back([&p, c] {
            for (std::size_t i = 0; i < kWrites; ++i) {
                EXPECT_EQ(p.client.send(std::string(kWrite, c)), static_cast<ssize_t>(kWrite));
            }
        });
    }
    const std::string all = take(p.server, 4 * kWrites * kWrite, MSG_WAITALL);
    for (char c = 'a'; c < 'e'; ++c) {
        EXPECT_EQ(std::count(all.begin(), all.end(), c), static_cast<long>(kWrites * kWrite));
    }
    for (std::thread& t : writers) t.join();
}

TEST(SockStream, gathers_and_scatters) {
    same([](Pair& p, Steps& steps) {
        std::string a = "gather ", c = text_of(5000), d = "!";
        iovec out[]{{a.data(), a.size()}, {nullptr, 0}, {c.data(), c.size()}, {d.data(), 1}};
        msghdr m{};
        m.msg_iov = out;
        m.msg_iovlen = 4;
        steps.push_back(result(p.client.sendmsg(m)));
        arrives(p.server, 5008);
        std::string x(3, '\0'), y(4000, '\0'), z(2000, '\0');
        iovec in[]{{x.data(), x.size()}, {y.data(), y.size()}, {z.data(), z.size()}};
        msghdr r{};
        r.msg_iov = in;
        r.msg_iovlen = 3;
        steps.push_back(result(p.server.recvmsg(r)));
        steps.push_back(std::to_string(r.msg_flags));
        steps.push_back((x + y + z).substr(0, 5008));
    });
}

TEST(SockStream, bad_memory_is_efault) {
    same([](Pair& p, Steps& steps) {
        auto* const nowhere = reinterpret_cast<char*>(16);
        steps.push_back(result(p.client.send(static_cast<const void*>(nowhere), std::size_t{100})));
        steps.push_back(result(p.client.send("good")));
        arrives(p.server, 4);
        steps.push_back(result(p.server.recv(nowhere, 100)));
        steps.push_back(take(p.server, 100));
    });
}

TEST(SockStream, nothing_there_is_eagain) {
    same([](Pair& p, Steps& steps) {
        steps.push_back(take(p.server, 10, MSG_DONTWAIT));
        p.server.timeout(SO_RCVTIMEO, 30);
        steps.push_back(take(p.server, 10));
        p.server.nonblocking();
        steps.push_back(take(p.server, 10));
    });
}

TEST(SockStream, a_reader_that_sleeps_holds_the_writer) {
    Pair p(Kind::stream);
    p.client.nonblocking();
    const std::string block = text_of(100'000);
    std::string all;
    ASSERT_TRUE(soon([&] {
        const ssize_t n = p.client.send(block);
        if (n > 0) all += block.substr(0, static_cast<std::size_t>(n));
        if (n < 0) {
            EXPECT_EQ(errno, EAGAIN);
        }
        return n < 0 && all.size() > (4u << 20);
    }));
    p.client.nonblocking(false);
    p.client.timeout(SO_SNDTIMEO, 30);
    const ssize_t n = p.client.send(text_of(50 << 20));
    if (n > 0) all += text_of(50 << 20).substr(0, static_cast<std::size_t>(n));
    EXPECT_LT(all.size(), 40u << 20);
    EXPECT_EQ(take(p.server, all.size(), MSG_WAITALL), all);
}

// ---- ends ------------------------------------------------------------------------

TEST(SockStream, halves_end_one_by_one) {
    same([](Pair& p, Steps& steps) {
        p.client.send("last");
        steps.push_back(result(p.client.shutdown(SHUT_WR)));
        steps.push_back(take(p.server, 4, MSG_WAITALL));
        steps.push_back(take(p.server, 4));
        steps.push_back(take(p.server, 4));
        steps.push_back(result(p.client.send("x")));
        steps.push_back(result(p.server.send("still")));
        steps.push_back(take(p.client, 5, MSG_WAITALL));
        steps.push_back(result(p.server.shutdown(SHUT_WR)));
        steps.push_back(take(p.client, 5));
        steps.push_back(std::to_string(p.client.error()));
        steps.push_back(std::to_string(p.server.error()));
    });
}

TEST(SockStream, close_ends_it_for_the_peer_behind_the_data) {
    same([](Pair& p, Steps& steps) {
        p.client.send(text_of(100'000));
        p.client.close();
        steps.push_back(std::to_string(take(p.server, 100'000, MSG_WAITALL).size()));
        steps.push_back(take(p.server, 1));
        steps.push_back(std::to_string(p.server.error()));
    });
}

void linger_for(Sock& s, int ms) { EXPECT_EQ(s.set(DDPLINGER, ms), 0); }

/// Sends until the peer takes no more: more than its room.
std::string fill(Sock& s) {
    constexpr std::size_t kRoom = 4 << 20;
    std::string all;
    s.nonblocking();
    for (int full = 0; all.size() <= kRoom || full < 3;) {
        const std::string block = text_of(100'000, static_cast<unsigned>(all.size()));
        const ssize_t n = s.send(block);
        if (n > 0) {
            all += block.substr(0, static_cast<std::size_t>(n));
        } else {
            ++full;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
    return all;
}

TEST(SockStream, close_toward_a_peer_that_does_not_read_ends_at_the_linger_time) {
    Pair p(Kind::stream, [](Sock& s, bool) { linger_for(s, 200); });
    fill(p.client);
    const auto begin = std::chrono::steady_clock::now();
    p.client.close();
    EXPECT_TRUE(soon([&] { return p.server.status().state != XSOCK_STATUS_OPEN; }));
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(took, std::chrono::milliseconds(150));
    EXPECT_LT(took, std::chrono::seconds(3));
}

TEST(SockStream, close_gives_a_slow_reader_more_than_the_linger_time) {
    Pair p(Kind::stream, [](Sock& s, bool) { linger_for(s, 600); });
    const int much = 4 << 20;  // is not with the peer for long
    ASSERT_EQ(p.client.set(SOL_SOCKET, SO_SNDBUF, &much, sizeof much), 0);
    const std::string all = fill(p.client);
    EXPECT_GT(all.size(), 5u << 20) << "more than a receiver has room for";
    p.client.close();
    std::string got;
    for (std::string some; (some = take(p.server, 100'000)).size() > 1;) {
        got += some;
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
    }
    EXPECT_EQ(got, all);
}

TEST(SockStream, an_ordinary_close_is_no_reset) {
    same([](Pair& p, Steps& steps) {
        p.client.send("bytes");
        arrives(p.server, 5);
        p.client.close();
        EXPECT_TRUE(soon([&] { return readiness(p.server, POLLRDHUP) == "rdhup "; }));
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // a reset would have come
        steps.push_back(readiness(p.server));
        steps.push_back(std::to_string(p.server.error()));
        steps.push_back(take(p.server, 10));
        steps.push_back(take(p.server, 10));
        steps.push_back(result(p.server.send("x")));
    });
}

TEST(SockStream, peek_sees_all_that_lies_in_many_messages) {
    same([](Pair& p, Steps& steps) {
        for (int i = 0; i < 40; ++i) {
            p.client.send(std::string(300, static_cast<char>('a' + i % 26)));
            arrives(p.server, 300 * (i + 1));
        }
        const std::string all = take(p.server, 12'000, MSG_PEEK);
        steps.push_back(std::to_string(all.size()));
        steps.push_back(all.substr(11'990));
        steps.push_back(std::to_string(take(p.server, 12'000) == all));
    });
}

TEST(SockStream, a_time_limit_is_of_the_call_and_not_of_each_piece) {
    same([](Pair& p, Steps& steps) {
        const timeval limit{0, 300'000};
        EXPECT_EQ(p.server.set(SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
        std::atomic<bool> done{false};
        std::thread trickle([&] {
            for (int i = 0; i < 30 && !done; ++i) {
                p.client.send("x");
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
            }
        });
        const std::string got = take(p.server, 30, MSG_WAITALL);
        done = true;
        trickle.join();
        steps.push_back(got.size() < 15 ? "in time" : std::to_string(got.size()));
    });
}

TEST(SockStream, shutdown_amid_a_send_of_another_thread_ends_behind_whole_pieces) {
    for (int round = 0; round < 20; ++round) {
        Pair p(Kind::stream);
        const std::string block = text_of(60'000);
        ssize_t sent = 0, got = 0, last = -1;
        std::thread sender([&] {
            for (ssize_t n; (n = p.client.send(block.data(), block.size(), MSG_NOSIGNAL)) > 0;) {
                sent += n;
            }
        });
        std::thread reader([&] {
            std::string some(100'000, '\0');
            while ((last = p.server.recv(some.data(), some.size())) > 0) got += last;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        EXPECT_EQ(p.client.shutdown(SHUT_WR), 0);
        sender.join();
        reader.join();
        EXPECT_EQ(last, 0);
        EXPECT_EQ(got, sent);
    }
}

TEST(SockStream, close_delivers_more_than_the_peer_has_room_for) {
    Pair p(Kind::stream);
    const std::string all = fill(p.client);
    p.client.close();
    EXPECT_EQ(take(p.server, all.size(), MSG_WAITALL), all);
    EXPECT_EQ(take(p.server, 1), "");
}

TEST(SockStream, close_with_data_unread_is_a_reset) {
    same([](Pair& p, Steps& steps) {
        p.client.send("unread");
        arrives(p.server, 6);
        p.server.close();
        steps.push_back(take(p.client, 1));
        steps.push_back(result(p.client.send("x")));
    });
}

TEST(SockStream, linger_zero_is_a_reset) {
    same([](Pair& p, Steps& steps) {
        const linger now{1, 0};
        p.client.set(SOL_SOCKET, SO_LINGER, &now, sizeof now);
        p.client.close();
        steps.push_back(take(p.server, 1));
        steps.push_back(take(p.server, 1));
        steps.push_back(result(p.server.send("x")));
    });
}

void linger_on_close(Sock& s, int seconds) {
    const linger how{1, seconds};
    EXPECT_EQ(s.set(SOL_SOCKET, SO_LINGER, &how, sizeof how), 0);
}

TEST(SockStream, close_with_linger_waits_until_all_is_sent) {
    Pair p(Kind::stream);
    const std::string all = fill(p.client);
    linger_on_close(p.client, 60);
    std::atomic<bool> closed{false};
    std::thread closer([&] {
        p.client.close();
        closed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(closed);
    EXPECT_EQ(take(p.server, all.size(), MSG_WAITALL), all);
    closer.join();
    EXPECT_EQ(take(p.server, 1), "");
}

TEST(SockStream, close_with_linger_returns_after_its_time_and_goes_on_sending) {
    Pair p(Kind::stream);
    const std::string all = fill(p.client);
    linger_on_close(p.client, 1);
    const auto begin = std::chrono::steady_clock::now();
    p.client.close();
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(took, std::chrono::milliseconds(900));
    EXPECT_LT(took, std::chrono::seconds(4));
    EXPECT_EQ(take(p.server, all.size(), MSG_WAITALL), all);
    EXPECT_EQ(take(p.server, 1), "");
}

TEST(SockStream, so_error_tells_a_reset_once) {
    same([](Pair& p, Steps& steps) {
        const linger now{1, 0};
        p.client.set(SOL_SOCKET, SO_LINGER, &now, sizeof now);
        p.client.close();
        EXPECT_TRUE(soon([&] {
            const int error = p.server.error();
            if (error != 0) steps.push_back(std::to_string(error));
            return error != 0;
        }));
        steps.push_back(std::to_string(p.server.error()));
        steps.push_back(take(p.server, 1));
        steps.push_back(result(p.server.send("x")));
    });
}

TEST(SockStream, a_send_to_a_closed_reader_ends_in_a_reset) {
    Pair p(Kind::stream);
    p.server.close();
    std::string outcome;
    EXPECT_TRUE(soon([&] {
        const ssize_t n = p.client.send("x");
        if (n < 0) outcome = result(n);
        return n < 0;
    }));
    EXPECT_TRUE(outcome == "!ECONNRESET" || outcome == "!EPIPE") << outcome;
}

TEST(SockStream, a_send_that_cannot_be_raises_sigpipe) {
    EXPECT_EXIT(
        {
            signal(SIGPIPE, SIG_DFL);
            Pair p(Kind::stream);
            p.client.shutdown(SHUT_WR);
            p.client.send("x", 1, 0);
            _exit(0);
        },
        ::testing::KilledBySignal(SIGPIPE), "");
}

// As with the kernel's sockets, which are closed when their process exits.
TEST(SockStream, exit_delivers_what_was_sent) {
    Sock listener = Sock::fresh();
    ASSERT_EQ(listener.set(DDPMODE, DDPMODE_STREAM), 0);
    ASSERT_EQ(listener.set(DDPREQUIRE, 1), 0);
    ASSERT_EQ(listener.bind_and_listen(), 0);
    const std::string all = "first" + text_of(100'000);
    const pid_t child = fork();
    if (child == 0) {
        auto* const client = new Sock(Sock::fresh());
        client->set(DDPMODE, DDPMODE_STREAM);
        if (client->connect(listener.port()) != 0) _exit(1);
        client->send(std::string("first"));
        for (std::size_t at = 5; at < all.size(); at += 1000) client->send(all.substr(at, 1000));
        std::exit(0);
    }
    Sock server = listener.accept();
    const std::string got = take(server, all.size(), MSG_WAITALL);
    EXPECT_EQ(got.size(), all.size());
    EXPECT_TRUE(got == all);
    EXPECT_EQ(take(server, 1), "");
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

// A process that is killed has said nothing of the end.
TEST(SockStream, a_killed_peer_is_a_reset_behind_its_data) {
    Sock listener = Sock::fresh();
    ASSERT_EQ(listener.set(DDPMODE, DDPMODE_STREAM), 0);
    ASSERT_EQ(listener.set(DDPREQUIRE, 1), 0);
    ASSERT_EQ(listener.bind_and_listen(), 0);
    const pid_t child = fork();
    if (child == 0) {
        auto* const client = new Sock(Sock::fresh());
        client->set(DDPMODE, DDPMODE_STREAM);
        if (client->connect(listener.port()) != 0) _exit(1);
        client->send(std::string("data"));
        pause();
    }
    Sock server = listener.accept();
    EXPECT_EQ(take(server, 4, MSG_WAITALL), "data");
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    EXPECT_EQ(take(server, 1), "!ECONNRESET");
    EXPECT_EQ(take(server, 1), "");
    EXPECT_EQ(result(server.send(std::string("x"))), "!EPIPE");
}

// ---- readiness -------------------------------------------------------------------------

TEST(SockStream, readiness_is_that_of_tcp) {
    same([](Pair& p, Steps& steps) {
        const auto is = [&](Sock& s, const std::string& wanted) {
            std::string seen;
            soon([&] { return (seen = readiness(s)) == wanted; }, 2'000);
            steps.push_back(seen);
        };
        is(p.server, "out ");
        p.client.send("ab");
        is(p.server, "in out ");
        take(p.server, 1);
        is(p.server, "in out ");
        take(p.server, 1);
        is(p.server, "out ");
        p.client.send(std::string("!"), MSG_OOB | MSG_NOSIGNAL);
        is(p.server, "pri out ");
        take(p.server, 1, MSG_OOB);
        is(p.server, "out ");
        p.client.shutdown(SHUT_WR);
        is(p.server, "in out rdhup ");
        is(p.client, "out ");
        p.server.send("x");
        is(p.client, "in out ");
        p.server.shutdown(SHUT_WR);
        is(p.client, "in out rdhup hup ");
        is(p.server, "in out rdhup hup ");
    });
}

TEST(SockStream, readiness_of_a_reset_is_that_of_tcp) {
    same([](Pair& p, Steps& steps) {
        const linger now{1, 0};
        p.client.set(SOL_SOCKET, SO_LINGER, &now, sizeof now);
        p.client.close();
        const std::string all = "in out rdhup hup err ";
        std::string seen;
        soon([&] { return (seen = readiness(p.server)) == all; }, 2'000);
        steps.push_back(seen);
        take(p.server, 1);
        steps.push_back(readiness(p.server));
    });
}

// ---- urgent bytes ------------------------------------------------------------------

TEST(SockStream, urgent_bytes) {
    same([](Pair& p, Steps& steps) {
        const auto at_mark = [&] {
            int answer = -1;
            const int n = p.server.plain() ? ::ioctl(p.server.fd(), SIOCATMARK, &answer)
                                           : engine().socket_ioctl(p.server.handle(), p.server.fd(),
                                                                   SIOCATMARK, &answer);
            return std::to_string(n) + " " + std::to_string(answer);
        };
        steps.push_back(take(p.server, 1, MSG_OOB));
        p.client.send("ab");
        steps.push_back(result(p.client.send(std::string("c!"), MSG_OOB | MSG_NOSIGNAL)));
        p.client.send("de");
        EXPECT_TRUE(soon([&] { return take(p.server, 1, MSG_OOB | MSG_PEEK) == "!"; }));
        steps.push_back(at_mark());
        steps.push_back(take(p.server, 1, MSG_OOB));
        steps.push_back(take(p.server, 1, MSG_OOB));
        steps.push_back(take(p.server, 10, MSG_WAITALL));
        steps.push_back(at_mark());
        steps.push_back(take(p.server, 2, MSG_WAITALL));
        steps.push_back(at_mark());
    });
}

TEST(SockStream, urgent_bytes_inline) {
    same(
        [](Pair& p, Steps& steps) {
            Pair::set_int(p.server, SOL_SOCKET, SO_OOBINLINE, 1);
            p.client.send("ab!", 3, MSG_OOB | MSG_NOSIGNAL);
            p.client.send("cd");
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            steps.push_back(take(p.server, 10));
            steps.push_back(take(p.server, 3, MSG_WAITALL));
            steps.push_back(take(p.server, 1, MSG_OOB));
        },
        [](Sock& s, bool) { Pair::set_int(s, SOL_SOCKET, SO_OOBINLINE, 1); });
}

std::atomic<int> urgent_signals{0}, other_signals{0};
std::atomic<pid_t> urgent_thread{0};

/// Counts SIGURG, and the signal of F_SETSIG, while it lives.
class SignalCount {
  public:
    SignalCount() {
        struct sigaction action {};
        action.sa_flags = SA_RESTART;
        action.sa_handler = [](int) {
            urgent_thread = static_cast<pid_t>(syscall(SYS_gettid));
            ++urgent_signals;
        };
        sigaction(SIGURG, &action, &urgent_);
        action.sa_handler = [](int) { ++other_signals; };
        sigaction(SIGUSR2, &action, &other_);
        urgent_signals = other_signals = 0;
    }
    ~SignalCount() {
        sigaction(SIGURG, &urgent_, nullptr);
        sigaction(SIGUSR2, &other_, nullptr);
    }

  private:
    struct sigaction urgent_ {
    }, other_{};
};

TEST(SockStream, urgent_bytes_are_told_to_the_owner_by_a_signal) {
    const pid_t self = getpid(), group = -getpgrp();
    const auto thread = static_cast<pid_t>(syscall(SYS_gettid));
    f_owner_ex this_thread{F_OWNER_TID, thread}, this_group{F_OWNER_PGRP, getpgrp()};
    const std::function<void(Sock&)> ways[] = {
        [](Sock&) {},
        [&](Sock& s) { EXPECT_EQ(s.fcntl(F_SETOWN, self), 0); },
        [&](Sock& s) { EXPECT_EQ(s.fcntl(F_SETOWN, group), 0); },
        [&](Sock& s) { EXPECT_EQ(s.fcntl(F_SETOWN_EX, reinterpret_cast<long>(&this_thread)), 0); },
        [&](Sock& s) { EXPECT_EQ(s.fcntl(F_SETOWN_EX, reinterpret_cast<long>(&this_group)), 0); },
        [&](Sock& s) { EXPECT_EQ(::ioctl(s.fd(), SIOCSPGRP, &self), 0); },
        [&](Sock& s) { EXPECT_EQ(::ioctl(s.fd(), FIOSETOWN, &group), 0); },
        [&](Sock& s) {
            EXPECT_EQ(s.fcntl(F_SETOWN, self), 0);
            EXPECT_EQ(s.fcntl(F_SETSIG, SIGUSR2), 0);
        },
    };
    for (const auto& set_owner : ways) {
        same([&](Pair& p, Steps& steps) {
            const SignalCount count;
            set_owner(p.server);
            p.client.send("ab");
            arrives(p.server, 2);
            steps.push_back(std::to_string(urgent_signals) + " before");
            for (const char* text : {"c!", "d!"}) {
                p.client.send(std::string(text), MSG_OOB | MSG_NOSIGNAL);
                EXPECT_TRUE(soon([&] { return take(p.server, 1, MSG_OOB) == "!"; }));
                steps.push_back(std::to_string(urgent_signals));
            }
            p.client.send("e");
            EXPECT_TRUE(soon([&] { return take(p.server, 10, MSG_DONTWAIT) == "e"; }));
            steps.push_back(std::to_string(urgent_signals) + " in the end");
            steps.push_back(std::to_string(other_signals) + " of F_SETSIG");
            steps.push_back(urgent_thread == thread ? "here" : "nowhere");
            urgent_thread = 0;
        });
    }
}

// ---- options -------------------------------------------------------------------------

TEST(SockStream, options_are_the_streams) {
    Pair p(Kind::stream, [](Sock& s, bool client) {
        if (client) Pair::set_int(s, IPPROTO_TCP, TCP_NODELAY, 1);
    });
    const auto get = [](Sock& s, int level, int name) {
        int value = -1;
        socklen_t size = sizeof value;
        EXPECT_EQ(s.get(level, name, &value, &size), 0);
        return value;
    };
    EXPECT_EQ(get(p.client, IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(get(p.server, IPPROTO_TCP, TCP_NODELAY), 0);
    Pair::set_int(p.server, IPPROTO_TCP, TCP_NODELAY, 1);
    EXPECT_EQ(get(p.server, IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(p.client.get(DDPMODE), DDPMODE_STREAM);
    EXPECT_STREQ(p.client.status().code, "stream");
    EXPECT_EQ(p.client.set(SOL_XSOCK, DDPPRIVATE, "x", 1), -1);
}

TEST(SockStream, a_small_buffer_limits_what_waits) {
    Pair p(Kind::stream, [](Sock& s, bool) { Pair::set_int(s, SOL_SOCKET, SO_RCVBUF, 4096); });
    p.client.nonblocking();
    for (int full = 0; full < 5;) {
        if (p.client.send(text_of(1000)) < 0) {
            ++full;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
    EXPECT_LE(p.server.readable_bytes(), 8192);
    EXPECT_GE(p.server.readable_bytes(), 4000);
}

TEST(SockStream, a_send_buffer_that_is_made_smaller_holds_less) {
    Pair p(Kind::stream);
    const int wanted = 8192;
    int given = 0, kernels = 0;
    socklen_t size = sizeof given;
    Pair::set_int(p.client, SOL_SOCKET, SO_SNDBUF, wanted);
    EXPECT_EQ(p.client.get(SOL_SOCKET, SO_SNDBUF, &given, &size), 0);
    Sock plain = Sock::fresh();
    Pair::set_int(plain, SOL_SOCKET, SO_SNDBUF, wanted);
    EXPECT_EQ(plain.get(SOL_SOCKET, SO_SNDBUF, &kernels, &size), 0);
    EXPECT_EQ(given, kernels);
    p.client.nonblocking();
    for (int full = 0; full < 5;) {
        full = p.client.send(text_of(100'000)) > 0 ? 0 : full + 1;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    int queued = 0;
    EXPECT_EQ(engine().socket_ioctl(p.client.handle(), p.client.fd(), SIOCOUTQ, &queued), 0);
    EXPECT_GE(queued, given / 2);
    EXPECT_LE(queued, 100'000) << "256 KiB without";
}

TEST(SockStream, sendfile_is_left_to_the_caller) {
    Pair p(Kind::stream);
    for (const int writing : {0, 1}) {
        EXPECT_EQ(engine().socket_no_stream(p.client.handle(), p.client.fd(), writing), XSOCK_MOVE);
    }
    Sock fresh = Sock::fresh();
    ASSERT_EQ(fresh.set(DDPMODE, DDPMODE_STREAM), 0);
    EXPECT_EQ(engine().socket_no_stream(fresh.handle(), fresh.fd(), 1), XSOCK_PASS);
}

TEST(SockStream, an_error_that_is_kept_is_told_next) {
    Pair p(Kind::stream);
    EXPECT_EQ(p.server.send("x"), 1);
    engine().socket_keep_error(p.server.handle(), ECONNRESET);
    EXPECT_EQ(p.server.error(), 0) << "it has not ended";
    const linger now{1, 0};
    p.client.set(SOL_SOCKET, SO_LINGER, &now, sizeof now);
    p.client.close();
    EXPECT_TRUE(soon([&] { return p.server.error() == ECONNRESET; }));
    engine().socket_keep_error(p.server.handle(), EAGAIN);
    engine().socket_keep_error(p.server.handle(), EPIPE);
    EXPECT_EQ(p.server.error(), 0) << "those are told by each call";
    engine().socket_keep_error(p.server.handle(), ETIMEDOUT);
    EXPECT_EQ(result(p.server.send("x")), "!ETIMEDOUT");
    EXPECT_EQ(result(p.server.send("x")), "!EPIPE");
}

TEST(SockStream, private_data_are_not_the_programs) {
    Sock s = Sock::fresh();
    ASSERT_EQ(s.set(DDPMODE, DDPMODE_STREAM), 0);
    EXPECT_EQ(s.set(SOL_XSOCK, DDPPRIVATE, "x", 1), -1);
    EXPECT_EQ(errno, EINVAL);
    Sock other = Sock::fresh();
    ASSERT_EQ(other.set(SOL_XSOCK, DDPPRIVATE, "x", 1), 0);
    EXPECT_EQ(other.set(DDPMODE, DDPMODE_STREAM), -1);
    EXPECT_EQ(errno, EINVAL);
}

// The receiver waits before the first bytes come: Linux's TCP does not wake one that has taken
// three of five for the next three.
TEST(SockStream, small_receive_low_water_mark) {
    same([](Pair& p, Steps& steps) {
        Pair::set_int(p.server, SOL_SOCKET, SO_RCVLOWAT, 5);
        std::thread later([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            p.client.send("abc");
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            p.client.send("def");
        });
        steps.push_back(take(p.server, 10));
        later.join();
    });
}

// ---- a connection that does not come about -------------------------------------------

TEST(SockStream, what_a_socket_answers_that_could_not_connect) {
    for (const bool blocking : {true, false}) {
        Steps seen[2];
        for (const bool ours : {false, true}) {
            Steps& steps = seen[ours ? 1 : 0];
            Sock listener = Sock::fresh();
            ASSERT_EQ(listener.bind_and_listen(), 0);
            const int port = listener.port();
            listener.close();
            Sock s = Sock::fresh();
            if (ours) {
                ASSERT_EQ(s.set(DDPMODE, DDPMODE_STREAM), 0);
            }
            s.nonblocking(!blocking);
            Pair::set_int(s, IPPROTO_TCP, TCP_NODELAY, 1);
            const int n = s.connect(port);
            if (n < 0 && errno == EINPROGRESS) {
                Pair::set_int(s, IPPROTO_TCP, TCP_CORK, 0);
                EXPECT_TRUE(soon([&] { return readiness(s).find("hup") != std::string::npos; }));
                steps.push_back(std::to_string(s.error()));
            } else {
                steps.push_back(result(n));
            }
            steps.push_back(take(s, 1, MSG_DONTWAIT));
            steps.push_back(result(s.send(std::string("x"))));
            steps.push_back(std::to_string(s.error()));
            Pair::set_int(s, IPPROTO_TCP, TCP_NODELAY, 0);
            steps.push_back(result(s.shutdown(SHUT_WR)));
        }
        EXPECT_EQ(seen[1], seen[0]) << blocking;
    }
}

// ---- the other mode ---------------------------------------------------------------------

TEST(SockStream, the_modes_refuse_each_other) {
    for (const int server : {DDPMODE_MESSAGE, DDPMODE_STREAM}) {
        for (const bool require : {false, true}) {
            Sock listener = Sock::fresh();
            ASSERT_EQ(listener.set(DDPMODE, server), 0);
            ASSERT_EQ(listener.set(DDPREQUIRE, require ? 1 : 0), 0);
            ASSERT_EQ(listener.bind_and_listen(), 0);
            listener.nonblocking();
            Sock client = Sock::fresh();
            const int other = server == DDPMODE_STREAM ? DDPMODE_MESSAGE : DDPMODE_STREAM;
            ASSERT_EQ(client.set(DDPMODE, other), 0);
            client.nonblocking();
            ASSERT_EQ(client.connect(listener.port()), -1);
            Sock accepted;
            std::string buffer(10, '\0');
            EXPECT_TRUE(soon([&] {
                if (accepted.fd() < 0) accepted = listener.accept(SOCK_NONBLOCK);
                if (accepted.fd() >= 0) accepted.recv(buffer.data(), 10, MSG_DONTWAIT);
                return client.status().state == XSOCK_STATUS_ENDED;
            }));
            const int refused = other == DDPMODE_STREAM ? ECONNRESET : ECONNREFUSED;
            EXPECT_EQ(client.error(), refused) << server << require;
            if (require) {
                EXPECT_LT(accepted.fd(), 0);
            }
        }
    }
}

}  // namespace
}  // namespace xsock::test
