// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a hole may cost: a peer decides what lies behind it, and TCP's hooks run in softirq.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/fpdus.hpp"
#include "tests/unit/ddp_kernel/module_model.hpp"

namespace xsock {
namespace {

using ByteVector = std::vector<std::byte>;
using test::ModuleModel;
constexpr std::uint32_t kStag = ModuleModel::kStag;
constexpr std::uint32_t kOtherStag = 0x9999;
constexpr std::size_t kRegionBytes = 1 << 20;

/// A stream that begins with a Send that has been read, and a Write that is lost.
class AheadTest : public ::testing::Test {
  protected:
    AheadTest() {
        test::append_fpdu(stream, test::send_ulpdu(1, 4));
        first = stream.size();
        test::append_fpdu(stream, test::write_ulpdu(kStag, 0, 100));
        hole_end = stream.size();
    }
    void add_write(std::uint32_t stag, std::uint64_t to, std::size_t n) {
        fpdus.push_back({stream.size(), 0});
        test::append_fpdu(stream, test::write_ulpdu(stag, to, n));
        fpdus.back().to = stream.size();
    }
    /// The stream is complete: its first Send comes, and is read.
    void begin() {
        module = std::make_unique<ModuleModel>(stream, region, sink, ModuleModel::Options{});
        module->arrive(0, first);
        ASSERT_FALSE(module->recv(false).empty());
        crc_before_ = module->crc_octets();
    }
    /// Octets whose CRC was computed since.
    [[nodiscard]] std::uint64_t crc_octets() const { return module->crc_octets() - crc_before_; }
    /// [from, to), in segments of `n` octets.
    void arrive(std::uint64_t from, std::uint64_t to, std::uint64_t n) {
        for (std::uint64_t at = from; at < to; at += n) module->arrive(at, std::min(at + n, to));
    }
    /// 400 Writes, every second of which comes, with a hole before it. Many segments are sent.
    void arrive_apart(std::uint32_t stag) {
        for (std::uint64_t i = 0; i < 400; ++i) add_write(stag, i * 2000, 1000);
        begin();
        for (std::size_t i = 1; i < 400; i += 2) module->arrive(fpdus[i].from, fpdus[i].to);
        for (int i = 0; i < 1000; ++i) module->transmit();
    }
    /// The others come.
    void fill_all_holes() {
        for (std::size_t i = 0; i < 400; i += 2) module->arrive(fpdus[i].from, fpdus[i].to);
        fill_hole();
    }
    void fill_hole() {
        module->arrive(first, hole_end);
        EXPECT_EQ(module->edge(), stream.size());
        while (!module->recv(true).empty()) {
        }
        EXPECT_EQ(module->rx().pos, stream.size());
        EXPECT_EQ(module->faults(), 0);
    }

    ByteVector stream, region = ByteVector(kRegionBytes), sink;
    std::uint64_t first = 0, hole_end = 0;
    std::vector<ddp_env::Range> fpdus;  // behind the hole
    std::unique_ptr<ModuleModel> module;

  private:
    std::uint64_t crc_before_ = 0;
};

TEST_F(AheadTest, a_write_without_a_region_costs_one_crc) {
    for (std::uint64_t i = 0; i < 6; ++i) add_write(kOtherStag, i, 65'000);
    begin();
    for (const auto& fpdu : fpdus) module->arrive(fpdu.from, fpdu.to);
    for (int i = 0; i < 1000; ++i) module->transmit();
    EXPECT_GT(crc_octets(), 60'000u) << "the first proves where the others start";
    EXPECT_LE(crc_octets(), stream.size());
    EXPECT_EQ(module->ahead_count().misses, 6u);
    fill_hole();
}

TEST_F(AheadTest, what_lies_behind_such_a_write_is_placed) {
    add_write(kOtherStag, 0, 65'000);
    add_write(kStag, 0, 20'000);
    add_write(kOtherStag, 1, 65'000);
    add_write(kStag, 50'000, 20'000);
    begin();
    module->arrive(hole_end, stream.size());  // TCP has joined the segments
    EXPECT_EQ(module->ahead_count().fpdus, 2u);
    EXPECT_EQ(module->ahead_count().misses, 2u);
    for (const std::size_t at : {0u, 50'000u}) {
        const ByteVector ulpdu = test::write_ulpdu(kStag, at, 20'000);
        EXPECT_TRUE(std::equal(ulpdu.begin() + sizeof(ddp_tagged), ulpdu.end(),
                               region.begin() + static_cast<std::ptrdiff_t>(at)));
    }
    EXPECT_LE(crc_octets(), stream.size());
    fill_hole();
}

// With an FPDU missing between any two, each is a run by itself.
TEST_F(AheadTest, where_there_is_no_room_no_crc_is_computed) {
    arrive_apart(kStag);
    EXPECT_EQ(module->ahead_count().fpdus, std::uint64_t{DDP_RUNS_MAX});
    EXPECT_EQ(crc_octets(), DDP_RUNS_MAX * (fpdus[0].to - fpdus[0].from));
    fill_all_holes();
}

// FPDUs one behind the other are one run, but not one target.
TEST_F(AheadTest, where_there_is_no_room_for_targets_no_crc_is_computed) {
    for (std::uint64_t i = 0; i < 400; ++i) add_write(kStag, i * 2000, 1000);
    begin();
    module->arrive(hole_end, stream.size());
    for (int i = 0; i < 1000; ++i) module->transmit();
    EXPECT_EQ(module->ahead_count().fpdus, std::uint64_t{DDP_TARGETS_MAX});
    EXPECT_EQ(crc_octets(), DDP_TARGETS_MAX * (fpdus[0].to - fpdus[0].from));
    fill_hole();
}

TEST_F(AheadTest, so_many_fpdus_whose_region_is_not_found_and_no_more_cost_a_crc) {
    arrive_apart(kOtherStag);
    EXPECT_EQ(module->ahead_count().misses, std::uint64_t{DDP_MISSES_MAX});
    EXPECT_EQ(crc_octets(), DDP_MISSES_MAX * (fpdus[0].to - fpdus[0].from));
    fill_all_holes();
}

// Each segment claims to start with a Write, and a hole is never filled.
TEST_F(AheadTest, so_many_wrong_guesses_and_no_more_cost_a_crc) {
    for (std::uint64_t i = 0; i < 400; ++i) {
        add_write(i / 2 % 2 != 0 ? kStag : kOtherStag, i * 2000, 1000);
        stream.back() ^= std::byte{1};
    }
    begin();
    const std::uint64_t octets = fpdus[0].to - fpdus[0].from;
    module->arrive(fpdus[1].from, fpdus[1].to);
    module->arrive(fpdus[3].from, fpdus[3].to);
    EXPECT_EQ(crc_octets(), 2 * octets) << "each is examined once";
    for (std::size_t i = 5; i < 400; i += 2) {
        module->arrive(fpdus[i].from, fpdus[i].to);
        module->transmit();
    }
    EXPECT_EQ(module->ahead_count().wrong_guesses, std::uint64_t{DDP_GUESSES_MAX});
    EXPECT_EQ(crc_octets(), DDP_GUESSES_MAX * octets);
    EXPECT_EQ(module->ahead_count().fpdus, 0u);
    EXPECT_EQ(module->faults(), 0);
}

// The rest is recv()'s.
TEST_F(AheadTest, what_leads_is_examined_within_a_limit_too) {
    for (std::uint64_t i = 0; i < 12; ++i) add_write(kStag, i * 60'000, 60'000);
    begin();
    module->arrive(first, stream.size());
    EXPECT_GT(crc_octets(), DDP_HOOK_OCTETS - 65'536);
    EXPECT_LE(crc_octets(), std::uint64_t{DDP_HOOK_OCTETS});
    EXPECT_EQ(module->rx().count.limited, 1u);
    fill_hole();
    EXPECT_EQ(module->rx().count.placed_fpdus, 13u);
}

// TCP throws away what was placed, and gets it again in pieces.
TEST_F(AheadTest, inside_of_what_was_placed_no_plain_stream_may_begin) {
    add_write(kStag, 0, 1000);
    add_write(kStag, 1000, 1000);
    begin();
    module->arrive(hole_end, stream.size());
    ASSERT_EQ(module->ahead_count().fpdus, 2u);
    module->prune(0);
    module->arrive(first, hole_end);
    EXPECT_TRUE(ddp_rx_may_unbind(&module->rx()));
    module->arrive(hole_end, hole_end + 500);
    EXPECT_EQ(module->rx().pos, hole_end + 500) << "octets that are in their place are consumed";
    EXPECT_FALSE(ddp_rx_may_unbind(&module->rx()));
    module->arrive(hole_end + 500, stream.size());
    EXPECT_TRUE(ddp_rx_may_unbind(&module->rx()));
}

// A scan that a limit ended is taken up again as long as it gets on.
TEST_F(AheadTest, a_scan_that_gets_no_further_is_not_repeated) {
    add_write(kStag, 0, 1000);
    for (std::uint32_t i = 0; i < 20'000; ++i) test::append_fpdu(stream, test::send_ulpdu(i, 0));
    begin();
    arrive(hole_end, stream.size(), 65'000);
    const std::uint64_t scans = module->scans();
    for (int i = 0; i < 1000; ++i) module->transmit();
    EXPECT_LE(module->scans(), scans + 1);
    fill_hole();
}

TEST_F(AheadTest, a_scan_that_a_limit_ended_goes_on_with_the_next_segment_that_is_sent) {
    for (std::uint64_t i = 0; i < 12; ++i) add_write(kStag, i * 60'000, 60'000);
    begin();
    // All at once, so that one scan cannot do it.
    module->arrive(hole_end, stream.size());
    EXPECT_LT(module->ahead_count().fpdus, 12u);
    for (int i = 0; i < 10; ++i) module->transmit();
    EXPECT_EQ(module->ahead_count().fpdus, 12u);
    fill_hole();
}

}  // namespace
}  // namespace xsock
