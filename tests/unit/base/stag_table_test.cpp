// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/stag_table.hpp"

#include <gtest/gtest.h>

namespace xsock {
namespace {

TEST(StagTable, finds_all_after_it_has_grown) {
    StagTable table;
    EXPECT_EQ(table.find(0), StagTable::kNone);
    for (std::uint32_t i = 0; i < 1000; ++i) {
        table.reserve();
        table.insert(0x10000 + 256 * i, i);  // one place of the first table for all
    }
    for (std::uint32_t i = 0; i < 1000; ++i) EXPECT_EQ(table.find(0x10000 + 256 * i), i);
    EXPECT_EQ(table.find(7), StagTable::kNone);
}

TEST(StagTable, walks_past_what_was_removed) {
    StagTable table;
    for (std::uint32_t i = 0; i < 3; ++i) {
        table.reserve();
        table.insert(1 + 256 * i, i);
    }
    table.erase(257);
    EXPECT_EQ(table.find(257), StagTable::kNone);
    EXPECT_EQ(table.find(513), 2u);
    table.reserve();
    table.insert(769, 3);  // in the place that is free now
    EXPECT_EQ(table.find(1), 0u);
    EXPECT_EQ(table.find(513), 2u);
    EXPECT_EQ(table.find(769), 3u);
    for (const std::uint32_t stag : {513u, 1u, 769u}) table.erase(stag);
    EXPECT_EQ(table.find(769), StagTable::kNone);
}

}  // namespace
}  // namespace xsock
