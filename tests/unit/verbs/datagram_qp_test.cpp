// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/datagram_qp.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <vector>

#include "tests/unit/verbs/completions.hpp"

namespace xsock::verbs {
namespace {

struct Waiter final : ReceiveWaiter {
    void on_receives_posted() override { ++told; }
    int told = 0;
};

constexpr std::uint32_t kNum = 0x123456, kKey = 0x77;
Time the_time = kSecond;

struct DatagramQpTest : testing::Test {
    DatagramQpTest() {
        qp.set_qkey(kKey);
        qp.set_purge_num(9);
        qp.begin_receiving();
    }
    DatagramQp::Config config() {
        DatagramQp::Config config;
        config.num = kNum;
        config.rq_depth = 512;
        config.scatter = [this](ConstBytes from, std::span<const Sge>) {
            sizes.push_back(from.size());
            return WcStatus::success;
        };
        config.clock = [] { return the_time; };
        config.counters = &counters;
        config.pool = &pool;
        config.send_cq = sends;
        config.recv_cq = receives;
        return config;
    }
    void post(std::uint64_t id, std::uint32_t bytes = 5000) {
        const Sge sge{memory, bytes, 1};
        ASSERT_TRUE(qp.post_recv({.wr_id = id, .sges = {&sge, 1}}));
    }
    bool take(std::size_t bytes, std::uint32_t key = kKey, std::uint16_t pkey = kDefaultPkey) {
        const std::vector<std::byte> octets(bytes);
        return qp.take({.pkey = pkey, .to = kNum, .from = 0xabcdef, .qkey = key}, octets, waiter);
    }
    DatagramCounters counters;
    DatagramPool pool;
    std::shared_ptr<Completions> sends = std::make_shared<Completions>();
    std::shared_ptr<Completions> receives = std::make_shared<Completions>();
    std::shared_ptr<Waiter> waiter = std::make_shared<Waiter>();
    std::vector<std::size_t> sizes;
    std::byte memory[8] = {};
    DatagramQp qp{config()};
};

TEST_F(DatagramQpTest, completes_a_receive) {
    post(4);
    EXPECT_TRUE(take(140));
    ASSERT_EQ(receives->all.size(), 1u);
    const Wc& wc = receives->all[0];
    EXPECT_EQ(wc.wr_id, 4u);
    EXPECT_EQ(wc.status, WcStatus::success);
    EXPECT_EQ(wc.byte_len, 140u);
    EXPECT_EQ(wc.qp_num, 9u);
    EXPECT_EQ(wc.qp_context, std::uint64_t{0xabcdef} << 32 | kNum);
    EXPECT_EQ(wc.flags, kWcDatagram);
    EXPECT_EQ(counters.received, 1u);
}

TEST_F(DatagramQpTest, drops_what_has_another_key) {
    post(1);
    EXPECT_TRUE(take(50, kKey + 1));
    EXPECT_TRUE(take(50, kKey, 0xfffe));
    EXPECT_TRUE(receives->all.empty());
    EXPECT_EQ(counters.wrong_qkey, 1u);
    EXPECT_EQ(counters.wrong_pkey, 1u);
}

TEST_F(DatagramQpTest, drops_what_is_longer_than_the_receive) {
    post(1, 100);
    EXPECT_TRUE(take(101));
    EXPECT_EQ(counters.too_long, 1u);
    EXPECT_TRUE(take(100));
    EXPECT_EQ(receives->all.size(), 1u);
}

TEST_F(DatagramQpTest, holds_what_finds_no_receive_in_order) {
    for (std::size_t i = 0; i < 10; ++i) EXPECT_TRUE(take(50 + i));
    EXPECT_EQ(counters.held, 10u);
    for (std::uint64_t i = 0; i < 11; ++i) post(i);
    ASSERT_EQ(receives->all.size(), 10u);
    for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(receives->all[i].byte_len, 50 + i);
    EXPECT_TRUE(take(70));
    EXPECT_EQ(receives->all.size(), 11u);
}

TEST_F(DatagramQpTest, asks_to_wait_when_its_share_is_full) {
    std::size_t held = 0;
    while (take(4096)) ++held;
    EXPECT_EQ(held, DatagramPool::kShare / 4096);
    EXPECT_FALSE(take(4096));
    EXPECT_EQ(waiter->told, 0);
    post(1);
    EXPECT_EQ(waiter->told, 1);
    EXPECT_TRUE(take(4096));
}

TEST_F(DatagramQpTest, gives_its_share_back) {
    std::size_t held = 0;
    while (take(4096)) ++held;
    qp.reset();
    EXPECT_EQ(waiter->told, 1);
    EXPECT_EQ(counters.no_qp, held);
    qp.set_qkey(kKey);
    qp.begin_receiving();
    for (std::size_t i = 0; i < held; ++i) EXPECT_TRUE(take(4096));
}

TEST_F(DatagramQpTest, drops_all_when_no_receive_comes_for_a_second) {
    EXPECT_TRUE(take(50));
    EXPECT_EQ(qp.drops_from(), the_time + kSecond);
    the_time += kSecond;
    EXPECT_TRUE(take(50));
    EXPECT_EQ(counters.no_receive, 2u);
    post(1);
    EXPECT_TRUE(receives->all.empty());
    EXPECT_EQ(qp.drops_from(), kNever);
    EXPECT_TRUE(take(60));
    EXPECT_EQ(receives->all.size(), 1u);
}

TEST_F(DatagramQpTest, gives_its_share_to_others_once_it_does_not_receive) {
    EXPECT_EQ(qp.drop_overdue(), kNever);
    std::size_t held = 0;
    while (take(4096)) ++held;
    EXPECT_EQ(qp.drop_overdue(), the_time + kSecond);
    EXPECT_FALSE(pool.has_room(DatagramPool::kBytes));
    the_time += kSecond;
    EXPECT_EQ(qp.drop_overdue(), 0u);
    EXPECT_EQ(counters.no_receive, held);
    EXPECT_TRUE(pool.has_room(DatagramPool::kBytes));
    EXPECT_EQ(qp.drop_overdue(), kNever);
    EXPECT_TRUE(take(50));  // it still does not receive
    EXPECT_EQ(counters.no_receive, held + 1);
}

TEST_F(DatagramQpTest, takes_nothing_before_it_receives) {
    qp.reset();
    qp.set_qkey(kKey);
    post(1);
    EXPECT_TRUE(take(50));
    EXPECT_EQ(counters.no_qp, 1u);
    EXPECT_TRUE(receives->all.empty());
}

TEST_F(DatagramQpTest, flushes_receives_when_it_fails) {
    post(1);
    post(2, 50);
    qp.fail();
    post(3);
    ASSERT_EQ(receives->all.size(), 3u);
    for (std::uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(receives->all[i].wr_id, i + 1);
        EXPECT_EQ(receives->all[i].status, WcStatus::flushed);
    }
    EXPECT_TRUE(take(50));
    EXPECT_EQ(counters.no_qp, 1u);
}

TEST_F(DatagramQpTest, completes_sends_in_order) {
    const auto first = qp.sends().begin({.wr_id = 1, .signaled = true});
    qp.sends().add_done({.wr_id = 2, .signaled = true});
    const auto third = qp.sends().begin({.wr_id = 3});
    qp.sends().add_done({.wr_id = 4, .signaled = true});
    EXPECT_EQ(qp.sends().waiting(), 4u);
    qp.sends().end(third);
    EXPECT_TRUE(sends->all.empty());
    qp.sends().end(first);
    ASSERT_EQ(sends->all.size(), 3u);
    EXPECT_EQ(sends->all[0].wr_id, 1u);
    EXPECT_EQ(sends->all[1].wr_id, 2u);
    EXPECT_EQ(sends->all[2].wr_id, 4u);
    EXPECT_EQ(qp.sends().waiting(), 0u);
}

TEST_F(DatagramQpTest, an_error_completes_without_being_asked_for) {
    qp.sends().add_done({.wr_id = 1, .status = WcStatus::local_length_error});
    ASSERT_EQ(sends->all.size(), 1u);
    EXPECT_EQ(sends->all[0].flags, kWcUnsignaled);
}

TEST_F(DatagramQpTest, flushes_sends_once) {
    const auto first = qp.sends().begin({.wr_id = 1, .signaled = true});
    qp.sends().add_done({.wr_id = 2, .signaled = true});
    qp.fail();
    EXPECT_TRUE(qp.sends().failed());
    qp.sends().end(first);
    ASSERT_EQ(sends->all.size(), 2u);
    EXPECT_EQ(sends->all[0].status, WcStatus::flushed);
    EXPECT_EQ(sends->all[1].status, WcStatus::success);
    EXPECT_EQ(qp.reset(), 0u);
    EXPECT_FALSE(qp.sends().failed());
}

// ---- shared receives ------------------------------------------------------------

struct SharedReceivesTest : DatagramQpTest {
    std::shared_ptr<DatagramQp> make(std::uint32_t num) {
        auto shared = config();
        shared.num = num;
        shared.shared = queue;
        auto made = std::make_shared<DatagramQp>(shared);
        made->set_qkey(kKey);
        made->begin_receiving();
        return made;
    }
    void give(std::uint64_t id, std::uint32_t bytes = 5000) {
        RecvWqe wqe{};
        wqe.wr_id = id;
        wqe.length = bytes;
        posted.push_back(wqe);
        queue->posted();
    }
    bool take_for(DatagramQp& to, std::size_t bytes) {
        const std::vector<std::byte> octets(bytes);
        return to.take({.to = kNum, .from = 1, .qkey = kKey}, octets, waiter);
    }
    std::deque<RecvWqe> posted;
    std::shared_ptr<SharedReceives> queue = std::make_shared<SharedReceives>([this](RecvWqe& out) {
        if (posted.empty()) return false;
        out = posted.front();
        posted.pop_front();
        return true;
    });
};

TEST_F(SharedReceivesTest, are_taken_as_messages_come) {
    const auto a = make(1), b = make(2);
    give(10);
    give(11);
    EXPECT_TRUE(take_for(*b, 100));
    EXPECT_TRUE(take_for(*a, 100));
    ASSERT_EQ(receives->all.size(), 2u);
    EXPECT_EQ(receives->all[0].wr_id, 10u);
    EXPECT_EQ(receives->all[0].qp_context & 0xffffffff, 2u);
    EXPECT_EQ(receives->all[1].qp_context & 0xffffffff, 1u);
}

TEST_F(SharedReceivesTest, what_waits_gets_those_that_are_posted) {
    const auto a = make(1), b = make(2);
    EXPECT_TRUE(take_for(*a, 100));
    EXPECT_TRUE(take_for(*b, 100));
    EXPECT_TRUE(take_for(*a, 100));
    EXPECT_EQ(counters.held, 3u);
    for (std::uint64_t id = 0; id < 4; ++id) give(id);
    EXPECT_EQ(receives->all.size(), 3u);
    EXPECT_EQ(posted.size(), 1u);
    EXPECT_TRUE(take_for(*b, 100));
    EXPECT_EQ(receives->all.size(), 4u);
    EXPECT_TRUE(posted.empty());
}

TEST_F(SharedReceivesTest, carriers_that_wait_are_told) {
    const auto a = make(1);
    const std::size_t half = DatagramPool::kShare / 2;
    EXPECT_TRUE(take_for(*a, half));
    EXPECT_TRUE(take_for(*a, half));
    EXPECT_FALSE(take_for(*a, half));
    EXPECT_EQ(waiter->told, 0);
    give(1, 1 << 30);
    EXPECT_EQ(waiter->told, 1);
}

TEST_F(SharedReceivesTest, one_that_is_too_short_is_the_next_ones) {
    const auto a = make(1), b = make(2);
    give(1, 50);
    EXPECT_TRUE(take_for(*a, 51));
    EXPECT_EQ(counters.too_long, 1u);
    EXPECT_TRUE(take_for(*b, 50));
    ASSERT_EQ(receives->all.size(), 1u);
    EXPECT_EQ(receives->all[0].wr_id, 1u);
}

TEST_F(SharedReceivesTest, stay_when_a_queue_pair_fails_or_is_reset) {
    const auto a = make(1);
    give(1);
    a->fail();
    (void)a->reset();
    EXPECT_TRUE(receives->all.empty());
    EXPECT_EQ(posted.size(), 1u);
}

TEST_F(SharedReceivesTest, a_queue_pair_that_is_gone_is_told_nothing) {
    auto a = make(1);
    EXPECT_TRUE(take_for(*a, 100));
    (void)a->reset(/*last=*/true);
    a.reset();
    give(1);
    EXPECT_EQ(posted.size(), 1u);
}

// The queue may have no room for them, and others' completions in it.
TEST_F(DatagramQpTest, a_reset_completes_nothing) {
    const auto first = qp.sends().begin({.wr_id = 1, .signaled = true});
    qp.sends().add_done({.wr_id = 2, .signaled = true});
    const auto third = qp.sends().begin({.wr_id = 3});
    EXPECT_EQ(qp.reset(), 2u);
    qp.sends().end(first);
    qp.sends().end(third);
    EXPECT_TRUE(sends->all.empty());
    EXPECT_EQ(qp.sends().waiting(), 0u);
    const auto next = qp.sends().begin({.wr_id = 4, .signaled = true});
    qp.sends().end(next);
    EXPECT_EQ(sends->all.size(), 1u);
}

}  // namespace
}  // namespace xsock::verbs
