// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What waits for a peer to show itself, and then goes to TCP: all of it, however small the buffer.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <string>

#include "libxsock/socket/early_sends.hpp"
#include "tests/unit/loopback.hpp"

namespace xsock::sockets {
namespace {

// A TCP connection whose sending end has the smallest buffer there is, and sends at once.
class EarlySendsByTcp : public testing::Test {
  protected:
    void SetUp() override {
        const auto [client, server] = test::loopback_pair();
        from_ = client;
        to_ = server;
        const int least = 1, yes = 1;
        setsockopt(from_, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
        setsockopt(from_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    void TearDown() override {
        close(from_);
        close(to_);
    }
    std::string hear_all() const {
        std::string all;
        std::array<char, 4096> some{};
        for (ssize_t n = 0; (n = recv(to_, some.data(), some.size(), 0)) > 0;) {
            all.append(some.data(), static_cast<std::size_t>(n));
        }
        return all;
    }

    int from_ = -1, to_ = -1;
};

TEST_F(EarlySendsByTcp, many_small_ones_all_arrive_in_order) {
    EarlySends early;
    std::string said;
    while (early.has_room()) {
        const std::string word = std::to_string(said.size()) + ' ';
        const std::size_t n = early.add(std::as_bytes(std::span(word)), 0);
        said += word.substr(0, n);
    }
    EXPECT_EQ(said.size(), EarlySends::kMost);
    early.shutdown(SHUT_WR);
    early.send_by_tcp(from_);
    EXPECT_TRUE(early.is_empty());
    EXPECT_EQ(hear_all(), said);
}

// TCP holds what was sent with MSG_MORE for 200 ms; what was sent ahead of it goes at once.
TEST_F(EarlySendsByTcp, what_waits_for_more_holds_nothing_back) {
    EarlySends early;
    const std::string now = "now", later = "later";
    early.add(std::as_bytes(std::span(now)), 0);
    early.add(std::as_bytes(std::span(later)), MSG_MORE);
    const int off = 0;
    setsockopt(from_, IPPROTO_TCP, TCP_NODELAY, &off, sizeof off);
    early.send_by_tcp(from_);
    std::array<char, 16> some{};
    EXPECT_EQ(recv(to_, some.data(), some.size(), 0), static_cast<ssize_t>(now.size()));
}

TEST_F(EarlySendsByTcp, where_tcp_does_not_take_all_the_peer_gets_a_reset) {
    std::array<char, 1 << 16> much{};
    while (send(from_, much.data(), much.size(), MSG_DONTWAIT) > 0) {
    }
    EarlySends early;
    const std::string word(64, 'x');
    ASSERT_EQ(early.add(std::as_bytes(std::span(word)), 0), word.size());
    early.shutdown(SHUT_WR);
    early.send_by_tcp(from_);
    errno = 0;
    hear_all();
    EXPECT_EQ(errno, ECONNRESET);
}

}  // namespace
}  // namespace xsock::sockets
