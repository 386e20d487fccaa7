// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/port_range.hpp"

#include <gtest/gtest.h>

namespace xsock {
namespace {

TEST(PortRange, is_two_ports_in_order) {
    EXPECT_EQ(parse_ports("7000-7099")->low, 7000);
    EXPECT_EQ(parse_ports("7000-7099")->high, 7099);
    for (const char* const wrong :
         {"", "7000", "7000-", "-7000", "0-5", "9-8", "1-65536", "1-2x"}) {
        EXPECT_FALSE(parse_ports(wrong).has_value()) << wrong;
    }
}

}  // namespace
}  // namespace xsock
