// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory of a send queue, seen through the queue: which addresses its entries have.
#include "base/wqe_chunks.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/send_queue.hpp"

namespace xsock {
namespace {

TEST(WqeChunks, one_request_at_a_time_uses_one_chunk) {
    SendQueue queue(128);
    std::set<const SendWqe*> entries;
    for (std::uint64_t i = 0; i < 1000; ++i) {
        ASSERT_TRUE(queue.post({.wr_id = i}));
        entries.insert(&queue.at(i));
        queue.retire();
    }
    EXPECT_LE(entries.size(), WqeChunks::kChunk);
}

TEST(WqeChunks, uses_at_most_twice_what_was_in_use_at_once) {
    for (const std::uint64_t in_use : {1, 2, 3, 5, 8, 13, 31}) {
        SendQueue queue(128);
        std::set<const SendWqe*> entries;
        for (std::uint64_t i = 0; i < 1000; ++i) {
            if (i >= in_use) queue.retire();
            ASSERT_TRUE(queue.post({.wr_id = i}));
            entries.insert(&queue.at(i));
        }
        EXPECT_LE(entries.size(), 2 * (in_use + WqeChunks::kChunk)) << in_use;
    }
}

TEST(WqeChunks, never_more_than_the_depth) {
    for (const std::uint32_t depth : {4u, 8u, 64u}) {
        SendQueue queue(depth);
        std::set<const SendWqe*> entries;
        for (std::uint64_t i = 0; i < 10 * depth; ++i) {
            if (i >= depth) queue.retire();
            ASSERT_TRUE(queue.post({.wr_id = i}));
            entries.insert(&queue.at(i));
        }
        EXPECT_EQ(entries.size(), depth);
    }
}

// Any number in use at any time: each entry keeps its place and what was posted, also beyond its
// bytes in the entry, and no two that are in use share a place.
TEST(WqeChunks, entries_stay_as_they_are_while_it_grows) {
    for (unsigned seed = 0; seed < 300; ++seed) {
        std::mt19937 random(seed);
        const std::uint32_t depth = 4u << (random() % 6);
        SendQueue queue(depth);
        std::map<std::uint64_t, const SendWqe*> in_use;
        std::array<std::byte, kMaxInline> payload;
        std::uint64_t next = 0;
        std::uint64_t most = 1 + random() % depth;
        for (int step = 0; step < 400; ++step) {
            if (random() % 50 == 0) most = 1 + random() % depth;
            if (in_use.size() < most && random() % 2 == 0) {
                payload.fill(static_cast<std::byte>(next));
                const std::array sge{Sge{payload.data(), kMaxInline, 0}};
                ASSERT_TRUE(queue.post({.wr_id = next, .flags = kSendInline, .sges = sge}));
                in_use[next] = &queue.at(next);
                ++next;
            } else if (!in_use.empty()) {
                queue.retire();
                in_use.erase(in_use.begin());
            }
            std::set<const SendWqe*> places;
            for (const auto& [sequence, entry] : in_use) {
                ASSERT_EQ(&queue.at(sequence), entry) << "seed " << seed;
                ASSERT_EQ(entry->wr_id, sequence) << "seed " << seed;
                ASSERT_EQ(entry->inline_payload()[kMaxInline - 1], static_cast<std::byte>(sequence))
                    << "seed " << seed;
                ASSERT_TRUE(places.insert(entry).second) << "seed " << seed;
            }
        }
    }
}

// The poller reads entries while the poster makes room for others.
TEST(WqeChunks, grows_beside_a_poller) {
    for (int round = 0; round < 50; ++round) {
        constexpr std::uint64_t kEntries = 2000;
        SendQueue queue(256);
        std::thread poster([&] {
            for (std::uint64_t i = 0; i < kEntries;) {
                if (queue.post({.wr_id = i}).ok()) {
                    ++i;
                } else {
                    std::this_thread::yield();
                }
            }
        });
        std::uint64_t wrong = 0;
        while (queue.retired() < kEntries) {
            const std::uint64_t end = queue.posted();
            for (std::uint64_t i = queue.retired(); i < end; ++i) wrong += queue.at(i).wr_id != i;
            queue.retire_to(end);
        }
        poster.join();
        ASSERT_EQ(wrong, 0u);
    }
}

}  // namespace
}  // namespace xsock
