// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/json.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace xsock::tools {
namespace {

TEST(Json, nests_with_commas_and_indent) {
    Json json;
    json.object()("a", 1)("b", "x").key("c").array();
    json.value(true).value(-2).end();
    json.key("d").object().end().end();
    EXPECT_EQ(
        json.text(),
        "{\n  \"a\": 1,\n  \"b\": \"x\",\n  \"c\": [\n    true,\n    -2\n  ],\n  \"d\": {}\n}");
}

TEST(Json, escapes_what_must_be) {
    Json json;
    json.value(std::string_view("\"\\\n\0\xff", 5));
    EXPECT_EQ(json.text(), "\"\\\"\\\\\\u000a\\u0000\xef\xbf\xbd\"");
}

TEST(Json, numbers_that_json_lacks_are_null) {
    Json json;
    json.array().value(std::numeric_limits<double>::infinity()).value(0.25);
    json.value(~std::uint64_t{0}).end();
    EXPECT_EQ(json.text(), "[\n  null,\n  0.25,\n  18446744073709551615\n]");
}

}  // namespace
}  // namespace xsock::tools
