// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/marker.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace xsock::mpa {
namespace {

TEST(MarkerGrid, first_marker_is_due_at_once_then_every_512_bytes) {
    MarkerGrid grid(true);
    EXPECT_EQ(grid.until_next(), 0u);
    for (int i = 0; i < 3; ++i) {
        grid.pass_marker();
        EXPECT_EQ(grid.until_next(), 508u);
        grid.advance(100);
        EXPECT_EQ(grid.until_next(), 408u);
        grid.advance(408);
        EXPECT_EQ(grid.until_next(), 0u);
    }
}

TEST(MarkerGrid, disabled_never_has_one) {
    MarkerGrid grid(false);
    EXPECT_EQ(grid.until_next(), SIZE_MAX);
    grid.advance(100000);
    EXPECT_EQ(grid.until_next(), SIZE_MAX);
    EXPECT_EQ(grid.count_within(1 << 20), 0u);
}

TEST(MarkerGrid, count_within_agrees_with_a_walk) {
    for (std::size_t start = 0; start <= 512; start += 4) {
        MarkerGrid grid(true);
        if (start >= 4) {
            grid.pass_marker();
            grid.advance(start - 4);
        }
        for (const std::size_t bytes : {0, 1, 4, 100, 507, 508, 509, 1016, 1017, 5000, 65536}) {
            MarkerGrid walk = grid;
            std::size_t markers = 0;
            for (std::size_t left = bytes; left != 0;) {
                if (walk.until_next() == 0) {
                    walk.pass_marker();
                    ++markers;
                }
                const std::size_t n = std::min(left, walk.until_next());
                walk.advance(n);
                left -= n;
            }
            EXPECT_EQ(grid.count_within(bytes), markers) << start << ' ' << bytes;
        }
    }
}

TEST(MarkerBytes, carry_the_pointer_big_endian_behind_two_zero_bytes) {
    const auto marker = marker_octets(0x0114);
    EXPECT_EQ(load_be32(marker.data()), 0x00000114u);
    EXPECT_EQ(marker_fpduptr(marker.data()), 0x0114u);
}

TEST(MarkerBytes, low_two_bits_of_the_pointer_are_taken_as_zero) {
    const std::byte marker[4] = {std::byte{0xff}, std::byte{0xff}, std::byte{0}, std::byte{0x17}};
    EXPECT_EQ(marker_fpduptr(marker), 0x14u);
}

}  // namespace
}  // namespace xsock::mpa
