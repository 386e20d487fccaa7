// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The start of a byte stream: connect() ends when TCP's does, and start-up runs behind it. Each
// case is run against the kernel's TCP too, both ends in one thread, as a program of one thread
// that connects to itself.
#include <sys/wait.h>

#include <csignal>
#include <functional>

#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"
#include "tests/unit/loopback.hpp"

namespace xsock::test {
namespace {

enum class Kind { tcp, each_as_it_comes, require };

struct Ends {
    Sock listener = Sock::fresh(), client = Sock::fresh();

    explicit Ends(Kind kind) {
        if (kind != Kind::tcp) {
            EXPECT_EQ(listener.set(DDPMODE, DDPMODE_STREAM), 0) << strerror(errno);
            EXPECT_EQ(listener.set(DDPREQUIRE, kind == Kind::require ? 1 : 0), 0);
            EXPECT_EQ(client.set(DDPMODE, DDPMODE_STREAM), 0) << strerror(errno);
        }
        EXPECT_EQ(listener.bind_and_listen(), 0) << strerror(errno);
    }
};

using Steps = std::vector<std::string>;

std::string result(ssize_t n) {
    return n >= 0 ? std::to_string(n) : std::string("!") + strerrorname_np(errno);
}

std::string take(Sock& s, std::size_t size, int flags = MSG_WAITALL) {
    std::string text(size, '\0');
    const ssize_t n = s.recv(text.data(), size, flags);
    if (n < 0) return result(n);
    text.resize(static_cast<std::size_t>(n));
    return text;
}

bool is_ready(Sock& s, short events, int milliseconds = 0) {
    pollfd p{s.fd(), events, 0};
    if (s.plain()) return ::poll(&p, 1, milliseconds) == 1;
    xsock_socket* const handle = s.handle();
    const timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
    return engine().socket_poll(&p, 1, &handle, &limit, nullptr) == 1;
}

void same(const std::function<void(Ends&, Steps&)>& run) {
    Steps expected;
    {
        Ends tcp(Kind::tcp);
        run(tcp, expected);
    }
    for (const Kind kind : {Kind::each_as_it_comes, Kind::require}) {
        Steps seen;
        Ends ours(kind);
        run(ours, seen);
        EXPECT_EQ(seen, expected) << static_cast<int>(kind);
    }
}

TEST(SockStreamStart, one_thread_connects_to_itself) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        steps.push_back(result(e.client.send(std::string("request"))));
        Sock server = e.listener.accept();
        steps.push_back(take(server, 7));
        steps.push_back(result(server.send(std::string("response"))));
        steps.push_back(take(e.client, 8));
        if (!e.client.plain()) {
            EXPECT_EQ(e.client.status().state, XSOCK_STATUS_OPEN);
            EXPECT_EQ(server.status().state, XSOCK_STATUS_OPEN);
        }
    });
}

TEST(SockStreamStart, is_writable_when_tcp_is_connected) {
    same([](Ends& e, Steps& steps) {
        e.client.nonblocking();
        steps.push_back(result(e.client.connect(e.listener.port())));
        steps.push_back(is_ready(e.client, POLLOUT, 5000) ? "writable" : "not");
        steps.push_back(std::to_string(e.client.error()));
        steps.push_back(is_ready(e.client, POLLIN) ? "readable" : "not");
        steps.push_back(take(e.client, 1, 0));
        steps.push_back(result(e.client.send(std::string("x"))));
        Sock server = e.listener.accept();
        steps.push_back(take(server, 1));
    });
}

// What is taken before the peer has accepted arrives, however much it is.
TEST(SockStreamStart, what_was_sent_ahead_arrives_whole) {
    for (const Kind kind : {Kind::each_as_it_comes, Kind::require}) {
        Ends e(kind);
        const std::string text = text_of(16 << 20);
        EXPECT_EQ(e.client.connect(e.listener.port()), 0);
        e.client.nonblocking();
        std::size_t sent = 0;
        for (const std::size_t size : {5u, 1000u, 100u, 70'000u, 1'000'000u, 16'000'000u}) {
            const ssize_t n = e.client.send(text.substr(sent, size));
            if (n < 0) break;
            sent += static_cast<std::size_t>(n);
        }
        EXPECT_GT(sent, 100'000u);
        EXPECT_EQ(errno, EAGAIN);
        Sock server = e.listener.accept();
        EXPECT_TRUE(take(server, sent) == text.substr(0, sent));
        EXPECT_TRUE(is_ready(e.client, POLLOUT, 5000));
    }
}

TEST(SockStreamStart, close_ahead_of_accept_delivers_what_was_sent) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        steps.push_back(result(e.client.send(std::string("last words"))));
        e.client.close();
        Sock server = e.listener.accept();
        steps.push_back(take(server, 100));
        steps.push_back(take(server, 1));
    });
}

TEST(SockStreamStart, close_ahead_of_accept_without_a_word_is_an_end_of_file) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        e.client.close();
        Sock server = e.listener.accept();
        steps.push_back(take(server, 100));
    });
}

TEST(SockStreamStart, shutdown_ahead_of_accept) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        steps.push_back(result(e.client.send(std::string("request"))));
        steps.push_back(result(e.client.shutdown(SHUT_WR)));
        steps.push_back(result(e.client.send(std::string("x"), MSG_NOSIGNAL)));
        Sock server = e.listener.accept();
        steps.push_back(take(server, 100));
        steps.push_back(result(server.send(std::string("response"))));
        server.close();
        steps.push_back(take(e.client, 100));
    });
}

TEST(SockStreamStart, exit_ahead_of_accept_delivers_what_was_sent) {
    for (const Kind kind : {Kind::each_as_it_comes, Kind::require}) {
        Ends e(kind);
        const std::string text = text_of(100'000);
        const pid_t child = fork();
        if (child == 0) {
            auto* const client = new Sock(Sock::fresh());
            client->set(DDPMODE, DDPMODE_STREAM);
            if (client->connect(e.listener.port()) != 0) _exit(1);
            if (client->send(text) != static_cast<ssize_t>(text.size())) _exit(2);
            std::exit(0);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        Sock server = e.listener.accept();
        EXPECT_TRUE(take(server, text.size()) == text);
        EXPECT_EQ(take(server, 1), "");
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
}

TEST(SockStreamStart, connect_to_nobody_fails_as_tcp_does) {
    for (const bool stream : {false, true}) {
        Sock nobody = Sock::fresh(), client = Sock::fresh();
        EXPECT_EQ(nobody.bind_and_listen(), 0);
        const int port = nobody.port();
        nobody.close();
        if (stream) {
            EXPECT_EQ(client.set(DDPMODE, DDPMODE_STREAM), 0);
        }
        EXPECT_EQ(client.connect(port), -1);
        EXPECT_EQ(errno, ECONNREFUSED);
    }
}

// A peer that does not speak MPA, one that leaves, one that says nothing.
TEST(SockStreamStart, a_peer_that_cannot_is_a_reset_at_the_first_use) {
    for (const std::string said : {"220 ready\r\n and more than a key\r\n", ""}) {
        LoopbackListener listener;
        Sock client = Sock::fresh();
        ASSERT_EQ(client.set(DDPMODE, DDPMODE_STREAM), 0);
        EXPECT_EQ(client.connect(listener.port()), 0);
        EXPECT_EQ(client.send(std::string("lost")), 4);
        RawPeer raw(RawPeer::Connected{listener.accept()});
        if (!said.empty()) {
            EXPECT_TRUE(raw.say(said));
        } else {
            raw.finish();
        }
        EXPECT_EQ(take(client, 1), "!ECONNRESET") << said;
        EXPECT_EQ(result(client.send(std::string("x"), MSG_NOSIGNAL)), "!EPIPE");
    }
}

}  // namespace
}  // namespace xsock::test
