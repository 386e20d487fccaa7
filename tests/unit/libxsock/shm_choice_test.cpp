// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// xsock_ep_attr.shm and XSOCK_SHM toward peers that have it on or off: what an endpoint says of its
// path, and that one that requires shared memory has no connection.
#include <cerrno>
#include <string>
#include <vector>

#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/pair.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"

namespace xsock::test {
namespace {

class ShmChoice : public OneQueue {};

PairOptions shm(unsigned client, unsigned server, bool wait = true) {
    return {.adjust =
                [=](xsock_ep_attr& c, xsock_ep_attr& s) {
                    c.shm = client;
                    s.shm = server;
                },
            .wait = wait};
}

TEST(ShmPath, is_tcp_where_an_end_has_it_off_and_each_says_why) {
    for (const unsigned client : {XSOCK_SHM_OFF, XSOCK_SHM_AUTO}) {
        const unsigned server = client == XSOCK_SHM_OFF ? XSOCK_SHM_AUTO : XSOCK_SHM_OFF;
        const Pair pair(shm(client, server));
        const xsock_ep_info c = query(pair.client), s = query(pair.server);
        EXPECT_EQ(c.path, XSOCK_PATH_TCP);
        EXPECT_EQ(s.path, XSOCK_PATH_TCP);
        EXPECT_STREQ(c.shm_reason, client == XSOCK_SHM_OFF ? "off" : "peer-off");
        EXPECT_STREQ(s.shm_reason, server == XSOCK_SHM_OFF ? "off" : "peer-off");
    }
}

TEST(ShmPath, is_shared_memory_unless_the_process_has_it_off) {
    for (const bool off : {false, true}) {
        with_environment("XSOCK_SHM", off ? "off" : "", [off] {
            setenv("XSOCK_SHM_TIMEOUT_MS", "30000", 1);
            const Pair pair;
            EXPECT_EQ(query(pair.client).path, off ? XSOCK_PATH_TCP : XSOCK_PATH_SHM);
            EXPECT_STREQ(query(pair.client).shm_reason, off ? "off" : "none");
        });
    }
}

TEST(ShmPath, is_shared_memory_where_both_ends_require_it) {
    // As long as a machine under load may need.
    with_environment("XSOCK_SHM_TIMEOUT_MS", "30000", [] {
        const Pair pair(shm(XSOCK_SHM_REQUIRE, XSOCK_SHM_REQUIRE));
        EXPECT_EQ(query(pair.client).path, XSOCK_PATH_SHM);
        EXPECT_EQ(query(pair.server).path, XSOCK_PATH_SHM);
        const auto sent = pattern(300'000);
        const auto size = static_cast<std::uint32_t>(sent.size());
        std::vector<unsigned char> there(size), back(size);
        ASSERT_EQ(xsock_recv(pair.server, 1, there.data(), size), 0);
        ASSERT_EQ(xsock_recv(pair.client, 2, back.data(), size), 0);
        ASSERT_EQ(xsock_send(pair.client, 3, sent.data(), size, 0), 0);
        const xsock_wc wc = next(pair.server_cq);
        EXPECT_EQ(wc.status, XSOCK_WC_SUCCESS);
        EXPECT_EQ(wc.wr_id, 1u);
        ASSERT_EQ(xsock_send(pair.server, 4, there.data(), size, 0), 0);
        for (xsock_cq* cq : {pair.client_cq, pair.client_cq, pair.server_cq}) {
            EXPECT_EQ(next(cq).status, XSOCK_WC_SUCCESS);
        }
        EXPECT_EQ(back, sent);
    });
}

TEST(ShmPath, may_be_asked_for_by_the_environment) {
    with_environment("XSOCK_SHM", "auto", [] {
        const Pair pair(shm(XSOCK_SHM_DEFAULT, XSOCK_SHM_OFF));
        EXPECT_STREQ(query(pair.client).shm_reason, "peer-off");
        EXPECT_STREQ(query(pair.server).shm_reason, "off");
    });
    with_environment("XSOCK_SHM", "require", [] {
        const Pair pair(shm(XSOCK_SHM_DEFAULT, XSOCK_SHM_OFF, /*wait=*/false));
        EXPECT_EQ(xsock_ep_wait(pair.client, kLimitMs), -1);
        EXPECT_EQ(errno, EPROTONOSUPPORT);
    });
}

TEST_F(ShmChoice, an_endpoint_that_requires_it_has_no_connection_over_tcp) {
    const Pair pair(shm(XSOCK_SHM_REQUIRE, XSOCK_SHM_OFF, /*wait=*/false));
    EXPECT_EQ(xsock_ep_wait(pair.client, kLimitMs), -1);
    EXPECT_EQ(errno, EPROTONOSUPPORT);
    const xsock_ep_info info = query(pair.client);
    EXPECT_EQ(info.state, XSOCK_EP_ERROR);
    EXPECT_EQ(info.error, EPROTONOSUPPORT);
    EXPECT_NE(std::string(info.error_text).find("shared memory is required"), std::string::npos);
}

TEST_F(ShmChoice, what_was_posted_to_an_endpoint_that_requires_it_fails) {
    int near = -1, far = -1;
    tcp_pair(near, far);
    attr.shm = XSOCK_SHM_REQUIRE;
    attr.role = XSOCK_ROLE_INITIATOR;
    xsock_ep* const client = xsock_ep_create(near, &attr);
    ASSERT_NE(client, nullptr) << strerror(errno);
    // It starts until there is a peer.
    ASSERT_EQ(xsock_send(client, 5, "x", 1, 0), 0) << strerror(errno);
    attr.shm = XSOCK_SHM_OFF;
    attr.role = XSOCK_ROLE_RESPONDER;
    xsock_ep* const server = xsock_ep_create(far, &attr);
    ASSERT_NE(server, nullptr) << strerror(errno);
    const xsock_wc wc = next(cq);
    EXPECT_EQ(wc.wr_id, 5u);
    EXPECT_NE(wc.status, XSOCK_WC_SUCCESS);
    for (xsock_ep* ep : {client, server}) EXPECT_EQ(xsock_ep_abort(ep), 0);
}

TEST_F(ShmChoice, a_listener_that_requires_it_returns_none_over_tcp) {
    attr.shm = XSOCK_SHM_REQUIRE;
    xsock_listener* const listener = xsock_listen("127.0.0.1", "0", 4, &attr);
    ASSERT_NE(listener, nullptr) << strerror(errno);
    // xsock_connect() would not return an endpoint that has ended by then.
    const RawPeer tcp(xsock_listener_port(listener));
    ASSERT_TRUE(tcp.connected());
    attr.shm = XSOCK_SHM_OFF;
    attr.role = XSOCK_ROLE_INITIATOR;
    attr.flags = XSOCK_EP_EVENTS;
    xsock_ep* const client = xsock_ep_create(dup(tcp.fd()), &attr);
    ASSERT_NE(client, nullptr) << strerror(errno);
    // The listener's reset may come ahead of its Reply's reading.
    xsock_wc wc = next(cq);
    if (wc.op == XSOCK_OP_CONNECTED) wc = next(cq);
    EXPECT_EQ(wc.op, XSOCK_OP_CLOSED);
    EXPECT_EQ(xsock_accept(listener, 0), nullptr);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(xsock_ep_abort(client), 0);
    EXPECT_EQ(xsock_listener_close(listener), 0);
}

TEST_F(ShmChoice, an_unknown_one_or_one_without_extension_frames_is_an_error_of_the_call) {
    int near = -1, far = -1;
    tcp_pair(near, far);
    const LoopbackListener listening;
    attr.shm = XSOCK_SHM_REQUIRE + 1;
    EXPECT_EQ(xsock_ep_create(near, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    attr.shm = XSOCK_SHM_REQUIRE;
    attr.flags = XSOCK_EP_NO_EXTENSIONS;
    EXPECT_EQ(xsock_ep_create(near, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(xsock_listener_create(listening.fd(), &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    for (const int fd : {near, far}) EXPECT_EQ(close(fd), 0) << "is the caller's still";
}

}  // namespace
}  // namespace xsock::test
