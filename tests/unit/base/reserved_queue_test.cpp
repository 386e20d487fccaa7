// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/reserved_queue.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace xsock {
namespace {

// Where its entries lie: an allocation moves them.
template <typename T>
const T* place(const ReservedQueue<T>& queue) {
    return &queue.front();
}

TEST(ReservedQueue, gives_what_was_pushed_in_order) {
    ReservedQueue<int> queue;
    queue.reserve(3);
    for (int round = 0; round < 10; ++round) {
        EXPECT_TRUE(queue.empty());
        for (int i = 0; i < 3; ++i) queue.push(10 * round + i);
        for (int i = 0; i < 3; ++i) {
            EXPECT_EQ(queue.front(), 10 * round + i);
            queue.pop();
        }
    }
}

TEST(ReservedQueue, allocates_nothing_for_what_was_reserved) {
    ReservedQueue<int> queue;
    queue.reserve(100);
    queue.push(0);
    const int* const at = place(queue);
    for (int i = 1; i < 100; ++i) queue.push(i);
    EXPECT_EQ(place(queue), at);
}

TEST(ReservedQueue, counts_what_is_queued_beside_what_is_reserved) {
    ReservedQueue<int> queue;
    queue.reserve(8);
    for (int i = 0; i < 8; ++i) queue.push(i);
    queue.release(8);  // they were of one that is gone; its entries are not fetched yet
    queue.reserve(8);
    const int* const at = place(queue);
    for (int i = 8; i < 16; ++i) queue.push(i);
    EXPECT_EQ(place(queue), at);
    for (int i = 0; i < 16; ++i) {
        EXPECT_EQ(queue.front(), i);
        queue.pop();
    }
}

TEST(ReservedQueue, grows_for_what_nobody_reserved) {
    ReservedQueue<int> queue;
    for (int i = 0; i < 5; ++i) queue.push(i);
    queue.pop();
    for (int i = 5; i < 40; ++i) queue.push(i);
    for (int i = 1; i < 40; ++i) {
        EXPECT_EQ(queue.front(), i);
        queue.pop();
    }
    EXPECT_TRUE(queue.empty());
}

TEST(ReservedQueue, erases_across_its_end_and_keeps_the_order) {
    ReservedQueue<int> queue;
    queue.reserve(8);
    for (int i = 0; i < 6; ++i) queue.push(i);
    for (int i = 0; i < 6; ++i) queue.pop();
    for (int i = 0; i < 8; ++i) queue.push(i);  // around the end of the ring
    EXPECT_EQ(queue.erase_if([](int i) { return i % 3 == 0; }), 3u);
    std::vector<int> left;
    for (; !queue.empty(); queue.pop()) left.push_back(queue.front());
    EXPECT_EQ(left, (std::vector{1, 2, 4, 5, 7}));
}

}  // namespace
}  // namespace xsock
