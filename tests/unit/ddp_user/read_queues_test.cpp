// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/read_queues.hpp"

#include <gtest/gtest.h>

namespace xsock::ddp {
namespace {

TEST(ReadQueue, keeps_order_while_it_grows_and_wraps) {
    ReadQueue<int> queue;
    int in = 0, out = 0;
    for (int round = 0; round < 50; ++round) {
        for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.push(in++));
        for (int i = 0; i < 2; ++i) {
            EXPECT_EQ(queue.front(), out++);
            queue.pop();
        }
    }
    EXPECT_EQ(queue.size(), 50u);
    for (std::uint32_t i = 0; i < queue.size(); ++i) EXPECT_EQ(queue[i], out + static_cast<int>(i));
    queue.clear();
    EXPECT_TRUE(queue.empty());
}

TEST(OutboundReads, tells_of_each_answer_once_and_of_posted_reads_only) {
    OutboundReads orq;
    ASSERT_TRUE(orq.push({.sequence = 7}));
    ASSERT_TRUE(orq.push({}));
    EXPECT_EQ(orq.next_msn(), 3u);
    orq.offset = 5;
    orq.pop();
    EXPECT_EQ(orq.offset, 0u);
    EXPECT_TRUE(orq.take_delivered());
    orq.pop();
    EXPECT_FALSE(orq.take_delivered());
}

TEST(InboundReads, knows_what_was_given_of_each) {
    InboundReads irq;
    for (const std::uint32_t size : {10u, 20u, 30u}) {
        ASSERT_TRUE(irq.push({.request = {.size = size}}));
    }
    irq.advance(10);
    irq.finish();
    irq.advance(15);
    EXPECT_TRUE(irq.due());
    EXPECT_EQ(irq.given(0), 10u);
    EXPECT_EQ(irq.given(1), 15u);
    EXPECT_EQ(irq.given(2), 0u);
    irq.pop(1);
    EXPECT_EQ(irq.current().request.size, 20u);
    EXPECT_EQ(irq.given(0), 15u);
}

}  // namespace
}  // namespace xsock::ddp
