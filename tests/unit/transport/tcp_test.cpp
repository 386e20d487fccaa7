// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/tcp.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "tests/unit/loopback.hpp"

namespace xsock {
namespace {

class Tcp : public ::testing::Test {
  protected:
    void SetUp() override {
        near = listening.dial();
        far = listening.accept();
    }
    void TearDown() override {
        for (const int fd : {near, far}) {
            if (fd >= 0) close(fd);
        }
    }

    test::LoopbackListener listening;
    const int listener = listening.fd(), port = listening.port();
    int near = -1, far = -1;
};

TEST_F(Tcp, check_connected_names_what_is_wrong) {
    EXPECT_TRUE(tcp::check_connected(near));
    EXPECT_EQ(tcp::check_connected(-1).error().code, EBADF);
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    EXPECT_EQ(tcp::check_connected(pipes[0]).error().code, ENOTSOCK);
    EXPECT_EQ(tcp::check_connected(listener).error().code, ENOTCONN);
    int local[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, local), 0);
    EXPECT_EQ(tcp::check_connected(local[0]).error().code, EPROTOTYPE);
    const int udp = socket(AF_INET, SOCK_DGRAM, 0);
    EXPECT_EQ(tcp::check_connected(udp).error().code, EPROTOTYPE);
    for (const int fd : {pipes[0], pipes[1], local[0], local[1], udp}) close(fd);
}

TEST_F(Tcp, check_listening_names_what_is_wrong) {
    EXPECT_TRUE(tcp::check_listening(listener));
    EXPECT_EQ(tcp::check_listening(near).error().code, EINVAL);
    EXPECT_EQ(tcp::check_listening(-1).error().code, EBADF);
    const int udp = socket(AF_INET, SOCK_DGRAM, 0);
    EXPECT_EQ(tcp::check_listening(udp).error().code, EPROTOTYPE);
    close(udp);
}

TEST_F(Tcp, congestion_control_is_chosen_by_name) {
    ASSERT_TRUE(tcp::set_congestion(near, "reno"));  // every kernel has it, and permits it
    EXPECT_STREQ(tcp::congestion(near).data(), "reno");
    EXPECT_EQ(tcp::set_congestion(near, "nonesuch").error().code, ENOENT);
    EXPECT_STREQ(tcp::congestion(near).data(), "reno");
    EXPECT_STREQ(tcp::congestion(-1).data(), "");

    ASSERT_TRUE(tcp::set_congestion(listener, "reno"));
    const int dialed = listening.dial();
    const int accepted = listening.accept();
    EXPECT_STREQ(tcp::congestion(accepted).data(), "reno") << "as its listening socket";
    for (const int fd : {dialed, accepted}) close(fd);
}

TEST_F(Tcp, make_nonblocking_and_names_are_of_the_descriptor) {
    ASSERT_TRUE(tcp::make_nonblocking(near));
    EXPECT_NE(fcntl(near, F_GETFL) & O_NONBLOCK, 0);
    EXPECT_EQ(tcp::make_nonblocking(-1).error().code, EBADF);
    EXPECT_EQ(tcp::name_of(tcp::peer_of(near)).data(), "127.0.0.1:" + std::to_string(port));
    EXPECT_EQ(tcp::local_of(near), tcp::peer_of(far));
    EXPECT_STREQ(tcp::name_of(tcp::peer_of(-1)).data(), "?");
}

TEST(TcpNames, are_of_the_family_of_the_socket) {
    const auto name = [](const char* address, std::uint16_t port, std::uint16_t family) {
        return std::string(tcp::name_of({{*parse_ip_address(address), port}, family}).data());
    };
    EXPECT_EQ(name("2001:db8:1111:2222:3333:4444:5555:6666", 65535, AF_INET6),
              "[2001:db8:1111:2222:3333:4444:5555:6666]:65535");
    EXPECT_EQ(name("255.255.255.255", 1, AF_INET), "255.255.255.255:1");
    EXPECT_EQ(name("127.0.0.1", 80, AF_INET6), "[::ffff:127.0.0.1]:80");
    EXPECT_STREQ(tcp::name_of({}).data(), "?");
}

TEST_F(Tcp, pending_error_is_cleared_by_asking) {
    ASSERT_TRUE(tcp::make_nonblocking(near));
    EXPECT_EQ(tcp::pending_error(near), 0);
    const linger abort{1, 0};
    setsockopt(far, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    close(std::exchange(far, -1));
    EXPECT_EQ(tcp::pending_error(near), ECONNRESET);
    EXPECT_EQ(tcp::pending_error(near), 0);
}

}  // namespace
}  // namespace xsock
