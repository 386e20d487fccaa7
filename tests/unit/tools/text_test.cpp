// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/text.hpp"

#include <gtest/gtest.h>

namespace xsock::tools {
namespace {

TEST(Text, quantities_have_units_that_suit) {
    EXPECT_EQ(bytes_text(0), "0");
    EXPECT_EQ(bytes_text(1023), "1023");
    EXPECT_EQ(bytes_text(1024), "1 KiB");
    EXPECT_EQ(bytes_text(1536), "1.5 KiB");
    EXPECT_EQ(bytes_text(~std::uint64_t{0}), "16 EiB");
    EXPECT_EQ(count_text(99'999), "99999");
    EXPECT_EQ(count_text(1'234'567), "1.2 M");
    EXPECT_EQ(time_text(850), "850 ns");
    EXPECT_EQ(time_text(12'340), "12.3 us");
    EXPECT_EQ(time_text(999'600), "1.00 ms");
    EXPECT_EQ(time_text(3e9), "3.00 s");
}

TEST(Text, printable_keeps_text_and_drops_control) {
    EXPECT_EQ(printable("Grüße\n"), "Grüße?");
    EXPECT_EQ(printable("\x1b[31m"), "?[31m");
    EXPECT_EQ(printable("\xff\xc0\x80"
                        "a"),
              "???a");
    EXPECT_EQ(printable("\xc2\x9b"), "?");        // a control character of C1
    EXPECT_EQ(printable("\xed\xa0\x80"), "???");  // a surrogate
    EXPECT_EQ(printable("\xe2\x82"), "??");       // cut short
}

TEST(Text, trimmed_and_file_text) {
    EXPECT_EQ(trimmed(" \ta b\n"), "a b");
    EXPECT_EQ(trimmed(" \n"), "");
    EXPECT_EQ(split("a,,b", ','), (std::vector<std::string_view>{"a", "", "b"}));
    EXPECT_EQ(split("", ','), (std::vector<std::string_view>{""}));
    EXPECT_EQ(file_text("/no/such/file"), "");
    EXPECT_EQ(file_text("/proc/self/cmdline", 3).size(), 3u);
}

}  // namespace
}  // namespace xsock::tools
