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

}  // namespace
}  // namespace xsock::ddp
