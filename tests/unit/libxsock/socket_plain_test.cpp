// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Plain TCP peers of a listening socket in DDPMODE: every byte reaches the program as if it had not
// been peeked at, whatever the peer sends and however slow it is.
#include <sys/resource.h>
#include <sys/wait.h>

#include <optional>

#include "include/xsock/iwarp.h"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"
#include "tests/unit/loopback.hpp"
#include "tests/unit/resource_limit.hpp"
#include "tests/unit/sanitizers.hpp"

namespace xsock::test {
namespace {

using namespace std::chrono_literals;

struct PlainPeer {
    const char* name;
    std::string says;
    int bytes_at_once;
    bool finishes;      // FIN behind it
    const char* code;   // the fallback
    bool server_first;  // the program writes before it reads
    void (*adjust)(Sock&) = nullptr;
};

const std::string kKey = MPA_KEY_REQUEST;

// Connections of a listener, and what became of them.
struct Counts {
    unsigned accepted = 0, started = 0, fallbacks = 0;
};
void expect_counts(Sock& listener, const Counts& expected) {
    const xsock_status status = listener.status();
    EXPECT_EQ(status.accepted, expected.accepted);
    EXPECT_EQ(status.started, expected.started);
    EXPECT_EQ(status.fallbacks, expected.fallbacks);
}

const PlainPeer kPeers[] = {
    {"http", "GET / HTTP/1.1\r\nHost: here\r\n\r\n", 1000, false, "fallback-not-mpa", false},
    {"http_byte_by_byte", "GET / HTTP/1.0\r\n\r\n", 1, true, "fallback-not-mpa", false},
    {"tls_hello", std::string("\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 11), 1000, false,
     "fallback-not-mpa", false},
    {"nul_bytes", std::string(64, '\0'), 7, true, "fallback-not-mpa", false},
    {"begins_like_the_key", "MPA ID Rex Frame and more", 1, true, "fallback-not-mpa", false},
    {"reply_key", std::string(MPA_KEY_REPLY) + "....", 1000, true, "fallback-not-mpa", false},
    {"fifteen_of_the_key_then_fin", kKey.substr(0, 15), 1000, true, "fallback-eof", false},
    {"one_of_the_key_then_fin", kKey.substr(0, 1), 1, true, "fallback-eof", false},
    {"fin_at_once", "", 1, true, "fallback-eof", false},
    {"silent_and_server_speaks", "", 1, false, "fallback-server-first", true},
    {"one_of_the_key_and_server_speaks", kKey.substr(0, 3), 1000, false, "fallback-server-first",
     true},
    {"begins_the_key_and_stops", kKey.substr(0, 9), 1000, false, "fallback-slow", false,
     [](Sock& s) { s.set(DDPSTARTUP, 150); }},
};

class SockPlain : public ::testing::TestWithParam<std::tuple<PlainPeer, bool>> {};

TEST_P(SockPlain, is_served_as_ever) {
    const PlainPeer& peer = std::get<0>(GetParam());
    const bool blocking = std::get<1>(GetParam());
    Sock listener = listening(false, [&p = peer](Sock& s) {
        if (p.adjust != nullptr) p.adjust(s);
    });
    std::thread client([&p = peer, port = listener.port()] {
        RawPeer raw(port);
        ASSERT_TRUE(raw.connected());
        for (std::size_t at = 0; at < p.says.size();
             at += static_cast<std::size_t>(p.bytes_at_once)) {
            raw.say(p.says.substr(at, static_cast<std::size_t>(p.bytes_at_once)));
            if (p.bytes_at_once < 1000) std::this_thread::sleep_for(3ms);
        }
        if (p.finishes) raw.finish();
        EXPECT_EQ(raw.hear(7), "answer\n");
    });
    Sock server = listener.accept();
    ASSERT_GE(server.fd(), 0);
    EXPECT_FALSE(server.plain());
    EXPECT_STREQ(engine().socket_mode_text(server.handle()), "undecided");
    if (!blocking) server.nonblocking();
    if (peer.server_first) {
        if (!peer.says.empty()) {
            ASSERT_TRUE(soon([&] {
                int n = 0;
                ::ioctl(server.fd(), FIONREAD, &n);
                return n == static_cast<int>(peer.says.size());
            }));
        }
        EXPECT_EQ(server.send("answer\n"), 7);
        EXPECT_TRUE(server.plain());
    }
    std::string heard;
    while (heard.size() < peer.says.size() || peer.finishes) {
        char buffer[100];
        const ssize_t n = server.recv(buffer, sizeof buffer);
        if (n > 0) {
            heard.append(buffer, static_cast<std::size_t>(n));
        } else if (n == 0) {
            break;
        } else {
            ASSERT_EQ(errno, EAGAIN);
            ASSERT_FALSE(blocking);
            std::this_thread::sleep_for(1ms);
        }
    }
    EXPECT_EQ(heard, peer.says);
    EXPECT_TRUE(server.plain());
    if (!peer.server_first) {
        EXPECT_EQ(server.send("answer\n"), 7);
    }
    client.join();
    expect_counts(listener, {.accepted = 1, .fallbacks = 1});
    int low = 0;
    socklen_t size = sizeof low;
    getsockopt(server.fd(), SOL_SOCKET, SO_RCVLOWAT, &low, &size);
    EXPECT_EQ(low, 1);
}

INSTANTIATE_TEST_SUITE_P(peers, SockPlain,
                         ::testing::Combine(::testing::ValuesIn(kPeers), ::testing::Bool()),
                         [](const auto& row) {
                             return std::string(std::get<0>(row.param).name) +
                                    (std::get<1>(row.param) ? "_blocking" : "_nonblocking");
                         });

TEST(SockPlainPeer, tells_why) {
    for (const PlainPeer& peer : kPeers) {
        if (peer.server_first || peer.says.empty()) continue;
        Sock listener = listening(false, [&](Sock& s) {
            if (peer.adjust != nullptr) peer.adjust(s);
        });
        RawPeer raw(listener.port());
        Sock server = listener.accept();
        raw.say(peer.says);
        if (peer.finishes) raw.finish();
        // Another holder of the handle sees what became of it.
        engine().socket_ref(server.handle());
        xsock_socket* const handle = server.handle();
        server.nonblocking();
        EXPECT_TRUE(soon([&] {
            server.recv();
            return server.plain();
        })) << peer.name;
        EXPECT_STREQ(engine().socket_mode_text(handle), peer.code) << peer.name;
        engine().socket_unref(handle, -1);
    }
}

TEST(SockPlainPeer, a_request_byte_by_byte_is_mpa) {
    Sock listener = listening();
    RawPeer raw(listener.port());
    Sock server = listener.accept();
    std::thread client([&] {
        for (const char c : RawPeer::request(MPA_FLAG_CRC, 1, "")) {
            raw.say(std::string(1, c));
            std::this_thread::sleep_for(5ms);
        }
        EXPECT_EQ(raw.hear(sizeof(mpa_frame)).substr(0, 16), MPA_KEY_REPLY);
        raw.say(RawPeer::send_message(1, "hello"));
    });
    EXPECT_EQ(server.recv(), "hello");
    EXPECT_FALSE(server.plain());
    client.join();
    EXPECT_EQ(listener.status().started, 1u);
}

TEST(SockPlainPeer, require_closes_them_and_delays_no_other) {
    Sock listener = listening(true);
    RawPeer silent(listener.port());
    RawPeer http(listener.port());
    http.say("GET / HTTP/1.1\r\n\r\n");
    Sock good = Sock::fresh();
    ASSERT_EQ(good.set(DDPMODE, DDPMODE_MESSAGE), 0);
    std::thread client([&] { EXPECT_EQ(good.connect(listener.port()), 0); });
    Sock server = listener.accept();
    ASSERT_GE(server.fd(), 0);
    client.join();
    ASSERT_EQ(good.send("mine"), 4);
    EXPECT_EQ(server.recv(), "mine");
    std::string heard;
    listener.nonblocking();
    EXPECT_TRUE(soon([&] {
        EXPECT_LT(listener.accept().fd(), 0);
        return listener.status().refused == 1;
    }));
    EXPECT_TRUE(http.hear_end(heard));
    EXPECT_EQ(listener.status().started, 1u);
}

TEST(SockPlainPeer, mixes_on_one_port) {
    Sock listener = listening();
    for (int i = 0; i < 6; ++i) {
        if (i % 2 == 0) {
            RawPeer raw(listener.port());
            raw.say("plain");
            Sock server = listener.accept();
            EXPECT_EQ(server.recv(), "plain");
            EXPECT_TRUE(server.plain());
        } else {
            Sock client = Sock::fresh();
            client.set(DDPMODE, DDPMODE_MESSAGE);
            std::thread peer([&] {
                Sock server = listener.accept();
                EXPECT_EQ(server.recv(), "message");
                EXPECT_FALSE(server.plain());
            });
            EXPECT_EQ(client.connect(listener.port()), 0);
            EXPECT_EQ(client.send("message"), 7);
            peer.join();
        }
    }
    expect_counts(listener, {.accepted = 6, .started = 3, .fallbacks = 3});
}

// A program that will not read can only be about to write, and that is plain TCP.
TEST(SockPlainOnly, a_program_that_will_not_read_is_one_that_speaks_first) {
    Sock listener = listening();
    RawPeer raw(listener.port());
    Sock server = listener.accept();
    ASSERT_GE(server.fd(), 0);
    EXPECT_EQ(server.shutdown(SHUT_RD), 0) << strerror(errno);
    EXPECT_TRUE(server.plain());
    EXPECT_EQ(server.send("daytime"), 7);
    EXPECT_EQ(raw.hear(7), "daytime");
}

// As a process does, for its own safety, that will open nothing any more. 0, or what failed.
int echoes_without_descriptors(Sock& server, bool reads_first) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_NOFILE, &none);
    char word[5];
    if (reads_first && server.recv(word, sizeof word) != 5) return 1;
    if (server.send("daytime") != 7) return 2;
    if (!reads_first && server.recv(word, sizeof word) != 5) return 3;
    return server.plain() ? 0 : 4;
}

TEST(SockPlainOnly, a_child_without_descriptors_serves_plain_peers) {
#if defined XSOCK_TEST_ASAN
    GTEST_SKIP() << "UBSan reads an object's type through a pipe, and has no descriptors for one";
#endif
    for (const bool reads_first : {true, false}) {
        Sock listener = listening();
        RawPeer raw(listener.port());
        Sock server = listener.accept();
        ASSERT_GE(server.fd(), 0);
        raw.say("hello");
        const pid_t child = fork();
        if (child == 0) _exit(echoes_without_descriptors(server, reads_first));
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0) << (reads_first ? "reads first" : "writes first");
        EXPECT_EQ(raw.hear(7), "daytime");
    }
}

// The process has begun with the engine, and has no number left.
TEST(SockPlainOnly, a_process_that_runs_out_of_descriptors_serves_plain_peers) {
    Sock listener = listening();
    RawPeer first(listener.port()), raw(listener.port());
    Sock begun = listener.accept();
    Sock server = listener.accept();
    ASSERT_GE(server.fd(), 0);
    first.say("GET /");
    EXPECT_EQ(begun.recv(), "GET /");
    raw.say("hello");
    std::optional<ResourceLimit> none(std::in_place, RLIMIT_NOFILE, 3);
    EXPECT_EQ(server.send("daytime"), 7) << strerror(errno);
    EXPECT_TRUE(server.plain());
    none.reset();
    EXPECT_EQ(raw.hear(7), "daytime");
    EXPECT_EQ(server.recv(), "hello");
}

// Of a client that may be plain TCP. 0, or what failed.
int connects_without_descriptors(int port, bool begins_before) {
    Sock other = Sock::fresh(), client = Sock::fresh();
    if (client.set(DDPMODE, DDPMODE_STREAM) != 0) return 1;
    if (begins_before) {  // the engine has its descriptors
        if (other.set(DDPMODE, DDPMODE_STREAM) != 0 || other.connect(port) != 0) return 2;
    }
    rlimit none{};
    getrlimit(RLIMIT_NOFILE, &none);
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    if (client.connect(port) != 0) return 3;
    if (!client.plain()) return 4;
    char word[5];
    if (client.send("daytime") != 7) return 5;
    return client.recv(word, sizeof word, MSG_WAITALL) == 5 ? 0 : 6;
}

TEST(SockPlainOnly, a_client_that_runs_out_of_descriptors_is_plain) {
#if defined XSOCK_TEST_ASAN
    GTEST_SKIP() << "UBSan reads an object's type through a pipe, and has no descriptors for one";
#endif
    for (const bool begins_before : {false, true}) {
        LoopbackListener listener;
        const pid_t child = fork();
        if (child == 0) _exit(connects_without_descriptors(listener.port(), begins_before));
        int accepted = -1;
        if (begins_before) accepted = listener.accept();
        pollfd asked{listener.fd(), POLLIN, 0};
        ASSERT_EQ(::poll(&asked, 1, 10'000), 1) << "it has not connected";
        RawPeer peer(RawPeer::Connected{listener.accept()});
        EXPECT_EQ(peer.hear(7), "daytime");
        EXPECT_TRUE(peer.say("hello"));
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(status, 0) << begins_before;
        if (accepted >= 0) ::close(accepted);
    }
}

}  // namespace
}  // namespace xsock::test
