// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completion queues and shared receive queues through the C interface.
#include <poll.h>
#include <sys/epoll.h>

#include <chrono>
#include <thread>

#include "tests/unit/libxsock/pair.hpp"

namespace xsock::test {
namespace {

TEST(Cq, wait_ends_at_its_time_limit) {
    xsock_cq* cq = xsock_cq_create(nullptr);
    xsock_wc wc;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(xsock_cq_wait(cq, &wc, 1, 1, 30), 0);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(29));
    EXPECT_EQ(xsock_cq_wait(cq, &wc, 0, 1, XSOCK_FOREVER), 0) << "asked for none: must not wait";
    EXPECT_EQ(xsock_cq_destroy(cq), 0);
}

TEST(Cq, waits_for_a_full_batch) {
    Pair pair;
    char into[8];
    for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(xsock_recv(pair.server, i, into, 8), 0);
    std::thread sender([&] {
        for (int i = 0; i < 5; ++i) {
            xsock_send(pair.client, 0, "x", 1, XSOCK_UNSIGNALED | XSOCK_INLINE);
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
        }
    });
    xsock_wc wc[5];
    EXPECT_EQ(xsock_cq_wait(pair.server_cq, wc, 5, 5, kLimitMs), 5);
    sender.join();
}

TEST(Cq, descriptor_polls_readable_for_every_completion) {
    Pair pair;
    const int fd = xsock_cq_fd(pair.server_cq);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(xsock_cq_fd(pair.server_cq), fd);
    char into[8];
    for (int round = 0; round < 50; ++round) {
        ASSERT_EQ(xsock_recv(pair.server, 1, into, 8), 0);
        xsock_wc wc;
        while (xsock_cq_poll(pair.server_cq, &wc, 1) > 0) FAIL();
        std::thread sender([&] { xsock_send(pair.client, 0, "x", 1, XSOCK_UNSIGNALED); });
        int found = 0;
        const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMs);
        while (found == 0 && std::chrono::steady_clock::now() < limit) {  // may be spurious
            pollfd p{fd, POLLIN, 0};
            ASSERT_EQ(poll(&p, 1, kLimitMs), 1) << "round " << round;
            found = xsock_cq_poll(pair.server_cq, &wc, 1);
        }
        sender.join();
        ASSERT_EQ(found, 1);
    }
}

TEST(Cq, descriptor_tells_of_a_completion_made_by_the_post_itself) {
    Pair pair;
    const int fd = xsock_cq_fd(pair.client_cq);
    char into[8];
    for (int round = 0; round < 20; ++round) {
        ASSERT_EQ(xsock_recv(pair.server, 1, into, 8), 0);
        ASSERT_EQ(xsock_send(pair.client, 1, "x", 1, 0), 0);
        xsock_wc wc;
        int found = 0;
        const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimitMs);
        while (found == 0 && std::chrono::steady_clock::now() < limit) {  // may be spurious
            pollfd p{fd, POLLIN, 0};
            ASSERT_EQ(poll(&p, 1, kLimitMs), 1);
            found = xsock_cq_poll(pair.client_cq, &wc, 1);
        }
        ASSERT_EQ(found, 1);
        next(pair.server_cq);
    }
}

TEST(Cq, served_by_the_thread_while_no_caller_polls) {
    Pair pair;
    std::vector<unsigned char> memory = pattern(100'000), into(100'000);
    xsock_mr* mr =
        xsock_mr_register(nullptr, memory.data(), memory.size(), XSOCK_REMOTE_READ, nullptr);
    xsock_key key;
    ASSERT_EQ(xsock_mr_key(mr, 0, memory.size(), &key), 0);
    xsock_remote remote;
    xsock_key_read(&key, &remote);
    const int fd = xsock_cq_fd(pair.client_cq);
    xsock_wc wc;
    while (xsock_cq_poll(pair.client_cq, &wc, 1) > 0) continue;
    ASSERT_EQ(xsock_read(pair.client, 1, into.data(), 100'000, &remote, 0, 0), 0);
    // Neither end polls: the thread has to move everything and to say so.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    pollfd p{fd, POLLIN, 0};
    ASSERT_EQ(poll(&p, 1, kLimitMs), 1);
    query(pair.client);  // orders what follows behind the thread's cycle, which poll() does not say
    EXPECT_EQ(into, memory);
    EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(xsock_mr_deregister(mr), 0);
}

TEST(Srq, many_endpoints_share_receives_and_wait_for_receives) {
    xsock_cq* cq = xsock_cq_create(nullptr);
    xsock_srq* srq = xsock_srq_create(16);
    constexpr int kPairs = 8;
    xsock_ep* clients[kPairs];
    xsock_ep* servers[kPairs];
    for (int i = 0; i < kPairs; ++i) {
        int client_fd = -1, server_fd = -1;
        tcp_pair(client_fd, server_fd);
        XSOCK_INIT(xsock_ep_attr, attr);
        attr.send_cq = cq;
        attr.role = XSOCK_ROLE_INITIATOR;
        clients[i] = xsock_ep_create(client_fd, &attr);
        attr.role = XSOCK_ROLE_RESPONDER;
        attr.srq = srq;
        attr.rnr_timeout_ms = -1;
        servers[i] = xsock_ep_create(server_fd, &attr);
        ASSERT_NE(clients[i], nullptr);
        ASSERT_NE(servers[i], nullptr);
    }
    EXPECT_EQ(xsock_srq_destroy(srq), -1);
    EXPECT_EQ(errno, EBUSY);
    char into[4];
    EXPECT_EQ(xsock_recv(servers[0], 0, into, 4), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    constexpr int kMessages = 30;
    for (int m = 0; m < kMessages; ++m) {
        for (xsock_ep* c : clients) {
            ASSERT_EQ(xsock_send(c, 0, "abcd", 4, XSOCK_UNSIGNALED | XSOCK_INLINE), 0);
        }
    }
    int received = 0;
    const xsock_sge sge{into, 4, 0};
    while (received < kPairs * kMessages) {
        ASSERT_EQ(xsock_srq_post_recv(srq, static_cast<uint64_t>(received), &sge, 1), 0);
        const xsock_wc wc = next(cq);
        ASSERT_EQ(wc.status, XSOCK_WC_SUCCESS);
        ASSERT_EQ(wc.op, XSOCK_OP_RECV);
        ASSERT_EQ(wc.wr_id, static_cast<uint64_t>(received));
        ++received;
    }
    for (int i = 0; i < kPairs; ++i) {
        xsock_ep_abort(clients[i]);
        xsock_ep_abort(servers[i]);
    }
    EXPECT_EQ(xsock_srq_destroy(srq), 0);
    EXPECT_EQ(xsock_cq_destroy(cq), 0);
}

TEST(Cq, may_be_destroyed_while_an_endpoint_drains) {
    xsock_cq* cq = xsock_cq_create(nullptr);
    int client_fd = -1, plain_fd = -1;
    tcp_pair(client_fd, plain_fd);
    XSOCK_INIT(xsock_ep_attr, attr);
    attr.send_cq = cq;
    xsock_ep* ep = xsock_ep_create(client_fd, &attr);
    ASSERT_EQ(xsock_send(ep, 1, "x", 1, 0), 0);
    EXPECT_EQ(xsock_cq_destroy(cq), -1);
    EXPECT_EQ(errno, EBUSY);
    ASSERT_EQ(xsock_ep_close(ep), 0);
    EXPECT_EQ(xsock_cq_destroy(cq), 0);
    close(plain_fd);
}

}  // namespace
}  // namespace xsock::test
