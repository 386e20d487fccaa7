// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DDPKERNEL of sockets in DDPMODE, where there is no kernel module.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "include/xsock/ddp_uapi.h"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"

namespace xsock::test {
namespace {

class SockKernel : public ::testing::Test {
  protected:
    void SetUp() override {
        if (access(DDP_DEVICE, F_OK) == 0) GTEST_SKIP() << "there is a module";
    }
};

TEST_F(SockKernel, status_says_what_places_and_why) {
    SockPair pair([](Sock& socket, bool is_client) {
        EXPECT_EQ(socket.set(DDPKERNEL, is_client ? XSOCK_KERNEL_AUTO : XSOCK_KERNEL_OFF), 0);
    });
    EXPECT_EQ(pair.client.status().placing.stack, XSOCK_STACK_USER);
    EXPECT_STREQ(pair.client.status().placing.reason, "kernel-absent");
    EXPECT_STREQ(pair.server.status().placing.reason, "off");
    EXPECT_EQ(pair.client.set(DDPKERNEL, XSOCK_KERNEL_OFF), -1);
    EXPECT_EQ(errno, EISCONN);
}

TEST_F(SockKernel, a_client_that_requires_it_does_not_connect) {
    Sock listener = listening(true);
    Sock client = Sock::fresh();
    ASSERT_EQ(client.set(DDPMODE, DDPMODE_MESSAGE), 0);
    ASSERT_EQ(client.set(DDPKERNEL, XSOCK_KERNEL_REQUIRE), 0);
    EXPECT_EQ(client.connect(listener.port()), -1);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_FALSE(client.plain());
}

TEST_F(SockKernel, a_listener_that_requires_it_returns_none_at_user_level) {
    // Also without DDPREQUIRE.
    Sock listener =
        listening(false, [](Sock& s) { EXPECT_EQ(s.set(DDPKERNEL, XSOCK_KERNEL_REQUIRE), 0); });
    listener.timeout(SO_RCVTIMEO, 1);
    Sock client = Sock::fresh();
    ASSERT_EQ(client.set(DDPMODE, DDPMODE_MESSAGE), 0);
    client.timeout(SO_RCVTIMEO, 20'000);
    std::atomic<bool> ended{false};
    std::thread peer([&] {
        EXPECT_EQ(client.connect(listener.port()), -1);
        ended = true;
    });
    EXPECT_TRUE(soon([&] {
        EXPECT_LT(listener.accept().fd(), 0);
        return ended.load();
    }));
    peer.join();
}

}  // namespace
}  // namespace xsock::test
