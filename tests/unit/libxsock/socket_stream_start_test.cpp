// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The start of a byte stream: connect() ends when TCP's does, and start-up runs behind it. Each
// case is run against the kernel's TCP too, both ends in one thread, as a program of one thread
// that connects to itself.
#include <linux/tcp.h>
#include <sys/wait.h>

#include <csignal>
#include <functional>

#include "libxsock/socket/syn_mark.hpp"
#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"
#include "tests/unit/loopback.hpp"

namespace xsock::test {
namespace {

enum class Kind { tcp, each_as_it_comes, require };

Sock stream_client() {
    Sock client = Sock::fresh();
    EXPECT_EQ(client.set(DDPMODE, DDPMODE_STREAM), 0);
    return client;
}

struct Ends {
    Sock listener = Sock::fresh(), client = Sock::fresh();

    explicit Ends(Kind kind) {
        if (kind != Kind::tcp) {
            EXPECT_EQ(listener.set(DDPMODE, DDPMODE_STREAM), 0) << strerror(errno);
            EXPECT_EQ(listener.set(DDPREQUIRE, kind == Kind::require ? 1 : 0), 0);
            EXPECT_EQ(client.set(DDPMODE, DDPMODE_STREAM), 0) << strerror(errno);
        }
        EXPECT_EQ(listener.bind_and_listen(), 0) << strerror(errno);
    }
};

using Steps = std::vector<std::string>;

std::string result(ssize_t n) {
    return n >= 0 ? std::to_string(n) : std::string("!") + strerrorname_np(errno);
}

std::string take(Sock& s, std::size_t size, int flags = MSG_WAITALL) {
    std::string text(size, '\0');
    const ssize_t n = s.recv(text.data(), size, flags);
    if (n < 0) return result(n);
    text.resize(static_cast<std::size_t>(n));
    return text;
}

bool is_ready(Sock& s, short events, int milliseconds = 0) {
    pollfd p{s.fd(), events, 0};
    if (s.plain()) return ::poll(&p, 1, milliseconds) == 1;
    xsock_socket* const handle = s.handle();
    const timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
    return engine().socket_poll(&p, 1, &handle, &limit, nullptr) == 1;
}

void same(const std::function<void(Ends&, Steps&)>& run) {
    Steps expected;
    {
        Ends tcp(Kind::tcp);
        run(tcp, expected);
    }
    for (const Kind kind : {Kind::each_as_it_comes, Kind::require}) {
        Steps seen;
        Ends ours(kind);
        run(ours, seen);
        EXPECT_EQ(seen, expected) << static_cast<int>(kind);
    }
}

TEST(SockStreamStart, one_thread_connects_to_itself) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        steps.push_back(result(e.client.send(std::string("request"))));
        Sock server = e.listener.accept();
        steps.push_back(take(server, 7));
        steps.push_back(result(server.send(std::string("response"))));
        steps.push_back(take(e.client, 8));
        if (!e.client.plain()) {
            EXPECT_EQ(e.client.status().state, XSOCK_STATUS_OPEN);
            EXPECT_EQ(server.status().state, XSOCK_STATUS_OPEN);
        }
    });
}

TEST(SockStreamStart, is_writable_when_tcp_is_connected) {
    same([](Ends& e, Steps& steps) {
        e.client.nonblocking();
        steps.push_back(result(e.client.connect(e.listener.port())));
        steps.push_back(is_ready(e.client, POLLOUT, 5000) ? "writable" : "not");
        steps.push_back(std::to_string(e.client.error()));
        steps.push_back(is_ready(e.client, POLLIN) ? "readable" : "not");
        steps.push_back(take(e.client, 1, 0));
        steps.push_back(result(e.client.send(std::string("x"))));
        Sock server = e.listener.accept();
        steps.push_back(take(server, 1));
    });
}

// What is taken before the peer has accepted arrives, however much it is.
TEST(SockStreamStart, what_was_sent_ahead_arrives_whole) {
    for (const Kind kind : {Kind::each_as_it_comes, Kind::require}) {
        Ends e(kind);
        const std::string text = text_of(16 << 20);
        EXPECT_EQ(e.client.connect(e.listener.port()), 0);
        e.client.nonblocking();
        std::size_t sent = 0;
        for (const std::size_t size : {5u, 1000u, 100u, 70'000u, 1'000'000u, 16'000'000u}) {
            const ssize_t n = e.client.send(text.substr(sent, size));
            if (n < 0) break;
            sent += static_cast<std::size_t>(n);
        }
        EXPECT_GT(sent, 100'000u);
        EXPECT_EQ(errno, EAGAIN);
        Sock server = e.listener.accept();
        EXPECT_TRUE(take(server, sent) == text.substr(0, sent));
        EXPECT_TRUE(is_ready(e.client, POLLOUT, 5000));
    }
}

TEST(SockStreamStart, close_ahead_of_accept_delivers_what_was_sent) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        steps.push_back(result(e.client.send(std::string("last words"))));
        e.client.close();
        Sock server = e.listener.accept();
        steps.push_back(take(server, 100));
        steps.push_back(take(server, 1));
    });
}

TEST(SockStreamStart, close_ahead_of_accept_without_a_word_is_an_end_of_file) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        e.client.close();
        Sock server = e.listener.accept();
        steps.push_back(take(server, 100));
    });
}

TEST(SockStreamStart, shutdown_ahead_of_accept) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        steps.push_back(result(e.client.send(std::string("request"))));
        steps.push_back(result(e.client.shutdown(SHUT_WR)));
        steps.push_back(result(e.client.send(std::string("x"), MSG_NOSIGNAL)));
        Sock server = e.listener.accept();
        steps.push_back(take(server, 100));
        steps.push_back(result(server.send(std::string("response"))));
        server.close();
        steps.push_back(take(e.client, 100));
    });
}

TEST(SockStreamStart, exit_ahead_of_accept_delivers_what_was_sent) {
    for (const Kind kind : {Kind::each_as_it_comes, Kind::require}) {
        Ends e(kind);
        const std::string text = text_of(100'000);
        const pid_t child = fork();
        if (child == 0) {
            auto* const client = new Sock(Sock::fresh());
            client->set(DDPMODE, DDPMODE_STREAM);
            if (client->connect(e.listener.port()) != 0) _exit(1);
            if (client->send(text) != static_cast<ssize_t>(text.size())) _exit(2);
            std::exit(0);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        Sock server = e.listener.accept();
        EXPECT_TRUE(take(server, text.size()) == text);
        EXPECT_EQ(take(server, 1), "");
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
}

TEST(SockStreamStart, connect_to_an_unused_port_fails_as_tcp_does) {
    for (const bool stream : {false, true}) {
        const int port = unused_port();
        Sock client = stream ? stream_client() : Sock::fresh();
        EXPECT_EQ(client.connect(port), -1);
        EXPECT_EQ(errno, ECONNREFUSED);
    }
}

// One segment less: the Request is one, the extension frame and what waited for it another. (TCP
// may repeat one, on a busy machine.)
TEST(SockStreamStart, what_is_written_first_goes_with_the_end_of_start_up) {
    std::vector<std::uint32_t> segments;
    while (segments.size() < 10 && (segments.empty() || segments.back() != 2)) {
        Ends e(Kind::each_as_it_comes);
        EXPECT_EQ(e.client.connect(e.listener.port()), 0);
        EXPECT_EQ(e.client.send(std::string("hello")), 5);
        Sock server = e.listener.accept();
        EXPECT_EQ(take(server, 5), "hello");
        tcp_info info{};
        socklen_t size = sizeof info;
        ASSERT_EQ(::getsockopt(server.fd(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
        segments.push_back(info.tcpi_data_segs_in);
    }
    EXPECT_EQ(segments.back(), 2u);
}

// ---- servers that speak first ------------------------------------------------------------

TEST(SockStreamStart, a_server_speaks_first) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        Sock server = e.listener.accept();
        steps.push_back(result(server.send(std::string("220 ready"))));
        steps.push_back(take(e.client, 9));
        if (!server.plain()) {
            EXPECT_EQ(server.status().state, XSOCK_STATUS_OPEN);
        }
    });
}

TEST(SockStreamStart, a_server_that_does_not_block_speaks_first) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        Sock server = e.listener.accept(SOCK_NONBLOCK);
        steps.push_back(is_ready(server, POLLOUT) ? "writable" : "not writable");
        steps.push_back(result(server.send(std::string("220 "))));
        steps.push_back(result(server.send(std::string("ready"))));
        steps.push_back(take(e.client, 9));
        steps.push_back(result(server.send(std::string("!"), MSG_OOB | MSG_NOSIGNAL)));
        EXPECT_TRUE(soon([&] { return take(e.client, 1, MSG_OOB) == "!"; }));
        if (!server.plain()) {
            EXPECT_EQ(server.status().state, XSOCK_STATUS_OPEN);
        }
    });
}

TEST(SockStreamStart, what_a_server_says_before_a_client_asks_waits_for_it) {
    Ends e(Kind::each_as_it_comes);
    RawPeer client(RawPeer::Connected{marked_client(e.listener.port())});
    Sock server = e.listener.accept(SOCK_NONBLOCK);
    const std::string all = text_of(5000);
    const ssize_t first = server.send(all);
    EXPECT_EQ(first, 2048) << "so much is kept";
    EXPECT_EQ(result(server.send(all)), "!EAGAIN");
    EXPECT_FALSE(is_ready(server, POLLOUT));
    EXPECT_TRUE(client.say("HELO me\r\n and more than a key\r\n"));
    EXPECT_TRUE(is_ready(server, POLLOUT, 5000));
    EXPECT_EQ(server.send(all.substr(2048)), 5000 - 2048);
    EXPECT_TRUE(server.plain());
    EXPECT_EQ(client.hear(5000), all);
}

// A poll says that it is writable, so sendfile() must take some of it.
TEST(SockStreamStart, what_a_server_says_first_may_come_from_a_file) {
    Ends e(Kind::each_as_it_comes);
    RawPeer client(RawPeer::Connected{marked_client(e.listener.port())});
    Sock server = e.listener.accept(SOCK_NONBLOCK);
    EXPECT_TRUE(is_ready(server, POLLOUT));
    EXPECT_EQ(engine().socket_no_stream(server.handle(), server.fd(), XSOCK_WRITING_PARTS),
              XSOCK_MOVE);
    EXPECT_EQ(server.send(text_of(100)), 100);
    EXPECT_EQ(engine().socket_no_stream(server.handle(), server.fd(), 1), -1) << "splice()";
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_TRUE(client.say("HELO me\r\n and more than a key\r\n"));
    EXPECT_TRUE(soon([&] {
        return engine().socket_no_stream(server.handle(), server.fd(), XSOCK_WRITING_PARTS) ==
               XSOCK_PLAIN;
    }));
    EXPECT_EQ(client.hear(100), text_of(100));
}

TEST(SockStreamStart, a_server_that_has_nothing_to_say_shuts_down) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        Sock server = e.listener.accept();
        steps.push_back(result(server.shutdown(SHUT_WR)));
        steps.push_back(take(e.client, 1));
    });
}

TEST(SockStreamStart, a_marked_client_that_speaks_something_else_is_plain_at_once) {
    Ends e(Kind::each_as_it_comes);
    RawPeer client(RawPeer::Connected{marked_client(e.listener.port())});
    EXPECT_TRUE(client.say("HELO me\r\n and more than a key\r\n"));
    Sock server = e.listener.accept();
    EXPECT_EQ(server.send(std::string("220 ready")), 9);
    EXPECT_TRUE(server.plain());
    EXPECT_EQ(client.hear(9), "220 ready");
}

TEST(SockStreamStart, a_marked_client_that_is_silent_becomes_plain_in_time) {
    for (const bool blocking : {true, false}) {
        Ends e(Kind::each_as_it_comes);
        ASSERT_EQ(e.listener.set(DDPSTARTUP, 1000), 0);
        RawPeer client(RawPeer::Connected{marked_client(e.listener.port())});
        Sock server = e.listener.accept(blocking ? 0 : SOCK_NONBLOCK);
        EXPECT_EQ(server.send(std::string("220 ")), 4);
        EXPECT_FALSE(server.plain()) << "it does not wait";
        const auto begin = std::chrono::steady_clock::now();
        EXPECT_TRUE(soon([&] { return server.send(std::string()) == 0 && server.plain(); }));
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
        EXPECT_EQ(server.send(std::string("ready")), 5);
        EXPECT_TRUE(server.plain());
        EXPECT_EQ(client.hear(9), "220 ready");
    }
}

TEST(SockStreamStart, more_than_is_kept_waits_on_a_socket_that_blocks) {
    Ends e(Kind::each_as_it_comes);
    ASSERT_EQ(e.listener.set(DDPSTARTUP, 1000), 0);
    RawPeer client(RawPeer::Connected{marked_client(e.listener.port())});
    Sock server = e.listener.accept();
    const std::string all = text_of(5000);
    EXPECT_EQ(server.send(all.substr(0, 2000)), 2000);
    EXPECT_EQ(server.send(all.substr(2000)), 3000);
    EXPECT_TRUE(server.plain());
    EXPECT_EQ(client.hear(5000), all);
}

int option_of(Sock& s, int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    EXPECT_EQ(s.get(level, name, &value, &size), 0) << strerror(errno);
    return value;
}

void set_option(Sock& s, int level, int name, int value) {
    EXPECT_EQ(s.set(level, name, &value, sizeof value), 0) << strerror(errno);
}

TEST(SockStreamStart, the_mark_leaves_what_the_program_has_set) {
    Ends e(Kind::each_as_it_comes);
    set_option(e.client, IPPROTO_IP, IP_TOS, 0x10);
    set_option(e.client, SOL_SOCKET, SO_PRIORITY, 5);
    EXPECT_EQ(e.client.connect(e.listener.port()), 0);
    EXPECT_EQ(option_of(e.client, IPPROTO_IP, IP_TOS), 0x10);
    EXPECT_EQ(option_of(e.client, SOL_SOCKET, SO_PRIORITY), 5);
}

// As long as TCP connects: a full listen queue does not answer.
TEST(SockStreamStart, the_mark_is_not_to_be_seen_while_tcp_connects) {
    Sock listener = Sock::fresh(), first = Sock::fresh(), second = Sock::fresh();
    EXPECT_EQ(listener.bind_and_listen(0), 0);
    EXPECT_EQ(first.connect(listener.port()), 0);
    ASSERT_EQ(second.set(DDPMODE, DDPMODE_STREAM), 0);
    set_option(second, IPPROTO_IP, IP_TOS, 0x10);
    second.nonblocking();
    EXPECT_EQ(result(second.connect(listener.port())), "!EINPROGRESS");
    EXPECT_EQ(second.status().state, XSOCK_STATUS_CONNECTING);
    EXPECT_EQ(option_of(second, IPPROTO_IP, IP_TOS), 0x10);
    int kernels = -1;
    socklen_t size = sizeof kernels;
    EXPECT_EQ(::getsockopt(second.fd(), IPPROTO_IP, IP_TOS, &kernels, &size), 0);
    EXPECT_EQ(kernels, sockets::kSynMark);
    set_option(second, IPPROTO_IP, IP_TOS, 0x08);
    EXPECT_EQ(option_of(second, IPPROTO_IP, IP_TOS), 0x08);
    Sock taken = listener.accept();  // the next SYN, a second later, finds room
    EXPECT_TRUE(is_ready(second, POLLOUT, 10'000));
    EXPECT_EQ(option_of(second, IPPROTO_IP, IP_TOS), 0x08);
}

TEST(SockStreamStart, a_program_reads_the_syns_that_it_had_saved) {
    Ends e(Kind::tcp);
    set_option(e.listener, IPPROTO_TCP, TCP_SAVE_SYN, 1);
    ASSERT_EQ(e.listener.set(DDPMODE, DDPMODE_STREAM), 0);
    ASSERT_EQ(e.client.set(DDPMODE, DDPMODE_STREAM), 0);
    EXPECT_EQ(e.client.connect(e.listener.port()), 0);
    Sock server = e.listener.accept();
    std::byte syn[256];
    socklen_t size = sizeof syn;
    EXPECT_EQ(server.get(IPPROTO_TCP, TCP_SAVED_SYN, syn, &size), 0);
    EXPECT_TRUE(sockets::is_marked_syn({syn, size}));
}

TEST(SockStreamStart, a_listener_sees_the_mark_over_either_family) {
    struct Row {
        int family;
        const char* address;
        int level, name;
    };
    for (const Row& row : {Row{AF_INET, "127.0.0.1", IPPROTO_IP, IP_TOS},
                           Row{AF_INET6, "::1", IPPROTO_IPV6, IPV6_TCLASS},
                           Row{AF_INET6, "::ffff:127.0.0.1", IPPROTO_IP, IP_TOS}}) {
        sockaddr_storage to{};
        const bool v6 = row.family == AF_INET6;
        const socklen_t size = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
        to.ss_family = static_cast<sa_family_t>(row.family);
        void* const at = v6 ? static_cast<void*>(&reinterpret_cast<sockaddr_in6&>(to).sin6_addr)
                            : static_cast<void*>(&reinterpret_cast<sockaddr_in&>(to).sin_addr);
        ASSERT_EQ(inet_pton(row.family, row.address, at), 1);
        auto* const address = reinterpret_cast<sockaddr*>(&to);
        Sock listener = Sock::fresh(row.family);
        ASSERT_EQ(::bind(listener.fd(), address, size), 0) << row.address;
        ASSERT_EQ(::listen(listener.fd(), 4), 0);
        EXPECT_TRUE(sockets::save_syns(listener.fd()));
        EXPECT_TRUE(sockets::save_syns(listener.fd())) << "as another process of ours";
        socklen_t length = size;
        ASSERT_EQ(getsockname(listener.fd(), address, &length), 0);
        for (const bool marked : {true, false}) {
            Sock client = Sock::fresh(row.family);
            set_option(client, row.level, row.name, 0x10);
            sockets::SynMark mark;
            if (marked) mark.set(client.fd(), address, size);
            EXPECT_EQ(mark.covers(row.level, row.name), marked);
            ASSERT_EQ(::connect(client.fd(), address, size), 0);
            mark.restore(client.fd());
            EXPECT_EQ(option_of(client, row.level, row.name), 0x10);
            Sock server(::accept(listener.fd(), nullptr, nullptr));
            EXPECT_EQ(sockets::had_marked_syn(server.fd()), marked) << row.address;
        }
    }
}

TEST(SockStreamStart, a_saved_syn_may_begin_with_a_header_of_the_link) {
    std::vector<std::byte> v4(60), v6(80);
    v4[0] = std::byte{0x4f};
    v4[3] = std::byte{60};
    v6[0] = std::byte{0x60};
    v6[5] = std::byte{40};
    for (const auto& syn : {v4, v6}) {
        for (const std::size_t link : {0, 14, 18}) {
            std::vector<std::byte> saved(link, std::byte{0x46});  // as a version
            saved.insert(saved.end(), syn.begin(), syn.end());
            const ConstBytes found = sockets::without_link_header(saved);
            EXPECT_EQ(found.size(), syn.size());
            EXPECT_EQ(found.data(), saved.data() + link);
            saved.pop_back();
            EXPECT_TRUE(sockets::without_link_header(saved).empty());
        }
    }
    EXPECT_TRUE(sockets::without_link_header({}).empty());
}

TEST(SockStreamStart, the_mark_of_a_syn) {
    std::vector<std::byte> v4(40), v6(60);
    v4[0] = std::byte{0x45};
    v6[0] = std::byte{0x60};
    EXPECT_FALSE(sockets::is_marked_syn(v4));
    EXPECT_FALSE(sockets::is_marked_syn(v6));
    for (int ecn = 0; ecn < 4; ++ecn) {
        v4[1] = static_cast<std::byte>(0x2c | ecn);
        EXPECT_TRUE(sockets::is_marked_syn(v4));
        v6[0] = std::byte{0x62};
        v6[1] = static_cast<std::byte>((0xc | ecn) << 4 | 0x5);  // and a flow label
        EXPECT_TRUE(sockets::is_marked_syn(v6));
    }
    v4[1] = std::byte{0x28};
    EXPECT_FALSE(sockets::is_marked_syn(v4));
    v6[0] = std::byte{0x63};
    EXPECT_FALSE(sockets::is_marked_syn(v6));
    EXPECT_FALSE(sockets::is_marked_syn({}));
    EXPECT_FALSE(sockets::is_marked_syn(ConstBytes(v4).first(19)));
    v4[0] = std::byte{0x75};
    EXPECT_FALSE(sockets::is_marked_syn(v4));
}

// ---- peers that cannot --------------------------------------------------------------------

TEST(SockStreamStart, connect_again_tells_why_the_first_one_failed) {
    for (const bool stream : {false, true}) {
        const int port = unused_port();
        Sock client = stream ? stream_client() : Sock::fresh();
        client.nonblocking();
        EXPECT_EQ(result(client.connect(port)), "!EINPROGRESS");
        std::string again;
        EXPECT_TRUE(soon([&] {
            again = result(client.connect(port));
            return again != "!EALREADY";
        }));
        EXPECT_EQ(again, "!ECONNREFUSED") << stream;
    }
}

TEST(SockStreamStart, connect_again_tells_once_that_the_first_one_succeeded) {
    for (const bool blocking : {false, true}) {
        same([blocking](Ends& e, Steps& steps) {
            const bool waits = e.listener.get(DDPREQUIRE) == 1;
            e.client.nonblocking();
            steps.push_back(result(e.client.connect(e.listener.port())));
            Sock server;
            if (!waits) server = e.listener.accept();
            EXPECT_TRUE(is_ready(e.client, POLLOUT, 10'000));
            e.client.nonblocking(!blocking);
            for (int i = 0; i < 3; ++i) {
                steps.push_back(result(e.client.connect(e.listener.port())));
            }
        });
    }
}

TEST(SockStreamStart, connect_again_behind_one_that_succeeded) {
    for (const bool blocking : {false, true}) {
        Ends e(Kind::each_as_it_comes);
        EXPECT_EQ(e.client.connect(e.listener.port()), 0);
        e.client.nonblocking(!blocking);
        EXPECT_EQ(result(e.client.connect(e.listener.port())), "!EISCONN") << "start-up is behind";
        EXPECT_EQ(e.client.send(std::string("x")), 1);
        Sock server = e.listener.accept();
        EXPECT_EQ(take(server, 1), "x");
        EXPECT_TRUE(soon([&] { return e.client.status().state == XSOCK_STATUS_OPEN; }));
        EXPECT_EQ(result(e.client.connect(e.listener.port())), "!EISCONN");
    }
}

TEST(SockStreamStart, a_shutdown_that_may_not_wait_is_done_behind_what_was_sent) {
    same([](Ends& e, Steps& steps) {
        steps.push_back(result(e.client.connect(e.listener.port())));
        Sock server = e.listener.accept(SOCK_NONBLOCK);
        steps.push_back(result(server.send(std::string("220 "))));
        steps.push_back(result(server.shutdown(SHUT_WR)));
        steps.push_back(result(server.send(std::string("ready"))));
        steps.push_back(is_ready(server, POLLOUT) ? "writable" : "not writable");
        steps.push_back(take(e.client, 100));
        steps.push_back(result(e.client.send(std::string("back"))));
        server.nonblocking(false);
        steps.push_back(take(server, 4));
    });
    Ends e(Kind::each_as_it_comes);
    ASSERT_EQ(e.listener.set(DDPSTARTUP, 300), 0);
    RawPeer client(RawPeer::Connected{marked_client(e.listener.port())});
    Sock server = e.listener.accept(SOCK_NONBLOCK);
    EXPECT_EQ(server.shutdown(SHUT_WR), 0);
    std::string rest;
    EXPECT_TRUE(client.hear_end(rest)) << "a silent peer becomes plain in time";
    EXPECT_EQ(rest, "");
}

// A peer that does not speak MPA, and one that leaves.
TEST(SockStreamStart, a_peer_that_cannot_is_a_reset_at_the_first_use) {
    for (const std::string said : {"220 ready\r\n and more than a key\r\n", ""}) {
        LoopbackListener listener;
        Sock client = Sock::fresh();
        ASSERT_EQ(client.set(DDPMODE, DDPMODE_STREAM), 0);
        EXPECT_EQ(client.connect(listener.port()), 0);
        EXPECT_EQ(client.send(std::string("lost")), 4);
        RawPeer raw(RawPeer::Connected{listener.accept()});
        if (!said.empty()) {
            EXPECT_TRUE(raw.say(said));
        } else {
            raw.finish();
        }
        EXPECT_EQ(take(client, 1), "!ECONNRESET") << said;
        EXPECT_EQ(result(client.send(std::string("x"), MSG_NOSIGNAL)), "!EPIPE");
    }
}

}  // namespace
}  // namespace xsock::test
