// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/tcp_socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/loopback.hpp"

namespace xsock {
namespace {

class TcpSocketTest : public ::testing::Test {
  protected:
    void SetUp() override { renew(); }
    void TearDown() override {
        for (const int fd : {near, far}) {
            if (fd >= 0) close(fd);
        }
    }
    // A new connection, whose end `far` is a plain descriptor.
    void renew() {
        TearDown();
        near = listening.dial();
        far = listening.accept();
    }
    Result<void> open(const TcpSocket::Limits& limits = {}, bool shared = false) {
        return socket.open(std::exchange(near, -1), limits, shared);
    }
    void reset_far() {
        const linger abort{1, 0};
        setsockopt(far, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
        close(std::exchange(far, -1));
    }
    // What the peer's next recv() says, or -errno.
    [[nodiscard]] int next_of_far() const {
        char byte = 0;
        const auto n = static_cast<int>(recv(far, &byte, 1, 0));
        return n >= 0 ? n : -errno;
    }

    test::LoopbackListener listening;
    const int port = listening.port();
    TcpSocket socket;
    int near = -1, far = -1;
};

TEST_F(TcpSocketTest, open_sets_what_latency_and_time_limits_need) {
    ASSERT_TRUE(open({60, 30 * kSecond}));
    EXPECT_NE(fcntl(socket.fd(), F_GETFL) & O_NONBLOCK, 0);
    const auto option = [this](int level, int name) {
        int value = -1;
        socklen_t size = sizeof value;
        EXPECT_EQ(getsockopt(socket.fd(), level, name, &value, &size), 0);
        return value;
    };
    EXPECT_NE(option(IPPROTO_TCP, TCP_NODELAY), 0);
    EXPECT_NE(option(SOL_SOCKET, SO_KEEPALIVE), 0);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 60);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 5);  // six unanswered ones are the limit
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPCNT), 6);
}

TEST_F(TcpSocketTest, of_a_shared_one_that_both_ends_have_finished_others_see_the_end) {
    const int other = dup(near);
    ASSERT_TRUE(open({}, /*shared=*/true));
    ASSERT_EQ(shutdown(far, SHUT_WR), 0);
    std::array<std::byte, 8> room{};
    long n = -EAGAIN;
    while (n == -EAGAIN) n = socket.receive(room);
    ASSERT_EQ(n, 0);
    socket.note_peer_finished();
    socket.finish();
    EXPECT_EQ(next_of_far(), 0);
    socket.close();
    char byte = 0;
    EXPECT_EQ(recv(other, &byte, 1, MSG_DONTWAIT), 0);
    EXPECT_EQ(send(other, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL), -1);
    EXPECT_EQ(errno, EPIPE);
    close(other);
}

TEST_F(TcpSocketTest, peer_info_tells_a_closed_window_from_silence) {
    EXPECT_FALSE(TcpSocket().peer_info().waiting);
    ASSERT_TRUE(open());
    sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    const sock_fprog drop{1, nothing};
    ASSERT_EQ(setsockopt(far, SOL_SOCKET, SO_ATTACH_FILTER, &drop, sizeof drop), 0);
    ASSERT_EQ(::send(socket.fd(), "x", 1, MSG_NOSIGNAL), 1);
    for (int i = 0; i < 500 && socket.peer_info().attempts == 0; ++i) usleep(10'000);
    EXPECT_GT(socket.peer_info().attempts, 0u);
    EXPECT_TRUE(socket.peer_info().waiting);
    EXPECT_FALSE(socket.peer_info().window_closed);
    socket.close();

    renew();
    ASSERT_TRUE(open());
    EXPECT_FALSE(socket.peer_info().waiting);
    const std::vector<std::byte> bytes(1 << 20);
    while (::send(socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    // The peer reads nothing, and its kernel answers: the window closes, no attempt stays
    // unanswered.
    TcpSocket::PeerInfo peer_info;
    for (int i = 0; i < 500; ++i) {
        peer_info = socket.peer_info();
        if (peer_info.window_closed) break;
        usleep(10'000);
    }
    EXPECT_TRUE(peer_info.waiting);
    EXPECT_TRUE(peer_info.window_closed);
    EXPECT_LT(peer_info.attempts, 2u);
    EXPECT_GT(peer_info.acknowledged, 1000u);
}

TEST_F(TcpSocketTest, emss_and_peer_name_are_of_the_connection) {
    EXPECT_EQ(socket.emss(), 0u);
    ASSERT_TRUE(open());
    EXPECT_GT(socket.emss(), 500u);
    const std::string name = "127.0.0.1:" + std::to_string(port);
    EXPECT_EQ(socket.peer_name().data(), name);
    socket.close();
    EXPECT_EQ(socket.peer_name().data(), name);
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

TEST_F(TcpSocketTest, sends_groups_whole_and_in_order) {
    ASSERT_TRUE(open());
    // One call takes 64 groups: the last batch needs three.
    for (const std::size_t groups : {1u, 2u, 64u, 65u, 150u}) {
        for (const bool separate : {false, true}) {
            SCOPED_TRACE(groups * 2 + separate);
            const Batch batch(groups, 20);
            ASSERT_EQ(socket.send(batch.view(separate)), static_cast<long>(batch.memory.size()));
            EXPECT_EQ(hear(far, batch.memory.size()), batch.memory);
        }
    }
}

TEST_F(TcpSocketTest, separate_groups_keep_to_segments_of_their_own) {
    ASSERT_TRUE(open());
    const auto segments = [this] {
        tcp_info info{};
        socklen_t size = sizeof info;
        EXPECT_EQ(getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
        return info.tcpi_segs_out;
    };
    const Batch batch(10, 20);
    const auto before = segments();
    ASSERT_EQ(socket.send(batch.view(true)), 400);
    EXPECT_GE(segments() - before, 10u);
    EXPECT_EQ(hear(far, 400), batch.memory);
}

// When TCP has no room, the count it reports is exactly what the peer gets: the rest is sent again
// from there.
TEST_F(TcpSocketTest, reports_exactly_what_tcp_took) {
    ASSERT_TRUE(open());
    for (const bool separate : {false, true}) {
        SCOPED_TRACE(separate);
        const int small = 16384;
        setsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
        const Batch batch(40, 15'000);
        std::vector<std::byte> offered;
        long n = 0;
        for (int i = 0; i < 1000; ++i) {
            n = socket.send(batch.view(separate));
            if (n <= 0) break;
            offered.insert(offered.end(), batch.memory.begin(), batch.memory.begin() + n);
        }
        EXPECT_EQ(n, -EAGAIN);
        EXPECT_FALSE(offered.empty());
        // A mark, once there is room again, shows that nothing more was taken.
        const std::vector<std::byte> heard = hear(far, offered.size());
        EXPECT_EQ(heard, offered);
        ASSERT_EQ(send(socket.fd(), "#", 1, MSG_DONTWAIT), 1);
        EXPECT_EQ(hear(far, 1), std::vector{std::byte{'#'}});
    }
}

TEST_F(TcpSocketTest, a_gone_peer_is_an_errno_without_signal) {
    ASSERT_TRUE(open());
    reset_far();
    std::array<std::byte, 64> into;
    EXPECT_EQ(socket.receive(into), -ECONNRESET);
    const Batch batch(3, 20);
    EXPECT_EQ(socket.send(batch.view(true)), -EPIPE);
    EXPECT_EQ(socket.send(batch.view(false)), -EPIPE);
}

TEST_F(TcpSocketTest, receive_tells_nothing_from_the_end) {
    ASSERT_TRUE(open());
    std::array<std::byte, 64> into;
    EXPECT_EQ(socket.receive(into), -EAGAIN);
    ASSERT_EQ(send(far, "abc", 3, 0), 3);
    EXPECT_EQ(socket.receive(into), 3);
    shutdown(far, SHUT_WR);
    EXPECT_EQ(socket.receive(into), 0);
}

TEST_F(TcpSocketTest, unmapped_memory_is_an_errno) {
    ASSERT_TRUE(open());
    iovec nowhere{reinterpret_cast<void*>(16), 8};
    const std::uint32_t end = 1;
    EXPECT_EQ(socket.send({{&nowhere, 1}, {&end, 1}, 8, false}), -EFAULT);
}

// ---- the end --------------------------------------------------------------------

TEST_F(TcpSocketTest, open_takes_nothing_that_it_refuses) {
    const int gone = dup(near);
    close(gone);
    EXPECT_EQ(socket.open(gone, {}).error().code, EBADF);
    EXPECT_FALSE(socket.is_open());
}

TEST_F(TcpSocketTest, release_gives_the_descriptor_back) {
    ASSERT_TRUE(open());
    const int fd = socket.fd();
    socket.release();
    EXPECT_FALSE(socket.is_open());
    EXPECT_EQ(close(fd), 0);
}

TEST_F(TcpSocketTest, finish_ends_one_direction_and_close_tells_the_peer_nothing_more) {
    ASSERT_TRUE(open());
    socket.finish();
    EXPECT_EQ(next_of_far(), 0);
    ASSERT_EQ(send(far, "a", 1, 0), 1);
    std::array<std::byte, 8> into;
    EXPECT_EQ(socket.receive(into), 1);
    socket.close();
    EXPECT_FALSE(socket.is_open());
    EXPECT_EQ(next_of_far(), 0);
}

// Nothing is said of how long TCP holds it back: 200 ms at most, in which a busy machine may do no
// more of this.
TEST_F(TcpSocketTest, what_is_held_back_for_more_goes_by_push) {
    const std::array<std::byte, 40> bytes{};
    int held = 0;
    for (int tries = 0; tries < 20 && held == 0; ++tries) {
        if (tries != 0) {
            socket.close();
            renew();
        }
        ASSERT_TRUE(open());
        ASSERT_EQ(socket.send(ConstBytes(bytes), /*more=*/true), 40);
        ASSERT_EQ(ioctl(socket.fd(), SIOCOUTQNSD, &held), 0);
    }
    EXPECT_EQ(held, 40);
    socket.push();
    int left = -1;
    ASSERT_EQ(ioctl(socket.fd(), SIOCOUTQNSD, &left), 0);
    EXPECT_EQ(left, 0);
}

TEST_F(TcpSocketTest, reset_is_seen_by_the_peer) {
    ASSERT_TRUE(open());
    socket.reset();
    EXPECT_FALSE(socket.is_open());
    EXPECT_EQ(next_of_far(), -ECONNRESET);
}

// Another descriptor of the socket, as a forked child or the program may have one.
TEST_F(TcpSocketTest, a_shared_one_ends_although_another_descriptor_stays_open) {
    for (const bool by_reset : {false, true}) {
        SCOPED_TRACE(by_reset);
        ASSERT_TRUE(open({}, /*shared=*/true));
        auto copy = socket.duplicate();
        ASSERT_TRUE(copy);
        EXPECT_NE(fcntl(*copy, F_GETFD) & FD_CLOEXEC, 0);
        if (by_reset) {
            socket.reset();
        } else {
            socket.close();
        }
        EXPECT_EQ(next_of_far(), by_reset ? -ECONNRESET : 0);
        close(*copy);
        renew();
    }
}

TEST_F(TcpSocketTest, one_that_is_not_shared_lives_on_in_another_descriptor) {
    ASSERT_TRUE(open());
    auto copy = socket.duplicate();
    ASSERT_TRUE(copy);
    socket.close();
    ASSERT_EQ(send(*copy, "a", 1, 0), 1);
    EXPECT_EQ(next_of_far(), 1);
    close(*copy);
}

}  // namespace
}  // namespace xsock
