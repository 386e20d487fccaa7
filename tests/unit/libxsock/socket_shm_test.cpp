// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DDPSHM of sockets in DDPMODE, toward peers that have it on or off.
#include <cerrno>
#include <functional>
#include <string>
#include <thread>

#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"

namespace xsock::test {
namespace {

TEST(SockShm, status_says_which_way_data_go_and_why) {
    SockPair pair([](Sock& socket, bool is_client) {
        EXPECT_EQ(socket.set(DDPSHM, is_client ? XSOCK_SHM_AUTO : XSOCK_SHM_OFF), 0);
    });
    EXPECT_EQ(pair.client.status().path, XSOCK_PATH_TCP);
    EXPECT_STREQ(pair.client.status().shm_reason, "peer-off");
    EXPECT_EQ(pair.server.status().path, XSOCK_PATH_TCP);
    EXPECT_STREQ(pair.server.status().shm_reason, "off");
    EXPECT_EQ(pair.client.set(DDPSHM, XSOCK_SHM_OFF), -1);
    EXPECT_EQ(errno, EISCONN);
}

/// Both sockets use shared memory, and carry `bytes` there and back.
void expect_echo_in_memory(Sock& client, Sock& server, std::size_t bytes) {
    EXPECT_EQ(client.status().path, XSOCK_PATH_SHM);
    EXPECT_EQ(server.status().path, XSOCK_PATH_SHM);
    const std::string text = text_of(bytes);
    std::thread echo([&] {
        std::string there(bytes, '\0');
        EXPECT_EQ(server.recv(there.data(), bytes, MSG_WAITALL), ssize_t(bytes));
        EXPECT_EQ(server.send(there), ssize_t(bytes));
    });
    EXPECT_EQ(client.send(text), ssize_t(bytes));
    std::string back(bytes, '\0');
    EXPECT_EQ(client.recv(back.data(), bytes, MSG_WAITALL), ssize_t(bytes));
    EXPECT_EQ(back, text);
    echo.join();
}

/// Runs `body` where a link has as long as a machine under load may need.
void with_time_for_links(const std::function<void()>& body) {
    with_environment("XSOCK_SHM_TIMEOUT_MS", "30000", body);
}

TEST(SockShm, messages_go_through_memory_where_both_ends_require_it) {
    with_time_for_links([] {
        SockPair pair(
            [](Sock& socket, bool) { EXPECT_EQ(socket.set(DDPSHM, XSOCK_SHM_REQUIRE), 0); });
        expect_echo_in_memory(pair.client, pair.server, 300'000);
    });
}

TEST(SockShm, byte_streams_go_through_memory_where_both_ends_require_it) {
    with_time_for_links([] {
        Sock listener = Sock::fresh(), client = Sock::fresh(), server;
        for (Sock* socket : {&listener, &client}) {
            ASSERT_EQ(socket->set(DDPMODE, DDPMODE_STREAM), 0) << strerror(errno);
            ASSERT_EQ(socket->set(DDPSHM, XSOCK_SHM_REQUIRE), 0) << strerror(errno);
        }
        ASSERT_EQ(listener.set(DDPREQUIRE, 1), 0);
        ASSERT_EQ(listener.bind_and_listen(), 0) << strerror(errno);
        listener.timeout(SO_RCVTIMEO, 20'000);
        std::thread peer([&] { server = listener.accept(); });
        EXPECT_EQ(client.connect(listener.port()), 0) << strerror(errno);
        peer.join();
        ASSERT_GE(server.fd(), 0);
        expect_echo_in_memory(client, server, 3'000'000);
    });
}

TEST(SockShm, a_client_that_requires_it_does_not_connect_over_tcp) {
    Sock listener = listening(true, [](Sock& s) { EXPECT_EQ(s.set(DDPSHM, XSOCK_SHM_OFF), 0); });
    listener.timeout(SO_RCVTIMEO, 20'000);
    Sock client = Sock::fresh();
    ASSERT_EQ(client.set(DDPMODE, DDPMODE_MESSAGE), 0);
    ASSERT_EQ(client.set(DDPSHM, XSOCK_SHM_REQUIRE), 0);
    // Whether the listener returns a connection that has ended by then does not matter here.
    std::thread peer([&] { const Sock server = listener.accept(); });
    EXPECT_EQ(client.connect(listener.port()), -1);
    EXPECT_EQ(errno, EPROTONOSUPPORT);
    peer.join();
    EXPECT_FALSE(client.plain());
}

TEST(SockShm, a_listener_that_requires_it_returns_none_over_tcp) {
    // Also without DDPREQUIRE.
    Sock listener =
        listening(false, [](Sock& s) { EXPECT_EQ(s.set(DDPSHM, XSOCK_SHM_REQUIRE), 0); });
    listener.timeout(SO_RCVTIMEO, 1);
    unsigned refused = 0;
    for (const int mode : {DDPMODE_MESSAGE, DDPMODE_OFF}) {
        Sock client = Sock::fresh();
        ASSERT_EQ(client.set(DDPMODE, mode), 0);
        if (mode != DDPMODE_OFF) {
            ASSERT_EQ(client.set(DDPSHM, XSOCK_SHM_OFF), 0);
        }
        client.timeout(SO_RCVTIMEO, 20'000);
        std::thread peer([&] {
            // TCP connects; what the listener does with it shows afterwards.
            (void)client.connect(listener.port());
            if (mode == DDPMODE_OFF)
                (void)::send(client.fd(), "GET / HTTP/1.1..", 16, MSG_NOSIGNAL);
            const std::string end = client.recv();
            EXPECT_TRUE(end.empty() || (end[0] == '!' && end != "!EAGAIN")) << end;
        });
        ++refused;
        EXPECT_TRUE(soon([&] {
            EXPECT_LT(listener.accept().fd(), 0);
            return listener.status().refused == refused;
        }));
        peer.join();
    }
}

}  // namespace
}  // namespace xsock::test
