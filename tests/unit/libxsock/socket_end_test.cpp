// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How sockets in DDPMODE end: shutdown(), close(), linger, a peer that dies; signals, fork(); and
// the endpoint that they lend.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>

#include "tests/unit/libxsock/pair.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"

namespace xsock::test {
namespace {

using namespace std::chrono_literals;

TEST(SockEnd, close_drains_and_the_peer_reads_all) {
    SockPair p;
    const std::string block = text_of(300'000);
    p.client.nonblocking();  // a send that blocks returns when TCP has it all
    int sent = 0;
    while (p.client.send(block) == 300'000) ++sent;
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_GT(sent, 1);
    p.client.close();
    for (int i = 0; i < sent; ++i) ASSERT_EQ(p.server.recv(), block);
    EXPECT_EQ(p.server.recv(), "");
    EXPECT_EQ(p.server.recv(), "");
}

TEST(SockEnd, shutdown_ends_one_direction) {
    SockPair p;
    ASSERT_EQ(p.client.send("last"), 4);
    ASSERT_EQ(p.client.shutdown(SHUT_WR), 0);
    EXPECT_EQ(p.client.send("more"), -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_EQ(p.server.recv(), "last");
    EXPECT_EQ(p.server.recv(), "");
    EXPECT_EQ(p.server.status().state, XSOCK_STATUS_PEER_CLOSED);
    EXPECT_EQ(p.server.send("answer"), 6);
    EXPECT_EQ(p.client.recv(), "answer");
    p.server.close();
    EXPECT_EQ(p.client.recv(), "");
}

TEST(SockEnd, shutdown_of_reading_drops_what_comes) {
    SockPair p;
    ASSERT_EQ(p.client.send("unread"), 6);
    ASSERT_EQ(p.server.shutdown(SHUT_RD), 0);
    EXPECT_EQ(p.server.recv(), "");
    const std::string block(100'000, 'x');
    for (int i = 0; i < 100; ++i) ASSERT_EQ(p.client.send(block), 100'000);  // nothing blocks it
    EXPECT_EQ(p.server.recv(), "");
    EXPECT_EQ(p.server.send("still"), 5);
    EXPECT_EQ(p.client.recv(), "still");
}

TEST(SockEnd, a_reset_is_told_once_then_epipe) {
    SockPair p;
    const linger now{1, 0};
    ASSERT_EQ(p.client.set(SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    p.client.close();
    EXPECT_EQ(p.server.recv(), "!ECONNRESET");
    EXPECT_EQ(p.server.recv(), "");
    EXPECT_EQ(p.server.send("x"), -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_EQ(p.server.status().state, XSOCK_STATUS_ENDED);
}

// recvmmsg() and sendmmsg() that carried some messages say how many: the reason for the rest is
// told by the next call.
TEST(SockEnd, a_reset_that_cut_a_call_short_is_told_by_the_next) {
    SockPair p;
    for (int i = 0; i < 2; ++i) ASSERT_EQ(p.client.send("two"), 3);
    ASSERT_TRUE(soon([&] { return p.server.status().waiting.rx == 2; }));
    const linger now{1, 0};
    ASSERT_EQ(p.client.set(SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    p.client.close();
    char bytes[3][8];
    iovec pieces[3];
    mmsghdr messages[3] = {};
    for (int i = 0; i < 3; ++i) {
        pieces[i] = {bytes[i], sizeof bytes[i]};
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    EXPECT_EQ(engine().socket_recvmmsg(p.server.handle(), p.server.fd(), messages, 3, 0, nullptr),
              2);
    EXPECT_EQ(p.server.recv(), "!ECONNRESET");
    EXPECT_EQ(p.server.recv(), "");
}

std::atomic<int> pipes{0};

TEST(SockEnd, sigpipe_comes_unless_told_otherwise) {
    struct sigaction action {
    }, before{};
    action.sa_handler = [](int) { pipes.fetch_add(1); };
    sigaction(SIGPIPE, &action, &before);
    SockPair p;
    ASSERT_EQ(p.client.shutdown(SHUT_WR), 0);
    EXPECT_EQ(p.client.send(std::string("x"), MSG_NOSIGNAL), -1);
    EXPECT_EQ(pipes.load(), 0);
    EXPECT_EQ(p.client.send(std::string("x"), 0), -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_EQ(pipes.load(), 1);
    sigaction(SIGPIPE, &before, nullptr);
}

// The other end reads nothing yet, and three messages of 300,000 bytes wait to be sent.
Sock with_three_messages_waiting(Sock& listener, RawPeer& raw) {
    std::thread peer([&] { EXPECT_TRUE(raw.start()); });
    Sock server = listener.accept();
    peer.join();
    const std::string block(300'000, 'x');
    for (int i = 0; i < 3; ++i) EXPECT_EQ(server.send(block, MSG_DONTWAIT), 300'000);
    EXPECT_EQ(server.status().waiting.tx, 3u);
    return server;
}

TEST(SockEnd, linger_waits_until_all_is_handed_over) {
    Sock listener = listening(true, [](Sock& s) {
        const int small = 4096;
        ASSERT_EQ(s.set(SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    });
    RawPeer raw(listener.port());
    Sock server = with_three_messages_waiting(listener, raw);
    const linger long_time{1, 20};
    ASSERT_EQ(server.set(SOL_SOCKET, SO_LINGER, &long_time, sizeof long_time), 0);
    linger got{};
    socklen_t size = sizeof got;
    ASSERT_EQ(server.get(SOL_SOCKET, SO_LINGER, &got, &size), 0);
    EXPECT_EQ(got.l_linger, 20);
    const auto begun = std::chrono::steady_clock::now();
    std::thread reader([&] {
        std::this_thread::sleep_for(300ms);
        std::string all;
        EXPECT_TRUE(raw.hear_end(all));
        EXPECT_GT(all.size(), 900'000u);
    });
    server.close();
    const auto took = std::chrono::steady_clock::now() - begun;
    EXPECT_GE(took, 250ms);
    EXPECT_LT(took, 10s);
    reader.join();
}

// The send queue has as many entries as the next power of two; the depth asked for is not one.
TEST(SockEnd, linger_waits_whatever_the_depth_of_the_send_queue) {
    Sock listener = listening(true, [](Sock& s) {
        const int small = 4096;
        ASSERT_EQ(s.set(DDPSQDEPTH, 5), 0);
        ASSERT_EQ(s.set(SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    });
    RawPeer raw(listener.port());
    Sock server = with_three_messages_waiting(listener, raw);
    const linger one_second{1, 1};
    ASSERT_EQ(server.set(SOL_SOCKET, SO_LINGER, &one_second, sizeof one_second), 0);
    const auto begun = std::chrono::steady_clock::now();
    server.close();
    EXPECT_GE(std::chrono::steady_clock::now() - begun, 950ms);
}

TEST(SockEnd, a_terminate_is_eproto_in_words) {
    Sock listener = listening(true);
    RawPeer raw(listener.port());
    std::thread peer([&] { EXPECT_TRUE(raw.start()); });
    Sock server = listener.accept();
    peer.join();
    raw.say(RawPeer::send_message(7, "wrong number"));
    EXPECT_EQ(server.recv(), "!EPROTO");
    EXPECT_NE(std::string(server.status().error_text).find("MSN"), std::string::npos)
        << server.status().error_text;
}

TEST(SockEnd, a_message_beyond_the_limit_is_terminated) {
    Sock listener = listening(true, [](Sock& s) { s.set(DDPBUFSIZE, 100); });
    RawPeer raw(listener.port());
    std::thread peer([&] { EXPECT_TRUE(raw.start()); });
    Sock server = listener.accept();
    peer.join();
    raw.say(RawPeer::send_message(1, std::string(100, 'a')));
    EXPECT_EQ(server.recv(), std::string(100, 'a'));
    raw.say(RawPeer::send_message(2, std::string(101, 'a')));
    EXPECT_EQ(server.recv(), "!EPROTO");
    std::string heard;
    EXPECT_TRUE(raw.hear_end(heard));
    EXPECT_NE(RawPeer::terminate_in(heard), -1);
}

TEST(SockEnd, immediate_data_is_a_message_of_no_bytes) {
    Sock listener = listening(true);
    RawPeer raw(listener.port());
    std::thread peer([&] { EXPECT_TRUE(raw.start()); });
    Sock server = listener.accept();
    peer.join();
    constexpr int kImmediate = 0x40 | RDMAP_IMMEDIATE;
    raw.say(RawPeer::fpdu(RawPeer::untagged(0x41, kImmediate, 0, 1, 0, "12345678")));
    raw.say(RawPeer::send_message(2, "next"));
    char c;
    iovec iov{&c, 1};
    msghdr m{};
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    EXPECT_EQ(server.recvmsg(m), 0);
    EXPECT_EQ(m.msg_flags, MSG_EOR);
    EXPECT_EQ(server.recv(), "next");
}

// ---- signals ----

std::atomic<int> handled{0};

struct Handler {
    explicit Handler(int flags) {
        struct sigaction action {};
        action.sa_handler = [](int) { handled.fetch_add(1); };
        action.sa_flags = flags;
        sigaction(SIGUSR1, &action, &before);
        handled.store(0);
    }
    ~Handler() { sigaction(SIGUSR1, &before, nullptr); }
    struct sigaction before {};
};

// Interrupts `thread` until its handler has run often enough, then lets it see `end`.
void pester(pthread_t thread, int times) {
    for (int i = 0; i < times; ++i) {
        std::this_thread::sleep_for(20ms);
        pthread_kill(thread, SIGUSR1);
    }
}

void expect_interrupted_recv(Sock& sock) {
    std::atomic<bool> done{false};
    const pthread_t self = pthread_self();
    std::thread other([&] {
        while (!done) pester(self, 1);
    });
    EXPECT_EQ(sock.recv(), "!EINTR");
    done = true;
    other.join();
}

TEST(SockSignal, interrupts_a_blocked_recv) {
    Handler handler(0);
    SockPair p;
    expect_interrupted_recv(p.server);
    EXPECT_GE(handled.load(), 1);
    ASSERT_EQ(p.client.send("fine"), 4);
    EXPECT_EQ(p.server.recv(), "fine");
}

TEST(SockSignal, with_restart_does_not) {
    Handler handler(SA_RESTART);
    SockPair p;
    const pthread_t self = pthread_self();
    std::thread other([&] {
        pester(self, 5);
        EXPECT_TRUE(soon([] { return handled.load() >= 5; }));  // they run while it sleeps
        p.client.send("at last");
    });
    EXPECT_EQ(p.server.recv(), "at last");
    other.join();
}

TEST(SockSignal, with_restart_and_a_time_limit_does) {
    Handler handler(SA_RESTART);
    SockPair p;
    p.server.timeout(SO_RCVTIMEO, 60'000);
    expect_interrupted_recv(p.server);
}

TEST(SockSignal, interrupts_those_that_follow_another) {
    Handler handler(0);
    SockPair p, q;
    std::thread leader([&] { EXPECT_EQ(q.server.recv(), "end"); });
    std::this_thread::sleep_for(100ms);  // it leads now; this thread follows
    expect_interrupted_recv(p.server);
    q.client.send("end");
    leader.join();
}

// ---- fork ----

int status_of(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(SockFork, a_started_socket_stays_its_parents) {
    SockPair p;
    ASSERT_EQ(p.client.send("before"), 6);
    const pid_t child = fork();
    if (child == 0) {
        bool ok = p.server.recv() == "!EPERM" && p.client.send("x") == -1 && errno == EPERM;
        ok = ok && p.client.status().state == XSOCK_STATUS_FOREIGN;
        p.client.close();
        p.server.close();
        exit(ok ? 0 : 1);
    }
    EXPECT_EQ(status_of(child), 0);
    EXPECT_EQ(p.server.recv(), "before");
    EXPECT_EQ(p.client.send("after"), 5);
    EXPECT_EQ(p.server.recv(), "after");
    p.client.close();
    EXPECT_EQ(p.server.recv(), "");  // no child holds the connection open
}

TEST(SockFork, accept_then_fork_servers_start_in_the_child) {
    Sock listener = listening();
    for (const bool polled_first : {false, true}) {
        SCOPED_TRACE(polled_first ? "polled first" : "not polled");
        Sock client = Sock::fresh();
        client.set(DDPMODE, 1);
        client.nonblocking();
        EXPECT_EQ(client.connect(listener.port()), -1);
        Sock server = listener.accept();
        if (polled_first && server.recv(MSG_DONTWAIT) == "!EAGAIN") {
            // The parent has peeked, and found nothing yet.
        }
        if (server.status().state != XSOCK_STATUS_UNDECIDED) {  // it started here
            EXPECT_TRUE(polled_first);
            continue;
        }
        const pid_t child = fork();
        if (child == 0) {
            const std::string heard = server.recv();
            const bool ok = heard == "question" && server.send("answer") == 6;
            if (!ok) fprintf(stderr, "the child heard %s\n", heard.c_str());
            server.close();
            exit(ok ? 0 : 1);
        }
        server.close();
        client.nonblocking(false);
        EXPECT_EQ(client.send("question"), 8) << strerror(errno);
        EXPECT_EQ(client.recv(), "answer");
        EXPECT_EQ(client.recv(), "");
        EXPECT_EQ(status_of(child), 0);
    }
}

// On TCP it sends until the process is gone; here the calls fail from some time on.
TEST(SockFork, a_thread_that_sends_while_another_exits_gets_no_signal) {
    Sock listener = listening(true);
    const pid_t child = fork();
    if (child == 0) {
        Sock client = Sock::fresh();
        client.set(DDPMODE, 1);
        if (client.connect(listener.port()) != 0) _exit(1);
        std::atomic<bool> sent{false};
        std::thread([&client, &sent] {
            for (;;) {
                client.send(std::string("message"), 0);
                sent = true;
            }
        }).detach();
        while (!sent) std::this_thread::sleep_for(1ms);
        std::this_thread::sleep_for(20ms);
        exit(7);
    }
    Sock server = listener.accept();
    EXPECT_EQ(server.recv(), "message");
    EXPECT_EQ(status_of(child), 7);
}

TEST(SockFork, children_accept_on_their_parents_listener) {
    Sock listener = listening(true);
    const pid_t child = fork();
    if (child == 0) {
        Sock server = listener.accept();
        const bool ok = server.recv() == "hello" && server.send("child") == 5;
        server.close();
        exit(ok ? 0 : 1);
    }
    Sock client = Sock::fresh();
    client.set(DDPMODE, 1);
    EXPECT_EQ(client.connect(listener.port()), 0) << strerror(errno);
    EXPECT_EQ(client.send("hello"), 5);
    EXPECT_EQ(client.recv(), "child");
    EXPECT_EQ(status_of(child), 0);
}

// ---- the endpoint ----

TEST(SockEndpoint, does_one_sided_operations_beside_messages) {
    const xsock_engine& e = engine();
    SockPair p;
    xsock_cq* cq = e.cq_create(nullptr);
    xsock_cq* server_cq = e.cq_create(nullptr);
    EXPECT_EQ(e.socket_endpoint(p.client.handle(), p.client.fd(), nullptr, nullptr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    xsock_ep* ep = e.socket_endpoint(p.client.handle(), p.client.fd(), cq, nullptr);
    ASSERT_NE(ep, nullptr);
    EXPECT_EQ(e.socket_endpoint(p.client.handle(), p.client.fd(), nullptr, nullptr), ep);
    EXPECT_EQ(e.socket_endpoint(p.client.handle(), p.client.fd(), server_cq, nullptr), nullptr);
    EXPECT_EQ(e.ep_close(ep), -1);
    EXPECT_EQ(errno, EBUSY);
    xsock_ep* other = e.socket_endpoint(p.server.handle(), p.server.fd(), server_cq, nullptr);
    ASSERT_NE(other, nullptr);

    std::string memory(1000, '-');
    xsock_mr* mr = e.mr_register(nullptr, memory.data(), memory.size(), XSOCK_REMOTE_WRITE, other);
    ASSERT_NE(mr, nullptr);
    xsock_key key;
    ASSERT_EQ(e.mr_key(mr, 0, memory.size(), &key), 0);
    ASSERT_EQ(p.server.send(&key, sizeof key), static_cast<ssize_t>(sizeof key));
    xsock_key got;
    ASSERT_EQ(p.client.recv(&got, sizeof got), static_cast<ssize_t>(sizeof got));
    xsock_remote remote{};
    const auto* o = got.bytes;
    for (int i = 0; i < 8; ++i) remote.to = remote.to << 8 | o[i];
    for (int i = 8; i < 16; ++i) remote.length = remote.length << 8 | o[i];
    for (int i = 16; i < 20; ++i) remote.stag = remote.stag << 8 | o[i];

    const std::string data = text_of(1000);
    ASSERT_EQ(e.write(ep, 42, data.data(), 1000, &remote, 0, 0), 0);
    EXPECT_EQ(p.client.send("written"), 7);
    EXPECT_EQ(p.server.recv(), "written");
    EXPECT_EQ(memory, data);  // visible before the later message
    xsock_wc wc{};
    ASSERT_TRUE(soon([&] { return e.cq_poll(cq, &wc, 1) == 1; }));
    EXPECT_EQ(wc.wr_id, 42u);
    EXPECT_EQ(wc.status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(wc.context, nullptr);
    EXPECT_EQ(e.cq_poll(cq, &wc, 1), 0);  // messages complete in no queue

    // Posted receives come before recv(), and not while messages wait.
    char into[16];
    ASSERT_EQ(e.recv(other, 7, into, sizeof into), 0);
    EXPECT_EQ(p.client.send("posted"), 6);
    ASSERT_TRUE(soon([&] { return e.cq_poll(server_cq, &wc, 1) == 1; }));
    EXPECT_EQ(wc.wr_id, 7u);
    EXPECT_EQ(std::string(into, wc.length), "posted");
    EXPECT_EQ(p.client.send("plain"), 5);
    ASSERT_TRUE(soon([&] { return p.server.readable_bytes() == 5; }));
    EXPECT_EQ(e.recv(other, 8, into, sizeof into), -1);
    EXPECT_EQ(errno, EBUSY);
    EXPECT_EQ(p.server.recv(), "plain");

    EXPECT_EQ(e.mr_deregister(mr), 0);
    ASSERT_EQ(e.recv(other, 9, into, sizeof into), 0);
    p.server.close();
    ASSERT_TRUE(soon([&] { return e.cq_poll(server_cq, &wc, 1) == 1; }));
    EXPECT_EQ(wc.wr_id, 9u);
    EXPECT_EQ(wc.status, XSOCK_WC_FLUSHED);
    p.client.close();
    EXPECT_EQ(e.cq_destroy(cq), 0);
    EXPECT_EQ(e.cq_destroy(server_cq), 0);
}

// ---- many threads on one socket ----

TEST(SockThreads, share_one_socket) {
    SockPair p;
    constexpr int kThreads = 3, kEach = 400;
    std::atomic<int> got{0}, bad{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < kEach; ++i) {
                const std::string s = text_of(static_cast<std::size_t>(i * 97 % 30'000 + 1), 1);
                if (p.client.send(s) != static_cast<ssize_t>(s.size())) ++bad;
            }
            (void)t;
        });
        threads.emplace_back([&] {
            std::string buffer(40'000, '\0');
            while (got.load() < kThreads * kEach) {
                const ssize_t n = p.server.recv(buffer.data(), buffer.size(), MSG_DONTWAIT);
                if (n < 0) {
                    std::this_thread::yield();
                    continue;
                }
                if (buffer.substr(0, static_cast<std::size_t>(n)) !=
                    text_of(static_cast<std::size_t>(n), 1)) {
                    ++bad;
                }
                ++got;
            }
        });
    }
    for (auto& t : threads) t.join();
    EXPECT_EQ(bad.load(), 0);
    EXPECT_EQ(got.load(), kThreads * kEach);
}

TEST(SockThreads, close_while_another_blocks_is_safe_with_a_reference) {
    SockPair p;
    xsock_socket* const handle = p.server.handle();
    engine().socket_ref(handle);  // as the overlay holds one for the time of a call
    const int fd = p.server.fd();
    std::thread blocked([&] {
        char c;
        const ssize_t n = engine().socket_recv(handle, fd, &c, 1, 0);
        EXPECT_LE(n, 0);
        engine().socket_unref(handle, -1);
    });
    std::this_thread::sleep_for(50ms);
    p.server.close();
    p.client.close();  // the end of the stream wakes it
    blocked.join();
}

}  // namespace
}  // namespace xsock::test
