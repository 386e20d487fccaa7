// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How connections end when the two sides disagree about when: against a peer of plain socket calls
// that finishes, resets, or goes on talking at the worst moment.
#include <chrono>
#include <memory>
#include <thread>

#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/pair.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"

namespace xsock::test {
namespace {

using std::chrono::milliseconds;

class Ending : public OneQueue {
  protected:
    void SetUp() override {
        OneQueue::SetUp();
        attr.flags = XSOCK_EP_EVENTS;
    }
    void TearDown() override {
        if (ep != nullptr) xsock_ep_abort(ep);
        OneQueue::TearDown();
    }
    // An established endpoint, and the plain socket at its other end.
    void initiate() {
        attr.mpa_revision = 1;
        establish([](RawPeer& it) { return it.answer(); });
    }
    void respond() {
        attr.role = XSOCK_ROLE_RESPONDER;
        establish([](RawPeer& it) { return it.start(); });
    }
    void establish(bool (*peer_starts)(RawPeer&)) {
        int fds[2];
        tcp_pair(fds[0], fds[1]);
        ep = xsock_ep_create(fds[0], &attr);
        ASSERT_NE(ep, nullptr) << strerror(errno);
        peer = std::make_unique<RawPeer>(RawPeer::Connected{fds[1]});
        ASSERT_TRUE(peer_starts(*peer));
        ASSERT_EQ(xsock_ep_wait(ep, kLimitMs), 0) << strerror(errno);
        expect_event(XSOCK_OP_CONNECTED);
    }
    void expect_event(int op) {
        const xsock_wc wc = next(cq);
        EXPECT_EQ(wc.op, op);
        EXPECT_EQ(wc.status, XSOCK_WC_SUCCESS) << xsock_wc_str(wc.status);
    }
    // Polls without a completion to wait for, so that what was just said is taken in.
    void wait_until_quiet() {
        xsock_wc wc{};
        EXPECT_EQ(xsock_cq_wait(cq, &wc, 1, 1, 20), 0)
            << "op " << wc.op << ": " << xsock_wc_str(wc.status);
    }
    void expect_state(uint32_t state, int error) {
        for (int i = 0; i < kLimitMs && query(ep).state != state; ++i) {
            std::this_thread::sleep_for(milliseconds(1));
        }
        EXPECT_EQ(query(ep).state, state);
        EXPECT_EQ(query(ep).error, error) << query(ep).error_text;
    }

    xsock_ep* ep = nullptr;
    std::unique_ptr<RawPeer> peer;
};

TEST_F(Ending, fins_that_cross_are_an_orderly_end) {
    for (int round = 0; round < 50; ++round) {
        Pair pair({.adjust = [](xsock_ep_attr& client, xsock_ep_attr& server) {
            client.flags = server.flags = XSOCK_EP_EVENTS;
        }});
        ASSERT_EQ(next(pair.client_cq).op, XSOCK_OP_CONNECTED);
        ASSERT_EQ(next(pair.server_cq).op, XSOCK_OP_CONNECTED);
        std::thread other([&] { EXPECT_EQ(xsock_ep_shutdown(pair.server), 0); });
        EXPECT_EQ(xsock_ep_shutdown(pair.client), 0);
        other.join();
        for (xsock_cq* each : {pair.client_cq, pair.server_cq}) {
            const xsock_wc closed = next(each);
            ASSERT_EQ(closed.op, XSOCK_OP_CLOSED);
            ASSERT_EQ(closed.status, XSOCK_WC_SUCCESS);
        }
        for (const xsock_ep* each : {pair.client, pair.server}) {
            ASSERT_EQ(query(each).error, 0) << query(each).error_text;
        }
    }
}

// An initiator that has not spoken owes a peer of the old kind an empty message, but not behind its
// own FIN: that was EPIPE, and the orderly end an error.
TEST_F(Ending, nothing_is_said_behind_our_fin) {
    initiate();
    ASSERT_EQ(xsock_ep_shutdown(ep), 0);
    std::string heard;
    ASSERT_TRUE(peer->hear_end(heard));
    wait_until_quiet();
    expect_state(XSOCK_EP_CLOSING, 0);
    peer->finish();
    expect_event(XSOCK_OP_CLOSED);
    expect_state(XSOCK_EP_CLOSED, 0);
}

// Linux siw completes the Send that we answered with an error if our FIN comes at once.
TEST_F(Ending, our_fin_waits_a_moment_toward_a_standard_peer) {
    respond();
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(xsock_ep_shutdown(ep), 0);
    std::string heard;
    ASSERT_TRUE(peer->hear_end(heard));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(90));
    peer->finish();
    expect_event(XSOCK_OP_CLOSED);
    expect_state(XSOCK_EP_CLOSED, 0);
}

// Of a Reply that comes in one segment with FIN, Linux siw reads nothing.
TEST_F(Ending, our_fin_waits_a_moment_behind_a_rejection) {
    int fds[2];
    tcp_pair(fds[0], fds[1]);
    attr.role = XSOCK_ROLE_RESPONDER;
    attr.flags |= XSOCK_EP_DEFER;
    ep = xsock_ep_create(fds[0], &attr);
    ASSERT_NE(ep, nullptr) << strerror(errno);
    peer = std::make_unique<RawPeer>(RawPeer::Connected{fds[1]});
    ASSERT_TRUE(peer->say(RawPeer::request(0, 1, "")));
    ASSERT_EQ(xsock_ep_wait(ep, kLimitMs), 0) << strerror(errno);
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(xsock_ep_reject(ep, "no seats", 8), 0);
    std::string heard;
    ASSERT_TRUE(peer->hear_end(heard));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(90));
    ASSERT_EQ(heard.size(), 28u);
    EXPECT_NE(heard[16] & MPA_FLAG_REJECT, 0);
    EXPECT_EQ(heard.substr(20), "no seats");
    peer->finish();
    const xsock_wc closed = next(cq);
    EXPECT_EQ(closed.op, XSOCK_OP_CLOSED);
    EXPECT_NE(closed.status, XSOCK_WC_SUCCESS);
}

TEST_F(Ending, a_read_request_that_crosses_our_fin_is_not_answered) {
    initiate();
    char memory[64] = {}, into[64] = {};
    xsock_mr* mr = xsock_mr_register(nullptr, memory, sizeof memory, XSOCK_REMOTE_READ, nullptr);
    ASSERT_EQ(xsock_recv(ep, 8, into, sizeof into), 0);
    ASSERT_EQ(xsock_ep_shutdown(ep), 0);
    std::string heard;
    ASSERT_TRUE(peer->hear_end(heard));
    ASSERT_TRUE(peer->say(
        RawPeer::read_request(1, 16, xsock_mr_stag(mr), reinterpret_cast<uintptr_t>(memory))));
    wait_until_quiet();
    ASSERT_TRUE(peer->say(RawPeer::send_message(1, "late")));
    peer->finish();
    const xsock_wc received = next(cq);
    EXPECT_EQ(received.wr_id, 8u);
    EXPECT_EQ(received.status, XSOCK_WC_SUCCESS) << xsock_wc_str(received.status);
    EXPECT_STREQ(into, "late");
    expect_event(XSOCK_OP_CLOSED);
    expect_state(XSOCK_EP_CLOSED, 0);
    EXPECT_EQ(xsock_mr_deregister(mr), 0);
}

TEST_F(Ending, a_read_is_flushed_when_the_peer_finishes_instead_of_answering) {
    for (const bool shut_down : {false, true}) {
        SCOPED_TRACE(shut_down);
        initiate();
        char buffer[64];
        const xsock_remote remote{0, sizeof buffer, 9, 0};
        ASSERT_EQ(xsock_read(ep, 4, buffer, sizeof buffer, &remote, 0, 0), 0);
        if (shut_down) {
            ASSERT_EQ(xsock_ep_shutdown(ep), 0);
            wait_until_quiet();
        }
        peer->finish();
        const xsock_wc read = next(cq);
        EXPECT_EQ(read.wr_id, 4u);
        EXPECT_EQ(read.status, XSOCK_WC_FLUSHED) << xsock_wc_str(read.status);
        expect_event(XSOCK_OP_CLOSED);
        xsock_ep_abort(ep);
        ep = nullptr;
    }
}

// Only callers poll, so the Terminate and the reset behind it are both there when the next send
// fails.
TEST_F(Ending, a_terminate_is_found_although_a_send_meets_the_reset_first) {
    with_environment("XSOCK_PROGRESS", "app", [this] {
        initiate();
        char buffer[64] = {};
        const xsock_remote remote{0, sizeof buffer, 9, 0};
        ASSERT_EQ(xsock_write(ep, 4, buffer, sizeof buffer, &remote, 0, 0), 0);
        expect_event(XSOCK_OP_WRITE);
        const std::string terminate = RawPeer::fpdu(
            RawPeer::untagged(0x41, 0x47, 2, 1, 0, std::string("\x11\x00\x00\x00", 4)));
        ASSERT_TRUE(peer->say(terminate));
        peer->reset();
        std::this_thread::sleep_for(milliseconds(20));
        ASSERT_EQ(xsock_write(ep, 5, buffer, sizeof buffer, &remote, 0, 0), 0);
        xsock_wc wc{};
        EXPECT_EQ(xsock_cq_wait(cq, &wc, 1, 1, kLimitMs), 1);
        expect_state(XSOCK_EP_ERROR, EPROTO);
        EXPECT_NE(std::string(query(ep).error_text).find("peer terminated"), std::string::npos)
            << query(ep).error_text;
    });
}

TEST_F(Ending, a_send_that_meets_a_reset_after_the_half_close_says_that_it_was_reset) {
    with_environment("XSOCK_PROGRESS", "app", [this] {
        initiate();
        peer->finish();
        expect_event(XSOCK_OP_CLOSED);
        peer->reset();
        std::this_thread::sleep_for(milliseconds(20));
        ASSERT_EQ(xsock_send(ep, 1, "x", 1, XSOCK_INLINE), 0);
        xsock_wc wc{};
        EXPECT_EQ(xsock_cq_wait(cq, &wc, 1, 1, kLimitMs), 1);
        expect_state(XSOCK_EP_ERROR, ECONNRESET);
        xsock_ep_abort(ep);
        ep = nullptr;
    });
}

TEST_F(Ending, a_reset_after_the_half_close_is_an_error_if_something_was_sent) {
    for (const bool sends : {false, true}) {
        SCOPED_TRACE(sends);
        respond();
        ASSERT_TRUE(peer->say(RawPeer::empty_write()));
        peer->finish();
        expect_event(XSOCK_OP_CLOSED);
        expect_state(XSOCK_EP_PEER_CLOSED, 0);
        if (sends) {
            ASSERT_EQ(xsock_send(ep, 1, "x", 1, XSOCK_INLINE), 0);
            xsock_wc wc{};
            EXPECT_EQ(xsock_cq_wait(cq, &wc, 1, 1, kLimitMs), 1);
            EXPECT_EQ(wc.status, XSOCK_WC_SUCCESS) << xsock_wc_str(wc.status);
        }
        peer->reset();
        // (Linux calls a reset in CLOSE-WAIT EPIPE.)
        expect_state(sends ? XSOCK_EP_ERROR : XSOCK_EP_CLOSED, sends ? ECONNRESET : 0);
        xsock_ep_abort(ep);
        ep = nullptr;
    }
}

// Behind a half-close the descriptor is watched for room only. The peer reads late, so that the
// sender sleeps when the room comes.
TEST_F(Ending, a_half_closed_peer_gets_all_of_a_long_message) {
    respond();
    ASSERT_TRUE(peer->say(RawPeer::empty_write()));
    peer->finish();
    expect_event(XSOCK_OP_CLOSED);
    const std::vector<unsigned char> data(16u << 20);
    ASSERT_EQ(xsock_send(ep, 1, data.data(), static_cast<uint32_t>(data.size()), 0), 0);
    std::size_t got = 0;
    std::thread reader([&] {
        std::this_thread::sleep_for(milliseconds(100));
        std::vector<char> bytes(1u << 20);
        for (ssize_t n; (n = ::recv(peer->fd(), bytes.data(), bytes.size(), 0)) > 0;) {
            got += static_cast<std::size_t>(n);
        }
    });
    xsock_wc wc{};
    EXPECT_EQ(xsock_cq_wait(cq, &wc, 1, 1, 5000), 1) << "the transfer stopped";
    EXPECT_EQ(wc.status, XSOCK_WC_SUCCESS) << xsock_wc_str(wc.status);
    EXPECT_EQ(xsock_ep_close(ep), 0);
    ep = nullptr;
    reader.join();
    EXPECT_GT(got, data.size());
}

// What the peer says after close() is not received any more; that must not cut the drain short.
TEST_F(Ending, close_drains_though_the_peer_goes_on_sending) {
    attr.rnr_timeout_ms = 50;
    respond();
    const int small = 65536;
    setsockopt(peer->fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    ASSERT_TRUE(peer->say(RawPeer::empty_write()));
    const std::vector<unsigned char> data(16u << 20);
    ASSERT_EQ(xsock_send(ep, 1, data.data(), static_cast<uint32_t>(data.size()), 0), 0);
    ASSERT_EQ(xsock_ep_close(ep), 0);
    ep = nullptr;
    ASSERT_TRUE(peer->say(RawPeer::send_message(1, "x")));
    std::this_thread::sleep_for(milliseconds(150));
    std::size_t got = 0;
    std::vector<char> bytes(1u << 20);
    for (ssize_t n; (n = ::recv(peer->fd(), bytes.data(), bytes.size(), 0)) > 0;) {
        got += static_cast<std::size_t>(n);
    }
    EXPECT_GT(got, data.size());
    const xsock_wc sent = next(cq);
    EXPECT_EQ(sent.wr_id, 1u);
    EXPECT_EQ(sent.status, XSOCK_WC_SUCCESS) << xsock_wc_str(sent.status);
}

}  // namespace
}  // namespace xsock::test
