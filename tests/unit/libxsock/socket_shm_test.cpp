// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DDPSHM of sockets in DDPMODE, toward peers that have it off.
#include <cerrno>
#include <thread>

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

TEST(SockShm, a_client_that_requires_it_does_not_connect_over_tcp) {
    Sock listener = listening(true);
    Sock client = Sock::fresh();
    ASSERT_EQ(client.set(DDPMODE, DDPMODE_MESSAGE), 0);
    ASSERT_EQ(client.set(DDPSHM, XSOCK_SHM_REQUIRE), 0);
    Sock server;
    std::thread peer([&] { server = listener.accept(); });
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
