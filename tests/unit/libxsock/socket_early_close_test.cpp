// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A server that speaks first and closes before a client whose SYN was marked has shown what it
// speaks: whatever that is, the client gets all of it and the end of file, as with TCP.
#include <sys/wait.h>

#include <functional>

#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"

namespace xsock::test {
namespace {

const std::string kGreeting = "220 ready\r\n";

// As the overlay does it: the engine is told ahead of the kernel's close().
void close_last(Sock& s) {
    engine().socket_closing(s.handle(), s.fd(), 0);
    s.close();
}

struct Server {
    Sock listener = Sock::fresh();
    explicit Server(int startup_ms) {
        EXPECT_EQ(listener.set(DDPMODE, DDPMODE_STREAM), 0) << strerror(errno);
        EXPECT_EQ(listener.set(DDPREQUIRE, 0), 0);
        EXPECT_EQ(listener.set(DDPSTARTUP, startup_ms), 0);
        EXPECT_EQ(listener.bind_and_listen(), 0) << strerror(errno);
    }
};

constexpr int kLong = 60'000, kShort = 500;

// One that has greeted a client whose start-up goes on.
struct Greeted : Server {
    RawPeer client{RawPeer::Connected{marked_client(listener.port())}};
    Sock server = listener.accept();
    explicit Greeted(int startup_ms, const std::string& greeting = kGreeting) : Server(startup_ms) {
        if (greeting.empty()) return;
        EXPECT_EQ(server.send(greeting), static_cast<ssize_t>(greeting.size()));
    }
};

/// All that a plain client reads, and how that ends.
std::string all_of(int fd) {
    std::string all;
    for (;;) {
        char some[256];
        pollfd p{fd, POLLIN, 0};
        if (::poll(&p, 1, 30'000) != 1) return all + "nothing more";
        const ssize_t n = ::recv(fd, some, sizeof some, 0);
        if (n < 0) return all + strerrorname_np(errno);
        if (n == 0) return all + "end";
        all.append(some, static_cast<std::size_t>(n));
    }
}

TEST(SockEarlyClose, a_client_that_speaks_plain_gets_the_greeting_and_the_end) {
    for (const bool told : {true, false}) {
        Greeted s(kLong);
        told ? close_last(s.server) : s.server.close();
        EXPECT_TRUE(s.client.say("HELO me, and more than a key\r\n"));
        EXPECT_EQ(all_of(s.client.fd()), kGreeting + "end") << told;
    }
}

TEST(SockEarlyClose, a_client_that_stays_silent_gets_them_in_time) {
    for (const std::string& greeting : {kGreeting, std::string()}) {
        const auto begin = std::chrono::steady_clock::now();
        Greeted s(kShort, greeting);
        close_last(s.server);
        EXPECT_EQ(all_of(s.client.fd()), greeting + "end");
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    }
}

TEST(SockEarlyClose, behind_a_shutdown_too) {
    Greeted s(kLong);
    EXPECT_EQ(s.server.shutdown(SHUT_WR), 0);
    close_last(s.server);
    s.client.finish();
    EXPECT_EQ(all_of(s.client.fd()), kGreeting + "end");
}

TEST(SockEarlyClose, linger_zero_is_a_reset) {
    Greeted s(kLong);
    const linger abort{1, 0};
    EXPECT_EQ(s.server.set(SOL_SOCKET, SO_LINGER, &abort, sizeof abort), 0);
    close_last(s.server);
    EXPECT_TRUE(s.client.say("HELO me, and more than a key\r\n"));
    EXPECT_EQ(all_of(s.client.fd()), kGreeting + "ECONNRESET");
}

TEST(SockEarlyClose, a_client_that_asks_later_is_carried_to_the_end) {
    Server s(kLong);
    Sock client = Sock::fresh();
    ASSERT_EQ(client.set(DDPMODE, DDPMODE_STREAM), 0);
    client.nonblocking();
    ASSERT_EQ(client.connect(s.listener.port()), -1);
    // Its Request goes with the next poll cycle, most often behind this.
    Sock server = s.listener.accept();
    EXPECT_EQ(server.send(kGreeting), ssize_t(kGreeting.size()));
    close_last(server);
    client.nonblocking(false);
    std::string got(kGreeting.size(), '\0');
    EXPECT_EQ(client.recv(got.data(), got.size(), MSG_WAITALL), ssize_t(got.size()));
    EXPECT_EQ(got, kGreeting);
    EXPECT_EQ(client.recv(), "");
    EXPECT_FALSE(client.plain());
}

TEST(SockEarlyClose, exit_waits_for_a_silent_client) {
    Server s(kShort);
    RawPeer client(RawPeer::Connected{marked_client(s.listener.port())});
    const pid_t child = fork();
    if (child == 0) {
        auto* const server = new Sock(s.listener.accept());
        if (server->send(kGreeting) != ssize_t(kGreeting.size())) _exit(1);
        std::exit(0);
    }
    EXPECT_EQ(all_of(client.fd()), kGreeting + "end");
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace xsock::test
