// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Listeners, and what standard peers may throw at them.
#include <fcntl.h>
#include <poll.h>

#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/pair.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/resource_limit.hpp"
#include "tests/unit/sanitizers.hpp"

namespace xsock::test {
namespace {

class ListenerTest : public OneQueue {
  protected:
    void open() {
        listener = xsock_listen("127.0.0.1", "0", 64, &attr);
        ASSERT_NE(listener, nullptr) << strerror(errno);
        port = xsock_listener_port(listener);
    }
    void TearDown() override {
        if (listener != nullptr) {
            EXPECT_EQ(xsock_listener_close(listener), 0);
        }
        OneQueue::TearDown();
    }
    xsock_ep* connect() {
        XSOCK_INIT(xsock_ep_attr, a);
        a.send_cq = cq;
        return xsock_connect("127.0.0.1", std::to_string(port).c_str(), &a, kLimitMs);
    }
    // A peer that has started up, and a receive for what it says; nullptr: it failed.
    xsock_ep* accept_with_receive(RawPeer& peer, void* into, std::uint32_t length) {
        EXPECT_TRUE(peer.start());
        xsock_ep* const ep = xsock_accept(listener, kLimitMs);
        return ep != nullptr && xsock_recv(ep, 1, into, length) == 0 ? ep : nullptr;
    }
    // A correct client is served, whatever else is going on.
    void expect_service() {
        xsock_ep* client = connect();
        ASSERT_NE(client, nullptr) << strerror(errno);
        xsock_ep* server = xsock_accept(listener, kLimitMs);
        ASSERT_NE(server, nullptr) << strerror(errno);
        char into[8] = {};
        ASSERT_EQ(xsock_recv(server, 1, into, sizeof into), 0);
        ASSERT_EQ(xsock_send(client, 2, "honest", 7, XSOCK_UNSIGNALED), 0);
        EXPECT_EQ(next(cq).status, XSOCK_WC_SUCCESS);
        EXPECT_STREQ(into, "honest");
        xsock_ep_abort(client);
        xsock_ep_abort(server);
        xsock_wc wc[8];
        while (xsock_cq_poll(cq, wc, 8) > 0) continue;
    }

    xsock_listener* listener = nullptr;
    int port = 0;
};

TEST_F(ListenerTest, accepts_and_says_when_there_is_nothing) {
    open();
    EXPECT_EQ(xsock_accept(listener, 0), nullptr);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(xsock_accept(listener, 20), nullptr);
    expect_service();
}

TEST_F(ListenerTest, descriptor_tells_of_connections) {
    open();
    const int fd = xsock_listener_fd(listener);
    ASSERT_GE(fd, 0);
    xsock_ep* client = connect();
    ASSERT_NE(client, nullptr);
    xsock_ep* server = nullptr;
    for (int i = 0; i < 100'000 && server == nullptr; ++i) {
        pollfd p{fd, POLLIN, 0};
        ASSERT_EQ(poll(&p, 1, kLimitMs), 1);
        server = xsock_accept(listener, 0);
    }
    ASSERT_NE(server, nullptr);
    xsock_ep_abort(client);
    xsock_ep_abort(server);
}

TEST_F(ListenerTest, serves_ipv6_and_mapped_ipv4_on_any_address) {
    listener = xsock_listen(nullptr, "0", 8, &attr);
    ASSERT_NE(listener, nullptr);
    port = xsock_listener_port(listener);
    expect_service();
    XSOCK_INIT(xsock_ep_attr, a);
    a.send_cq = cq;
    xsock_ep* client = xsock_connect("::1", std::to_string(port).c_str(), &a, kLimitMs);
    ASSERT_NE(client, nullptr) << strerror(errno);
    xsock_ep* server = xsock_accept(listener, kLimitMs);
    ASSERT_NE(server, nullptr);
    xsock_ep_abort(client);
    xsock_ep_abort(server);
}

TEST_F(ListenerTest, connect_has_the_errno_one_expects) {
    open();
    xsock_listener_close(listener);
    listener = nullptr;
    EXPECT_EQ(connect(), nullptr);
    EXPECT_EQ(errno, ECONNREFUSED);
    XSOCK_INIT(xsock_ep_attr, a);
    a.send_cq = cq;
    EXPECT_EQ(xsock_connect("no such host.invalid", "1", &a, 100), nullptr);
    EXPECT_EQ(errno, EADDRNOTAVAIL);
}

// A plain TCP server at the other end.
class PlainServer {
  public:
    PlainServer() {
        fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        EXPECT_EQ(::listen(fd_, 4), 0);
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
        port = ntohs(address.sin_port);
    }
    ~PlainServer() { ::close(fd_); }
    int accept() { return ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); }
    int port = 0;

  private:
    int fd_ = -1;
};

TEST_F(ListenerTest, a_server_that_is_not_mpa_is_eproto_and_a_silent_one_etimedout) {
    PlainServer plain;
    int fds[2];
    tcp_pair(fds[0], fds[1]);
    XSOCK_INIT(xsock_ep_attr, a);
    a.send_cq = cq;
    xsock_ep* ep = xsock_ep_create(fds[0], &a);
    const std::string http = "HTTP/1.1 400 Bad Request\r\n\r\n";
    ASSERT_EQ(::send(fds[1], http.data(), http.size(), 0), static_cast<ssize_t>(http.size()));
    EXPECT_EQ(xsock_ep_wait(ep, kLimitMs), -1);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_STRNE(query(ep).error_text, "");
    xsock_ep_close(ep);
    close(fds[1]);

    a.startup_timeout_ms = 50;
    EXPECT_EQ(xsock_connect("127.0.0.1", std::to_string(plain.port).c_str(), &a, kLimitMs),
              nullptr);
    EXPECT_EQ(errno, ETIMEDOUT);
}

TEST_F(ListenerTest, two_initiators_are_eproto) {
    Pair pair({.adjust = [](xsock_ep_attr&,
                            xsock_ep_attr& server) { server.role = XSOCK_ROLE_INITIATOR; },
               .wait = false});
    EXPECT_EQ(xsock_ep_wait(pair.client, kLimitMs), -1);
    EXPECT_EQ(errno, EPROTO);
    EXPECT_EQ(xsock_ep_wait(pair.server, kLimitMs), -1);
    EXPECT_EQ(errno, EPROTO);
}

TEST_F(ListenerTest, clients_without_mpa_are_closed_and_delay_no_other) {
    attr.startup_timeout_ms = 3000;
    open();
    RawPeer silent(port), http(port), tls(port), slow(port), half(port), gone(port);
    ASSERT_TRUE(http.say("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
    ASSERT_TRUE(tls.say(std::string("\x16\x03\x01\x02\x00\x01", 6)));
    ASSERT_TRUE(slow.say("MPA ID"));
    ASSERT_TRUE(half.say(RawPeer::request(MPA_FLAG_CRC, 1, "abc", 100)));
    gone.reset();
    const auto begin = std::chrono::steady_clock::now();
    expect_service();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
    std::string heard;
    for (RawPeer* peer : {&http, &tls, &silent, &slow, &half}) {
        EXPECT_TRUE(peer->hear_end(heard)) << "the client was not closed";
        EXPECT_EQ(heard, "");
    }
    expect_service();
}

TEST_F(ListenerTest, wrong_requests_are_closed) {
    open();
    for (const std::string& bad :
         {RawPeer::request(0, 3, ""), RawPeer::request(0, 255, ""),
          RawPeer::request(0, 1, std::string(513, 'x')), RawPeer::request(0, 1, "", 65535),
          RawPeer::request(0, 1, "") + RawPeer::send_message(1, "too early"),
          std::string("MPA ID Rep Frame\x40\x01\x00\x00", 20)}) {
        RawPeer peer(port);
        ASSERT_TRUE(peer.say(bad));
        std::string heard;
        EXPECT_TRUE(peer.hear_end(heard));
        EXPECT_EQ(heard, "");
    }
    // Enhanced, but without the bytes that say how: answered with a rejection.
    RawPeer peer(port);
    ASSERT_TRUE(peer.say(RawPeer::request(MPA_FLAG_ENHANCED, 2, "ab")));
    std::string heard;
    EXPECT_TRUE(peer.hear_end(heard));
    ASSERT_GE(heard.size(), 20u);
    EXPECT_NE(heard[16] & MPA_FLAG_REJECT, 0);
    expect_service();
}

TEST_F(ListenerTest, a_request_may_come_byte_by_byte) {
    open();
    RawPeer peer(port);
    const int on = 1;
    setsockopt(peer.fd(), IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
    for (const char byte : RawPeer::request(MPA_FLAG_CRC, 1, "hello")) {
        ASSERT_TRUE(peer.say(std::string(1, byte)));
    }
    EXPECT_EQ(peer.hear(20).substr(0, 16), MPA_KEY_REPLY);
    xsock_ep* ep = xsock_accept(listener, kLimitMs);
    ASSERT_NE(ep, nullptr);
    EXPECT_EQ(query(ep).private_data_length, 5u);
    EXPECT_EQ(query(ep).peer_is_xsock, 0u);
    xsock_ep_abort(ep);
}

// A peer-to-peer initiator (RFC 6581 §9) has to send its RTR message; until then it counts as
// starting, and its time is limited.
TEST_F(ListenerTest, silent_peer_to_peer_initiators_time_out_and_others_are_served) {
    with_environment("XSOCK_MAX_STARTING", "8", [this] {
        attr.startup_timeout_ms = 200;
        open();
        const std::string depths("\xc0\x01\xc0\x01", 4);
        std::vector<std::unique_ptr<RawPeer>> silent;
        for (int i = 0; i < 8; ++i) {
            silent.push_back(std::make_unique<RawPeer>(port));
            ASSERT_TRUE(
                silent.back()->say(RawPeer::request(MPA_FLAG_CRC | MPA_FLAG_ENHANCED, 2, depths)));
            ASSERT_EQ(silent.back()->hear(24).size(), 24u);
        }
        for (const auto& peer : silent) {
            std::string heard;
            EXPECT_TRUE(peer->hear_end(heard, 5000)) << "still waiting for its RTR message";
        }
        expect_service();
    });
}

// Refused without a word, so there is nothing whose arrival we would have to wait for.
TEST_F(ListenerTest, many_clients_without_mpa_keep_no_descriptors) {
    with_environment("XSOCK_MAX_STARTING", "8", [this] {
        open();
        const auto descriptors = [] {
            int n = 0;
            for (int fd = 0; fd < 1024; ++fd) n += fcntl(fd, F_GETFD) >= 0;
            return n;
        };
        const int before = descriptors();
        constexpr int kOtherClients = 100;
        std::vector<std::unique_ptr<RawPeer>> clients;
        for (int i = 0; i < kOtherClients; ++i) {
            clients.push_back(std::make_unique<RawPeer>(port));
            ASSERT_TRUE(clients.back()->say("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
        }
        for (const auto& client : clients) {
            std::string heard;
            EXPECT_TRUE(client->hear_end(heard));
        }
        // The descriptor goes a moment after the peer has learned of it.
        for (int i = 0; i < 1000 && descriptors() > before + kOtherClients; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_LE(descriptors(), before + kOtherClients);
        expect_service();
    });
}

TEST_F(ListenerTest, connections_not_accepted_count_against_the_limit) {
    with_environment("XSOCK_MAX_STARTING", "4", [this] {
        open();
        std::vector<std::unique_ptr<RawPeer>> peers;
        for (int i = 0; i < 4; ++i) {
            peers.push_back(std::make_unique<RawPeer>(port));
            ASSERT_TRUE(peers.back()->start());
        }
        RawPeer fifth(port);
        ASSERT_TRUE(fifth.say(RawPeer::request(MPA_FLAG_CRC, 1, "")));
        EXPECT_EQ(fifth.hear(20, 100), "");
        xsock_ep* ep = xsock_accept(listener, kLimitMs);
        ASSERT_NE(ep, nullptr);
        EXPECT_EQ(fifth.hear(20).size(), 20u);
        xsock_ep_abort(ep);
    });
}

// Of one address, so that only their age counts.
TEST_F(ListenerTest, the_oldest_silent_ones_make_room) {
    attr.max_starting = 4;
    open();
    std::vector<std::unique_ptr<RawPeer>> silent;
    for (int i = 0; i < 6; ++i) silent.push_back(std::make_unique<RawPeer>(port));
    std::string heard;
    EXPECT_TRUE(silent[0]->hear_end(heard));
    EXPECT_TRUE(silent[1]->hear_end(heard));
    expect_service();
    EXPECT_TRUE(silent[2]->hear_end(heard));
    ASSERT_TRUE(silent[5]->say(RawPeer::request(MPA_FLAG_CRC, 1, "")));
    EXPECT_EQ(silent[5]->hear(20).size(), 20u);
}

// More at once than may be starting, and all of them healthy: they speak 30 ms after they have
// connected. On a machine that is too slow for it, which the clock says, another round counts.
TEST_F(ListenerTest, a_burst_of_healthy_ones_waits_for_places) {
    using Clock = std::chrono::steady_clock;
    constexpr auto kInTime = std::chrono::milliseconds(150);
    constexpr std::size_t kPlaces = 16, kBurst = 40;
    attr.max_starting = kPlaces;
    for (int round = 0; round < 20; ++round) {
        open();
        std::vector<std::unique_ptr<RawPeer>> peers;
        const auto begun = Clock::now();
        for (std::size_t i = 0; i < kBurst; ++i) peers.push_back(std::make_unique<RawPeer>(port));
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        for (const auto& peer : peers) (void)peer->say(RawPeer::request(MPA_FLAG_CRC, 1, ""));
        const bool in_time = Clock::now() - begun < kInTime;
        std::size_t accepted = 0;
        while (xsock_ep* const ep = xsock_accept(listener, accepted < kBurst ? 1000 : 0)) {
            ++accepted;
            xsock_ep_abort(ep);
        }
        xsock_listener_close(listener);
        listener = nullptr;
        if (!in_time && accepted < kBurst) continue;
        EXPECT_EQ(accepted, kBurst);
        return;
    }
    GTEST_SKIP() << "no round was in time";
}

TEST_F(ListenerTest, started_ones_are_never_closed_for_others) {
    attr.max_starting = 2;
    open();
    RawPeer started(port);
    ASSERT_TRUE(started.start());
    std::vector<std::unique_ptr<RawPeer>> silent;
    std::string heard;
    for (int i = 0; i < 8; ++i) silent.push_back(std::make_unique<RawPeer>(port));
    EXPECT_TRUE(silent[5]->hear_end(heard));
    xsock_ep* ep = xsock_accept(listener, kLimitMs);
    ASSERT_NE(ep, nullptr);
    EXPECT_EQ(query(ep).state, unsigned{XSOCK_EP_ESTABLISHED});
    xsock_ep_abort(ep);
}

// The last descriptor is a silent one's, before as many are under way as may be.
TEST_F(ListenerTest, silent_ones_make_room_when_descriptors_run_out) {
#ifdef XSOCK_TEST_ASAN
    GTEST_SKIP() << "the sanitizer's own checks need a pipe";
#endif
    open();
    std::vector<std::unique_ptr<RawPeer>> silent;
    for (int i = 0; i < 8; ++i) silent.push_back(std::make_unique<RawPeer>(port));
    RawPeer honest(RawPeer::Connected{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)});
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // all of them are accepted
    const int lowest_free = dup(honest.fd());
    ::close(lowest_free);
    std::optional<ResourceLimit> none(std::in_place, RLIMIT_NOFILE,
                                      static_cast<rlim_t>(lowest_free));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(::connect(honest.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_TRUE(honest.say(RawPeer::request(MPA_FLAG_CRC, 1, "")));
    EXPECT_EQ(honest.hear(20, 5000).size(), 20u);
    none.reset();
    std::string heard;
    EXPECT_TRUE(silent[0]->hear_end(heard));
}

TEST_F(ListenerTest, connected_comes_before_what_lies_behind_the_reply) {
    int fds[2];
    tcp_pair(fds[0], fds[1]);
    RawPeer peer(RawPeer::Connected{fds[1]});
    XSOCK_INIT(xsock_ep_attr, a);
    a.send_cq = cq;
    a.flags = XSOCK_EP_EVENTS;
    a.mpa_revision = 1;
    xsock_ep* ep = xsock_ep_create(fds[0], &a);
    ASSERT_NE(ep, nullptr);
    char into[16] = {};
    ASSERT_EQ(xsock_recv(ep, 7, into, sizeof into), 0);
    ASSERT_TRUE(peer.answer(RawPeer::send_message(1, "hello")));
    EXPECT_EQ(next(cq).op, XSOCK_OP_CONNECTED);
    const xsock_wc received = next(cq);
    EXPECT_EQ(received.op, XSOCK_OP_RECV);
    EXPECT_EQ(received.wr_id, 7u);
    EXPECT_STREQ(into, "hello");
    xsock_ep_abort(ep);
}

struct Attack {
    const char* name;
    std::string bytes;
    int terminate;  // 0xLTCC; -1: closed without one
};

class Attacks : public ListenerTest {};

TEST_F(Attacks, each_gets_its_terminate_and_no_other_is_disturbed) {
    open();
    char memory[64] = {};
    xsock_mr* readable =
        xsock_mr_register(nullptr, memory, sizeof memory, XSOCK_REMOTE_READ, nullptr);
    xsock_mr* writable =
        xsock_mr_register(nullptr, memory, sizeof memory, XSOCK_REMOTE_WRITE, nullptr);
    xsock_pd* pd = xsock_pd_create();
    xsock_mr* foreign = xsock_mr_register(pd, memory, sizeof memory, XSOCK_REMOTE_WRITE, nullptr);
    xsock_mr* stale =
        xsock_mr_register(nullptr, memory, sizeof memory, XSOCK_REMOTE_WRITE, nullptr);
    const uint32_t stale_stag = xsock_mr_stag(stale);
    ASSERT_EQ(xsock_mr_deregister(stale), 0);
    const uint32_t w = xsock_mr_stag(writable), r = xsock_mr_stag(readable);
    const uint64_t base = reinterpret_cast<uintptr_t>(memory);

    std::string bad_crc = RawPeer::send_message(1, "x");
    bad_crc.back() = static_cast<char>(bad_crc.back() ^ 1);
    std::string many_reads;
    for (uint32_t msn = 1; msn <= 400; ++msn) many_reads += RawPeer::read_request(msn, 64, r, base);

    const std::vector<Attack> attacks = {
        {"wrong CRC", bad_crc, 0x2002},
        {"ULPDU of 0 bytes", RawPeer::fpdu(""), 0x2003},
        {"ULPDU of 1 byte", RawPeer::fpdu("\xc1"), 0x2003},
        {"ULPDU of 13 bytes", RawPeer::fpdu("\xc1\x40" + std::string(11, 'x')), 0x2003},
        {"ULPDU of 17 bytes", RawPeer::fpdu("\x41\x43" + std::string(15, '\0')), 0x2003},
        {"DDP version 0", RawPeer::fpdu(RawPeer::untagged(0x40, 0x43, 0, 1, 0, "x")), 0x1206},
        {"DDP version 2, tagged", RawPeer::fpdu(RawPeer::tagged(0xc2, 0x40, w, base, "x")), 0x1104},
        {"RDMAP version 0", RawPeer::fpdu(RawPeer::untagged(0x41, 0x03, 0, 1, 0, "x")), 0x0205},
        {"unknown opcode", RawPeer::fpdu(RawPeer::untagged(0x41, 0x4f, 0, 1, 0, "x")), 0x0206},
        {"queue number 9", RawPeer::fpdu(RawPeer::untagged(0x41, 0x43, 9, 1, 0, "x")), 0x1201},
        {"MSN skipped", RawPeer::send_message(7, "x"), 0x1203},
        {"MO not from 0", RawPeer::fpdu(RawPeer::untagged(0x41, 0x43, 0, 1, 5, "x")), 0x1204},
        {"STag 0", RawPeer::fpdu(RawPeer::tagged(0xc1, 0x40, 0, base, "x")), 0x1100},
        {"stale STag", RawPeer::fpdu(RawPeer::tagged(0xc1, 0x40, stale_stag, base, "x")), 0x1100},
        {"STag of another domain",
         RawPeer::fpdu(RawPeer::tagged(0xc1, 0x40, xsock_mr_stag(foreign), base, "x")), 0x1102},
        {"no right to write", RawPeer::fpdu(RawPeer::tagged(0xc1, 0x40, r, base, "x")), 0x0102},
        {"past the end", RawPeer::fpdu(RawPeer::tagged(0xc1, 0x40, w, base + 63, "xy")), 0x1101},
        {"before the start", RawPeer::fpdu(RawPeer::tagged(0xc1, 0x40, w, base - 1, "x")), 0x1101},
        {"TO wraps", RawPeer::fpdu(RawPeer::tagged(0xc1, 0x40, w, UINT64_MAX, "xy")), 0x1103},
        {"unrequested Read Response", RawPeer::fpdu(RawPeer::tagged(0xc1, 0x42, w, base, "x")),
         0x0206},
        {"read: STag 0", RawPeer::read_request(1, 8, 0, base), 0x0100},
        {"read: no right", RawPeer::read_request(1, 8, w, base), 0x0102},
        {"read: past the end", RawPeer::read_request(1, 65, r, base), 0x0101},
        {"read: 2^32-1 bytes", RawPeer::read_request(1, UINT32_MAX, r, base), 0x0101},
        {"read: TO wraps", RawPeer::read_request(1, 8, r, UINT64_MAX - 3), 0x0104},
        {"invalidates what is shared",
         RawPeer::fpdu(RawPeer::untagged(0x41, 0x44, 0, 1, 0, "x", w)), 0x0109},
        {"more Reads than IRD", many_reads, 0x1202},
    };
    Pair bystander;
    for (const Attack& attack : attacks) {
        SCOPED_TRACE(attack.name);
        RawPeer peer(port);
        char into[32];
        xsock_ep* ep = accept_with_receive(peer, into, sizeof into);
        ASSERT_NE(ep, nullptr);
        ASSERT_TRUE(peer.say(attack.bytes));
        xsock_wc wc{};
        ASSERT_EQ(xsock_cq_wait(cq, &wc, 1, 1, kLimitMs), 1);
        EXPECT_NE(wc.status, XSOCK_WC_SUCCESS);
        const xsock_ep_info info = query(ep);
        EXPECT_EQ(info.state, XSOCK_EP_ERROR);
        EXPECT_STRNE(info.error_text, "");
        xsock_ep_close(ep);
        peer.finish();
        std::string heard;
        EXPECT_TRUE(peer.hear_end(heard)) << "the attacker was not closed";
        EXPECT_EQ(RawPeer::terminate_in(heard), attack.terminate)
            << std::hex << RawPeer::terminate_in(heard) << " " << info.error_text;
        for (const char byte : memory) ASSERT_EQ(byte, 0);
        ASSERT_EQ(xsock_recv(bystander.server, 1, into, sizeof into), 0);
        ASSERT_EQ(xsock_send(bystander.client, 1, "x", 1, XSOCK_UNSIGNALED), 0);
        EXPECT_EQ(next(bystander.server_cq).status, XSOCK_WC_SUCCESS);
    }
    expect_service();
    for (xsock_mr* mr : {readable, writable, foreign}) EXPECT_EQ(xsock_mr_deregister(mr), 0);
    EXPECT_EQ(xsock_pd_destroy(pd), 0);
}

TEST_F(Attacks, reset_finish_and_terminate_in_every_state) {
    open();
    const std::string terminate =
        RawPeer::fpdu(RawPeer::untagged(0x41, 0x47, 2, 1, 0, std::string("\x20\x02\x00\x00", 4)));
    for (int state = 0; state < 4; ++state) {
        for (int how = 0; how < 3; ++how) {
            SCOPED_TRACE(state * 10 + how);
            RawPeer peer(port);
            const std::string message = RawPeer::send_message(1, "a message");
            xsock_ep* ep = nullptr;
            char into[32];
            if (state == 1) {
                ASSERT_TRUE(peer.say(RawPeer::request(0, 1, "").substr(0, 11)));
            }
            if (state >= 2) {
                ep = accept_with_receive(peer, into, sizeof into);
                ASSERT_NE(ep, nullptr);
            }
            if (state == 3) {
                ASSERT_TRUE(peer.say(message.substr(0, message.size() - 6)));
            }
            if (how == 0) peer.reset();
            if (how == 1) peer.finish();
            if (how == 2) {
                ASSERT_TRUE(peer.say(terminate));
            }
            if (ep != nullptr) {
                xsock_wc wc{};
                EXPECT_EQ(xsock_cq_wait(cq, &wc, 1, 1, kLimitMs), 1);
                EXPECT_NE(wc.status, XSOCK_WC_SUCCESS);
                EXPECT_EQ(xsock_cq_wait(cq, &wc, 1, 1, 5), 0);
                xsock_ep_abort(ep);
            } else if (how != 0) {
                std::string heard;
                EXPECT_TRUE(peer.hear_end(heard));
            }
        }
    }
    expect_service();
}

TEST_F(Attacks, random_bytes_after_start_up) {
    open();
    std::mt19937 random(20261121);
    for (int round = 0; round < 200; ++round) {
        SCOPED_TRACE(round);
        RawPeer peer(port);
        char into[64];
        xsock_ep* ep = accept_with_receive(peer, into, sizeof into);
        ASSERT_NE(ep, nullptr);
        std::string noise(1 + random() % 3000, '\0');
        for (char& byte : noise) byte = static_cast<char>(random());
        if (round % 2 == 0) noise = RawPeer::fpdu(noise);  // gets past the CRC
        peer.say(noise);
        peer.finish();
        xsock_wc wc{};
        ASSERT_EQ(xsock_cq_wait(cq, &wc, 1, 1, kLimitMs), 1);
        xsock_ep_abort(ep);
        while (xsock_cq_poll(cq, &wc, 1) > 0) continue;
    }
    expect_service();
}

}  // namespace
}  // namespace xsock::test
