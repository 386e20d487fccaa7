// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How sockets in DDPMODE begin: options, connect(), accept(), a switch of a connected socket.
#include <netinet/tcp.h>
#include <sys/epoll.h>

#include <atomic>

#include "base/polled_qp.hpp"
#include "libxsock/objects.hpp"
#include "tests/unit/libxsock/pair.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"
#include "transport/progress.hpp"

namespace xsock::test {
namespace {

using namespace std::chrono_literals;

TEST(SockStart, is_for_tcp_only) {
    Sock udp(::socket(AF_INET, SOCK_DGRAM, 0));
    EXPECT_EQ(udp.set(DDPMODE, 1), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    Sock local(::socket(AF_UNIX, SOCK_STREAM, 0));
    EXPECT_EQ(local.set(DDPMODE, 1), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    Sock none(::open("/dev/null", O_RDONLY));
    EXPECT_EQ(none.set(DDPMODE, 1), -1);
    EXPECT_EQ(errno, ENOTSOCK);
    Sock six = Sock::fresh(AF_INET6);
    EXPECT_EQ(six.set(DDPMODE, 1), 0);
}

TEST(SockStart, options_have_ranges_and_can_be_read) {
    struct Row {
        int name, initial, low, high;
    };
    const Row rows[] = {{DDPROLE, 0, 0, 2},
                        {DDPREQUIRE, 0, 0, 1},
                        {DDPCRC, 1, 0, 1},
                        {DDPMARKERS, 0, 0, 1},
                        {DDPREVISION, 2, 1, 2},
                        {DDPRTR, 0, 0, 7},
                        {DDPIRD, 255, 0, 16382},
                        {DDPORD, 255, 0, 16382},
                        {DDPFPDU, 0, 128, 65535},
                        {DDPSQDEPTH, 128, 4, 65536},
                        {DDPRQDEPTH, 128, 1, 65536},
                        {DDPBUFCOUNT, 1024, 1, 65536},
                        {DDPBUFSIZE, 1 << 20, 1, 1 << 28},
                        {DDPINLINE, 96, 0, 96},
                        {DDPSTARTUP, 10000, 1, 1 << 30},
                        {DDPUSERTIMEOUT, 30000, 0, 1 << 30},
                        {DDPKEEPALIVE, 60, 0, 32767},
                        {DDPSHM, XSOCK_SHM_DEFAULT, 0, XSOCK_SHM_REQUIRE},
                        {DDPKERNEL, XSOCK_KERNEL_DEFAULT, 0, XSOCK_KERNEL_REQUIRE},
                        {DDPLINGER, 5000, 0, 1 << 30}};
    Sock s = Sock::fresh();
    ASSERT_EQ(s.set(DDPROLE, 0), 0);
    for (const Row& row : rows) {
        EXPECT_EQ(s.get(row.name), row.initial) << row.name;
        EXPECT_EQ(s.set(row.name, row.high), 0) << row.name;
        EXPECT_EQ(s.get(row.name), row.high) << row.name;
        if (row.high < 1 << 30) {
            EXPECT_EQ(s.set(row.name, row.high + 1), -1) << row.name;
            EXPECT_EQ(errno, EINVAL);
        }
        EXPECT_EQ(s.set(row.name, row.low), 0) << row.name;
        EXPECT_EQ(s.set(row.name, row.low - 1), -1) << row.name;
        EXPECT_EQ(errno, EINVAL);
        EXPECT_EQ(s.get(row.name), row.low) << row.name;
    }
    EXPECT_EQ(s.set(999, 1), -1);
    EXPECT_EQ(errno, ENOPROTOOPT);
    EXPECT_EQ(s.set(DDPMODE, 7), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(s.set(DDPMODE, DDPMODE_OFF), 0);
    EXPECT_TRUE(s.plain());
}

TEST(SockStart, what_was_negotiated_is_told) {
    SockPair p([](Sock& s, bool client) {
        s.set(DDPCRC, 0);
        s.set(DDPIRD, client ? 4 : 8);
        s.set(DDPORD, client ? 6 : 3);
        const std::string data = client ? "from the client" : "from the server";
        s.set(SOL_XSOCK, DDPPRIVATE, data.data(), static_cast<socklen_t>(data.size()));
    });
    const xsock_status c = p.client.status();
    EXPECT_EQ(c.crc, 0u);
    EXPECT_EQ(c.enhanced, 1u);
    EXPECT_EQ(c.mpa_revision, 2u);
    EXPECT_EQ(c.ord, 6u);
    EXPECT_EQ(p.server.status().ord, 3u);
    char data[600];
    socklen_t size = sizeof data;
    ASSERT_EQ(p.client.get(SOL_XSOCK, DDPPRIVATE, data, &size), 0);
    EXPECT_EQ(std::string(data, size), "from the server");
    size = sizeof data;
    ASSERT_EQ(p.server.get(SOL_XSOCK, DDPPRIVATE, data, &size), 0);
    EXPECT_EQ(std::string(data, size), "from the client");
    EXPECT_EQ(p.client.set(DDPCRC, 1), -1);
    EXPECT_EQ(errno, EISCONN);
    EXPECT_EQ(p.client.set(DDPMODE, DDPMODE_OFF), -1);
    EXPECT_EQ(errno, EISCONN);
    // The old, smaller structure of an older program.
    XSOCK_INIT(xsock_status, old);
    old.size = offsetof(xsock_status, crc);
    size = static_cast<socklen_t>(old.size);
    ASSERT_EQ(p.client.get(SOL_XSOCK, DDPSTATUS, &old, &size), 0);
    EXPECT_EQ(size, offsetof(xsock_status, crc));
    EXPECT_EQ(old.initiator, 1u);
}

// What the kernel says of a connection: the least retransmission time-out, and the longest delay of
// an ACK, in ms; 0 where it has no such option.
struct Timers {
    int rto_ms = 0, ack_ms = 0;
    explicit Timers(int fd) {
        constexpr int kRtoMinUs = 45, kDelackMaxUs = 46;
        rto_ms = get(fd, kRtoMinUs) / 1000;
        ack_ms = get(fd, kDelackMaxUs) / 1000;
    }
    static int get(int fd, int name) {
        int us = 0;
        socklen_t size = sizeof us;
        return getsockopt(fd, IPPROTO_TCP, name, &us, &size) == 0 ? us : 0;
    }
};

TEST(SockStart, losses_between_xsocks_are_repaired_soon) {
    SockPair p([](Sock&, bool) {});
    const Timers usual(Sock::fresh().fd());
    if (usual.rto_ms == 0) GTEST_SKIP() << "the kernel has no TCP_RTO_MIN_US";
    for (const Sock* s : {&p.client, &p.server}) {
        const Timers now(s->fd());
        EXPECT_GT(now.ack_ms, 0);
        EXPECT_LE(now.ack_ms, 20);
        EXPECT_GT(now.rto_ms, now.ack_ms);
        EXPECT_LE(now.rto_ms, 2 * now.ack_ms);
    }
}

TEST(SockStart, toward_a_standard_peer_tcp_keeps_its_timers) {
    Sock listener = Sock::fresh();
    listener.set(DDPMODE, 1);
    listener.set(DDPREQUIRE, 1);
    ASSERT_EQ(listener.bind_and_listen(), 0);
    RawPeer peer(listener.port());
    std::thread starting([&] { EXPECT_TRUE(peer.start()); });
    Sock server = listener.accept();
    starting.join();
    ASSERT_GE(server.fd(), 0);
    const Timers usual(Sock::fresh().fd()), now(server.fd());
    if (usual.rto_ms == 0) GTEST_SKIP() << "this kernel has no such options";
    EXPECT_EQ(now.rto_ms, usual.rto_ms);
    EXPECT_EQ(now.ack_ms, usual.ack_ms);
}

TEST(SockStart, no_listener) {
    Sock s = Sock::fresh();
    s.set(DDPMODE, 1);
    EXPECT_EQ(s.connect(unused_port()), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
}

TEST(SockStart, a_peer_that_is_not_mpa_is_eproto) {
    Sock listener = plain_listener();
    std::thread server([&] {
        Sock s = listener.accept();
        s.send("HTTP/1.1 400 Bad Request\r\n\r\n");
        char c[64];
        while (s.recv(c, sizeof c) > 0) {
        }
    });
    Sock s = Sock::fresh();
    s.set(DDPMODE, 1);
    EXPECT_EQ(s.connect(listener.port()), -1);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_NE(std::string(s.status().error_text), "");
    s.close();
    server.join();
}

TEST(SockStart, silence_is_etimedout) {
    Sock listener = plain_listener();
    Sock s = Sock::fresh();
    s.set(DDPMODE, 1);
    s.set(DDPSTARTUP, 200);
    EXPECT_EQ(s.connect(listener.port()), -1);
    EXPECT_EQ(errno, ETIMEDOUT);
    EXPECT_EQ(s.status().state, XSOCK_STATUS_ENDED);
}

TEST(SockStart, a_refusal_is_econnrefused) {
    Sock listener = plain_listener();
    std::thread server([&] {
        Sock s = listener.accept();
        char frame[24];
        ::recv(s.fd(), frame, sizeof frame, MSG_WAITALL);
        std::string reply = RawPeer::reply();
        reply[16] = static_cast<char>(MPA_FLAG_CRC | MPA_FLAG_REJECT);
        s.send(reply);
        std::this_thread::sleep_for(50ms);
    });
    Sock s = Sock::fresh();
    s.set(DDPMODE, 1);
    EXPECT_EQ(s.connect(listener.port()), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
    server.join();
}

TEST(SockStart, nonblocking_connect_goes_through_einprogress) {
    Sock listener = listening(true);
    Sock s = Sock::fresh();
    s.set(DDPMODE, 1);
    s.nonblocking();
    EXPECT_EQ(s.connect(listener.port()), -1);
    EXPECT_EQ(errno, EINPROGRESS);
    EXPECT_EQ(s.connect(listener.port()), -1);
    EXPECT_EQ(errno, EALREADY);
    EXPECT_EQ(s.send("early"), -1);
    EXPECT_EQ(errno, EAGAIN);
    Sock server = listener.accept();
    ASSERT_GE(server.fd(), 0);
    EXPECT_TRUE(soon([&] { return s.status().state == XSOCK_STATUS_OPEN; }));
    EXPECT_EQ(s.error(), 0);
    EXPECT_EQ(s.connect(listener.port()), -1);
    EXPECT_EQ(errno, EISCONN);
    EXPECT_EQ(s.send("now"), 3);
    EXPECT_EQ(server.recv(), "now");
}

TEST(SockStart, nonblocking_failure_is_told_by_so_error) {
    Sock listener = plain_listener();
    Sock s = Sock::fresh();
    s.set(DDPMODE, 1);
    s.set(DDPSTARTUP, 100);
    s.nonblocking();
    EXPECT_EQ(s.connect(listener.port()), -1);
    EXPECT_EQ(errno, EINPROGRESS);
    EXPECT_TRUE(soon([&] { return s.status().state == XSOCK_STATUS_ENDED; }));
    EXPECT_EQ(s.error(), ETIMEDOUT);
    EXPECT_EQ(s.error(), 0);
}

TEST(SockStart, nonblocking_accept_with_require) {
    Sock listener = listening(true);
    listener.nonblocking();
    EXPECT_LT(listener.accept().fd(), 0);
    EXPECT_EQ(errno, EAGAIN);
    Sock s = Sock::fresh();
    s.set(DDPMODE, 1);
    EXPECT_EQ(s.connect(listener.port()), 0);  // the listener works in the background now
    Sock server;
    EXPECT_TRUE(soon([&] {
        server = listener.accept(SOCK_NONBLOCK);
        return server.fd() >= 0;
    }));
    EXPECT_NE(server.fcntl(F_GETFL, 0) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(server.fd(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(listener.fcntl(F_GETFL, 0) & O_NONBLOCK, O_NONBLOCK);
    listener.nonblocking(false);
    EXPECT_EQ(listener.fcntl(F_GETFL, 0) & O_NONBLOCK, 0);
}

TEST(SockStart, accepted_ones_inherit_and_undecided_ones_start) {
    SockPair p(
        [](Sock& s, bool client) {
            if (!client) s.set(DDPBUFSIZE, 5000);
        },
        false);
    EXPECT_EQ(p.server.get(DDPBUFSIZE), 5000);
    EXPECT_EQ(p.server.get(DDPMODE), 1);
    ASSERT_EQ(p.client.send("x"), 1);
    EXPECT_EQ(p.server.recv(), "x");
}

// ---- connected sockets that both programs switch ----

struct Connected {
    Sock a, b;
    Connected() {
        int client = -1, server = -1;
        tcp_pair(client, server);
        a = Sock(client);
        b = Sock(server);
    }
};

TEST(SockSwitch, both_programs_agree) {
    Connected c;
    ASSERT_EQ(c.a.send("plain first"), 11);
    char buffer[11];
    ASSERT_EQ(::recv(c.b.fd(), buffer, 11, MSG_WAITALL), 11);
    std::thread other(
        [&] { EXPECT_EQ(c.b.set(DDPMODE, 1, XSOCK_HINT_ACCEPTED), 0) << strerror(errno); });
    EXPECT_EQ(c.a.set(DDPMODE, 1, XSOCK_HINT_CONNECTED), 0) << strerror(errno);
    other.join();
    ASSERT_EQ(c.a.send("then messages"), 13);
    EXPECT_EQ(c.b.recv(), "then messages");
}

TEST(SockSwitch, without_a_past_the_role_must_be_said) {
    Connected c;
    EXPECT_EQ(c.a.set(DDPMODE, 1), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(c.a.set(DDPROLE, XSOCK_ROLE_RESPONDER), 0);
    c.a.nonblocking();
    EXPECT_EQ(c.a.set(DDPMODE, 1), -1);
    EXPECT_EQ(errno, EINPROGRESS);
    EXPECT_EQ(c.b.set(DDPROLE, XSOCK_ROLE_INITIATOR), 0);
    EXPECT_EQ(c.b.set(DDPMODE, 1), 0) << strerror(errno);
    EXPECT_TRUE(soon([&] { return c.a.status().state == XSOCK_STATUS_OPEN; }));
}

TEST(SockSwitch, unread_bytes_refuse) {
    Connected c;
    ASSERT_EQ(c.a.send("unread"), 6);
    ASSERT_TRUE(soon([&] { return c.b.readable_bytes() == 6; }));
    EXPECT_EQ(c.b.set(DDPMODE, 1, XSOCK_HINT_ACCEPTED), -1);
    EXPECT_EQ(errno, EBUSY);
    EXPECT_EQ(c.b.recv(), "unread");  // all still there, and plain
    EXPECT_EQ(c.b.status().state, XSOCK_STATUS_FRESH);
}

TEST(SockSwitch, two_initiators_are_eproto) {
    for (int i = 0; i < 20; ++i) {
        Connected c;
        std::thread other([&] {
            EXPECT_EQ(c.b.set(DDPMODE, 1, XSOCK_HINT_CONNECTED), -1);
            EXPECT_EQ(errno, EPROTO);
        });
        if (i % 2 == 0) std::this_thread::sleep_for(10ms);
        EXPECT_EQ(c.a.set(DDPMODE, 1, XSOCK_HINT_CONNECTED), -1);
        EXPECT_EQ(errno, EPROTO);
        other.join();
    }
}

// ---- the program's descriptor ----

TEST(SockDescriptor, replacing_the_number_harms_no_connection) {
    SockPair p;
    ASSERT_EQ(p.client.send("first"), 5);
    // The number becomes another file's: the engine works on a descriptor of its own.
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    const int number = p.server.fd();
    const int copy = ::fcntl(number, F_DUPFD_CLOEXEC, 0);
    ASSERT_EQ(::dup2(null, number), number);
    EXPECT_EQ(p.server.recv(), "first");
    EXPECT_EQ(p.server.send("second"), 6);
    EXPECT_EQ(p.client.recv(), "second");
    ASSERT_EQ(::dup2(copy, number), number);
    ::close(copy);
    ::close(null);
}

TEST(SockDescriptor, is_closed_on_exec_once_started) {
    Sock listener = listening(true);
    Sock s(::socket(AF_INET, SOCK_STREAM, 0));
    s.set(DDPMODE, 1);
    EXPECT_EQ(::fcntl(s.fd(), F_GETFD) & FD_CLOEXEC, 0);
    std::thread server([&] { listener.accept(); });
    EXPECT_EQ(s.connect(listener.port()), 0);
    EXPECT_NE(::fcntl(s.fd(), F_GETFD) & FD_CLOEXEC, 0);
    server.join();
    EXPECT_EQ(::fcntl(s.fd(), F_GETFL) & O_NONBLOCK, 0);  // the flags are the program's
}

TEST(SockDescriptor, settings_of_a_stream_do_no_harm) {
    SockPair p;
    const int on = 1, large = 1 << 16;
    EXPECT_EQ(p.server.set(IPPROTO_TCP, TCP_CORK, &on, sizeof on), 0);
    EXPECT_EQ(p.server.set(SOL_SOCKET, SO_RCVLOWAT, &large, sizeof large), 0);
    ASSERT_EQ(p.client.send("a"), 1);
    EXPECT_EQ(p.server.recv(), "a");
    EXPECT_EQ(p.server.send("b"), 1);
    EXPECT_EQ(p.client.recv(), "b");
    EXPECT_EQ(p.server.set(IPPROTO_TCP, TCP_ULP, "tls", 3), -1);
    EXPECT_EQ(errno, ENOPROTOOPT);
    EXPECT_EQ(engine().socket_no_stream(p.server.handle(), p.server.fd(), 1), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
}

// TCP was connecting, to a full listen queue, when the listener went away.
TEST(SockStart, a_connect_that_failed_lends_no_endpoint) {
    Sock gone = Sock::fresh();
    ASSERT_EQ(gone.bind_and_listen(0), 0);
    const int port = gone.port();
    Sock first = Sock::fresh();
    ASSERT_EQ(first.connect(port), 0);
    Sock client = Sock::fresh();
    ASSERT_EQ(client.set(DDPMODE, DDPMODE_MESSAGE), 0);
    client.nonblocking();
    ASSERT_EQ(client.connect(port), -1);
    ASSERT_EQ(errno, EINPROGRESS);
    gone.close();
    ASSERT_TRUE(soon([&] { return client.error() == ECONNREFUSED; }));

    xsock_cq* const cq = engine().cq_create(nullptr);
    EXPECT_EQ(engine().socket_endpoint(client.handle(), client.fd(), cq, nullptr), nullptr);
    EXPECT_EQ(errno, ENOTCONN);
    EXPECT_EQ(engine().cq_destroy(cq), 0);
}

// "Already connected" would be taken for success by programs that ask connect() how it went.
TEST(SockStart, connect_after_one_that_failed_is_not_told_that_it_is_connected) {
    int port = 0;
    {
        const Sock gone = listening(true);
        port = gone.port();
    }
    Sock client = Sock::fresh();
    ASSERT_EQ(client.set(DDPMODE, DDPMODE_MESSAGE), 0);
    client.nonblocking();
    ASSERT_EQ(client.connect(port), -1);
    ASSERT_EQ(errno, EINPROGRESS);
    EXPECT_TRUE(soon([&] { return client.error() == ECONNREFUSED; }));
    EXPECT_EQ(client.connect(port), -1);
    EXPECT_EQ(errno, ECONNABORTED);
}

TEST(SockStart, private_data_is_fixed_once_the_engine_accepts) {
    Sock listener = listening(true);
    EXPECT_EQ(listener.set(SOL_XSOCK, DDPPRIVATE, "one", 3), 0);
    listener.nonblocking();
    EXPECT_EQ(listener.accept().fd(), -1);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(listener.set(SOL_XSOCK, DDPPRIVATE, "other", 5), -1);
    EXPECT_EQ(errno, EISCONN);
}

// connect() tells the sets that the kernel's readiness is the program's no more, and begins. A set
// that another thread asks in between must not take the news for old.
TEST(SockStart, a_set_that_is_asked_in_the_middle_of_connect_knows_of_it) {
    Sock tcp = Sock::fresh();  // accepts, and never speaks
    ASSERT_EQ(tcp.bind_and_listen(), 0);
    Sock client = Sock::fresh();
    ASSERT_EQ(client.set(DDPMODE, DDPMODE_MESSAGE), 0);
    client.nonblocking();
    const int epfd = epoll_create1(EPOLL_CLOEXEC);
    xsock_socket* const set = engine().socket_epoll_open(epfd);
    ASSERT_NE(set, nullptr);
    epoll_event event{};
    event.events = EPOLLOUT;
    ASSERT_EQ(
        engine().socket_epoll_ctl(set, epfd, EPOLL_CTL_ADD, client.fd(), client.handle(), &event),
        0);
    const auto ready = [&](int ms) {
        const timespec limit{0, ms * 1'000'000L};
        return engine().socket_epoll_wait(set, epfd, &event, 1, &limit, nullptr);
    };

    // Another thread polls for a while: the connecting thread has notified the set, and waits.
    std::atomic<bool> polling{false}, go_on{false};
    std::thread poller([&] {
        api::device()->polled().group_of_thread().locked([&](PollCycle&) {
            polling = true;
            while (!go_on) std::this_thread::sleep_for(1ms);
        });
    });
    ASSERT_TRUE(soon([&] { return polling.load(); }));
    std::thread connecting([&] {
        EXPECT_EQ(client.connect(tcp.port()), -1);
        EXPECT_EQ(errno, EINPROGRESS);
    });
    EXPECT_TRUE(soon([&] {
        tcp_info info{};
        socklen_t size = sizeof info;
        getsockopt(client.fd(), IPPROTO_TCP, TCP_INFO, &info, &size);
        return info.tcpi_state == TCP_ESTABLISHED;
    }));
    std::this_thread::sleep_for(50ms);
    ready(0);
    go_on = true;
    poller.join();
    connecting.join();
    EXPECT_EQ(ready(100), 0) << "the kernel's opinion of a start-up that has not ended";
    EXPECT_TRUE(soon([&] { return client.status().state == XSOCK_STATUS_STARTING; }));
    engine().socket_epoll_close(set);
    ::close(epfd);
}

}  // namespace
}  // namespace xsock::test
