// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/completion_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace xsock {
namespace {

Wc wc_of(std::uint64_t id, std::uint32_t qp = 0) { return {.wr_id = id, .qp_num = qp}; }

std::vector<std::uint64_t> drain(CompletionQueue& queue) {
    std::vector<std::uint64_t> ids;
    std::array<Wc, 3> out;
    while (const std::size_t n = queue.take(out)) {
        for (std::size_t i = 0; i < n; ++i) ids.push_back(out[i].wr_id);
    }
    return ids;
}

TEST(CompletionQueue, gives_completions_oldest_first) {
    CompletionQueue queue(4);
    for (std::uint64_t i = 0; i < 4; ++i) queue.push(wc_of(i));
    EXPECT_EQ(queue.size(), 4u);
    EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{0, 1, 2, 3}));
    EXPECT_EQ(queue.size(), 0u);
}

TEST(CompletionQueue, keeps_every_field) {
    CompletionQueue queue(4);
    const Wc wc{.wr_id = 1,
                .qp_context = 2,
                .qp_num = 3,
                .byte_len = 4,
                .invalidated_stag = 5,
                .opcode = WcOpcode::recv,
                .status = WcStatus::flushed,
                .flags = kWcSolicited,
                .immediate = 6};
    queue.push(wc);
    std::array<Wc, 1> out;
    ASSERT_EQ(queue.take(out), 1u);
    EXPECT_EQ(out[0], wc);
}

TEST(CompletionQueue, takes_no_more_than_asked_for) {
    CompletionQueue queue(4);
    queue.push(wc_of(1));
    EXPECT_EQ(queue.take({}), 0u);
    EXPECT_EQ(queue.size(), 1u);
}

TEST(CompletionQueue, takes_as_many_as_asked_for_or_none) {
    CompletionQueue queue(8);
    std::array<Wc, 4> out;
    queue.push(wc_of(1));
    queue.push(wc_of(2));
    EXPECT_EQ(queue.take(out, 3), 0u);
    EXPECT_EQ(queue.size(), 2u);
    EXPECT_EQ(queue.take(out, 2), 2u);
}

TEST(CompletionQueue, grows_beyond_its_depth_and_keeps_order) {
    CompletionQueue queue(2);
    std::vector<std::uint64_t> expected;
    std::array<Wc, 1> out;
    queue.push(wc_of(0));
    ASSERT_EQ(queue.take(out), 1u);  // so that the ring has wrapped when it grows
    for (std::uint64_t i = 1; i < 1000; ++i) {
        queue.push(wc_of(i));
        expected.push_back(i);
    }
    EXPECT_FALSE(queue.overrun());
    EXPECT_EQ(drain(queue), expected);
}

TEST(CompletionQueue, a_strict_queue_can_be_resized_down_to_what_waits) {
    CompletionQueue queue(2, true);
    queue.push({.wr_id = 1});
    queue.push({.wr_id = 2});
    EXPECT_FALSE(queue.resize(1, 1));
    EXPECT_FALSE(queue.resize(3, 1));
    EXPECT_TRUE(queue.resize(3, 3));
    queue.push({.wr_id = 3});
    EXPECT_FALSE(queue.overrun());
    EXPECT_TRUE(queue.resize(3, 3));
    queue.push({.wr_id = 4});
    EXPECT_TRUE(queue.overrun());

    CompletionQueue less(4, true);
    less.push(wc_of(1));
    less.push(wc_of(1));
    EXPECT_TRUE(less.resize(2, 2));
    EXPECT_FALSE(less.overrun());
    less.push(wc_of(1));
    EXPECT_TRUE(less.overrun());
}

TEST(CompletionQueue, strict_remembers_an_overrun) {
    CompletionQueue queue(3, true);
    for (std::uint64_t i = 0; i < 3; ++i) queue.push(wc_of(i));
    EXPECT_FALSE(queue.overrun());
    queue.push(wc_of(3));
    EXPECT_TRUE(queue.overrun());
    EXPECT_EQ(drain(queue), (std::vector<std::uint64_t>{0, 1, 2}));
    EXPECT_TRUE(queue.overrun());
}

TEST(CompletionQueue, tells_of_its_first_overrun_though_not_armed) {
    CompletionQueue queue(2, true);
    int told = 0;
    queue.set_notifier([](void* count) { ++*static_cast<int*>(count); }, &told);
    for (std::uint64_t i = 0; i < 2; ++i) queue.push(wc_of(i));
    EXPECT_EQ(told, 0);
    queue.push(wc_of(2));
    queue.push(wc_of(3));
    EXPECT_EQ(told, 1);
}

TEST(CompletionQueue, purge_removes_one_qp_only) {
    CompletionQueue queue(8);
    for (std::uint64_t i = 0; i < 200; ++i) queue.push(wc_of(i, i % 3 == 0 ? 7 : 8));
    EXPECT_TRUE(queue.holds(8));
    EXPECT_EQ(queue.purge(8), 133u);
    EXPECT_FALSE(queue.holds(8));
    const auto ids = drain(queue);
    EXPECT_EQ(ids.size(), 67u);
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], 3 * i);
}

TEST(CompletionQueue, purge_counts_the_sends_that_asked_to_complete) {
    CompletionQueue queue(8);
    for (const WcOpcode opcode :
         {WcOpcode::send, WcOpcode::recv, WcOpcode::read, WcOpcode::connected, WcOpcode::closed}) {
        queue.push({.qp_num = 8, .opcode = opcode});
    }
    queue.push({.qp_num = 8, .opcode = WcOpcode::write, .flags = kWcUnsignaled});
    EXPECT_EQ(queue.purge(8), 2u);
    EXPECT_EQ(queue.size(), 0u);
}

// -- notification --

void count(void* argument) { ++*static_cast<int*>(argument); }

TEST(CompletionQueue, several_pushed_at_once_keep_order_and_bounds) {
    CompletionQueue queue(4);
    std::vector<Wc> many;
    for (std::uint64_t i = 0; i < 300; ++i) many.push_back(wc_of(i));
    queue.push(many);
    EXPECT_EQ(queue.size(), 300u);
    std::uint64_t next = 0;
    for (const std::uint64_t id : drain(queue)) EXPECT_EQ(id, next++);
    EXPECT_EQ(next, 300u);

    CompletionQueue strict(4, true);
    unsigned told = 0;
    strict.set_notifier([](void* n) { ++*static_cast<unsigned*>(n); }, &told);
    strict.push(std::span(many).first(6));
    EXPECT_TRUE(strict.overrun());
    EXPECT_EQ(told, 1u);
    EXPECT_EQ(drain(strict), (std::vector<std::uint64_t>{0, 1, 2, 3}));
}

TEST(CompletionBatch, shows_what_it_has_when_flushed_full_or_turned_elsewhere) {
    CompletionQueue one(64), other(64);
    CompletionBatch batch;
    batch.flush();
    for (std::uint64_t i = 0; i < 5; ++i) batch.push(one, wc_of(i));
    EXPECT_EQ(one.size(), 0u);
    batch.push(other, wc_of(100));
    EXPECT_EQ(one.size(), 5u);
    EXPECT_EQ(other.size(), 0u);
    batch.flush();
    batch.flush();
    EXPECT_EQ(other.size(), 1u);
    for (std::uint64_t i = 5; i < 205; ++i) batch.push(one, wc_of(i));
    EXPECT_GE(one.size(), 105u);
    batch.flush();
    std::uint64_t next = 0;
    for (const std::uint64_t id : drain(one)) EXPECT_EQ(id, next++);
    EXPECT_EQ(next, 205u);
}

TEST(CompletionBatch, a_sink_is_told_at_once) {
    CompletionQueue queue(4);
    std::uint64_t told = 0;
    queue.set_sink([](void* to, const Wc& wc) { *static_cast<std::uint64_t*>(to) = wc.wr_id; },
                   &told);
    CompletionBatch batch;
    batch.push(queue, wc_of(7));
    EXPECT_EQ(told, 7u);
}

struct NotifyingQueue : CompletionQueue {
    NotifyingQueue() : CompletionQueue(8) { set_notifier(count, &fired); }
    int fired = 0;
};

TEST(CompletionQueue, notifies_once_for_each_arming) {
    NotifyingQueue queue;
    queue.push(wc_of(0));
    EXPECT_EQ(queue.fired, 0);
    queue.arm(false);
    EXPECT_EQ(queue.fired, 0);
    queue.push(wc_of(1));
    queue.push(wc_of(2));
    EXPECT_EQ(queue.fired, 1);
    queue.arm(false);
    queue.push(wc_of(3));
    EXPECT_EQ(queue.fired, 2);
}

TEST(CompletionQueue, solicited_arming_waits_for_solicited_receives_and_failures) {
    NotifyingQueue queue;
    queue.arm(true);
    queue.push({.opcode = WcOpcode::recv});
    queue.push({.opcode = WcOpcode::send, .flags = kWcSolicited});
    EXPECT_EQ(queue.fired, 0);
    queue.push({.opcode = WcOpcode::recv, .flags = kWcSolicited});
    EXPECT_EQ(queue.fired, 1);
    queue.arm(true);
    queue.push({.opcode = WcOpcode::send, .status = WcStatus::flushed});
    EXPECT_EQ(queue.fired, 2);
}

TEST(CompletionQueue, arming_for_any_is_not_weakened) {
    NotifyingQueue queue;
    queue.arm(false);
    queue.arm(true);
    queue.push({.opcode = WcOpcode::send});
    EXPECT_EQ(queue.fired, 1);
    queue.arm(true);
    queue.arm(false);
    queue.push({.opcode = WcOpcode::send});
    EXPECT_EQ(queue.fired, 2);
}

TEST(CompletionQueue, an_arming_can_be_taken_back_unless_for_solicited_events_only) {
    NotifyingQueue queue;
    EXPECT_FALSE(queue.disarm());
    queue.arm(true);
    EXPECT_TRUE(queue.armed());
    EXPECT_FALSE(queue.disarm());
    EXPECT_TRUE(queue.armed());
    queue.arm(false);
    EXPECT_TRUE(queue.disarm());
    EXPECT_FALSE(queue.armed());
    queue.push({.opcode = WcOpcode::recv, .flags = kWcSolicited});
    EXPECT_EQ(queue.fired, 0);
}

TEST(CompletionQueue, notifier_may_use_the_queue) {
    struct Told {
        CompletionQueue queue{8};
        int times = 0;
    } told;
    told.queue.set_notifier(
        [](void* of) {
            Told& it = *static_cast<Told*>(of);
            ++it.times;
            it.queue.arm(false);
        },
        &told);
    told.queue.arm(false);
    told.queue.push(wc_of(1));
    told.queue.push(wc_of(2));
    EXPECT_EQ(told.times, 2) << "it was armed again";
    EXPECT_EQ(told.queue.size(), 2u);
}

TEST(CompletionQueue, is_awaited_while_armed_unless_it_is_polled_on_and_on) {
    CompletionQueue queue(4);
    queue.note_empty_poll();
    EXPECT_FALSE(queue.awaited());
    queue.arm(false);
    for (int i = 0; i < 500; ++i) queue.note_empty_poll();
    EXPECT_TRUE(queue.awaited());
    for (int i = 0; i < 500; ++i) queue.note_empty_poll();
    EXPECT_FALSE(queue.awaited());
    EXPECT_TRUE(queue.armed());
    queue.arm(true);
    EXPECT_TRUE(queue.awaited());
    queue.push(wc_of(1));
    EXPECT_FALSE(queue.awaited());
}

// -- threads --

// Every completion reaches exactly one poller, and one poller's in their order for each poller.
TEST(CompletionQueue, many_producers_many_pollers) {
    constexpr std::uint64_t kThreads = 3, kEach = 10'000;
    CompletionQueue queue(16);
    std::vector<std::atomic<int>> seen(kThreads * kEach);
    std::atomic<std::uint64_t> taken{0}, misplaced{0};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < kEach; ++i) {
                queue.push(wc_of(i, static_cast<std::uint32_t>(t)));
            }
        });
        threads.emplace_back([&] {
            std::array<Wc, 5> out;
            std::array<std::uint64_t, kThreads> next{};
            while (taken.load() < kThreads * kEach) {
                const std::size_t n = queue.take(out);
                for (std::size_t i = 0; i < n; ++i) {
                    ++seen[out[i].qp_num * kEach + out[i].wr_id];
                    misplaced += out[i].wr_id < next[out[i].qp_num];
                    next[out[i].qp_num] = out[i].wr_id + 1;
                }
                taken += n;
                if (n == 0) std::this_thread::yield();
            }
        });
    }
    for (std::thread& t : threads) t.join();
    for (const auto& n : seen) ASSERT_EQ(n.load(), 1);
    EXPECT_EQ(misplaced.load(), 0u);
}

}  // namespace
}  // namespace xsock
