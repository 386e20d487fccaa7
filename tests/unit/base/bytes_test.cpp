// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/bytes.hpp"

#include <gtest/gtest.h>

#include <array>

namespace xsock {
namespace {

using Storage = std::array<std::uint8_t, 16>;

// At an odd address, so that alignment is not taken for granted.
struct Memory {
    alignas(8) Storage storage{};
    std::uint8_t* at = storage.data() + 1;
};

TEST(Bytes, loads_big_endian) {
    Memory o;
    for (std::uint8_t i = 0; i < 8; ++i) o.at[i] = static_cast<std::uint8_t>(i + 1);
    EXPECT_EQ(load_be16(o.at), 0x0102u);
    EXPECT_EQ(load_be32(o.at), 0x01020304u);
    EXPECT_EQ(load_be64(o.at), 0x0102030405060708u);
}

TEST(Bytes, loads_little_endian) {
    Memory o;
    for (std::uint8_t i = 0; i < 8; ++i) o.at[i] = static_cast<std::uint8_t>(i + 1);
    EXPECT_EQ(load_le32(o.at), 0x04030201u);
}

TEST(Bytes, stores_big_endian_and_nothing_beside) {
    Memory o;
    store_be64(o.at, 0x0102030405060708u);
    EXPECT_EQ(o.storage, (Storage{0, 1, 2, 3, 4, 5, 6, 7, 8}));
    store_be32(o.at, 0xa1a2a3a4u);
    EXPECT_EQ(o.storage, (Storage{0, 0xa1, 0xa2, 0xa3, 0xa4, 5, 6, 7, 8}));
    store_be16(o.at, 0xb1b2u);
    EXPECT_EQ(o.storage, (Storage{0, 0xb1, 0xb2, 0xa3, 0xa4, 5, 6, 7, 8}));
}

TEST(Bytes, stores_little_endian) {
    Memory o;
    store_le32(o.at, 0x01020304u);
    EXPECT_EQ(o.storage, (Storage{0, 4, 3, 2, 1}));
}

TEST(Bytes, round_trips_extremes) {
    Memory o;
    for (const std::uint64_t v : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
        store_be64(o.at, v);
        EXPECT_EQ(load_be64(o.at), v);
        const auto high = static_cast<std::uint32_t>(v >> 32);
        store_be32(o.at, high);
        EXPECT_EQ(load_be32(o.at), high);
        store_le32(o.at, high);
        EXPECT_EQ(load_le32(o.at), high);
        store_be16(o.at, static_cast<std::uint16_t>(v >> 48));
        EXPECT_EQ(load_be16(o.at), v >> 48);
    }
}

TEST(Bytes, copies_any_length_and_nothing_beside_it) {
    std::array<std::byte, 200> from, to;
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i + 1);
    for (std::size_t n = 0; n <= 150; ++n) {
        to.fill(std::byte{0xee});
        copy_short(to.data() + 20, from.data() + n % 16, n);
        for (std::size_t i = 0; i < to.size(); ++i) {
            const bool inside = i >= 20 && i < 20 + n;
            ASSERT_EQ(to[i], inside ? from[n % 16 + i - 20] : std::byte{0xee}) << n << " at " << i;
        }
    }
}

}  // namespace
}  // namespace xsock
