// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/datagram_sender.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/unit/verbs/completions.hpp"
#include "tests/unit/verbs/fake_polled_qp.hpp"
#include "verbs/datagram_carrier.hpp"

namespace xsock::verbs {
namespace {

struct Owner final : CarrierOwner {
    void dial(const std::shared_ptr<DatagramSender>& sender) noexcept override {
        ++dials;
        if (!has_memory) sender->give_up();
    }
    std::shared_ptr<PolledQp> make_carrier(PolledQpAttr attr) override {
        made = std::make_shared<FakePolledQp>(std::move(attr));
        return made;
    }
    void count_ended(const PolledQp&) noexcept override {}
    DatagramCounters& counters() noexcept override { return counts; }
    std::atomic<std::size_t>& outgoing() noexcept override { return open; }
    Time now() const noexcept override { return time; }

    int dials = 0;
    bool has_memory = true;
    std::shared_ptr<FakePolledQp> made;
    DatagramCounters counts;
    std::atomic<std::size_t> open{0};
    Time time = 1000 * kSecond;
};

constexpr std::uint32_t kBytes = 4096;
constexpr std::uint32_t kName = 0x12345678;
constexpr int kFills = 256 * 1024 / kBytes;  // so many of them are as much as a carrier is given

struct DatagramSenderTest : testing::Test {
    ~DatagramSenderTest() override {
        if (owner.made != nullptr) owner.made->attr.keeper.reset();  // they keep each other
        for (const auto& qp_of_peer : incoming_) {
            for (const std::uint64_t id : qp_of_peer->given) {
                delete reinterpret_cast<DatagramBuffer*>(static_cast<std::uintptr_t>(id));
            }
        }
    }
    DatagramQp::Config config() {
        DatagramQp::Config config;
        config.num = 0x123456;
        config.rq_depth = 1;
        config.clock = [] { return kSecond; };
        config.counters = &owner.counts;
        config.pool = &pool;
        config.send_cq = completions;
        config.recv_cq = completions;
        return config;
    }
    void send() {
        auto buffer = std::make_unique<DatagramBuffer>();
        buffer->bytes = kBytes;
        if (sender->try_send(buffer, DatagramSender::Gather::yes)) {
            qp->sends().add_done({.signaled = true});
            return;
        }
        buffer->qp = qp;
        buffer->number = qp->sends().begin({.signaled = true});
        sender->queue(std::move(buffer));
    }
    void accepted() {
        const auto carrier = std::make_shared<DatagramCarrier>(
            owner, DatagramCarrier::Ends{.sender = sender, .receiver = {}, .both_ways = true});
        ASSERT_TRUE(sender->connect(carrier->make_connection(), kName));
    }
    std::shared_ptr<FakePolledQp> connect() {
        accepted();
        owner.made->become(QpState::established);
        return owner.made;
    }
    /// One that the other process has dialed.
    std::shared_ptr<FakePolledQp> incoming() {
        auto made = std::make_shared<FakePolledQp>(PolledQpAttr{});
        incoming_.push_back(made);
        return made;
    }
    /// How many sends are complete that were not when last asked.
    std::size_t completed() {
        const std::size_t before = std::exchange(completed_, completions->all.size());
        return completed_ - before;
    }

    Owner owner;
    DatagramPool pool;
    std::shared_ptr<Completions> completions = std::make_shared<Completions>();
    std::size_t completed_ = 0;
    std::vector<std::shared_ptr<FakePolledQp>> incoming_;
    std::shared_ptr<DatagramQp> qp = std::make_shared<DatagramQp>(config());
    std::shared_ptr<DatagramSender> sender =
        std::make_shared<DatagramSender>(owner, CarrierKey{.port = 7});
};

TEST_F(DatagramSenderTest, dials_for_the_first) {
    send();
    EXPECT_EQ(owner.dials, 1);
    send();
    EXPECT_EQ(owner.dials, 1);
    const auto connection = connect();
    EXPECT_EQ(connection->given.size(), 2u);
    EXPECT_EQ(completed(), 2u);
    send();
    EXPECT_EQ(connection->given.size(), 3u);
    connection->complete(3);
    EXPECT_EQ(owner.counts.sent, 3u);
    EXPECT_EQ(owner.counts.unsent, 0u);
}

// The poller may have sent a datagram, and be through with it, while it is being queued.
TEST_F(DatagramSenderTest, a_datagram_stays_in_memory_until_it_has_left_the_queue) {
    send();
    send();
    accepted();
    std::thread poller;
    owner.made->on_queue = [&](std::uint64_t id) {
        poller = std::thread([this, id] {
            Wc wc;
            wc.opcode = WcOpcode::send;
            wc.wr_id = id;
            wc.qp_context = owner.made->attr.qp.context;
            owner.made->attr.on_completion(owner.made->attr.argument, wc);
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    owner.made->become(QpState::established);
    poller.join();
    EXPECT_EQ(completed(), 2u);
    ASSERT_EQ(owner.made->given.size(), 2u);
    owner.made->given.erase(owner.made->given.begin());
    owner.made->complete();
    send();
    EXPECT_EQ(owner.made->given.size(), 1u);
    owner.made->complete();
}

TEST_F(DatagramSenderTest, drops_what_cannot_be_dialed_for_and_dials_again_later) {
    owner.has_memory = false;
    send();
    EXPECT_EQ(completed(), 1u);
    EXPECT_EQ(owner.counts.unsent, 1u);
    send();  // at once: none is dialed for
    EXPECT_EQ(owner.dials, 1);
    EXPECT_EQ(owner.counts.unsent, 2u);
    owner.time += kSecond;
    owner.has_memory = true;
    send();
    EXPECT_EQ(owner.dials, 2);
    EXPECT_EQ(connect()->given.size(), 1u);
    owner.made->complete();
}

TEST_F(DatagramSenderTest, drops_what_waits_when_the_connection_ends) {
    send();
    const auto connection = connect();
    for (int i = 0; i < 2 * kFills; ++i) send();
    const std::size_t given = connection->given.size();
    EXPECT_LT(given, 2u * kFills);
    connection->become(QpState::peer_closed);
    EXPECT_EQ(completed(), 1u + 2 * kFills);
    EXPECT_EQ(owner.counts.unsent, 1 + 2 * kFills - given);
    connection->complete(given, WcStatus::flushed);
}

// A poster has room in one connection; it ends, and another is made, before the post fails.
TEST_F(DatagramSenderTest, counts_nothing_of_a_former_connection) {
    send();
    const auto first = connect();
    first->complete();
    send();
    first->takes = false;
    std::shared_ptr<FakePolledQp> second;
    first->on_post = [&] {
        first->become(QpState::closed);
        owner.time += kSecond;
        send();
        second = connect();
        second->complete();
    };
    send();
    ASSERT_NE(second, nullptr);
    // It went by the second; what the first completes late counts for nothing there.
    EXPECT_EQ(second->given.size(), 1u);
    first->complete(first->given.size(), WcStatus::flushed);
    for (int i = 1; i < 2 * kFills; ++i) send();
    EXPECT_EQ(second->given.size(), 1u * kFills);
    second->complete(second->given.size());
    EXPECT_EQ(second->given.size(), 1u * kFills);
    second->complete(second->given.size());
    EXPECT_EQ(owner.counts.unsent, 1u);  // what the first had
}

TEST_F(DatagramSenderTest, a_slow_peer_loses_only_what_is_late) {
    send();
    const auto connection = connect();
    connection->complete();
    for (int i = 0; i < kFills; ++i) send();
    (void)completed();
    for (int i = 0; i < 10; ++i) send();
    EXPECT_EQ(completed(), 0u);
    owner.time += kSecond / 2;
    send();
    EXPECT_GT(connection->poll(), owner.time);
    EXPECT_EQ(completed(), 0u);
    owner.time += kSecond / 2;
    EXPECT_GT(connection->poll(), owner.time);
    EXPECT_EQ(completed(), 10u);
    connection->complete(kFills);
    EXPECT_EQ(completed(), 1u);
    connection->complete();
    EXPECT_EQ(owner.counts.unsent, 10u);
}

TEST_F(DatagramSenderTest, drops_at_once_what_a_stalled_connection_would_not_take) {
    send();
    const auto connection = connect();
    for (int i = 0; i < kFills + 10; ++i) send();
    (void)connection->poll();
    owner.time += kSecond;
    (void)connection->poll();
    (void)completed();
    for (int i = 0; i < 100; ++i) send();
    EXPECT_EQ(completed(), 100u);
    EXPECT_EQ(owner.counts.unsent, 111u);
    connection->complete(2);
    const std::size_t given = connection->given.size();
    send();
    EXPECT_EQ(connection->given.size(), given + 1);
    EXPECT_EQ(owner.counts.unsent, 111u);
    connection->complete(given + 1);
}

TEST_F(DatagramSenderTest, what_is_dialed_for_again_is_complete_where_little_waits) {
    send();
    EXPECT_EQ(completed(), 0u);
    sender->give_up();
    EXPECT_EQ(completed(), 1u);
    owner.time += kSecond;
    for (int i = 0; i < kFills; ++i) send();
    EXPECT_EQ(completed(), 1u * kFills);
    send();
    EXPECT_EQ(completed(), 0u);
    sender->give_up();
    EXPECT_EQ(completed(), 1u);
    EXPECT_EQ(owner.counts.unsent, 2u + kFills);
}

TEST_F(DatagramSenderTest, counts_its_connections) {
    EXPECT_TRUE(sender->is_unused(owner.time));
    send();
    EXPECT_FALSE(sender->is_unused(owner.time));
    connect();
    EXPECT_EQ(owner.open, 1u);
    EXPECT_FALSE(sender->close_if_idle());
    owner.made->complete();
    EXPECT_TRUE(sender->close_if_idle());
    EXPECT_EQ(owner.made->ends.size(), 1u);
    EXPECT_TRUE(sender->is_unused(owner.time));
    owner.made.reset();
    EXPECT_EQ(owner.open, 0u);
}

// ---- connections that the other process has dialed --------------------------------

TEST_F(DatagramSenderTest, sends_what_it_dials_for_by_one_that_the_other_has_dialed) {
    const auto theirs = incoming();
    EXPECT_FALSE(sender->adopt(theirs));  // it dials for nothing
    send();
    EXPECT_TRUE(sender->adopt(theirs));
    EXPECT_EQ(theirs->given.size(), 1u);
    EXPECT_EQ(completed(), 1u);
    send();
    EXPECT_EQ(theirs->given.size(), 2u);
    EXPECT_EQ(owner.dials, 1);
    EXPECT_FALSE(sender->is_unused(owner.time));
    // Nothing else takes its place, and the end of dialing comes too late.
    EXPECT_FALSE(sender->adopt(incoming()));
    EXPECT_FALSE(sender->connect(incoming(), kName));
    sender->give_up();
    EXPECT_EQ(owner.counts.unsent, 0u);
}

TEST_F(DatagramSenderTest, names_the_connection_that_it_has_dialed_while_there_is_one) {
    EXPECT_EQ(sender->dialed_name(), std::nullopt);
    send();
    EXPECT_EQ(sender->dialed_name(), std::nullopt);
    accepted();
    EXPECT_EQ(sender->dialed_name(), kName);
    EXPECT_FALSE(sender->adopt(incoming()));
    owner.made->become(QpState::established);
    EXPECT_EQ(sender->dialed_name(), kName);
    owner.made->complete();
    owner.made->become(QpState::closed);
    EXPECT_EQ(sender->dialed_name(), std::nullopt);
}

// The other process is about to use it.
TEST_F(DatagramSenderTest, a_connection_that_is_named_is_not_idle) {
    send();
    connect()->complete();
    EXPECT_FALSE(sender->close_if_idle());
    EXPECT_EQ(sender->dialed_name(), kName);
    EXPECT_FALSE(sender->close_if_idle());
    EXPECT_TRUE(sender->close_if_idle());
}

TEST_F(DatagramSenderTest, dials_at_once_for_a_process_that_has_dialed) {
    send();
    sender->give_up();
    send();
    EXPECT_EQ(owner.dials, 1);
    EXPECT_EQ(owner.counts.unsent, 2u);
    sender->end_pause();
    send();
    EXPECT_EQ(owner.dials, 2);
    EXPECT_EQ(connect()->given.size(), 1u);
    owner.made->complete();
}

TEST_F(DatagramSenderTest, a_connection_that_took_nothing_and_ended_holds_up_no_other) {
    send();
    const auto first = connect();
    for (int i = 0; i < kFills; ++i) send();
    owner.time += 2 * kSecond;
    (void)first->attr.on_poll(first->attr.argument);
    const std::uint64_t unsent = owner.counts.unsent;
    EXPECT_NE(unsent, 0u);
    send();  // nothing waits for it
    EXPECT_EQ(owner.counts.unsent, unsent + 1);
    first->become(QpState::peer_closed);
    first->complete(kFills);
    first->become(QpState::closed);
    owner.time += kSecond;
    send();
    EXPECT_EQ(owner.dials, 2);
    EXPECT_EQ(owner.counts.unsent, unsent + 1);
    sender->give_up();
}

TEST_F(DatagramSenderTest, does_not_name_one_that_the_other_has_dialed) {
    send();
    EXPECT_TRUE(sender->adopt(incoming()));
    EXPECT_EQ(sender->dialed_name(), std::nullopt);
}

// It was idle, and its dialer has closed it: the other process is there.
TEST_F(DatagramSenderTest, dials_at_once_when_what_it_had_not_dialed_has_ended) {
    send();
    const auto theirs = incoming();
    EXPECT_TRUE(sender->adopt(theirs));
    EXPECT_FALSE(sender->close_if_idle());
    EXPECT_FALSE(sender->close_if_idle());
    sender->leave(*theirs);
    send();
    EXPECT_EQ(owner.dials, 2);
    EXPECT_EQ(connect()->given.size(), 1u);
    EXPECT_EQ(owner.counts.unsent, 0u);
    owner.made->complete();
}

TEST_F(DatagramSenderTest, is_not_idle_while_something_comes) {
    send();
    connect()->complete();
    EXPECT_FALSE(sender->close_if_idle());
    sender->note_used();
    EXPECT_FALSE(sender->close_if_idle());
    EXPECT_TRUE(sender->close_if_idle());
}

}  // namespace
}  // namespace xsock::verbs
