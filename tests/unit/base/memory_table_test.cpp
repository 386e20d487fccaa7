// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/memory_table.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <limits>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace xsock {
namespace {

constexpr PdId kPd = 3;
constexpr QpNum kQp = 11;
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

std::array<std::byte, 4096> memory;

std::uint64_t va(const std::byte* p) { return reinterpret_cast<std::uintptr_t>(p); }

// One region [memory, memory + 100), all rights.
RegionAttr hundred() {
    return {.address = memory.data(),
            .length = 100,
            .access = kLocalWrite | kRemoteWrite | kRemoteRead,
            .pd = kPd};
}

struct MemoryTableTest : testing::Test {
    Epochs epochs;
    MemoryTable table{epochs};
    Epochs::Reader reader{epochs};

    std::uint32_t add(const RegionAttr& attr) { return table.add(attr).value(); }
    StreamError write(std::uint32_t stag, std::uint64_t to, std::uint64_t n, PdId pd = kPd) {
        return table.check_remote(stag, pd, kQp, Right::remote_write, to, n).stream_error;
    }
    StreamError read(std::uint32_t stag, std::uint64_t to, std::uint64_t n, PdId pd = kPd) {
        return table.check_remote(stag, pd, kQp, Right::remote_read, to, n).stream_error;
    }
    bool local(std::uint32_t key, const std::byte* p, std::uint64_t n, bool w) {
        return table.check_local(key, kPd, kQp, p, n, w);
    }
};

// -- add --

TEST_F(MemoryTableTest, refuses_a_region_that_wraps) {
    auto* const high = reinterpret_cast<std::byte*>(~std::uintptr_t{0} - 9);
    EXPECT_TRUE(table.add({.address = high, .length = 9}));
    EXPECT_EQ(table.add({.address = high, .length = 10}).error().code, EINVAL);
    EXPECT_EQ(table.add({.address = high, .length = kMax}).error().code, EINVAL);
    EXPECT_EQ(table.add({.address = high, .length = 10, .access = kZeroBased}).error().code,
              EINVAL);
    EXPECT_EQ(table.size(), 1u);
}

TEST_F(MemoryTableTest, refuses_unknown_rights) {
    for (unsigned bit = 6; bit < 32; ++bit) {
        EXPECT_EQ(
            table.add({.address = memory.data(), .length = 1, .access = 1u << bit}).error().code,
            EINVAL)
            << bit;
    }
}

TEST_F(MemoryTableTest, refuses_more_regions_than_it_was_made_for) {
    MemoryTable small(epochs, 2);
    const std::uint32_t first = small.add(hundred()).value();
    ASSERT_TRUE(small.add(hundred()));
    EXPECT_EQ(small.add(hundred()).error().code, ENOMEM);
    ASSERT_TRUE(small.remove(first));
    EXPECT_TRUE(small.add(hundred()));
}

TEST_F(MemoryTableTest, stags_are_not_zero_and_spread_over_all_bits) {
    std::uint32_t all = 0, common = ~0u;
    for (int i = 0; i < 200; ++i) {
        const std::uint32_t stag = add(hundred());
        EXPECT_NE(stag, 0u);
        all |= stag;
        common &= stag;
    }
    EXPECT_EQ(all, ~0u);
    EXPECT_EQ(common, 0u);
}

// -- check_remote --

TEST_F(MemoryTableTest, finds_where_the_bytes_lie) {
    const std::uint32_t stag = add(hundred());
    for (const Right right : {Right::remote_write, Right::remote_read}) {
        const auto found = table.check_remote(stag, kPd, kQp, right, va(memory.data()) + 40, 60);
        EXPECT_EQ(found.stream_error, StreamError::none);
        EXPECT_EQ(found.address, memory.data() + 40);
    }
}

TEST_F(MemoryTableTest, zero_based_offsets_count_from_zero) {
    RegionAttr attr = hundred();
    attr.access |= kZeroBased;
    const std::uint32_t stag = add(attr);
    const auto found = table.check_remote(stag, kPd, kQp, Right::remote_write, 99, 1);
    EXPECT_EQ(found.stream_error, StreamError::none);
    EXPECT_EQ(found.address, memory.data() + 99);
    EXPECT_EQ(write(stag, 100, 1), StreamError::tagged_bounds);
    EXPECT_EQ(write(stag, va(memory.data()), 1), StreamError::tagged_bounds);
}

TEST_F(MemoryTableTest, tagged_offsets_may_begin_anywhere) {
    RegionAttr attr = hundred();
    attr.access |= kZeroBased;
    attr.first_to = kMax - 100;
    const std::uint32_t stag = add(attr);
    const auto found =
        table.check_remote(stag, kPd, kQp, Right::remote_write, attr.first_to + 40, 60);
    EXPECT_EQ(found.stream_error, StreamError::none);
    EXPECT_EQ(found.address, memory.data() + 40);
    EXPECT_EQ(write(stag, attr.first_to - 1, 1), StreamError::tagged_bounds);
    EXPECT_EQ(write(stag, attr.first_to + 41, 60), StreamError::tagged_to_wrap);
    EXPECT_EQ(table.query(stag)->first_to, attr.first_to);
    attr.first_to = kMax - 99;
    EXPECT_EQ(table.add(attr).error().code, EINVAL);
}

TEST_F(MemoryTableTest, an_stag_may_come_to_mean_something_else) {
    const std::uint32_t stag = add(hundred());
    RegionAttr other = hundred();
    other.address += 100;
    other.length = 50;
    other.pd = kPd + 1;
    ASSERT_TRUE(table.replace(stag, other));
    EXPECT_EQ(write(stag, va(memory.data()), 1), StreamError::tagged_stag_not_associated);
    EXPECT_EQ(write(stag, va(memory.data()) + 100, 50, kPd + 1), StreamError::none);
    EXPECT_EQ(write(stag, va(memory.data()) + 100, 51, kPd + 1), StreamError::tagged_bounds);
    EXPECT_EQ(table.size(), 1u);
    RegionAttr bad = other;
    bad.access = 1u << 30;
    EXPECT_EQ(table.replace(stag, bad).error().code, EINVAL);
    EXPECT_EQ(write(stag, va(memory.data()) + 100, 50, kPd + 1), StreamError::none);
    EXPECT_EQ(table.replace(stag ^ 1, other).error().code, ENOENT);
    EXPECT_TRUE(table.remove(stag));
}

TEST_F(MemoryTableTest, bounds_hold_at_both_ends) {
    const std::uint32_t stag = add(hundred());
    const std::uint64_t base = va(memory.data());
    EXPECT_EQ(write(stag, base, 100), StreamError::none);
    EXPECT_EQ(write(stag, base, 101), StreamError::tagged_bounds);
    EXPECT_EQ(write(stag, base - 1, 1), StreamError::tagged_bounds);
    EXPECT_EQ(write(stag, base - 1, 2), StreamError::tagged_bounds);
    EXPECT_EQ(write(stag, base + 99, 1), StreamError::none);
    EXPECT_EQ(write(stag, base + 99, 2), StreamError::tagged_bounds);
    EXPECT_EQ(write(stag, base + 100, 1), StreamError::tagged_bounds);
    EXPECT_EQ(write(stag, 0, 1), StreamError::tagged_bounds);
    EXPECT_EQ(read(stag, base, 101), StreamError::read_bounds);
    EXPECT_EQ(read(stag, base - 1, 1), StreamError::read_bounds);
}

TEST_F(MemoryTableTest, offsets_that_wrap_are_told_from_those_out_of_bounds) {
    const std::uint32_t stag = add(hundred());
    const std::uint64_t base = va(memory.data());
    EXPECT_EQ(write(stag, base + 1, kMax - base), StreamError::tagged_to_wrap);
    EXPECT_EQ(write(stag, base, kMax - base), StreamError::tagged_bounds);
    EXPECT_EQ(write(stag, kMax, 1), StreamError::tagged_to_wrap);
    EXPECT_EQ(write(stag, 1, kMax), StreamError::tagged_to_wrap);
    EXPECT_EQ(write(stag, 0, kMax), StreamError::tagged_bounds);
    EXPECT_EQ(read(stag, kMax - 1, 2), StreamError::read_to_wrap);
}

TEST_F(MemoryTableTest, an_empty_region_holds_nothing) {
    RegionAttr attr = hundred();
    attr.length = 0;
    const std::uint32_t stag = add(attr);
    EXPECT_EQ(write(stag, va(memory.data()), 1), StreamError::tagged_bounds);
    EXPECT_EQ(read(stag, va(memory.data()), 1), StreamError::read_bounds);
}

TEST_F(MemoryTableTest, unknown_stags_are_invalid) {
    const std::uint32_t stag = add(hundred());
    for (const std::uint32_t other : {0u, 1u, stag ^ 1, stag ^ 0x80000000, ~stag}) {
        EXPECT_EQ(write(other, va(memory.data()), 1), StreamError::tagged_stag_invalid);
        EXPECT_EQ(read(other, va(memory.data()), 1), StreamError::read_stag_invalid);
    }
}

TEST_F(MemoryTableTest, regions_of_another_domain_or_stream_are_refused) {
    const std::uint32_t shared = add(hundred());
    EXPECT_EQ(write(shared, va(memory.data()), 1, kPd + 1),
              StreamError::tagged_stag_not_associated);
    EXPECT_EQ(read(shared, va(memory.data()), 1, kPd + 1), StreamError::read_stag_not_associated);

    RegionAttr attr = hundred();
    attr.only_qp = kQp;
    const std::uint32_t own = add(attr);
    attr.only_qp = kQp + 1;
    const std::uint32_t others = add(attr);
    EXPECT_EQ(write(own, va(memory.data()), 1), StreamError::none);
    EXPECT_EQ(write(own, va(memory.data()), 1, kPd + 1), StreamError::tagged_stag_not_associated);
    EXPECT_EQ(write(others, va(memory.data()), 1), StreamError::tagged_stag_not_associated);
    EXPECT_EQ(read(others, va(memory.data()), 1), StreamError::read_stag_not_associated);
}

TEST_F(MemoryTableTest, rights_are_kept_apart) {
    RegionAttr attr = hundred();
    attr.access = kLocalWrite | kRemoteRead;
    const std::uint32_t readable = add(attr);
    attr.access = kLocalWrite | kRemoteWrite;
    const std::uint32_t writable = add(attr);
    EXPECT_EQ(read(readable, va(memory.data()), 1), StreamError::none);
    EXPECT_EQ(write(readable, va(memory.data()), 1), StreamError::write_access);
    EXPECT_EQ(write(writable, va(memory.data()), 1), StreamError::none);
    EXPECT_EQ(read(writable, va(memory.data()), 1), StreamError::read_access);
}

TEST_F(MemoryTableTest, the_first_error_in_the_rfcs_order_is_reported) {
    RegionAttr attr = hundred();
    attr.access = kLocalRead;
    const std::uint32_t stag = add(attr);
    EXPECT_EQ(write(stag, kMax, 2, kPd + 1), StreamError::tagged_stag_not_associated);
    EXPECT_EQ(write(stag, kMax, 2), StreamError::tagged_to_wrap);
    EXPECT_EQ(write(stag, 0, 2), StreamError::tagged_bounds);
    EXPECT_EQ(write(stag, va(memory.data()), 2), StreamError::write_access);
    EXPECT_EQ(read(stag, kMax, 2, kPd + 1), StreamError::read_stag_not_associated);
    EXPECT_EQ(read(stag, kMax, 2), StreamError::read_access);
}

// -- windows --

struct MemoryWindowTest : MemoryTableTest {
    RegionAttr region_attr() {
        RegionAttr attr = hundred();
        attr.access = kLocalWrite | kWindows;
        return attr;
    }
    /// Bytes [10, 10 + length) of the region.
    RegionAttr part(std::uint64_t length = 20) {
        return {.address = memory.data() + 10,
                .length = length,
                .access = kRemoteWrite | kRemoteRead,
                .pd = kPd};
    }
};

TEST_F(MemoryWindowTest, serves_once_it_is_bound_until_it_is_revoked) {
    const std::uint32_t region = add(region_attr());
    const std::uint32_t stag = table.reserve_window().value();
    const std::uint64_t at = va(memory.data()) + 10;
    EXPECT_EQ(write(stag, at, 1), StreamError::tagged_stag_invalid);
    ASSERT_TRUE(table.prepare_window(stag, part(), region).ok());
    EXPECT_EQ(write(stag, at, 1), StreamError::tagged_stag_invalid);
    EXPECT_FALSE(table.revoked(stag)) << "not yet bound";
    EXPECT_TRUE(table.bind(stag));
    EXPECT_FALSE(table.bind(stag));
    EXPECT_FALSE(table.revoked(stag));
    EXPECT_EQ(write(stag, at, 20), StreamError::none);
    EXPECT_EQ(read(stag, at, 20), StreamError::none);
    EXPECT_EQ(write(stag, at, 21), StreamError::tagged_bounds);
    EXPECT_EQ(write(stag, at - 1, 1), StreamError::tagged_bounds);
    EXPECT_EQ(write(region, at, 1), StreamError::write_access);
    EXPECT_FALSE(local(stag, memory.data() + 10, 1, false)) << "an rkey is no lkey";
    EXPECT_TRUE(table.invalidate(stag));
    EXPECT_EQ(write(stag, at, 1), StreamError::tagged_stag_invalid);
    EXPECT_TRUE(table.revoked(stag));
    EXPECT_FALSE(table.bind(stag)) << "once only";
    EXPECT_TRUE(table.remove(stag).ok());
    table.release_window(stag);
}

TEST_F(MemoryWindowTest, a_region_with_a_window_stays) {
    const std::uint32_t region = add(region_attr());
    const std::uint32_t stag = table.reserve_window().value();
    ASSERT_TRUE(table.prepare_window(stag, part(), region).ok());
    ASSERT_TRUE(table.bind(stag));
    EXPECT_EQ(table.remove(region).error().code, EBUSY);
    EXPECT_EQ(table.replace(region, region_attr()).error().code, EBUSY);
    ASSERT_TRUE(table.invalidate(stag));
    EXPECT_TRUE(table.replace(region, region_attr()).ok());
    ASSERT_TRUE(table.prepare_window(stag ^ 1, part(), region).ok());
    ASSERT_TRUE(table.bind(stag ^ 1));
    EXPECT_EQ(table.remove(region).error().code, EBUSY);
    EXPECT_TRUE(table.remove(stag ^ 1).ok());
    EXPECT_TRUE(table.remove(region).ok());
    EXPECT_TRUE(table.remove(stag).ok());
}

TEST_F(MemoryWindowTest, a_new_binding_takes_the_place_of_the_last) {
    const std::uint32_t region = add(region_attr());
    const std::uint32_t stag = table.reserve_window().value();
    const std::uint64_t at = va(memory.data()) + 10;
    for (const std::uint32_t key : {stag, stag ^ 1, stag ^ 2}) {
        ASSERT_TRUE(table.prepare_window(key, part(), region).ok());
    }
    ASSERT_TRUE(table.bind(stag));
    ASSERT_TRUE(table.bind(stag ^ 2));
    EXPECT_TRUE(table.revoked(stag));
    EXPECT_FALSE(table.revoked(stag ^ 1)) << "it waits";
    EXPECT_EQ(write(stag, at, 1), StreamError::tagged_stag_invalid);
    EXPECT_EQ(write(stag ^ 2, at, 1), StreamError::none);
    table.unbind(stag);
    EXPECT_EQ(write(stag ^ 2, at, 1), StreamError::tagged_stag_invalid);
    table.unbind(stag);
    EXPECT_TRUE(table.remove(region).ok());
    EXPECT_FALSE(table.bind(stag ^ 1)) << "its region is gone";
}

TEST_F(MemoryWindowTest, binds_only_what_its_region_permits) {
    const auto binds = [&](const RegionAttr& attr, std::uint32_t region) {
        const std::uint32_t stag = table.reserve_window().value();
        EXPECT_TRUE(table.prepare_window(stag, attr, region).ok());
        const bool bound = table.bind(stag);
        EXPECT_TRUE(table.remove(stag).ok());
        table.release_window(stag);
        return bound;
    };
    const std::uint32_t region = add(region_attr());
    EXPECT_TRUE(binds(part(90), region));
    EXPECT_FALSE(binds(part(91), region));
    RegionAttr attr = region_attr();
    attr.address = memory.data() + 11;
    EXPECT_FALSE(binds(part(), add(attr))) << "a byte too early";
    attr.address = memory.data() + 10;
    EXPECT_TRUE(binds(part(), add(attr)));
    attr = part();
    attr.pd = kPd + 1;
    EXPECT_FALSE(binds(attr, region));
    EXPECT_FALSE(binds(part(), region ^ 1));
    EXPECT_FALSE(binds(part(), add(hundred()))) << "no windows there";
    attr = region_attr();
    attr.access = kWindows;
    const std::uint32_t read_only = add(attr);
    EXPECT_FALSE(binds(part(), read_only));
    attr = part();
    attr.access = kRemoteRead;
    EXPECT_TRUE(binds(attr, read_only));
    ASSERT_TRUE(table.invalidate(region));
    EXPECT_FALSE(binds(part(), region));
}

TEST_F(MemoryWindowTest, a_region_with_a_window_cannot_be_invalidated) {
    const std::uint32_t region = add(region_attr());
    const std::uint32_t stag = table.reserve_window().value();
    const std::uint64_t at = va(memory.data()) + 10;
    ASSERT_TRUE(table.prepare_window(stag, part(), region).ok());
    ASSERT_TRUE(table.bind(stag));
    EXPECT_FALSE(table.invalidate(region)) << "the window would outlive it";
    EXPECT_EQ(write(stag, at, 1), StreamError::none);
    ASSERT_TRUE(table.invalidate(stag));
    EXPECT_TRUE(table.invalidate(region));
}

TEST_F(MemoryWindowTest, what_is_abandoned_counts_as_revoked) {
    const std::uint32_t region = add(region_attr());
    const std::uint32_t stag = table.reserve_window().value(), bound = stag ^ 1;
    ASSERT_TRUE(table.prepare_window(stag, part(), region).ok());
    ASSERT_TRUE(table.prepare_window(bound, part(), region).ok());
    table.abandon(stag);
    EXPECT_TRUE(table.revoked(stag));
    EXPECT_FALSE(table.bind(stag));
    ASSERT_TRUE(table.bind(bound));
    table.abandon(bound);
    EXPECT_TRUE(table.revoked(bound));
    EXPECT_EQ(write(bound, va(memory.data()) + 10, 1), StreamError::tagged_stag_invalid);
    table.abandon(region);
    table.abandon(stag ^ 2);
    EXPECT_TRUE(table.remove(region).ok()) << "a region is not abandoned";
}

TEST_F(MemoryWindowTest, its_range_of_keys_is_its_own) {
    const std::uint32_t region = add(region_attr());
    const std::uint32_t stag = table.reserve_window().value();
    EXPECT_EQ(table.prepare_window(stag ^ 0x100, part(), region).error().code, EINVAL);
    for (std::uint32_t key = 0; key < 256; ++key) {
        EXPECT_TRUE(table.prepare_window((stag & ~0xffu) | key, part(), region).ok());
    }
    EXPECT_EQ(table.prepare_window(stag, part(), region).error().code, EEXIST);
    for (std::uint32_t key = 0; key < 256; ++key) {
        EXPECT_TRUE(table.remove((stag & ~0xffu) | key).ok());
    }
    table.release_window(stag);
    EXPECT_EQ(table.prepare_window(stag, part(), region).error().code, EINVAL);
}

// -- check_local --

TEST_F(MemoryTableTest, local_use_is_checked_by_address) {
    RegionAttr attr = hundred();
    attr.access |= kZeroBased;
    const std::uint32_t key = add(attr);
    EXPECT_TRUE(local(key, memory.data(), 100, true));
    EXPECT_FALSE(local(key, memory.data(), 101, false));
    EXPECT_FALSE(local(key, memory.data() + 100, 1, false));
    EXPECT_TRUE(local(key, memory.data() + 99, 1, false));
    EXPECT_FALSE(local(key, memory.data() + 1, kMax, false));
    EXPECT_FALSE(local(key, nullptr, 1, false));
    EXPECT_FALSE(local(key ^ 1, memory.data(), 1, false));
    EXPECT_FALSE(table.check_local(key, kPd + 1, kQp, memory.data(), 1, false));
}

TEST_F(MemoryTableTest, zero_bytes_need_no_region) {
    EXPECT_TRUE(local(0, nullptr, 0, true));
    EXPECT_TRUE(local(12345, memory.data(), 0, true));
}

TEST_F(MemoryTableTest, local_writes_need_the_right) {
    RegionAttr attr = hundred();
    attr.access = kLocalRead;
    const std::uint32_t key = add(attr);
    EXPECT_TRUE(local(key, memory.data(), 1, false));
    EXPECT_FALSE(local(key, memory.data(), 1, true));
}

TEST_F(MemoryTableTest, local_use_respects_the_stream) {
    RegionAttr attr = hundred();
    attr.only_qp = kQp + 1;
    const std::uint32_t key = add(attr);
    EXPECT_FALSE(local(key, memory.data(), 1, false));
    EXPECT_TRUE(table.check_local(key, kPd, kQp + 1, memory.data(), 1, false));
}

// -- invalidate --

TEST_F(MemoryTableTest, peers_may_invalidate_only_what_is_theirs_alone) {
    RegionAttr attr = hundred();
    const std::uint32_t shared = add(attr);
    attr.only_qp = kQp;
    const std::uint32_t own = add(attr);
    EXPECT_EQ(table.check_invalidate(own, kPd, kQp), StreamError::none);
    EXPECT_EQ(table.check_invalidate(own, kPd, kQp + 1), StreamError::invalidate_not_permitted);
    EXPECT_EQ(table.check_invalidate(own, kPd + 1, kQp), StreamError::invalidate_not_permitted);
    EXPECT_EQ(table.check_invalidate(shared, kPd, kQp), StreamError::invalidate_not_permitted);
    EXPECT_EQ(table.check_invalidate(shared, kPd, 0), StreamError::invalidate_not_permitted);
    EXPECT_EQ(table.check_invalidate(own ^ 1, kPd, kQp), StreamError::invalidate_stag_invalid);
    EXPECT_EQ(table.check_invalidate(0, kPd, kQp), StreamError::invalidate_stag_invalid);
}

TEST_F(MemoryTableTest, invalidation_revokes_all_use_but_keeps_the_region) {
    RegionAttr attr = hundred();
    attr.only_qp = kQp;
    const std::uint32_t stag = add(attr);
    EXPECT_TRUE(table.invalidate(stag));
    EXPECT_FALSE(table.invalidate(stag));
    EXPECT_EQ(write(stag, va(memory.data()), 1), StreamError::tagged_stag_invalid);
    EXPECT_EQ(read(stag, va(memory.data()), 1), StreamError::read_stag_invalid);
    EXPECT_FALSE(local(stag, memory.data(), 1, false));
    EXPECT_EQ(table.check_invalidate(stag, kPd, kQp), StreamError::invalidate_stag_invalid);
    EXPECT_EQ(table.size(), 1u);
    EXPECT_TRUE(table.query(stag));
    EXPECT_TRUE(table.remove(stag));
    EXPECT_EQ(table.size(), 0u);
    EXPECT_FALSE(table.invalidate(stag));
}

// -- query, remove --

TEST_F(MemoryTableTest, query_tells_what_was_given) {
    RegionAttr attr = hundred();
    attr.only_qp = 5;
    attr.access = kRemoteRead | kZeroBased;
    const std::uint32_t stag = add(attr);
    const RegionAttr got = table.query(stag).value();
    EXPECT_EQ(got.address, attr.address);
    EXPECT_EQ(got.length, attr.length);
    EXPECT_EQ(got.access, attr.access);
    EXPECT_EQ(got.pd, attr.pd);
    EXPECT_EQ(got.only_qp, attr.only_qp);
    EXPECT_EQ(table.query(stag ^ 1).error().code, ENOENT);
}

TEST_F(MemoryTableTest, a_removed_region_is_gone) {
    const std::uint32_t stag = add(hundred());
    ASSERT_TRUE(table.remove(stag));
    EXPECT_EQ(table.remove(stag).error().code, ENOENT);
    EXPECT_EQ(table.remove(0).error().code, ENOENT);
    EXPECT_EQ(table.query(stag).error().code, ENOENT);
    EXPECT_EQ(write(stag, va(memory.data()), 1), StreamError::tagged_stag_invalid);
    EXPECT_EQ(table.size(), 0u);
}

TEST_F(MemoryTableTest, agrees_with_a_map_over_many_additions_and_removals) {
    std::mt19937 random(1);
    std::map<std::uint32_t, std::uint64_t> oracle;  // STag -> length
    std::vector<std::uint32_t> live, dead;
    for (int i = 0; i < 100'000; ++i) {
        // Waves, so that the table grows, empties and fills again.
        const bool grow = live.empty() || random() % 100 < ((i / 20'000) % 2 == 0 ? 60u : 40u);
        if (grow) {
            const std::uint64_t length = 1 + random() % 4096;
            const std::uint32_t stag = add(
                {.address = memory.data(), .length = length, .access = kRemoteWrite, .pd = kPd});
            ASSERT_TRUE(oracle.emplace(stag, length).second);
            live.push_back(stag);
        } else {
            std::swap(live[random() % live.size()], live.back());
            ASSERT_TRUE(table.remove(live.back()));
            oracle.erase(live.back());
            dead.push_back(live.back());
            live.pop_back();
        }
        if (!live.empty()) {
            const std::uint32_t stag = live[random() % live.size()];
            const std::uint64_t length = oracle.at(stag);
            ASSERT_EQ(write(stag, va(memory.data()), length), StreamError::none);
            ASSERT_EQ(write(stag, va(memory.data()), length + 1), StreamError::tagged_bounds);
        }
        if (!dead.empty()) {
            const std::uint32_t stag = dead[random() % dead.size()];
            if (!oracle.contains(stag)) {
                ASSERT_EQ(write(stag, va(memory.data()), 1), StreamError::tagged_stag_invalid);
            }
        }
        ASSERT_EQ(table.size(), oracle.size());
    }
    for (const auto& [stag, length] : oracle) ASSERT_EQ(table.query(stag).value().length, length);
}

// -- threads --

TEST_F(MemoryTableTest, of_many_removals_of_one_stag_one_wins) {
    for (int round = 0; round < 200; ++round) {
        const std::uint32_t stag = add(hundred());
        std::atomic<int> won{0}, lost{0};
        auto remove = [&] {
            const auto removed = table.remove(stag);
            won += removed.ok();
            lost += removed.error().code == ENOENT;
        };
        std::thread a(remove), b(remove);
        a.join();
        b.join();
        ASSERT_EQ(won.load(), 1);
        ASSERT_EQ(lost.load(), 1);
    }
}

TEST_F(MemoryTableTest, removal_waits_for_the_section_under_way) {
    const std::uint32_t stag = add(hundred());
    reader.enter();
    const auto found =
        table.check_remote(stag, kPd, kQp, Right::remote_write, va(memory.data()), 1);
    ASSERT_EQ(found.stream_error, StreamError::none);
    std::atomic<bool> removed{false};
    std::thread owner([&] {
        ASSERT_TRUE(table.remove(stag));
        removed = true;
    });
    // The right is gone at once, the wait lasts until the section ends.
    while (write(stag, va(memory.data()), 1) == StreamError::none) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(removed.load());
    *found.address = std::byte{1};
    reader.leave();
    owner.join();
}

// The memory is plain: a write through a pointer that was found, after remove() has returned, is a
// data race that the thread sanitizer sees, and a changed byte that the test sees.
TEST_F(MemoryTableTest, no_write_after_removal) {
    std::atomic<std::uint32_t> current{0};
    std::atomic<bool> stop{false};
    std::atomic<long> written{0};
    std::vector<std::thread> pollers;
    std::array<std::array<std::byte, 64>, 2> target{};  // one for each poller
    for (std::size_t d = 0; d < target.size(); ++d) {
        pollers.emplace_back([&, d] {
            Epochs::Reader own(epochs);
            while (!stop.load(std::memory_order_relaxed)) {
                own.enter();
                const auto found = table.check_remote(current.load(std::memory_order_relaxed), kPd,
                                                      kQp, Right::remote_write, 64 * d, 64);
                if (found.stream_error == StreamError::none) {
                    for (int i = 0; i < 64; ++i) found.address[i] = std::byte{0xff};
                    ++written;
                }
                own.leave();
                std::this_thread::yield();
            }
        });
    }
    auto* const first = target[0].data();
    int changed = 0;
    for (int round = 0; round < 100; ++round) {
        const std::uint32_t stag = add({.address = first,
                                        .length = sizeof target,
                                        .access = kRemoteWrite | kZeroBased,
                                        .pd = kPd});
        current.store(stag, std::memory_order_relaxed);
        const long before = written.load();
        // The first round waits for a poller to be there at all; later ones meet it where it is.
        for (int i = 0; (round == 0 || i < 20) && written.load() == before; ++i) {
            std::this_thread::yield();
        }
        ASSERT_TRUE(table.remove(stag));
        for (auto& t : target) t.fill(std::byte{0});
        for (int i = 0; i < 3; ++i) std::this_thread::yield();
        for (const auto& t : target) {
            for (const std::byte b : t) changed += b != std::byte{0};
        }
    }
    stop = true;
    for (std::thread& t : pollers) t.join();
    EXPECT_EQ(changed, 0);
    EXPECT_GT(written.load(), 0);
}

// A poller that holds an STag while others come and go, tables grow and slots are reused, never
// gets another region's memory.
TEST_F(MemoryTableTest, an_stag_leads_to_its_own_memory_or_nowhere) {
    constexpr int kRegions = 3000;
    std::vector<std::atomic<std::uint64_t>> published(64);  // STag << 32 | offset of its memory
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0}, found_some{0};
    std::thread poller([&] {
        std::mt19937 random(2);
        Epochs::Reader own(epochs);
        while (!stop.load(std::memory_order_relaxed)) {
            own.enter();
            const std::uint64_t p = published[random() % 64].load(std::memory_order_relaxed);
            const auto found = table.check_remote(static_cast<std::uint32_t>(p >> 32), kPd, kQp,
                                                  Right::remote_read, 0, 1);
            if (found.stream_error == StreamError::none) {
                ++found_some;
                wrong += found.address != memory.data() + (p & 0xffffffff);
            }
            own.leave();
            if (random() % 64 == 0) std::this_thread::yield();
        }
    });
    std::mt19937 random(3);
    std::vector<std::uint32_t> live;
    for (std::uint32_t i = 0; i < kRegions; ++i) {
        const std::uint32_t offset = i % 4000;
        const std::uint32_t stag = add({.address = memory.data() + offset,
                                        .length = 1,
                                        .access = kRemoteRead | kZeroBased,
                                        .pd = kPd});
        published[random() % 64].store(std::uint64_t{stag} << 32 | offset,
                                       std::memory_order_relaxed);
        live.push_back(stag);
        if (i % 3 == 0) {
            std::swap(live[random() % live.size()], live.back());
            ASSERT_TRUE(table.remove(live.back()));
            live.pop_back();
        }
        if (i == kRegions / 2) {
            using Clock = std::chrono::steady_clock;
            const auto limit = Clock::now() + std::chrono::seconds(10);
            while (found_some == 0 && Clock::now() < limit) std::this_thread::yield();
        }
    }
    stop = true;
    poller.join();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_GT(found_some.load(), 0);
}

}  // namespace
}  // namespace xsock
