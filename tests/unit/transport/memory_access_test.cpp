// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/memory_access.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>

#include "base/fault.hpp"

namespace xsock {
namespace {

constexpr PdId kPd = 3;

struct MemoryAccessTest : testing::Test {
    MemoryAccessTest() {
        fault::install();
        for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i);
    }
    std::uint32_t region(std::byte* address, std::uint64_t length, std::uint32_t access) {
        return *table.add({.address = address, .length = length, .access = access, .pd = kPd});
    }
    WcStatus gather(std::span<const Sge> from, Bytes to, PdId pd = kPd) {
        return MemoryAccess(table, epochs, pd).gather(from, to);
    }
    WcStatus scatter(ConstBytes from, std::span<const Sge> to, PdId pd = kPd) {
        return MemoryAccess(table, epochs, pd).scatter(from, to);
    }
    Epochs epochs;
    MemoryTable table{epochs};
    std::array<std::byte, 64> memory{}, other{};
};

TEST_F(MemoryAccessTest, gathers_pieces_in_their_order) {
    const std::uint32_t key = region(memory.data(), memory.size(), 0);
    const Sge pieces[] = {{&memory[10], 3, key}, {nullptr, 0, key}, {&memory[2], 2, key}};
    ASSERT_EQ(gather(pieces, Bytes(other).first(5)), WcStatus::success);
    const std::array<std::byte, 5> expected = {std::byte{10}, std::byte{11}, std::byte{12},
                                               std::byte{2}, std::byte{3}};
    EXPECT_EQ(std::memcmp(other.data(), expected.data(), expected.size()), 0);
}

TEST_F(MemoryAccessTest, scatters_no_further_than_there_is) {
    const std::uint32_t key = region(other.data(), other.size(), kLocalWrite);
    const Sge pieces[] = {{&other[5], 2, key}, {&other[20], 30, key}, {nullptr, 9, 0}};
    ASSERT_EQ(scatter(ConstBytes(memory).subspan(1, 4), pieces), WcStatus::success);
    EXPECT_EQ(other[5], std::byte{1});
    EXPECT_EQ(other[6], std::byte{2});
    EXPECT_EQ(other[7], std::byte{0});
    EXPECT_EQ(other[20], std::byte{3});
    EXPECT_EQ(other[21], std::byte{4});
    EXPECT_EQ(other[22], std::byte{0});
}

TEST_F(MemoryAccessTest, needs_a_key_of_the_domain) {
    const std::uint32_t key = region(memory.data(), memory.size(), kLocalWrite);
    const Sge good[] = {{memory.data(), 4, key}};
    const Sge wrong[] = {{memory.data(), 4, key ^ 1}};
    const Bytes to = Bytes(other).first(4);
    EXPECT_EQ(gather(good, to, kPd + 1), WcStatus::local_protection_error);
    EXPECT_EQ(gather(wrong, to), WcStatus::local_protection_error);
    EXPECT_EQ(scatter(to, good, kPd + 1), WcStatus::local_protection_error);
    EXPECT_EQ(scatter(to, wrong), WcStatus::local_protection_error);
}

TEST_F(MemoryAccessTest, keeps_within_the_region) {
    const std::uint32_t key = region(memory.data(), 32, kLocalWrite);
    const Sge beyond[] = {{&memory[30], 4, key}};
    EXPECT_EQ(gather(beyond, Bytes(other).first(4)), WcStatus::local_protection_error);
    const auto there = memory;
    EXPECT_EQ(scatter(ConstBytes(other).first(4), beyond), WcStatus::local_protection_error);
    EXPECT_EQ(memory, there);
    EXPECT_EQ(scatter(ConstBytes(other).first(2), beyond), WcStatus::success);  // as far as it goes
}

TEST_F(MemoryAccessTest, writes_only_where_that_is_permitted) {
    const std::uint32_t key = region(memory.data(), memory.size(), 0);
    const Sge piece[] = {{memory.data(), 4, key}};
    const auto there = memory;
    EXPECT_EQ(scatter(ConstBytes(other).first(4), piece), WcStatus::local_protection_error);
    EXPECT_EQ(memory, there);
}

TEST_F(MemoryAccessTest, memory_that_is_gone_is_an_error_of_the_request) {
    constexpr std::size_t kPage = 4096;
    void* const mapped = mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    auto* const page = static_cast<std::byte*>(mapped);
    const std::uint32_t key = region(page, kPage, kLocalWrite);
    const Sge piece[] = {{page, 4, key}};
    EXPECT_EQ(gather(piece, Bytes(other).first(4)), WcStatus::local_protection_error);
    EXPECT_EQ(scatter(ConstBytes(other).first(4), piece), WcStatus::local_protection_error);
    munmap(mapped, kPage);
}

}  // namespace
}  // namespace xsock
