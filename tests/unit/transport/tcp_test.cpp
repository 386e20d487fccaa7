// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/tcp.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

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

TEST_F(Tcp, prepare_sets_what_latency_and_time_limits_need) {
    ASSERT_TRUE(tcp::prepare(near, {60, 30 * kSecond}));
    EXPECT_NE(fcntl(near, F_GETFL) & O_NONBLOCK, 0);
    const auto option = [this](int level, int name) {
        int value = -1;
        socklen_t size = sizeof value;
        EXPECT_EQ(getsockopt(near, level, name, &value, &size), 0);
        return value;
    };
    EXPECT_NE(option(IPPROTO_TCP, TCP_NODELAY), 0);
    EXPECT_NE(option(SOL_SOCKET, SO_KEEPALIVE), 0);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 60);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 5);  // six unanswered ones are the limit
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPCNT), 6);
    EXPECT_EQ(tcp::prepare(-1, {}).error().code, EBADF);
}

TEST_F(Tcp, peer_info_tells_a_closed_window_from_silence) {
    EXPECT_FALSE(tcp::peer_info(near).waiting);
    EXPECT_FALSE(tcp::peer_info(-1).waiting);
    const std::vector<std::byte> bytes(1 << 20);
    while (::send(near, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    // The peer reads nothing, and its kernel answers: the window closes, no attempt stays
    // unanswered.
    tcp::PeerInfo peer_info;
    for (int i = 0; i < 500; ++i) {
        peer_info = tcp::peer_info(near);
        if (peer_info.window_closed) break;
        usleep(10'000);
    }
    EXPECT_TRUE(peer_info.waiting);
    EXPECT_TRUE(peer_info.window_closed);
    EXPECT_LT(peer_info.attempts, 2u);
    EXPECT_GT(peer_info.acknowledged, 1000u);
}

TEST_F(Tcp, emss_and_peer_name_are_of_the_connection) {
    EXPECT_GT(tcp::emss(near), 500u);
    EXPECT_EQ(tcp::emss(-1), 0u);
    EXPECT_EQ(tcp::peer_name(near), "127.0.0.1:" + std::to_string(port));
    EXPECT_EQ(tcp::peer_name(-1), "?");
}

// A batch of `groups` groups of two pieces each.
struct Batch {
    Batch(std::size_t groups, std::size_t piece) : memory(groups * 2 * piece) {
        for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 7);
        for (std::size_t i = 0; i < groups * 2; ++i) {
            iov.push_back({memory.data() + i * piece, piece});
            if (i % 2 == 1) ends.push_back(static_cast<std::uint32_t>(i + 1));
        }
    }
    [[nodiscard]] TxBatch view(bool separate) const { return {iov, ends, memory.size(), separate}; }
    std::vector<std::byte> memory;
    std::vector<iovec> iov;
    std::vector<std::uint32_t> ends;
};

std::vector<std::byte> hear(int fd, std::size_t n) {
    std::vector<std::byte> heard(n);
    std::size_t got = 0;
    while (got < n) {
        const ssize_t r = recv(fd, heard.data() + got, n - got, 0);
        if (r <= 0) break;
        got += static_cast<std::size_t>(r);
    }
    heard.resize(got);
    return heard;
}

TEST_F(Tcp, sends_groups_whole_and_in_order) {
    ASSERT_TRUE(tcp::prepare(near, {}));
    // One call takes 64 groups: the last batch needs three.
    for (const std::size_t groups : {1u, 2u, 64u, 65u, 150u}) {
        for (const bool separate : {false, true}) {
            SCOPED_TRACE(groups * 2 + separate);
            const Batch batch(groups, 20);
            ASSERT_EQ(tcp::send(near, batch.view(separate)),
                      static_cast<long>(batch.memory.size()));
            EXPECT_EQ(hear(far, batch.memory.size()), batch.memory);
        }
    }
}

TEST_F(Tcp, separate_groups_keep_to_segments_of_their_own) {
    ASSERT_TRUE(tcp::prepare(near, {}));
    const auto segments = [this] {
        tcp_info info{};
        socklen_t size = sizeof info;
        EXPECT_EQ(getsockopt(near, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
        return info.tcpi_segs_out;
    };
    const Batch batch(10, 20);
    const auto before = segments();
    ASSERT_EQ(tcp::send(near, batch.view(true)), 400);
    EXPECT_GE(segments() - before, 10u);
    EXPECT_EQ(hear(far, 400), batch.memory);
}

// When TCP has no room, the count it reports is exactly what the peer gets: the rest is sent again
// from there.
TEST_F(Tcp, reports_exactly_what_tcp_took) {
    for (const bool separate : {false, true}) {
        SCOPED_TRACE(separate);
        ASSERT_TRUE(tcp::prepare(near, {}));
        const int small = 16384;
        setsockopt(near, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
        const Batch batch(40, 15'000);
        std::vector<std::byte> offered;
        long n = 0;
        for (int i = 0; i < 1000; ++i) {
            n = tcp::send(near, batch.view(separate));
            if (n <= 0) break;
            offered.insert(offered.end(), batch.memory.begin(), batch.memory.begin() + n);
        }
        EXPECT_EQ(n, -EAGAIN);
        EXPECT_FALSE(offered.empty());
        // A mark, once there is room again, shows that nothing more was taken.
        const std::vector<std::byte> heard = hear(far, offered.size());
        EXPECT_EQ(heard, offered);
        ASSERT_EQ(send(near, "#", 1, MSG_DONTWAIT), 1);
        EXPECT_EQ(hear(far, 1), std::vector{std::byte{'#'}});
    }
}

TEST_F(Tcp, a_gone_peer_is_an_errno_without_signal) {
    ASSERT_TRUE(tcp::prepare(near, {}));
    tcp::reset(far);
    far = -1;
    std::array<std::byte, 64> into;
    EXPECT_EQ(tcp::receive(near, into), -ECONNRESET);
    const Batch batch(3, 20);
    EXPECT_EQ(tcp::send(near, batch.view(true)), -EPIPE);
    EXPECT_EQ(tcp::send(near, batch.view(false)), -EPIPE);
}

TEST_F(Tcp, receive_tells_nothing_from_the_end) {
    ASSERT_TRUE(tcp::prepare(near, {}));
    std::array<std::byte, 64> into;
    EXPECT_EQ(tcp::receive(near, into), -EAGAIN);
    ASSERT_EQ(send(far, "abc", 3, 0), 3);
    EXPECT_EQ(tcp::receive(near, into), 3);
    tcp::finish(far);
    EXPECT_EQ(tcp::receive(near, into), 0);
}

TEST_F(Tcp, pending_error_is_cleared_by_asking) {
    ASSERT_TRUE(tcp::prepare(near, {}));
    EXPECT_EQ(tcp::pending_error(near), 0);
    tcp::reset(far);
    far = -1;
    EXPECT_EQ(tcp::pending_error(near), ECONNRESET);
    EXPECT_EQ(tcp::pending_error(near), 0);
}

TEST_F(Tcp, unmapped_memory_is_an_errno) {
    ASSERT_TRUE(tcp::prepare(near, {}));
    iovec nowhere{reinterpret_cast<void*>(16), 8};
    const std::uint32_t end = 1;
    EXPECT_EQ(tcp::send(near, {{&nowhere, 1}, {&end, 1}, 8, false}), -EFAULT);
}

}  // namespace
}  // namespace xsock
