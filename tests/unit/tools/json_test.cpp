// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/json.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace xsock::tools {
namespace {

TEST(Json, keeps_the_order_of_members) {
    const Json json = {{"b", 1}, {"a", {true, -2}}, {"c", Json::object()}};
    EXPECT_EQ(json_text(json),
              "{\n  \"b\": 1,\n  \"a\": [\n    true,\n    -2\n  ],\n  \"c\": {}\n}");
    EXPECT_EQ(json_line(json), R"({ "b": 1, "a": [ true, -2 ], "c": {} })");
}

TEST(Json, escapes_what_must_be) {
    const Json json = std::string("\"\\\n\0\xff", 5);
    EXPECT_EQ(json_text(json), "\"\\\"\\\\\\n\\u0000\xef\xbf\xbd\"");
    EXPECT_EQ(json_line(json), json_text(json));
}

TEST(Json, numbers_that_json_lacks_are_null) {
    const Json json = {std::numeric_limits<double>::infinity(), 0.25, ~std::uint64_t{0}};
    EXPECT_EQ(json_line(json), "[ null, 0.25, 18446744073709551615 ]");
}

}  // namespace
}  // namespace xsock::tools
