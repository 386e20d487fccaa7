// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Programs that sleep on a completion channel while shared memory carries their messages: two
// devices of this process that no thread of the library serves, so that only the link can wake
// them.
#include "transport/link_channels.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/loopback.hpp"
#include "tests/unit/transport/soon.hpp"
#include "transport/clock.hpp"
#include "transport/soft_device.hpp"

namespace xsock {
namespace {

constexpr int kLimitMs = 20'000;

using test::soon;

bool readable(const CompletionChannel& channel, int timeout_ms) {
    pollfd p{channel.fd(), POLLIN, 0};
    return ::poll(&p, 1, timeout_ms) == 1;
}

class LinkChannelsTest : public ::testing::Test {
  protected:
    struct End {
        std::unique_ptr<Qp> qp;
        std::unique_ptr<Cq> cq;
        std::byte octet{};
    };
    struct Pair {
        End a, b;
    };

    void SetUp() override {
        TransportConfig config;
        config.progress = ProgressMode::app;
        config.shm = ShmMode::require;
        config.shm_timeout = 30 * kSecond;
        for (auto& made : device) made = std::move(*make_soft_device(config));
        channel = std::move(*device[1]->create_channel());
    }
    void TearDown() override { pairs.clear(); }

    /// Connected; completions of `b` are events of `channel`.
    Pair& connect() {
        auto pair = std::make_unique<Pair>();
        const auto [client, server] = test::loopback_pair();
        pair->a.cq = std::move(*device[0]->create_cq(64, false));
        pair->b.cq = std::move(*device[1]->create_cq(64, false, channel));
        ConnectAttr connect;
        for (const bool initiator : {false, true}) {
            End& end = initiator ? pair->a : pair->b;
            QpAttr attr;
            attr.rnr_timeout = kNever;
            attr.send_cq = attr.recv_cq = end.cq.get();
            end.qp = std::move(*device[initiator ? 0 : 1]->create_qp(attr));
            connect.role = initiator ? ConnectAttr::Role::initiator : ConnectAttr::Role::responder;
            EXPECT_TRUE(end.qp->connect(initiator ? client : server, connect));
        }
        const Time end = soon();
        while ((pair->a.qp->state() != QpState::established ||
                pair->b.qp->state() != QpState::established) &&
               monotonic_now() < end) {
            serve(*pair);
        }
        EXPECT_EQ(pair->b.qp->info().path, DataPath::shm);
        pairs.push_back(std::move(pair));
        return *pairs.back();
    }
    static void serve(Pair& pair) {
        static_cast<void>(pair.a.cq->poll({}));
        static_cast<void>(pair.b.cq->poll({}));
    }
    static void post_recv(End& end) {
        const Sge sge{&end.octet, 1, kLkeyNone};
        EXPECT_TRUE(end.qp->post_recv({.wr_id = 1, .sges = {&sge, 1}}));
    }
    static void send(End& end) {
        const Sge sge{&end.octet, 1, kLkeyNone};
        SendWr wr;
        wr.sges = {&sge, 1};
        EXPECT_TRUE(end.qp->post_send(wr));
        std::array<Wc, 4> wcs;
        const Time until = soon();
        while (end.cq->poll(wcs) == 0 && monotonic_now() < until) {
        }
    }
    /// As a program that goes to sleep on the channel.
    void watch() {
        channel->set_watched(true);
        channel->prepare_sleep();
    }
    /// The program has woken up: its queue has one completion.
    static void take(End& end, CompletionChannel& channel) {
        channel.poll();
        std::array<Wc, 4> wcs;
        ASSERT_EQ(end.cq->take(wcs, 1), 1U);
        EXPECT_EQ(wcs[0].opcode, WcOpcode::recv);
    }

    std::shared_ptr<Device> device[2];
    std::shared_ptr<CompletionChannel> channel;
    std::vector<std::unique_ptr<Pair>> pairs;
};

TEST_F(LinkChannelsTest, a_message_wakes_a_program_whose_queue_was_armed_last) {
    auto& [a, b] = connect();
    watch();
    for (int i = 0; i < 100; ++i) {
        post_recv(b);
        b.cq->arm(false);
        ASSERT_FALSE(readable(*channel, 0));
        send(a);
        ASSERT_TRUE(readable(*channel, kLimitMs)) << i;
        take(b, *channel);
        EXPECT_FALSE(readable(*channel, 0));
    }
}

TEST_F(LinkChannelsTest, a_message_wakes_a_program_that_watches_last) {
    auto& [a, b] = connect();
    for (int i = 0; i < 100; ++i) {
        post_recv(b);
        b.cq->arm(false);
        watch();
        ASSERT_FALSE(readable(*channel, 0));
        send(a);
        ASSERT_TRUE(readable(*channel, kLimitMs)) << i;
        take(b, *channel);
        channel->set_watched(false);
    }
}

TEST_F(LinkChannelsTest, what_came_ahead_of_the_arming_is_found_by_the_next_poll) {
    auto& [a, b] = connect();
    post_recv(b);
    watch();
    send(a);
    b.cq->arm(false);
    std::array<Wc, 4> wcs;
    EXPECT_EQ(b.cq->poll(wcs), 1U);
}

TEST_F(LinkChannelsTest, the_last_connection_of_a_channel_takes_the_link_out_of_it) {
    auto& [a, b] = connect();
    auto other = std::move(*device[1]->create_channel());
    std::swap(channel, other);
    auto& [c, d] = connect();  // through the same link, with a channel of its own
    std::swap(channel, other);
    watch();
    other->set_watched(true);
    const auto wakes_both = [&, &c = c, &d = d] {
        post_recv(d);
        d.cq->arm(false);
        send(c);
        EXPECT_TRUE(readable(*other, kLimitMs));
        const bool both = readable(*channel, 0);
        take(d, *other);
        return both;
    };
    EXPECT_TRUE(wakes_both());
    a.qp.reset();
    b.qp.reset();
    const Time end = soon();
    while (wakes_both() && monotonic_now() < end) serve(*pairs[0]);
    EXPECT_LT(monotonic_now(), end);
}

// Else a call that may not sleep would, behind a poll() that told of the channel.
TEST_F(LinkChannelsTest, a_wake_up_for_another_connection_counts_as_an_arrival) {
    auto& [a, b] = connect();
    auto other = std::move(*device[1]->create_channel());
    std::swap(channel, other);
    auto& [c, d] = connect();
    std::swap(channel, other);
    watch();
    b.cq->arm(false);
    post_recv(d);
    d.cq->arm(false);
    other->set_watched(true);
    const std::uint32_t before = channel->arrivals();
    send(c);
    ASSERT_TRUE(readable(*channel, kLimitMs));
    channel->poll();
    EXPECT_NE(channel->arrivals(), before);
    EXPECT_EQ(b.cq->take({}, 1), 0U);
    EXPECT_EQ(a.qp->state(), QpState::established);
}

TEST_F(LinkChannelsTest, connections_of_one_link_may_share_a_channel) {
    connect();
    connect();
    watch();
    for (int i = 0; i < 20; ++i) {
        auto& [a, b] = *pairs[i % 2];
        post_recv(b);
        for (const auto& pair : pairs) pair->b.cq->arm(false);
        send(a);
        ASSERT_TRUE(readable(*channel, kLimitMs)) << i;
        take(b, *channel);
    }
}

TEST_F(LinkChannelsTest, each_message_arrives_beside_a_thread_that_polls) {
    auto& [a, b] = connect();
    auto& [c, d] = connect();
    watch();
    std::atomic<bool> over{false};
    std::thread poller([&, &d = d] {
        std::array<Wc, 4> wcs;
        while (!over) static_cast<void>(d.cq->poll(wcs));
    });
    for (int i = 0; i < 2000; ++i) {
        post_recv(b);
        b.cq->arm(false);
        std::thread sender;
        if (i % 100 == 0) {
            sender = std::thread([&, &a = a] { send(a); });
        } else {
            send(a);
        }
        std::array<Wc, 4> wcs;
        const Time end = soon();
        // The poller may have served it: then the queue has it.
        while (b.cq->take(wcs, 1) == 0 && monotonic_now() < end) {
            if (readable(*channel, 1)) channel->poll();
        }
        if (sender.joinable()) sender.join();
        ASSERT_LT(monotonic_now(), end) << i;
    }
    over = true;
    poller.join();
}

}  // namespace
}  // namespace xsock
