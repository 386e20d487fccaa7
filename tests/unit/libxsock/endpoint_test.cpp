// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Endpoints through the C interface: every operation, both directions, and every way to end.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "include/xsock/iwarp.h"
#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/pair.hpp"

namespace xsock::test {
namespace {

class Sizes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Sizes, send_arrives_whole) {
    Pair pair;
    const auto data = pattern(GetParam());
    std::vector<unsigned char> into(GetParam() + 16, 0xee);
    ASSERT_EQ(xsock_recv(pair.server, 7, into.data(), static_cast<uint32_t>(into.size())), 0);
    ASSERT_EQ(xsock_send(pair.client, 8, data.data(), static_cast<uint32_t>(data.size()), 0), 0);
    const xsock_wc received = next(pair.server_cq);
    EXPECT_EQ(received.op, XSOCK_OP_RECV);
    EXPECT_EQ(received.status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(received.wr_id, 7u);
    EXPECT_EQ(received.length, data.size());
    EXPECT_TRUE(std::equal(data.begin(), data.end(), into.begin()));
    EXPECT_EQ(into[data.size()], 0xee) << "a byte behind the message was touched";
    const xsock_wc sent = next(pair.client_cq);
    EXPECT_EQ(sent.op, XSOCK_OP_SEND);
    EXPECT_EQ(sent.wr_id, 8u);
    EXPECT_EQ(sent.status, XSOCK_WC_SUCCESS);
}

TEST_P(Sizes, write_and_read_move_the_same_bytes) {
    Pair pair;
    const std::size_t n = GetParam();
    std::vector<unsigned char> memory(n + 32, 0xaa), back(n + 1);
    xsock_mr* mr = xsock_mr_register(nullptr, memory.data() + 16, n,
                                     XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE, nullptr);
    ASSERT_NE(mr, nullptr);
    xsock_key key;
    ASSERT_EQ(xsock_mr_key(mr, 0, n, &key), 0);
    xsock_remote remote;
    xsock_key_read(&key, &remote);
    const auto data = pattern(n, 5);
    ASSERT_EQ(xsock_write(pair.client, 1, data.data(), static_cast<uint32_t>(n), &remote, 0, 0), 0);
    ASSERT_EQ(xsock_read(pair.client, 2, back.data(), static_cast<uint32_t>(n), &remote, 0, 0), 0);
    EXPECT_EQ(next(pair.client_cq).op, XSOCK_OP_WRITE);
    const xsock_wc read = next(pair.client_cq);
    EXPECT_EQ(read.op, XSOCK_OP_READ);
    EXPECT_EQ(read.status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(read.length, n);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), back.begin()));
    EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.begin() + 16));
    EXPECT_EQ(memory[15], 0xaa);
    EXPECT_EQ(memory[n + 16], 0xaa);
    EXPECT_EQ(xsock_mr_deregister(mr), 0);
}

INSTANTIATE_TEST_SUITE_P(ByteVector, Sizes,
                         ::testing::Values(0, 1, 3, 4, 64, 1427, 1428, 1429, 4096, 65468, 65469,
                                           65536, 1'000'003, 16u << 20));

TEST(Endpoint, negotiates_and_says_so) {
    Pair pair({.adjust = [](xsock_ep_attr& client, xsock_ep_attr& server) {
        client.ird = 3;
        client.ord = 5;
        server.ird = 4;
        server.ord = 16;
        client.private_data = "from client";
        client.private_data_length = 11;
        server.private_data = "from server!";
        server.private_data_length = 12;
    }});
    const xsock_ep_info c = query(pair.client), s = query(pair.server);
    EXPECT_EQ(c.state, XSOCK_EP_ESTABLISHED);
    EXPECT_EQ(c.crc, 1u);
    EXPECT_EQ(c.peer_is_xsock, 1u);
    EXPECT_EQ(c.initiator, 1u);
    EXPECT_EQ(s.initiator, 0u);
    EXPECT_EQ(c.mpa_revision, 2u);
    EXPECT_EQ(c.ord, 4u);
    EXPECT_EQ(s.ord, 3u);
    EXPECT_EQ(std::string(c.private_data, c.private_data + c.private_data_length), "from server!");
    EXPECT_EQ(std::string(s.private_data, s.private_data + s.private_data_length), "from client");
    EXPECT_STREQ(c.error_text, "");
}

TEST(Endpoint, knows_the_name_and_version_of_an_xsock) {
    const std::string version = xsock_version();
    for (const unsigned flags : {0u, XSOCK_EP_NO_EXTENSIONS}) {
        for (const bool client_too : {true, false}) {
            Pair pair({.adjust = [&](xsock_ep_attr& client, xsock_ep_attr& server) {
                if (client_too) client.flags |= flags;
                server.flags |= flags;
            }});
            for (xsock_ep* ep : {pair.client, pair.server}) {
                const xsock_ep_info info = query(ep);
                EXPECT_EQ(info.peer_is_xsock, 1u);
                EXPECT_STREQ(info.peer.name, flags == 0 ? "xsock" : "");
                EXPECT_EQ(info.peer.version,
                          flags == 0 ? version.substr(0, version.find(' ')) : "");
                const bool told = (info.peer.features & MPA_FEATURE_DELAYED_ACK) != 0;
                EXPECT_EQ((info.peer.features & MPA_FEATURE_ACKNOWLEDGE) != 0, flags == 0);
                EXPECT_EQ(info.peer.delayed_ack_ms != 0, told);
            }
        }
    }
}

TEST(Endpoint, works_with_markers_revision_1_and_without_crc) {
    for (const unsigned revision : {1u, 2u}) {
        for (const bool crc : {true, false}) {
            Pair pair({.adjust = [&](xsock_ep_attr& client, xsock_ep_attr& server) {
                client.mpa_revision = revision;
                client.flags = XSOCK_EP_MARKERS | (crc ? 0 : XSOCK_EP_NO_CRC);
                server.flags = XSOCK_EP_MARKERS | (crc ? 0 : XSOCK_EP_NO_CRC);
            }});
            const xsock_ep_info info = query(pair.client);
            EXPECT_EQ(info.mpa_revision, revision);
            EXPECT_EQ(info.crc, crc ? 1u : 0u);
            EXPECT_EQ(info.markers_tx, 1u);
            EXPECT_EQ(info.markers_rx, 1u);
            const auto data = pattern(300'000, revision);
            std::vector<unsigned char> into(data.size());
            xsock_recv(pair.server, 0, into.data(), static_cast<uint32_t>(into.size()));
            xsock_send(pair.client, 0, data.data(), static_cast<uint32_t>(data.size()), 0);
            EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_SUCCESS);
            EXPECT_EQ(data, into);
        }
    }
}

TEST(Endpoint, gathers_scatters_and_keeps_order) {
    Pair pair;
    auto a = pattern(1000, 1), b = pattern(70'000, 2), c = pattern(5, 3);
    std::vector<unsigned char> x(10), y(71'000);
    const xsock_sge from[] = {{a.data(), 1000, 0}, {b.data(), 70'000, 0}, {c.data(), 5, 0}};
    const xsock_sge to[] = {{x.data(), 10, 0}, {y.data(), 71'000, 0}};
    ASSERT_EQ(xsock_post_recv(pair.server, 1, to, 2), 0);
    XSOCK_INIT(xsock_wr, wr);
    wr.op = XSOCK_OP_SEND;
    wr.sge = from;
    wr.sge_count = 3;
    wr.flags = XSOCK_SOLICITED;
    ASSERT_EQ(xsock_post(pair.client, &wr), 0);
    const xsock_wc wc = next(pair.server_cq);
    EXPECT_EQ(wc.length, 71'005u);
    EXPECT_EQ(wc.flags, XSOCK_WC_SOLICITED);
    std::vector<unsigned char> sent(a);
    sent.insert(sent.end(), b.begin(), b.end());
    sent.insert(sent.end(), c.begin(), c.end());
    x.insert(x.end(), y.begin(), y.begin() + 70'995);
    EXPECT_EQ(sent, x);
}

TEST(Endpoint, many_messages_both_ways_at_depth) {
    Pair pair;
    constexpr unsigned kMessages = 20'000, kDepth = 100;
    struct Side {
        xsock_ep* ep;
        xsock_cq* cq;
        unsigned posted = 0, sent = 0, received = 0;
        std::vector<uint32_t> in = std::vector<uint32_t>(kDepth);
        std::vector<uint32_t> out = std::vector<uint32_t>(kDepth);
    } sides[2] = {{pair.client, pair.client_cq}, {pair.server, pair.server_cq}};
    for (Side& s : sides) {
        for (unsigned i = 0; i < kDepth; ++i) ASSERT_EQ(xsock_recv(s.ep, i, &s.in[i], 4), 0);
    }
    while (sides[0].received < kMessages || sides[1].received < kMessages) {
        for (Side& s : sides) {
            while (s.posted < kMessages && s.posted - s.sent < kDepth) {
                uint32_t& value = s.out[s.posted % kDepth];
                value = s.posted;
                if (xsock_send(s.ep, s.posted, &value, 4, 0) != 0) break;
                ++s.posted;
            }
            xsock_wc wc[32];
            const int n = xsock_cq_poll(s.cq, wc, 32);
            for (int i = 0; i < n; ++i) {
                ASSERT_EQ(wc[i].status, XSOCK_WC_SUCCESS);
                if (wc[i].op == XSOCK_OP_SEND) {
                    ASSERT_EQ(wc[i].wr_id, s.sent++);
                } else {
                    ASSERT_EQ(s.in[wc[i].wr_id], s.received++);
                    ASSERT_EQ(xsock_recv(s.ep, wc[i].wr_id, &s.in[wc[i].wr_id], 4), 0);
                }
            }
        }
    }
}

TEST(Endpoint, a_sender_that_only_polls_goes_on_when_a_full_socket_drains) {
    Pair pair({.adjust = [](xsock_ep_attr&, xsock_ep_attr& server) { server.rnr_timeout_ms = -1; },
               .wait = true});
    const auto data = pattern(32u << 20);
    std::vector<unsigned char> into(data.size());
    ASSERT_EQ(xsock_send(pair.client, 1, data.data(), static_cast<uint32_t>(data.size()), 0), 0);
    xsock_wc wc{};
    // Long enough for the poller to become the bias owner.
    for (int i = 0; i < 20'000; ++i) ASSERT_EQ(xsock_cq_poll(pair.client_cq, &wc, 1), 0);
    ASSERT_EQ(xsock_recv(pair.server, 2, into.data(), static_cast<uint32_t>(into.size())), 0);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMs);
    int n = 0;
    while (n == 0 && std::chrono::steady_clock::now() < limit) {
        n = xsock_cq_poll(pair.client_cq, &wc, 1);
    }
    EXPECT_EQ(n, 1) << "the sender stopped for good";
    EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(data, into);
}

TEST(Endpoint, unsignaled_and_inline_sends_need_no_completion) {
    Pair pair;
    char into[64];
    ASSERT_EQ(xsock_recv(pair.server, 1, into, sizeof into), 0);
    {
        char gone[16] = "short lived";
        ASSERT_EQ(xsock_send(pair.client, 9, gone, sizeof gone, XSOCK_INLINE | XSOCK_UNSIGNALED),
                  0);
        std::memset(gone, 0, sizeof gone);
    }
    EXPECT_EQ(next(pair.server_cq).length, 16u);
    EXPECT_STREQ(into, "short lived");
    xsock_wc wc;
    EXPECT_EQ(xsock_cq_poll(pair.client_cq, &wc, 1), 0);
}

TEST(Endpoint, peer_invalidates_a_key_made_for_it_alone) {
    Pair pair;
    char memory[64] = {}, into[8];
    xsock_mr* mr =
        xsock_mr_register(nullptr, memory, sizeof memory, XSOCK_REMOTE_WRITE, pair.server);
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(xsock_recv(pair.server, 1, into, sizeof into), 0);
    const xsock_sge sge{memory, 4, 0};
    XSOCK_INIT(xsock_wr, wr);
    wr.op = XSOCK_OP_SEND;
    wr.flags = XSOCK_INVALIDATE;
    wr.sge = &sge;
    wr.sge_count = 1;
    wr.remote.stag = xsock_mr_stag(mr);
    ASSERT_EQ(xsock_post(pair.client, &wr), 0);
    const xsock_wc wc = next(pair.server_cq);
    EXPECT_EQ(wc.flags, XSOCK_WC_INVALIDATED);
    EXPECT_EQ(wc.invalidated_stag, xsock_mr_stag(mr));
    // A Write through it is refused now, and ends the connection.
    const xsock_remote remote{reinterpret_cast<uintptr_t>(memory), sizeof memory, xsock_mr_stag(mr),
                              XSOCK_REMOTE_WRITE};
    next(pair.client_cq);
    ASSERT_EQ(xsock_recv(pair.client, 5, into, sizeof into), 0);
    ASSERT_EQ(xsock_write(pair.client, 2, "abcd", 4, &remote, 0, XSOCK_UNSIGNALED), 0);
    EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_FLUSHED);
    EXPECT_NE(std::string(query(pair.client).error_text).find("peer terminated"), std::string::npos)
        << query(pair.client).error_text;
    EXPECT_STREQ(memory, "");
    EXPECT_EQ(xsock_mr_deregister(mr), 0);
}

TEST(Endpoint, refuses_what_lies_outside_the_region) {
    struct Case {
        const char* name;
        unsigned access;
        uint64_t offset;
        bool read;
    };
    for (const Case& c : {Case{"write past the end", XSOCK_REMOTE_WRITE, 61, false},
                          Case{"write without the right", XSOCK_REMOTE_READ, 0, false},
                          Case{"read past the end", XSOCK_REMOTE_READ, 61, true},
                          Case{"read without the right", XSOCK_REMOTE_WRITE, 0, true}}) {
        SCOPED_TRACE(c.name);
        Pair pair;
        char memory[64] = {}, buffer[4] = {1, 2, 3, 4};
        xsock_mr* mr = xsock_mr_register(nullptr, memory, sizeof memory, c.access, nullptr);
        const xsock_remote remote{reinterpret_cast<uintptr_t>(memory), 1000, xsock_mr_stag(mr), 0};
        ASSERT_EQ(xsock_recv(pair.client, 5, buffer, 0), 0);
        if (c.read) {
            ASSERT_EQ(xsock_read(pair.client, 1, buffer, 4, &remote, c.offset, 0), 0);
            EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_REMOTE_ACCESS);
        } else {
            ASSERT_EQ(xsock_write(pair.client, 1, buffer, 4, &remote, c.offset, XSOCK_UNSIGNALED),
                      0);
        }
        EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_FLUSHED);
        for (const char byte : memory) ASSERT_EQ(byte, 0);
        EXPECT_EQ(query(pair.client).state, XSOCK_EP_ERROR);
        EXPECT_EQ(query(pair.client).error, EPROTO);
        EXPECT_EQ(xsock_mr_deregister(mr), 0);
    }
}

TEST(Endpoint, a_region_of_another_domain_is_out_of_reach) {
    Pair pair;
    xsock_pd* pd = xsock_pd_create();
    char memory[64] = {};
    xsock_mr* mr = xsock_mr_register(pd, memory, sizeof memory, XSOCK_REMOTE_WRITE, nullptr);
    EXPECT_EQ(xsock_pd_destroy(pd), -1);
    EXPECT_EQ(errno, EBUSY);
    const xsock_remote remote{reinterpret_cast<uintptr_t>(memory), 64, xsock_mr_stag(mr), 0};
    ASSERT_EQ(xsock_recv(pair.client, 5, memory, 0), 0);
    ASSERT_EQ(xsock_write(pair.client, 1, "abcd", 4, &remote, 0, XSOCK_UNSIGNALED), 0);
    EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_FLUSHED);
    EXPECT_STREQ(memory, "");
    EXPECT_EQ(xsock_mr_deregister(mr), 0);
    EXPECT_EQ(xsock_pd_destroy(pd), 0);
}

TEST(Endpoint, a_message_waits_for_its_receive) {
    Pair pair;
    const auto data = pattern(200'000);
    ASSERT_EQ(xsock_send(pair.client, 1, data.data(), static_cast<uint32_t>(data.size()), 0), 0);
    xsock_wc wc;
    EXPECT_EQ(xsock_cq_wait(pair.server_cq, &wc, 1, 1, 50), 0);
    std::vector<unsigned char> into(data.size());
    ASSERT_EQ(xsock_recv(pair.server, 2, into.data(), static_cast<uint32_t>(into.size())), 0);
    EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(data, into);
}

TEST(Endpoint, a_message_without_receive_is_refused_past_its_time) {
    with_environment("XSOCK_RNR_MS", "60000", [] {  // of the endpoint goes before
        Pair pair(
            {.adjust = [](xsock_ep_attr&, xsock_ep_attr& server) { server.rnr_timeout_ms = 30; }});
        char byte = 0;
        ASSERT_EQ(xsock_recv(pair.client, 1, &byte, 1), 0);
        const auto begin = std::chrono::steady_clock::now();
        ASSERT_EQ(xsock_send(pair.client, 2, "x", 1, XSOCK_UNSIGNALED), 0);
        EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_FLUSHED);
        const auto took = std::chrono::steady_clock::now() - begin;
        EXPECT_GE(took, std::chrono::milliseconds(29));
        EXPECT_LT(took, std::chrono::seconds(19));
        EXPECT_NE(query(pair.server).error, 0);
        EXPECT_STRNE(query(pair.server).error_text, "");
    });
}

TEST(Endpoint, a_longer_message_than_the_receive_ends_the_connection) {
    Pair pair;
    char into[4], other[4];
    ASSERT_EQ(xsock_recv(pair.server, 1, into, sizeof into), 0);
    ASSERT_EQ(xsock_recv(pair.client, 3, other, sizeof other), 0);
    ASSERT_EQ(xsock_send(pair.client, 2, "12345678", 8, XSOCK_UNSIGNALED), 0);
    EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_LENGTH);
    EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_FLUSHED);
    EXPECT_EQ(query(pair.server).state, unsigned{XSOCK_EP_ERROR});
    EXPECT_EQ(query(pair.client).state, unsigned{XSOCK_EP_ERROR});
}

TEST(Endpoint, orderly_shutdown_delivers_everything_first) {
    Pair pair({.adjust = [](xsock_ep_attr& client, xsock_ep_attr& server) {
        client.flags = server.flags = XSOCK_EP_EVENTS;
    }});
    EXPECT_EQ(next(pair.client_cq).op, XSOCK_OP_CONNECTED);
    EXPECT_EQ(next(pair.server_cq).op, XSOCK_OP_CONNECTED);
    const auto data = pattern(3u << 20);
    std::vector<unsigned char> into(data.size());
    ASSERT_EQ(xsock_recv(pair.server, 1, into.data(), static_cast<uint32_t>(into.size())), 0);
    ASSERT_EQ(xsock_recv(pair.server, 2, nullptr, 0), 0);
    ASSERT_EQ(xsock_send(pair.client, 1, data.data(), static_cast<uint32_t>(data.size()), 0), 0);
    ASSERT_EQ(xsock_ep_shutdown(pair.client), 0);
    EXPECT_EQ(xsock_send(pair.client, 2, "x", 1, 0), -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(data, into);
    const xsock_wc flushed = next(pair.server_cq);
    EXPECT_EQ(flushed.wr_id, 2u);
    EXPECT_EQ(flushed.status, XSOCK_WC_FLUSHED);
    const xsock_wc closed = next(pair.server_cq);
    EXPECT_EQ(closed.op, XSOCK_OP_CLOSED);
    EXPECT_EQ(closed.status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(next(pair.client_cq).op, XSOCK_OP_SEND);
    ASSERT_EQ(xsock_ep_shutdown(pair.server), 0);
    EXPECT_EQ(next(pair.client_cq).op, XSOCK_OP_CLOSED);
    EXPECT_EQ(query(pair.client).state, XSOCK_EP_CLOSED);
    EXPECT_EQ(query(pair.client).error, 0);
}

TEST(Endpoint, close_drains_in_the_background) {
    Pair pair(
        {.adjust = [](xsock_ep_attr&, xsock_ep_attr& server) { server.rnr_timeout_ms = -1; }});
    const auto data = pattern(8u << 20);
    std::vector<unsigned char> into(data.size());
    ASSERT_EQ(xsock_send(pair.client, 1, data.data(), static_cast<uint32_t>(data.size()), 0), 0);
    ASSERT_EQ(xsock_ep_close(pair.client), 0);
    pair.client = nullptr;
    // Until there is a receive it cannot have been sent.
    ASSERT_EQ(xsock_recv(pair.server, 1, into.data(), static_cast<uint32_t>(into.size())), 0);
    EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(data, into);
    EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_SUCCESS);
}

TEST(Endpoint, abort_flushes_both_ends_exactly_once) {
    Pair pair;
    char buffers[10][8];
    for (uint64_t i = 0; i < 10; ++i) {
        ASSERT_EQ(xsock_recv(pair.client, i, buffers[i], 8), 0);
        ASSERT_EQ(xsock_recv(pair.server, i, buffers[i], 8), 0);
    }
    ASSERT_EQ(xsock_ep_abort(pair.client), 0);
    pair.client = nullptr;
    for (xsock_cq* cq : {pair.client_cq, pair.server_cq}) {
        xsock_wc wc[16];
        ASSERT_EQ(xsock_cq_wait(cq, wc, 10, 16, kLimitMs), 10);
        for (uint64_t i = 0; i < 10; ++i) {
            EXPECT_EQ(wc[i].wr_id, i);
            EXPECT_NE(wc[i].status, XSOCK_WC_SUCCESS);
        }
        EXPECT_EQ(xsock_cq_wait(cq, wc, 1, 16, 20), 0) << "a completion came twice";
    }
    EXPECT_EQ(query(pair.server).error, ECONNRESET);
}

TEST(Endpoint, deferred_reply_can_accept_and_reject) {
    const auto defer = [](xsock_ep_attr& client, xsock_ep_attr& server) {
        server.flags = XSOCK_EP_DEFER;
        client.private_data = "ticket";
        client.private_data_length = 6;
    };
    {
        Pair pair({.adjust = defer, .wait = false});
        ASSERT_EQ(xsock_ep_wait(pair.server, kLimitMs), 0);
        EXPECT_EQ(query(pair.server).state, XSOCK_EP_REQUESTED);
        EXPECT_EQ(query(pair.server).private_data_length, 6u);
        ASSERT_EQ(xsock_ep_accept(pair.server, "ok", 2), 0);
        ASSERT_EQ(xsock_ep_wait(pair.client, kLimitMs), 0);
        EXPECT_EQ(query(pair.client).private_data_length, 2u);
    }
    {
        Pair pair({.adjust = defer, .wait = false});
        ASSERT_EQ(xsock_ep_wait(pair.server, kLimitMs), 0);
        ASSERT_EQ(xsock_ep_reject(pair.server, "no seats", 8), 0);
        EXPECT_EQ(xsock_ep_wait(pair.client, kLimitMs), -1);
        EXPECT_EQ(errno, ECONNREFUSED);
        EXPECT_EQ(query(pair.client).private_data_length, 8u);
    }
}

TEST(Endpoint, posts_wait_for_start_up) {
    Pair pair({.adjust = {}, .wait = false});
    char into[8] = {};
    ASSERT_EQ(xsock_recv(pair.server, 1, into, sizeof into), 0);
    ASSERT_EQ(xsock_send(pair.client, 1, "early", 6, 0), 0);
    EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_STREQ(into, "early");
}

TEST(Endpoint, the_responder_may_speak_first) {
    Pair pair;
    char into[8] = {};
    ASSERT_EQ(xsock_recv(pair.client, 1, into, sizeof into), 0);
    ASSERT_EQ(xsock_send(pair.server, 1, "hi", 3, 0), 0);
    EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_STREQ(into, "hi");
}

class UnmappedMemory : public testing::TestWithParam<std::uint32_t> {};

TEST_P(UnmappedMemory, costs_the_connection_not_the_process) {
    const std::uint32_t n = GetParam();
    for (const bool sink : {true, false}) {
        SCOPED_TRACE(sink ? "placed into" : "sent from");
        Pair pair;
        void* memory = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(memory, MAP_FAILED);
        std::vector<unsigned char> other(n);
        if (sink) {
            ASSERT_EQ(xsock_recv(pair.server, 1, memory, n), 0);
            // Not unmapped, for another mapping might come to lie there.
            ASSERT_EQ(mprotect(memory, n, PROT_NONE), 0);
            ASSERT_EQ(xsock_send(pair.client, 1, other.data(), n, 0), 0);
            EXPECT_NE(next(pair.server_cq).status, XSOCK_WC_SUCCESS);
            EXPECT_EQ(query(pair.server).error, EFAULT);
        } else {
            ASSERT_EQ(mprotect(memory, n, PROT_NONE), 0);
            ASSERT_EQ(xsock_recv(pair.server, 1, other.data(), n), 0);
            ASSERT_EQ(xsock_send(pair.client, 1, memory, n, 0), 0);
            EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_PROTECTION);
            EXPECT_NE(next(pair.server_cq).status, XSOCK_WC_SUCCESS);
        }
        EXPECT_EQ(munmap(memory, n), 0);
    }
}

// Small messages go in batches and as complete ULPDUs, large ones piece by piece.
INSTANTIATE_TEST_SUITE_P(ByteVector, UnmappedMemory, testing::Values(64, 1000, 1u << 20));

/// Memory that is gone beside memory that is there, and how requests on either ended.
class OneUnmapped : public testing::TestWithParam<std::uint32_t> {
  protected:
    void SetUp() override { ASSERT_NE(gone_, MAP_FAILED); }
    void TearDown() override { munmap(gone_, n_); }
    /// Of the `i`-th request of four: the third has none.
    void* memory(std::uint64_t i) { return i == 2 ? gone_ : good_.data(); }
    using Ends = std::map<std::uint64_t, std::uint16_t>;
    static Ends ends_of(xsock_cq* cq, int count) {
        Ends ends;
        for (int i = 0; i < count; ++i) {
            const xsock_wc wc = next(cq);
            EXPECT_TRUE(ends.emplace(wc.wr_id, wc.status).second) << wc.wr_id << " ends twice";
        }
        return ends;
    }
    /// 1, or 0 if the connection has ended already.
    static int posted(int result) {
        EXPECT_TRUE(result == 0 || errno == EPIPE) << errno;
        return result == 0 ? 1 : 0;
    }
    static void expect_third_failed(const Ends& ends) {
        EXPECT_EQ(ends.count(2), 1u);
        for (const auto& [id, status] : ends) {
            if (id < 2) {
                EXPECT_TRUE(status == XSOCK_WC_SUCCESS || status == XSOCK_WC_FLUSHED)
                    << id << ": " << status;
            } else {
                EXPECT_EQ(status, id == 2 ? XSOCK_WC_PROTECTION : XSOCK_WC_FLUSHED) << id;
            }
        }
    }

    const std::uint32_t n_ = GetParam();
    // Not unmapped, for another mapping might come to lie there.
    void* gone_ = mmap(nullptr, n_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::vector<unsigned char> good_ = std::vector<unsigned char>(n_);
};

TEST_P(OneUnmapped, fails_the_request_that_sends_from_it_and_flushes_the_rest) {
    // Without CRCs the kernel finds out, above the limit of what is copied.
    for (const unsigned flags : {0u, XSOCK_EP_NO_CRC}) {
        SCOPED_TRACE(flags);
        Pair pair({.adjust = [&](xsock_ep_attr& client, xsock_ep_attr& server) {
            client.flags = server.flags = flags;
        }});
        ASSERT_EQ(xsock_recv(pair.client, 9, good_.data(), n_), 0);
        for (std::uint64_t i = 0; i < 4; ++i) {
            ASSERT_EQ(xsock_recv(pair.server, i, good_.data(), n_), 0);
        }
        int count = 1;
        for (std::uint64_t i = 0; i < 4; ++i) {
            count += posted(xsock_send(pair.client, i, memory(i), n_, i < 3 ? XSOCK_MORE : 0u));
        }
        expect_third_failed(ends_of(pair.client_cq, count));
        EXPECT_EQ(query(pair.client).error, EFAULT);
    }
}

TEST_P(OneUnmapped, fails_the_receive_that_was_to_be_placed_in_it_and_flushes_the_rest) {
    Pair pair;
    for (std::uint64_t i = 0; i < 4; ++i) {
        ASSERT_EQ(xsock_recv(pair.server, i, memory(i), n_), 0);
    }
    for (std::uint64_t i = 0; i < 4; ++i) {
        posted(xsock_send(pair.client, i, good_.data(), n_, 0));
    }
    expect_third_failed(ends_of(pair.server_cq, 4));
    EXPECT_EQ(query(pair.server).error, EFAULT);
}

TEST_P(OneUnmapped, fails_the_read_that_was_to_be_placed_in_it_and_flushes_the_rest) {
    Pair pair;
    const Region source(good_.data(), n_, XSOCK_REMOTE_READ);
    std::vector<unsigned char> into(n_);
    ASSERT_EQ(xsock_recv(pair.client, 9, into.data(), n_), 0);
    int count = 1;
    for (std::uint64_t i = 0; i < 4; ++i) {
        count += posted(
            xsock_read(pair.client, i, i == 2 ? gone_ : into.data(), n_, &source.remote, 0, 0));
    }
    expect_third_failed(ends_of(pair.client_cq, count));
    EXPECT_EQ(query(pair.client).error, EFAULT);
}

TEST_P(OneUnmapped, fails_no_request_of_an_end_whose_peer_named_it) {
    for (const bool read : {false, true}) {
        SCOPED_TRACE(read ? "to be read" : "to be written");
        Pair pair;
        const Region gone(gone_, n_, XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE);
        ASSERT_EQ(xsock_recv(pair.server, 3, good_.data(), n_), 0);
        ASSERT_EQ(read ? xsock_read(pair.client, 1, good_.data(), n_, &gone.remote, 0, 0)
                       : xsock_write(pair.client, 1, good_.data(), n_, &gone.remote, 0, 0),
                  0);
        EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_FLUSHED);
        EXPECT_EQ(query(pair.server).error, EFAULT);
    }
}

// Small messages go in batches and are taken whole, large ones piece by piece.
INSTANTIATE_TEST_SUITE_P(Sizes, OneUnmapped, testing::Values(64, 1000, 1u << 20));

TEST(Endpoint, queue_full_is_enobufs_until_there_is_room) {
    Pair pair({.adjust = [](xsock_ep_attr&, xsock_ep_attr& server) { server.rq_depth = 4; }});
    char into[8];
    int posted = 0;
    while (xsock_recv(pair.server, 0, into, sizeof into) == 0) ++posted;
    EXPECT_EQ(errno, ENOBUFS);
    EXPECT_GE(posted, 4);
    ASSERT_EQ(xsock_send(pair.client, 1, "x", 1, 0), 0);
    EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(xsock_recv(pair.server, 0, into, sizeof into), 0);
}

TEST(Endpoint, callers_mistakes_have_the_errno_one_expects) {
    XSOCK_INIT(xsock_ep_attr, attr);
    EXPECT_EQ(xsock_ep_create(0, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL) << "no completion queue";
    xsock_cq* cq = xsock_cq_create(nullptr);
    attr.send_cq = cq;
    EXPECT_EQ(xsock_ep_create(-1, &attr), nullptr);
    EXPECT_EQ(errno, EBADF);
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    EXPECT_EQ(xsock_ep_create(pipes[0], &attr), nullptr);
    EXPECT_EQ(errno, ENOTSOCK);
    const int udp = socket(AF_INET, SOCK_DGRAM, 0);
    EXPECT_EQ(xsock_ep_create(udp, &attr), nullptr);
    EXPECT_EQ(errno, EPROTOTYPE);
    const int tcp = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(xsock_ep_create(tcp, &attr), nullptr);
    EXPECT_EQ(errno, ENOTCONN);
    EXPECT_EQ(xsock_listener_create(tcp, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    attr.flags = 1u << 30;
    EXPECT_EQ(xsock_ep_create(tcp, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(fcntl(tcp, F_GETFD), 0) << "a refused descriptor stays the caller's";
    for (const int fd : {pipes[0], pipes[1], udp, tcp}) close(fd);
    EXPECT_EQ(xsock_cq_wait(cq, nullptr, 1, 1, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    xsock_wc wc;
    EXPECT_EQ(xsock_cq_wait(cq, &wc, 2, 1, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(xsock_mr_register(nullptr, nullptr, 8, 0, nullptr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(xsock_mr_register(nullptr, &wc, SIZE_MAX, XSOCK_REMOTE_READ, nullptr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(xsock_cq_destroy(cq), 0);
    Pair pair;
    const xsock_remote remote{0, 10, 1, 0};
    EXPECT_EQ(xsock_write(pair.client, 0, &wc, 11, &remote, 0, 0), -1);
    EXPECT_EQ(errno, ERANGE);
    EXPECT_EQ(xsock_write(pair.client, 0, &wc, 1, &remote, UINT64_MAX, 0), -1);
    EXPECT_EQ(errno, ERANGE);
    EXPECT_EQ(xsock_send(pair.client, 0, pair.client, 97, XSOCK_INLINE), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(xsock_cq_destroy(pair.client_cq), -1);
    EXPECT_EQ(errno, EBUSY);
}

TEST(Endpoint, a_forked_child_is_told_and_disturbs_nothing) {
    Pair pair;
    char into[8] = {};
    ASSERT_EQ(xsock_recv(pair.server, 1, into, sizeof into), 0);
    fflush(nullptr);
    // A thread that is just starting may hold a lock of AddressSanitizer's, which does not survive
    // a fork: let the engine's come to rest.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const bool told = xsock_send(pair.client, 1, "child", 6, 0) == -1 && errno == EPERM &&
                          xsock_cq_poll(pair.client_cq, nullptr, 0) == -1 && errno == EPERM;
        {
            Pair own;  // the child has an engine of its own
            char got[4] = {};
            EXPECT_EQ(xsock_recv(own.server, 1, got, sizeof got), 0);
            EXPECT_EQ(xsock_send(own.client, 1, "own", 4, XSOCK_UNSIGNALED), 0);
            EXPECT_EQ(next(own.server_cq).status, XSOCK_WC_SUCCESS);
            EXPECT_STREQ(got, "own");
        }
        exit(told && !::testing::Test::HasFailure()
                 ? 0
                 : 1);  // runs atexit handlers: they must stay silent
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ASSERT_EQ(xsock_send(pair.client, 1, "parent", 7, 0), 0);
    EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_STREQ(into, "parent");
}

TEST(Endpoint, many_threads_post_and_poll) {
    Pair pair;
    constexpr int kThreads = 4;
    constexpr int kEach = 2'000;
    std::atomic<int> sent{0}, received{0}, bad{0};
    std::vector<std::thread> threads;
    std::vector<uint32_t> sink(64);
    for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(xsock_recv(pair.server, i, &sink[i], 4), 0);
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
            uint32_t value = 1;
            for (int i = 0; i < kEach;) {
                if (xsock_send(pair.client, 0, &value, 4, 0) == 0) {
                    ++i;
                } else if (errno != ENOBUFS) {
                    ++bad;
                    return;
                }
                xsock_wc wc[8];
                sent += xsock_cq_poll(pair.client_cq, wc, 8);
            }
        });
        threads.emplace_back([&] {
            while (received < kThreads * kEach) {
                xsock_wc wc[4];
                const int n = xsock_cq_wait(pair.server_cq, wc, 1, 4, 10);
                for (int i = 0; i < n; ++i) {
                    if (wc[i].status != XSOCK_WC_SUCCESS) ++bad;
                    if (xsock_recv(pair.server, wc[i].wr_id, &sink[wc[i].wr_id], 4) != 0) ++bad;
                }
                received += n;
            }
        });
    }
    for (auto& t : threads) t.join();
    xsock_wc wc[64];
    while (sent < kThreads * kEach) {
        const int n = xsock_cq_wait(pair.client_cq, wc, 1, 64, kLimitMs);
        ASSERT_GT(n, 0);
        sent += n;
    }
    EXPECT_EQ(received, kThreads * kEach);
    EXPECT_EQ(bad, 0);
}

// ---- TCP's congestion control -----------------------------------------------

class Congestion : public OneQueue {};

TEST_F(Congestion, is_chosen_for_an_endpoint) {
    const Pair pair({.adjust = [](xsock_ep_attr& client, xsock_ep_attr& server) {
        client.congestion = "reno";
        server.congestion = nullptr;
    }});
    EXPECT_STREQ(query(pair.client).congestion, "reno");
    EXPECT_STRNE(query(pair.server).congestion, "");  // whatever the system has
}

TEST_F(Congestion, is_chosen_for_all_that_a_listener_accepts) {
    attr.congestion = "reno";
    xsock_listener* const listener = xsock_listen("127.0.0.1", "0", 4, &attr);
    ASSERT_NE(listener, nullptr) << strerror(errno);
    const std::string port = std::to_string(xsock_listener_port(listener));
    attr.congestion = nullptr;
    xsock_ep* const client = xsock_connect("127.0.0.1", port.c_str(), &attr, kLimitMs);
    xsock_ep* const server = xsock_accept(listener, kLimitMs);
    ASSERT_NE(client, nullptr) << strerror(errno);
    ASSERT_NE(server, nullptr) << strerror(errno);
    EXPECT_STREQ(query(server).congestion, "reno");
    for (xsock_ep* const ep : {client, server}) EXPECT_EQ(xsock_ep_abort(ep), 0);
    EXPECT_EQ(xsock_listener_close(listener), 0);
}

TEST_F(Congestion, an_unknown_one_is_an_error_of_the_call) {
    int near = -1, far = -1;
    tcp_pair(near, far);
    const LoopbackListener listening;
    const std::string long_name(16, 'x');
    for (const auto& [name, error] : {std::pair<const char*, int>{"nonesuch", ENOENT},
                                      {"", EINVAL},
                                      {long_name.c_str(), EINVAL}}) {
        attr.congestion = name;
        errno = 0;
        EXPECT_EQ(xsock_ep_create(near, &attr), nullptr);
        EXPECT_EQ(errno, error) << name;
        EXPECT_EQ(xsock_listener_create(listening.fd(), &attr), nullptr);
        EXPECT_EQ(errno, error) << name;
    }
    for (const int fd : {near, far}) EXPECT_EQ(close(fd), 0) << "is the caller's still";
}

// The kernel refuses what net.ipv4.tcp_allowed_congestion_control lacks to those without rights.
TEST_F(Congestion, one_that_is_not_permitted_is_told_from_an_unknown_one) {
    const auto names = [](const char* file) {
        std::ifstream in(std::string("/proc/sys/net/ipv4/tcp_") + file + "_congestion_control");
        return std::set<std::string>(std::istream_iterator<std::string>(in), {});
    };
    std::string refused;
    for (const std::string& name : names("available")) {
        if (names("allowed").count(name) == 0) refused = name;
    }
    if (refused.empty() || geteuid() != 0) GTEST_SKIP() << "every one is permitted, or none to add";
    int near = -1, far = -1;
    tcp_pair(near, far);
    attr.congestion = refused.c_str();
    ASSERT_EQ(syscall(SYS_setresuid, -1, 65534, -1), 0);  // of this thread alone
    xsock_ep* const ep = xsock_ep_create(near, &attr);
    const int error = errno;
    ASSERT_EQ(syscall(SYS_setresuid, -1, 0, -1), 0);
    EXPECT_EQ(ep, nullptr);
    EXPECT_EQ(error, EACCES);
    for (const int fd : {near, far}) close(fd);
}

TEST_F(Congestion, of_a_process_gives_way_to_an_endpoints_and_may_be_unknown) {
    with_environment("XSOCK_CONGESTION", "reno", [] {
        const Pair pair;
        EXPECT_STREQ(query(pair.client).congestion, "reno");
        EXPECT_STREQ(query(pair.server).congestion, "reno");
    });
    with_environment("XSOCK_CONGESTION", "nonesuch", [] {
        const Pair pair(
            {.adjust = [](xsock_ep_attr& client, xsock_ep_attr&) { client.congestion = "reno"; }});
        EXPECT_STREQ(query(pair.client).congestion, "reno");
        EXPECT_STRNE(query(pair.server).congestion, "");
    });
}

}  // namespace
}  // namespace xsock::test
