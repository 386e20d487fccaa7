// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Dead peers are given up within the limit whatever is outstanding, slow ones never. The decision
// is tested with values of PeerInfo made up and a clock of its own; then with peers made of plain
// sockets that stop answering: a filter throws away whatever reaches them, so that their TCP
// answers nothing.
#include "transport/liveness.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <netinet/in.h>

#include <array>
#include <thread>

#include "base/device.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/loopback.hpp"
#include "transport/clock.hpp"
#include "transport/soft_device.hpp"

namespace xsock {
namespace {

constexpr Time kLimit = 30 * kSecond;
constexpr bool kOwed = true;

class LivenessTest : public ::testing::Test {
  protected:
    void SetUp() override { watch.begin(kLimit, now); }
    bool later(Time time, const TcpSocket::PeerInfo& peer_info, bool owed) {
        now += time;
        return watch.is_dead(peer_info, owed, now);
    }
    Liveness watch;
    Time now = 1000 * kSecond;
};

TcpSocket::PeerInfo unacknowledged(unsigned attempts, std::uint64_t acknowledged = 0) {
    TcpSocket::PeerInfo peer_info;
    peer_info.waiting = true;
    peer_info.attempts = attempts;
    peer_info.acknowledged = acknowledged;
    return peer_info;
}

TcpSocket::PeerInfo closed_window(unsigned attempts, Time since_heard) {
    TcpSocket::PeerInfo peer_info = unacknowledged(attempts);
    peer_info.window_closed = true;
    peer_info.since_heard = since_heard;
    return peer_info;
}

TcpSocket::PeerInfo idle(unsigned attempts, Time since_heard) {
    TcpSocket::PeerInfo peer_info;
    peer_info.attempts = attempts;
    peer_info.since_heard = since_heard;
    return peer_info;
}

TEST_F(LivenessTest, looks_within_the_limit_and_never_without_one) {
    EXPECT_EQ(watch.due(), now + kLimit / 3);
    watch.begin(0, now);
    EXPECT_EQ(watch.due(), kNever);
}

TEST_F(LivenessTest, what_stays_unacknowledged_for_the_limit_is_dead) {
    EXPECT_FALSE(later(10 * kSecond, unacknowledged(5, 100), !kOwed));  // the first check
    EXPECT_FALSE(later(29 * kSecond, unacknowledged(7, 100), !kOwed));
    EXPECT_TRUE(later(kSecond, unacknowledged(7, 100), !kOwed));
    EXPECT_EQ(watch.silence(), kLimit);
    EXPECT_EQ(watch.attempts(), 7u);
}

TEST_F(LivenessTest, progress_begins_the_limit_anew) {
    for (unsigned i = 1; i < 20; ++i) {
        EXPECT_FALSE(later(29 * kSecond, unacknowledged(5, i), !kOwed));
    }
    EXPECT_FALSE(later(100 * kSecond, idle(0, 0), !kOwed));
    EXPECT_FALSE(later(29 * kSecond, unacknowledged(5, 20), !kOwed));
}

TEST_F(LivenessTest, one_attempt_may_be_under_way) {
    EXPECT_FALSE(later(300 * kSecond, unacknowledged(1), !kOwed));
    EXPECT_FALSE(later(300 * kSecond, closed_window(1, 300 * kSecond), !kOwed));
    EXPECT_FALSE(later(300 * kSecond, idle(1, 300 * kSecond), kOwed));
}

TEST_F(LivenessTest, a_peer_that_answers_the_probes_of_its_closed_window_is_slow) {
    for (int i = 0; i < 20; ++i) {
        EXPECT_FALSE(later(100 * kSecond, closed_window(0, 2 * kSecond), kOwed));
    }
    EXPECT_FALSE(later(kSecond, closed_window(9, 29 * kSecond), kOwed));
    EXPECT_TRUE(later(kSecond, closed_window(9, 30 * kSecond), kOwed));
}

TEST_F(LivenessTest, an_idle_peer_that_owes_an_answer_is_asked) {
    EXPECT_FALSE(later(10 * kSecond, idle(0, 9 * kSecond), kOwed));
    EXPECT_FALSE(watch.wants_probes());
    EXPECT_FALSE(later(10 * kSecond, idle(0, 19 * kSecond), kOwed));
    EXPECT_TRUE(watch.wants_probes());
    EXPECT_FALSE(later(10 * kSecond, idle(2, 29 * kSecond), kOwed));
    EXPECT_TRUE(watch.wants_probes());
    EXPECT_TRUE(later(kSecond, idle(2, 30 * kSecond), kOwed));
}

TEST_F(LivenessTest, one_that_owes_an_answer_and_says_that_it_lives_is_waited_for) {
    EXPECT_FALSE(later(10 * kSecond, idle(0, 10 * kSecond), kOwed));
    for (int i = 0; i < 20; ++i) {
        EXPECT_FALSE(later(100 * kSecond, idle(0, 5 * kSecond), kOwed));
        EXPECT_TRUE(watch.wants_probes());  // it may die yet
    }
    EXPECT_FALSE(later(kSecond, idle(0, 5 * kSecond), !kOwed));
    EXPECT_FALSE(watch.wants_probes());
}

TEST_F(LivenessTest, of_an_idle_peer_that_owes_nothing_nothing_is_wanted) {
    EXPECT_FALSE(later(100 * kSecond, idle(0, 5000 * kSecond), !kOwed));
    EXPECT_FALSE(watch.wants_probes());
    EXPECT_FALSE(later(100 * kSecond, idle(5, 5000 * kSecond), !kOwed));
}

// ---- real sockets -----------------------------------------------------------

// A QP, initiator, and its peer, which says nothing after its Reply.
class SilentPeerTest : public ::testing::Test {
  protected:
    static constexpr std::uint32_t kLimitMs = 1500;
    static constexpr Time kTimeout = 60 * kSecond;  // far less than keepalive would take

    void SetUp() override {
        device = std::move(*make_soft_device({}));
        cq = std::move(*device->create_cq(64, false));
        QpAttr attr;
        attr.send_cq = attr.recv_cq = cq.get();
        attr.linger_ms = 0;
        qp = std::move(*device->create_qp(attr));
        test::LoopbackListener listening;
        // Inherited; small, so that the window closes soon.
        const int small = 16 * 1024;
        setsockopt(listening.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        fd = listening.dial();
        peer = std::make_unique<test::RawPeer>(test::RawPeer::Connected{listening.accept()});
        ConnectAttr connect;
        connect.role = ConnectAttr::Role::initiator;
        connect.revision = 1;
        connect.user_timeout_ms = kLimitMs;
        ASSERT_TRUE(qp->connect(fd, connect));
        std::thread answer([this] { answered = peer->answer(); });
        const QpState state = qp->wait_started(monotonic_now() + kTimeout);
        answer.join();
        ASSERT_TRUE(answered);
        ASSERT_EQ(state, QpState::established);
    }
    void post(SendOpcode opcode, std::size_t bytes) {
        const Sge sge{memory.data(), static_cast<std::uint32_t>(bytes), kLkeyNone};
        SendWr wr;
        wr.opcode = opcode;
        wr.remote_stag = 1;
        wr.sges = {&sge, 1};
        ASSERT_TRUE(qp->post_send(wr));
        ++posted;
    }
    // The peer's machine is gone.
    void stop_answering() {
        sock_filter drop[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
        const sock_fprog program{1, drop};
        ASSERT_EQ(setsockopt(peer->fd(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program),
                  0);
    }
    bool stays_established_for(Time time) {
        return qp->wait_ended(monotonic_now() + time) == QpState::established;
    }
    void expect_given_up(std::size_t unfinished) {
        EXPECT_EQ(qp->wait_ended(monotonic_now() + kTimeout), QpState::error);
        EXPECT_EQ(qp->info().error, ETIMEDOUT);
        // All that was posted has completed; a Send that TCP took, well.
        std::array<Wc, 64> all;
        const std::size_t n = cq->poll(all);
        std::size_t failed = 0;
        for (std::size_t i = 0; i < n; ++i) failed += all[i].status != WcStatus::success ? 1 : 0;
        EXPECT_EQ(n, posted);
        EXPECT_GE(failed, unfinished);
    }
    tcp_info info() const {
        tcp_info info{};
        socklen_t size = sizeof info;
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size);
        return info;
    }

    TcpSocket::Keepalive keepalive() const {
        const auto option = [this](int level, int name) {
            int value = -1;
            socklen_t size = sizeof value;
            EXPECT_EQ(getsockopt(fd, level, name, &value, &size), 0);
            return value;
        };
        return {option(SOL_SOCKET, SO_KEEPALIVE) != 0, option(IPPROTO_TCP, TCP_KEEPIDLE),
                option(IPPROTO_TCP, TCP_KEEPINTVL)};
    }

    std::unique_ptr<Device> device;
    std::unique_ptr<Cq> cq;
    std::unique_ptr<Qp> qp;
    std::unique_ptr<test::RawPeer> peer;
    int fd = -1;  // the QP's
    bool answered = false;
    std::size_t posted = 0;
    std::vector<std::byte> memory{1 << 20};
};

TEST_F(SilentPeerTest, a_read_that_tcp_has_delivered_does_not_wait_for_ever) {
    post(SendOpcode::read, 100);
    for (int i = 0; i < 1000 && info().tcpi_unacked != 0; ++i) usleep(1000);
    ASSERT_EQ(info().tcpi_unacked, 0u);
    stop_answering();
    expect_given_up(1);
}

TEST_F(SilentPeerTest, a_slow_answer_is_waited_for_and_no_more_probes_are_sent) {
    const TcpSocket::Keepalive before = keepalive();
    EXPECT_EQ(before.idle_s, 60);
    post(SendOpcode::read, 100);
    EXPECT_TRUE(stays_established_for(4 * kSecond));
    EXPECT_EQ(keepalive(), (TcpSocket::Keepalive{true, 1, 1}));
    // STag, TO and bytes as the Request, which comes after probes, asked for them.
    std::string heard;
    while (heard.size() < 4 || static_cast<unsigned char>(heard[3]) != 0x41) {
        heard = peer->hear(4);
        ASSERT_EQ(heard.size(), 4u);
        const std::size_t ulpdu =
            static_cast<unsigned char>(heard[0]) * 256u + static_cast<unsigned char>(heard[1]);
        heard += peer->hear((ulpdu + 2 + 3) / 4 * 4 + 4 - 4);
    }
    const std::string sink = heard.substr(2 + 18, 12);
    ASSERT_TRUE(
        peer->say(test::RawPeer::fpdu(std::string("\xc1\x42", 2) + sink + std::string(100, 'x'))));
    Wc wc;
    ASSERT_TRUE(cq->wait_until(
        [&] {
            return cq->poll({&wc, 1}) == 1;
        },
        monotonic_now() + kTimeout));
    EXPECT_EQ(wc.status, WcStatus::success);
    for (int i = 0; i < 1000 && keepalive() != before; ++i) usleep(10'000);
    EXPECT_EQ(keepalive(), before);
}

TEST_F(SilentPeerTest, what_is_unacknowledged_does_not_wait_for_ever) {
    stop_answering();
    post(SendOpcode::send, 100);
    expect_given_up(0);
}

TEST_F(SilentPeerTest, a_peer_that_dies_behind_its_closed_window_is_asked_often_enough) {
    int most = 0;
    socklen_t size = sizeof most;
    if (getsockopt(fd, IPPROTO_TCP, 44 /* TCP_RTO_MAX_MS */, &most, &size) != 0) {
        GTEST_SKIP() << "TCP_RTO_MAX_MS is of Linux 6.15";
    }
    EXPECT_EQ(most, 1000);
    for (int i = 0; i < 8; ++i) post(SendOpcode::send, memory.size());
    EXPECT_TRUE(stays_established_for(6 * kSecond));  // it answers its probes
    ASSERT_NE(info().tcpi_notsent_bytes, 0u);
    ASSERT_TRUE(info().tcpi_unacked == 0 || info().tcpi_snd_wnd == 0);
    stop_answering();
    const Time begin = monotonic_now();
    expect_given_up(1);
    // Two probes in their usual steps would have taken some 19 s from here.
    EXPECT_LT(monotonic_now() - begin, 12 * kSecond);
}

}  // namespace
}  // namespace xsock
