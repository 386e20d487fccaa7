// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/parse_size.hpp"

#include <gtest/gtest.h>

namespace xsock {
namespace {

constexpr std::uint64_t kMost = ~std::uint64_t{0};

TEST(ParseSize, takes_numbers_and_units) {
    EXPECT_EQ(parse_size("0", kMost), 0u);
    EXPECT_EQ(parse_size("64", kMost), 64u);
    for (const char* text : {"4K", "4k", "4KB", "4kiB"}) {
        EXPECT_EQ(parse_size(text, kMost), 4096u) << text;
    }
    for (const char* text : {"1M", "1m", "1MB", "1MiB"}) {
        EXPECT_EQ(parse_size(text, kMost), 1u << 20) << text;
    }
    for (const char* text : {"2G", "2g", "2GB", "2GiB"}) {
        EXPECT_EQ(parse_size(text, kMost), std::uint64_t{2} << 30) << text;
    }
}

TEST(ParseSize, takes_no_more_than_the_limit) {
    EXPECT_EQ(parse_size("100", 100), 100u);
    EXPECT_FALSE(parse_size("101", 100));
    EXPECT_EQ(parse_size("1M", 1 << 20), 1u << 20);
    EXPECT_FALSE(parse_size("1M", (1 << 20) - 1));
    EXPECT_EQ(parse_size("18446744073709551615", kMost), kMost);
    EXPECT_FALSE(parse_size("18446744073709551616", kMost));
    EXPECT_FALSE(parse_size("17179869184G", kMost));  // would wrap
}

TEST(ParseSize, takes_nothing_else) {
    for (const char* wrong : {"", "K", "KiB", "1KK", "1X", "1T", "1B", "1iB", "1Ki", "1KiBs", "-1",
                              "+1", "1.5K", " 1", "1 ", "1 K", "0x10"}) {
        EXPECT_FALSE(parse_size(wrong, kMost)) << wrong;
    }
}

}  // namespace
}  // namespace xsock
