// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include "tools/doctor/checks.hpp"

namespace xsock::tools {
namespace {

TEST(GuessProtocol, names_what_it_knows) {
    EXPECT_EQ(guess_protocol("HTTP/1.1 400 Bad Request\r\n"), "HTTP");
    EXPECT_EQ(guess_protocol("SSH-2.0-OpenSSH_9.2\r\n"), "SSH");
    EXPECT_EQ(guess_protocol(std::string_view("\x15\x03\x03\x00\x02", 5)), "TLS");
    EXPECT_EQ(guess_protocol(std::string_view("\x4a\x00\x00\x00\x0a"
                                              "8.0",
                                              8)),
              "MySQL");
    EXPECT_EQ(guess_protocol(""), "");
    EXPECT_EQ(guess_protocol("MPA ID Rep"), "");
}

TEST(Findings, only_a_failure_is_one) {
    Findings findings;
    findings.add(Verdict::warning, "a", "b");
    EXPECT_FALSE(findings.failed());
    findings.add(Verdict::failure, "a", "b");
    EXPECT_TRUE(findings.failed());
}

}  // namespace
}  // namespace xsock::tools
