// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages over connected sockets in DDPMODE: docs/ddpmode.md, send and recv.
#include "tests/support/changing_memory.h"
#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"

namespace xsock::test {
namespace {

TEST(SockMessage, keeps_boundaries_and_order) {
    SockPair p;
    EXPECT_EQ(p.client.send("one"), 3);
    EXPECT_EQ(p.client.send("two and"), 7);
    EXPECT_EQ(p.server.recv(), "one");
    EXPECT_EQ(p.server.recv(), "two and");
    EXPECT_EQ(p.server.send("three"), 5);
    EXPECT_EQ(p.client.recv(), "three");
}

TEST(SockMessage, of_every_size_arrives_whole) {
    SockPair p;
    for (const std::size_t n : {0u, 1u, 95u, 96u, 97u, 448u, 449u, 4032u, 4096u, 16384u, 65471u,
                                65472u, 65473u, 200000u, 1u << 20}) {
        const std::string sent = text_of(n, static_cast<unsigned>(n));
        std::thread sender([&] { EXPECT_EQ(p.client.send(sent), static_cast<ssize_t>(n)); });
        EXPECT_EQ(p.server.recv(), sent) << n;
        sender.join();
    }
}

TEST(SockMessage, longer_than_the_limit_is_refused) {
    SockPair p;
    const std::string s((1 << 20) + 1, 'x');
    EXPECT_EQ(p.client.send(s), -1);
    EXPECT_EQ(errno, EMSGSIZE);
    EXPECT_EQ(p.client.send("small"), 5);
    EXPECT_EQ(p.server.recv(), "small");
}

TEST(SockMessage, truncation_is_told_and_drops_the_rest) {
    SockPair p;
    ASSERT_EQ(p.client.send("0123456789"), 10);
    ASSERT_EQ(p.client.send("next"), 4);
    char buffer[4];
    iovec iov{buffer, sizeof buffer};
    msghdr m{};
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    EXPECT_EQ(p.server.recvmsg(m), 4);
    EXPECT_EQ(m.msg_flags, MSG_TRUNC | MSG_EOR);
    EXPECT_EQ(p.server.recv(buffer, sizeof buffer, MSG_TRUNC), 4);
    EXPECT_EQ(std::string(buffer, 4), "next");

    ASSERT_EQ(p.client.send("0123456789"), 10);
    EXPECT_EQ(p.server.recv(buffer, 0, MSG_PEEK | MSG_TRUNC), 10);
    EXPECT_EQ(p.server.recv(buffer, 2, MSG_TRUNC), 10);
}

TEST(SockMessage, zero_length_differs_from_the_end) {
    SockPair p;
    ASSERT_EQ(p.client.send(""), 0);
    ASSERT_EQ(p.client.shutdown(SHUT_WR), 0);
    char c;
    iovec iov{&c, 1};
    msghdr m{};
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    EXPECT_EQ(p.server.recvmsg(m), 0);
    EXPECT_EQ(m.msg_flags, MSG_EOR);
    EXPECT_EQ(p.server.recvmsg(m), 0);
    EXPECT_EQ(m.msg_flags, 0);
    EXPECT_EQ(p.server.recvmsg(m), 0);
}

TEST(SockMessage, peek_leaves_it) {
    SockPair p;
    ASSERT_EQ(p.client.send("abc"), 3);
    EXPECT_EQ(p.server.recv(MSG_PEEK), "abc");
    EXPECT_EQ(p.server.readable_bytes(), 3);
    EXPECT_EQ(p.server.recv(MSG_PEEK), "abc");
    EXPECT_EQ(p.server.recv(), "abc");
    EXPECT_EQ(p.server.readable_bytes(), 0);
}

TEST(SockMessage, gathers_and_scatters) {
    SockPair p;
    std::string a = "gather ", b, c = text_of(5000), d = "!";
    iovec out[]{{a.data(), a.size()}, {b.data(), 0}, {c.data(), c.size()}, {d.data(), 1}};
    msghdr m{};
    m.msg_iov = out;
    m.msg_iovlen = 4;
    ASSERT_EQ(p.client.sendmsg(m), 5008);
    std::string x(3, '\0'), y(4000, '\0'), z(2000, '\0');
    iovec in[]{{x.data(), x.size()}, {y.data(), y.size()}, {z.data(), z.size()}};
    msghdr r{};
    r.msg_iov = in;
    r.msg_iovlen = 3;
    ASSERT_EQ(p.server.recvmsg(r), 5008);
    EXPECT_EQ((x + y + z).substr(0, 5008), a + c + d);
    EXPECT_EQ(r.msg_flags, MSG_EOR);
}

TEST(SockMessage, many_pieces_make_a_small_message) {
    SockPair p;
    std::string letters = "abcdefghijklmnopqrst";
    std::vector<iovec> iov;
    for (char& c : letters) iov.push_back({&c, 1});
    msghdr m{};
    m.msg_iov = iov.data();
    m.msg_iovlen = iov.size();
    ASSERT_EQ(p.client.sendmsg(m), 20);
    EXPECT_EQ(p.server.recv(), letters);
}

TEST(SockMessage, several_at_once) {
    SockPair p;
    std::string a = "a", b = "bb", c = "ccc";
    iovec out[]{{a.data(), 1}, {b.data(), 2}, {c.data(), 3}};
    mmsghdr m[3]{};
    for (int i = 0; i < 3; ++i) {
        m[i].msg_hdr.msg_iov = &out[i];
        m[i].msg_hdr.msg_iovlen = 1;
    }
    ASSERT_EQ(engine().socket_sendmmsg(p.client.handle(), p.client.fd(), m, 3, 0), 3);
    EXPECT_EQ(m[2].msg_len, 3u);
    char buffers[4][8];
    iovec in[4];
    mmsghdr r[4]{};
    for (int i = 0; i < 4; ++i) {
        in[i] = {buffers[i], 8};
        r[i].msg_hdr.msg_iov = &in[i];
        r[i].msg_hdr.msg_iovlen = 1;
    }
    int taken = 0;
    ASSERT_TRUE(soon([&] {
        const int n =
            engine().socket_recvmmsg(p.server.handle(), p.server.fd(), r + taken,
                                     static_cast<unsigned>(4 - taken), MSG_WAITFORONE, nullptr);
        EXPECT_GT(n, 0);
        taken += n;
        return taken >= 3;
    }));
    EXPECT_EQ(taken, 3);
    EXPECT_EQ(std::string(buffers[1], r[1].msg_len), "bb");
}

TEST(SockMessage, nothing_there_is_eagain) {
    SockPair p;
    EXPECT_EQ(p.server.recv(MSG_DONTWAIT), "!EAGAIN");
    p.server.nonblocking();
    EXPECT_EQ(p.server.recv(), "!EAGAIN");
    EXPECT_NE(p.server.fcntl(F_GETFL, 0) & O_NONBLOCK, 0);
    p.server.nonblocking(false);
    EXPECT_EQ(p.server.fcntl(F_GETFL, 0) & O_NONBLOCK, 0);
    p.server.timeout(SO_RCVTIMEO, 50);
    EXPECT_EQ(p.server.recv(), "!EAGAIN");
}

TEST(SockMessage, a_reader_that_sleeps_holds_the_writer) {
    SockPair p;
    p.client.nonblocking();
    const std::string block = text_of(100'000);
    long sent = 0;
    ASSERT_TRUE(soon([&] {
        const ssize_t n = p.client.send(block);
        if (n > 0) ++sent;
        return n < 0 && errno == EAGAIN;
    }));
    EXPECT_GT(sent, 2);
    for (long i = 0; i < sent; ++i) ASSERT_EQ(p.server.recv(), block) << i;
    EXPECT_EQ(p.server.recv(MSG_DONTWAIT), "!EAGAIN");
    ASSERT_TRUE(soon([&] { return p.client.send(block) > 0; }));
    EXPECT_EQ(p.server.recv(), block);
}

TEST(SockMessage, a_full_send_queue_is_eagain_then_room) {
    SockPair p([](Sock& s, bool) { s.set(DDPBUFCOUNT, 4); });
    const int small = 4096;
    setsockopt(p.client.fd(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    setsockopt(p.server.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    p.client.nonblocking();
    long sent = 0;
    for (int full = 0; full < 5;) {  // what TCP still takes in the background comes to an end
        if (p.client.send("tiny") > 0) {
            ++sent;
            full = 0;
            continue;
        }
        ASSERT_EQ(errno, EAGAIN);
        ++full;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    p.client.timeout(SO_SNDTIMEO, 30);
    p.client.nonblocking(false);
    if (p.client.send("tiny") > 0) {
        ++sent;
    } else {
        EXPECT_EQ(errno, EAGAIN);
    }
    for (long i = 0; i < sent; ++i) ASSERT_EQ(p.server.recv(), "tiny") << i;
    EXPECT_EQ(p.client.send("more"), 4);
    EXPECT_EQ(p.server.recv(), "more");
}

TEST(SockMessage, a_bad_pointer_is_efault_and_no_more) {
    SockPair p;
    auto* const bad = reinterpret_cast<void*>(16);
    EXPECT_EQ(p.client.send(bad, 10), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(p.client.send(bad, 1000), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(p.client.send(bad, 200'000), -1);  // would be sent without a copy
    EXPECT_EQ(errno, EFAULT);
    msghdr message{};
    message.msg_iov = static_cast<iovec*>(bad);
    message.msg_iovlen = 2;
    EXPECT_EQ(p.client.sendmsg(message), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(p.client.sendmsg(*static_cast<const msghdr*>(bad)), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(p.server.recvmsg(message), -1);
    EXPECT_EQ(errno, EFAULT);
    iovec huge[2] = {{nullptr, SIZE_MAX / 2}, {nullptr, SIZE_MAX / 2}};
    message.msg_iov = huge;
    EXPECT_EQ(p.client.sendmsg(message), -1);
    EXPECT_EQ(errno, EINVAL);
    ASSERT_EQ(p.client.send("still here"), 10);
    EXPECT_EQ(p.server.recv(bad, 100), -1);
    EXPECT_EQ(errno, EFAULT);
    EXPECT_EQ(p.server.recv(), "still here");
}

TEST(SockMessage, a_large_one_that_a_blocking_send_lends_may_be_changed_after_it) {
    // The peer does not read at first: TCP's buffers fill, a send runs into its time limit with a
    // part of its message written, and what is left of it is copied. Whatever a call took arrives
    // as it was.
    SockPair p;
    p.client.timeout(SO_SNDTIMEO, 100);
    std::vector<std::string> taken;
    std::string memory;
    for (unsigned i = 0; i < 400; ++i) {
        memory = text_of(600'000 + i, i);
        const std::string original = memory;
        const ssize_t n = p.client.send(memory);
        memory.assign(memory.size(), '?');
        if (n < 0) {
            ASSERT_EQ(errno, EAGAIN);
            break;
        }
        ASSERT_EQ(n, static_cast<ssize_t>(original.size()));
        taken.push_back(original);
    }
    ASSERT_LT(taken.size(), 400u) << "the sender was never held";
    for (const std::string& want : taken) ASSERT_TRUE(p.server.recv() == want);
    EXPECT_EQ(p.client.send("more"), 4);
    EXPECT_EQ(p.server.recv(), "more");
}

// TCP copies what it is given once and does not care; the CRC must fit what is sent.
void send_while_it_changes() {
    SockPair p;
    for (const std::size_t bytes : {64u << 10, 1u << 20}) {
        std::string memory(bytes, '\0');
        changing_memory changing;
        ASSERT_EQ(begin_changing(&changing, memory.data(), bytes), 0);
        std::thread sender([&] {
            for (int i = 0; i < 200; ++i) {
                ASSERT_EQ(p.client.send(memory.data(), bytes), static_cast<ssize_t>(bytes)) << i;
            }
        });
        std::string into(bytes, '\0');
        for (int i = 0; i < 200; ++i) {
            const ssize_t n = p.server.recv(into.data(), into.size());
            EXPECT_EQ(n, static_cast<ssize_t>(bytes)) << i << ": " << p.server.status().error_text;
            if (n <= 0) break;
        }
        sender.join();
        end_changing(&changing);
    }
}

TEST(SockMessage, with_snapshots_a_large_one_may_change_while_a_blocking_send_has_it) {
    with_environment("XSOCK_SNAPSHOT", "1", send_while_it_changes);
}

TEST(SockMessage, a_send_that_lends_ends_with_the_connection) {
    SockPair p;
    std::thread sender([&] {
        const std::string large = text_of(1 << 20, 1);
        ssize_t n = 0;
        while ((n = p.client.send(large.data(), large.size(), MSG_NOSIGNAL)) > 0) continue;
        EXPECT_EQ(n, -1);
        EXPECT_TRUE(errno == ECONNRESET || errno == EPIPE) << errno;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it is held by then
    const linger reset{1, 0};
    ASSERT_EQ(p.server.set(SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    p.server.close();
    sender.join();
}

TEST(SockMessage, large_ones_arrive_at_a_waiting_receiver) {
    SockPair p;
    const std::string sent = text_of(1 << 20);
    for (int i = 0; i < 20; ++i) {
        std::string got(1 << 20, '\0');
        std::thread receiver([&] {
            EXPECT_EQ(p.server.recv(got.data(), got.size()), static_cast<ssize_t>(sent.size()));
        });
        if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        EXPECT_EQ(p.client.send(sent), static_cast<ssize_t>(sent.size()));
        receiver.join();
        EXPECT_EQ(got, sent);
    }
}

TEST(SockMessage, receivers_of_any_room_take_large_ones_that_have_begun) {
    // One after the other without a pause: each has begun to come, into a buffer, when its receiver
    // asks. Receivers with room for all of it, for less, and such that give up on the way.
    SockPair p;
    constexpr unsigned kCount = 120;
    std::thread sender([&] {
        for (unsigned i = 0; i < kCount; ++i) {
            const std::string text = text_of(700'000 + 977 * i, i);
            EXPECT_EQ(p.client.send(text), static_cast<ssize_t>(text.size()));
        }
    });
    p.server.timeout(SO_RCVTIMEO, 1);
    std::string into;
    for (unsigned i = 0; i < kCount; ++i) {
        const std::string want = text_of(700'000 + 977 * i, i);
        into.assign(i % 3 == 1 ? 300'000 : 1 << 20, '-');
        ssize_t n = -1;
        while ((n = p.server.recv(into.data(), into.size(), 0)) < 0) ASSERT_EQ(errno, EAGAIN);
        ASSERT_EQ(static_cast<std::size_t>(n), std::min(want.size(), into.size()));
        ASSERT_TRUE(
            want.compare(0, static_cast<std::size_t>(n), into, 0, static_cast<std::size_t>(n)) == 0)
            << i;
    }
    sender.join();
}

TEST(SockMessage, a_receiver_with_less_room_gets_the_beginning) {
    SockPair p;
    const std::string sent = text_of(300'000);
    std::string got(100'000, '\0');
    std::thread receiver(
        [&] { EXPECT_EQ(p.server.recv(got.data(), got.size(), MSG_TRUNC), 300'000); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(p.client.send(sent), 300'000);
    receiver.join();
    EXPECT_EQ(got, sent.substr(0, got.size()));
    EXPECT_EQ(p.client.send("next"), 4);
    EXPECT_EQ(p.server.recv(), "next");
}

TEST(SockMessage, stream_statistics_are_told) {
    SockPair p;
    ASSERT_EQ(p.client.send("abc"), 3);
    ASSERT_EQ(p.server.recv(), "abc");
    const xsock_status c = p.client.status(), s = p.server.status();
    EXPECT_EQ(c.mode, unsigned{DDPMODE_MESSAGE});
    EXPECT_EQ(c.state, XSOCK_STATUS_OPEN);
    EXPECT_EQ(c.initiator, 1u);
    EXPECT_EQ(s.initiator, 0u);
    EXPECT_EQ(c.crc, 1u);
    EXPECT_EQ(c.peer_is_xsock, 1u);
    EXPECT_STREQ(c.peer.name, "xsock");
    EXPECT_STREQ(s.peer.name, "xsock");
    EXPECT_STRNE(c.peer.version, "");
    EXPECT_EQ(c.tx_messages, 1u);
    EXPECT_EQ(s.rx_messages, 1u);
    EXPECT_STREQ(c.code, "message");
    EXPECT_GT(c.tx_bytes, 20u);
}

}  // namespace
}  // namespace xsock::test
