// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/atomic_operation.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>
#include <vector>

namespace xsock {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};

/// RFC 7306 §5.1.1, bit by bit: a full adder whose carry stops where the mask has a bit.
std::uint64_t add_by_bits(std::uint64_t value, const Atomic& operands) {
    std::uint64_t out = 0;
    unsigned carry = 0;
    for (unsigned bit = 0; bit < 64; ++bit) {
        const unsigned sum = static_cast<unsigned>(value >> bit & 1) +
                             static_cast<unsigned>(operands.operand >> bit & 1) + carry;
        out |= static_cast<std::uint64_t>(sum & 1) << bit;
        carry = (operands.operand_mask >> bit & 1) != 0 ? 0 : sum >> 1;
    }
    return out;
}

TEST(AtomicOperation, fetch_add_keeps_carries_within_fields) {
    EXPECT_EQ(fetch_add_result(kAll, {.operand = 1}), 0u);
    EXPECT_EQ(fetch_add_result(41, {.operand = 1}), 42u);
    constexpr std::uint64_t kHalves = 1ull << 63 | 1ull << 31;
    EXPECT_EQ(fetch_add_result(0x00000001ffffffff, {.operand = 1, .operand_mask = kHalves}),
              0x0000000100000000u);
    EXPECT_EQ(fetch_add_result(kAll, {.operand = 0x0000000100000001, .operand_mask = kHalves}), 0u);
    EXPECT_EQ(fetch_add_result(0b1010, {.operand = 0b0110, .operand_mask = kAll}), 0b1100u);
    std::mt19937_64 random(7);
    for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t value = random();
        const Atomic operands{.operand = random(), .operand_mask = random() & random()};
        ASSERT_EQ(fetch_add_result(value, operands), add_by_bits(value, operands));
    }
}

TEST(AtomicOperation, compare_swap_looks_at_and_replaces_the_masked_bits_only) {
    const Atomic plain{.operand = 7, .operand_mask = kAll, .compare = 5, .compare_mask = kAll};
    EXPECT_EQ(compare_swap_result(5, plain), 7u);
    EXPECT_EQ(compare_swap_result(6, plain), 6u);
    const Atomic low{
        .operand = 0xaaaa, .operand_mask = 0x0f0f, .compare = 0xff34, .compare_mask = 0x00ff};
    EXPECT_EQ(compare_swap_result(0x1234, low), 0x1a3au);
    EXPECT_EQ(compare_swap_result(0x1235, low), 0x1235u);
    EXPECT_EQ(compare_swap_result(99, {.operand = 3, .operand_mask = kAll}), 3u);  // in any case
}

TEST(AtomicOperation, is_done_in_memory_and_answers_what_was_there) {
    alignas(8) std::array<std::uint64_t, 3> memory{1, 2, 3};
    auto* const at = reinterpret_cast<std::byte*>(&memory[1]);
    EXPECT_EQ(perform_atomic(SendOpcode::fetch_add, at, {.operand = 40}), 2u);
    EXPECT_EQ(perform_atomic(SendOpcode::fetch_add, at, {.operand = 1, .operand_mask = 1}), 42u);
    EXPECT_EQ(memory[1], 43u);
    const Atomic swap{.operand = 9, .operand_mask = kAll, .compare = 43, .compare_mask = kAll};
    EXPECT_EQ(perform_atomic(SendOpcode::compare_swap, at, swap), 43u);
    EXPECT_EQ(perform_atomic(SendOpcode::compare_swap, at, swap), 9u);
    EXPECT_EQ(memory, (std::array<std::uint64_t, 3>{1, 9, 3}));
}

TEST(AtomicOperation, loses_nothing_among_threads) {
    constexpr std::uint64_t kRounds = 20'000;
    constexpr std::uint64_t kFields = 1ull << 63 | 1ull << 31;
    alignas(8) std::uint64_t word = 0;
    auto* const at = reinterpret_cast<std::byte*>(&word);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([at, t, &word] {
            for (std::uint64_t i = 0; i < kRounds; ++i) {
                if (t == 0) {  // the program itself
                    __atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
                } else if (t == 1) {
                    perform_atomic(SendOpcode::fetch_add, at, {.operand = 1});
                } else if (t == 2) {
                    perform_atomic(SendOpcode::fetch_add, at,
                                   {.operand = 1ull << 32, .operand_mask = kFields});
                } else {
                    std::uint64_t seen = 0, before = 0;
                    do {
                        before = seen;
                        seen = perform_atomic(SendOpcode::compare_swap, at,
                                              {.operand = before + 1,
                                               .operand_mask = kAll,
                                               .compare = before,
                                               .compare_mask = kAll});
                    } while (seen != before);
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(word, kRounds << 32 | 3 * kRounds);
}

}  // namespace
}  // namespace xsock
