// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/send_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace xsock {
namespace {

std::array<std::byte, 256> memory;

SendWr send_of(std::uint64_t id, std::span<const Sge> sges = {}) {
    return {.wr_id = id, .sges = sges};
}

TEST(SendQueue, rounds_its_depth_up) {
    EXPECT_EQ(SendQueue(0).depth(), SendQueue::kLeastDepth);
    EXPECT_EQ(SendQueue(5).depth(), 8u);
    EXPECT_EQ(SendQueue(128).depth(), 128u);
    EXPECT_EQ(SendQueue(8).room(), 8u);
}

TEST(SendQueue, keeps_every_field) {
    SendQueue queue(4);
    const std::array sges{Sge{memory.data(), 10, 7}, Sge{memory.data() + 10, 20, 8}};
    ASSERT_TRUE(queue.post({.wr_id = 42,
                            .opcode = SendOpcode::write,
                            .flags = kSendSignaled | kSendFence,
                            .remote_stag = 0xaabbccdd,
                            .remote_to = 0x1122334455667788,
                            .invalidate_stag = 9,
                            .sges = sges}));
    ASSERT_EQ(queue.posted(), 1u);
    const SendWqe& wqe = queue.at(0);
    EXPECT_EQ(wqe.wr_id, 42u);
    EXPECT_EQ(wqe.opcode, SendOpcode::write);
    EXPECT_EQ(wqe.flags, kSendSignaled | kSendFence);
    EXPECT_EQ(wqe.remote_stag, 0xaabbccdd);
    EXPECT_EQ(wqe.remote_to, 0x1122334455667788u);
    EXPECT_EQ(wqe.invalidate_stag, 9u);
    EXPECT_EQ(wqe.length, 30u);
    ASSERT_EQ(wqe.sge_count, 2);
    EXPECT_EQ(wqe.sge[0].address, memory.data());
    EXPECT_EQ(wqe.sge[0].length, 10u);
    EXPECT_EQ(wqe.sge[0].lkey, 7u);
    EXPECT_EQ(wqe.sge[1].address, memory.data() + 10);
    EXPECT_EQ(wqe.sge[1].length, 20u);
    EXPECT_EQ(wqe.sge[1].lkey, 8u);
}

TEST(SendQueue, a_plain_send_is_what_post_makes_of_it) {
    SendQueue queue(4);
    const Sge sge{memory.data() + 3, 20, 8};
    for (int i = 0; i < 4; ++i) {  // every slot has been used, by something longer
        const std::array two{sge, sge};
        ASSERT_TRUE(queue.post({.wr_id = 1,
                                .opcode = SendOpcode::write_immediate,
                                .remote_stag = 5,
                                .remote_to = 6,
                                .sges = two}));
    }
    queue.retire_to(4);
    ASSERT_TRUE(queue.post(send_of(42, {&sge, 1})));
    ASSERT_TRUE(queue.post_plain(42, sge, kSendSignaled));
    for (const std::uint64_t sequence : {4u, 5u}) {
        const SendWqe& wqe = queue.at(sequence);
        EXPECT_EQ(wqe.wr_id, 42u);
        EXPECT_EQ(wqe.opcode, SendOpcode::send);
        EXPECT_EQ(wqe.flags, kSendSignaled);
        EXPECT_EQ(wqe.length, 20u);
        ASSERT_EQ(wqe.sge_count, 1);
        EXPECT_EQ(wqe.sge[0].address, memory.data() + 3);
        EXPECT_EQ(wqe.sge[0].length, 20u);
        EXPECT_EQ(wqe.sge[0].lkey, 8u);
    }
    ASSERT_TRUE(queue.post_plain(1, sge, 0));
    ASSERT_TRUE(queue.post_plain(2, sge, 0));
    EXPECT_EQ(queue.post_plain(3, sge, 0).error().code, ENOBUFS);
    queue.close();
    EXPECT_EQ(queue.post_plain(3, sge, 0).error().code, EPIPE);
}

TEST(SendQueue, keeps_the_operands_of_an_atomic_operation) {
    SendQueue queue(4);
    Atomic operands{.operand = 1, .operand_mask = 2, .compare = 3, .compare_mask = 4};
    const std::array sges{Sge{memory.data(), 3, 7}, Sge{memory.data() + 3, 5, 8}};
    ASSERT_TRUE(queue.post({.opcode = SendOpcode::compare_swap,
                            .remote_stag = 5,
                            .remote_to = 6,
                            .sges = sges,
                            .atomic = &operands}));
    const Atomic given = std::exchange(operands, {});
    EXPECT_EQ(queue.at(0).atomic(), given);
    EXPECT_EQ(queue.at(0).length, 8u);
    EXPECT_EQ(queue.at(0).sge[0].lkey, 7u);
    EXPECT_EQ(queue.at(0).sge[1].address, memory.data() + 3);
    ASSERT_TRUE(queue.post({.opcode = SendOpcode::immediate, .immediate = 0x1122334455667788}));
    EXPECT_EQ(queue.at(1).immediate, 0x1122334455667788u);
}

TEST(SendQueue, refuses_atomic_operations_and_immediate_data_that_make_no_sense) {
    SendQueue queue(4);
    const Atomic operands;
    const std::array one{Sge{memory.data(), 8, 0}}, seven{Sge{memory.data(), 7, 0}};
    const std::array three{Sge{memory.data(), 3, 0}, Sge{memory.data(), 3, 0},
                           Sge{memory.data(), 2, 0}};
    for (const SendOpcode opcode : {SendOpcode::fetch_add, SendOpcode::compare_swap}) {
        EXPECT_EQ(queue.post({.opcode = opcode, .sges = one}).error().code, EINVAL);
        EXPECT_EQ(queue.post({.opcode = opcode, .atomic = &operands}).error().code, EINVAL);
        EXPECT_EQ(queue.post({.opcode = opcode, .sges = seven, .atomic = &operands}).error().code,
                  EINVAL);
        EXPECT_EQ(queue.post({.opcode = opcode, .sges = three, .atomic = &operands}).error().code,
                  EINVAL);
        EXPECT_EQ(
            queue.post({.opcode = opcode, .flags = kSendInline, .sges = one, .atomic = &operands})
                .error()
                .code,
            EINVAL);
    }
    EXPECT_EQ(queue.post({.opcode = SendOpcode::immediate, .sges = one}).error().code, EINVAL);
    EXPECT_EQ(queue.post({.opcode = SendOpcode::kCount}).error().code, EINVAL);
    EXPECT_EQ(queue.posted(), 0u);
}

TEST(SendQueue, copies_inline_payload_at_once) {
    SendQueue queue(4);
    std::array<char, 5> text{'a', 'b', 'c', 'd', 'e'};
    auto* const bytes = reinterpret_cast<std::byte*>(text.data());
    const std::array sges{Sge{bytes, 2, 0}, Sge{nullptr, 0, 0}, Sge{bytes + 3, 2, 0}};
    ASSERT_TRUE(queue.post({.flags = kSendInline, .sges = sges}));
    text.fill('x');
    const SendWqe& wqe = queue.at(0);
    EXPECT_EQ(wqe.length, 4u);
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(wqe.inline_payload()), 4), "abde");
}

TEST(SendQueue, copies_inline_payload_that_does_not_fit_into_an_entry) {
    constexpr std::uint32_t kDepth = 8;
    SendQueue queue(kDepth);
    std::array<std::byte, kMaxInline> source;
    const auto post = [&](std::uint64_t sequence, std::size_t length) {
        source.fill(static_cast<std::byte>(sequence));
        const std::array sges{Sge{source.data(), 1, 0},
                              Sge{source.data() + 1, static_cast<std::uint32_t>(length - 1), 0}};
        ASSERT_TRUE(queue.post({.flags = kSendInline, .sges = sges}));
        source.fill(std::byte{0xee});
    };
    const auto expect = [&](std::uint64_t sequence, std::size_t length) {
        const SendWqe& wqe = queue.at(sequence);
        ASSERT_EQ(wqe.length, length);
        for (std::size_t i = 0; i < length; ++i) {
            ASSERT_EQ(wqe.inline_payload()[i], static_cast<std::byte>(sequence)) << i;
        }
    };
    const std::array<std::size_t, 4> lengths{kInlineInWqe, kInlineInWqe + 1, kMaxInline, 1};
    // More than once around, so that slots are used again by entries of other lengths.
    for (std::uint64_t first = 0; first < 3 * kDepth; first += kDepth - 1) {
        for (std::uint64_t i = first; i < first + kDepth - 1; ++i) {
            post(i, lengths[i % lengths.size()]);
        }
        for (std::uint64_t i = first; i < first + kDepth - 1; ++i) {
            expect(i, lengths[i % lengths.size()]);
        }
        queue.retire_to(first + kDepth - 1);
    }
}

TEST(SendQueue, refuses_what_is_malformed) {
    SendQueue queue(4);
    const std::vector<Sge> many(kMaxSge + 1, Sge{memory.data(), 1, 0});
    EXPECT_EQ(queue.post(send_of(1, many)).error().code, EINVAL);
    EXPECT_TRUE(queue.post(send_of(1, std::span(many).first(kMaxSge))));

    const std::array most{Sge{memory.data(), kMaxInline, 0}};
    const std::array too_much{Sge{memory.data(), kMaxInline + 1, 0}};
    EXPECT_TRUE(queue.post({.flags = kSendInline, .sges = most}));
    EXPECT_EQ(queue.post({.flags = kSendInline, .sges = too_much}).error().code, EINVAL);
    EXPECT_EQ(
        queue.post({.opcode = SendOpcode::read, .flags = kSendInline, .sges = most}).error().code,
        EINVAL);
    EXPECT_EQ(queue.post({.opcode = SendOpcode::local_invalidate, .sges = most}).error().code,
              EINVAL);
    EXPECT_EQ(queue.post({.opcode = static_cast<SendOpcode>(77)}).error().code, EINVAL);
    EXPECT_EQ(queue.posted(), 2u);
}

TEST(SendQueue, refuses_messages_that_the_wire_cannot_say) {
    SendQueue queue(4);
    std::array sges{Sge{memory.data(), ~0u, 0}, Sge{memory.data(), 0, 0}};
    EXPECT_TRUE(queue.post(send_of(1, sges)));
    EXPECT_EQ(queue.at(0).length, ~0u);
    sges[1].length = 1;
    EXPECT_EQ(queue.post(send_of(2, sges)).error().code, EMSGSIZE);
}

TEST(SendQueue, is_full_at_its_depth_until_something_is_retired) {
    SendQueue queue(8);
    for (std::uint64_t id = 0; id < 8; ++id) ASSERT_TRUE(queue.post(send_of(id)));
    EXPECT_EQ(queue.room(), 0u);
    EXPECT_EQ(queue.post(send_of(8)).error().code, ENOBUFS);
    queue.retire();
    EXPECT_EQ(queue.room(), 1u);
    EXPECT_TRUE(queue.post(send_of(8)));
    EXPECT_EQ(queue.post(send_of(9)).error().code, ENOBUFS);
    for (std::uint64_t s = queue.retired(); s < queue.posted(); ++s) {
        EXPECT_EQ(queue.at(s).wr_id, s);
    }
}

TEST(SendQueue, entries_do_not_move) {
    SendQueue queue(16);
    ASSERT_TRUE(queue.post(send_of(0)));
    const SendWqe* const first = &queue.at(0);
    for (std::uint64_t id = 1; id < 16; ++id) ASSERT_TRUE(queue.post(send_of(id)));
    EXPECT_EQ(&queue.at(0), first);
}

TEST(SendQueue, closed_keeps_what_it_has) {
    SendQueue queue(4);
    ASSERT_TRUE(queue.post(send_of(5)));
    queue.close();
    EXPECT_EQ(queue.post(send_of(6)).error().code, EPIPE);
    ASSERT_EQ(queue.posted(), 1u);
    EXPECT_EQ(queue.at(0).wr_id, 5u);
}

// Each poster's requests arrive once each and in its order, whole.
TEST(SendQueue, many_posters_one_poller) {
    constexpr std::uint64_t kPosters = 4, kEach = 20'000;
    SendQueue queue(64);
    std::vector<std::thread> posters;
    for (std::uint64_t p = 0; p < kPosters; ++p) {
        posters.emplace_back([&, p] {
            for (std::uint64_t i = 0; i < kEach;) {
                const std::array sges{Sge{memory.data(), static_cast<std::uint32_t>(i),
                                          static_cast<std::uint32_t>(p)}};
                const auto posted = queue.post({.wr_id = p << 32 | i,
                                                .opcode = SendOpcode::write,
                                                .remote_to = i,
                                                .sges = sges});
                if (posted) {
                    ++i;
                } else {
                    ASSERT_EQ(posted.error().code, ENOBUFS);
                    std::this_thread::yield();
                }
            }
        });
    }
    std::array<std::uint64_t, kPosters> next{};
    std::uint64_t torn = 0, misplaced = 0;
    for (std::uint64_t s = 0; s < kPosters * kEach; ++s) {
        while (queue.posted() == s) std::this_thread::yield();
        const SendWqe& wqe = queue.at(s);
        const std::uint64_t p = wqe.wr_id >> 32, i = wqe.wr_id & 0xffffffff;
        torn += p >= kPosters || wqe.remote_to != i || wqe.length != i || wqe.sge[0].lkey != p;
        misplaced += p < kPosters && next[p]++ != i;
        queue.retire();
    }
    for (std::thread& t : posters) t.join();
    EXPECT_EQ(torn, 0u);
    EXPECT_EQ(misplaced, 0u);
    EXPECT_EQ(queue.posted(), kPosters * kEach);
    EXPECT_EQ(queue.room(), queue.depth());
}

// The pattern of Progress's notifications: a poster that finds the flag set relies on the poller,
// which clears the flag, synchronises with the posters, and checks.
TEST(SendQueue, no_poster_that_saw_the_flag_is_overlooked) {
    constexpr std::uint64_t kEach = 50'000;
    SendQueue queue(64);
    std::atomic<bool> sign{false};
    std::atomic<std::uint64_t> notifies{0}, served{0};
    std::vector<std::thread> posters;
    for (int p = 0; p < 2; ++p) {
        posters.emplace_back([&] {
            for (std::uint64_t i = 0; i < kEach;) {
                if (!queue.post({}).ok()) {
                    std::this_thread::yield();
                    continue;
                }
                ++i;
                if (sign.load() || sign.exchange(true)) continue;
                notifies.fetch_add(1);
            }
        });
    }
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (queue.retired() < 2 * kEach) {
        ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "an entry was overlooked";
        if (notifies.load() == served) {
            std::this_thread::yield();
            continue;
        }
        ++served;
        sign.store(false);
        queue.sync_with_posters();
        while (queue.retired() < queue.posted()) queue.retire();
    }
    for (std::thread& t : posters) t.join();
}

}  // namespace
}  // namespace xsock
