// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/plain_socket.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace xsock {
namespace {

constexpr auto kCount = static_cast<unsigned>(PlainReason::kCount);
PlainReason reason(unsigned i) { return static_cast<PlainReason>(i); }

TEST(PlainReason, has_a_code_of_its_own_and_words) {
    std::set<std::string> codes;
    for (unsigned i = 1; i < kCount; ++i) {
        EXPECT_TRUE(codes.insert(plain_reason_code(reason(i))).second) << i;
        EXPECT_STRNE(plain_reason_code(reason(i)), "") << i;
        EXPECT_STRNE(plain_reason_text(reason(i)), "") << i;
    }
    EXPECT_STREQ(plain_reason_code(PlainReason::none), "");
    EXPECT_STREQ(plain_reason_code(reason(kCount)), "");
    EXPECT_STREQ(plain_reason_code(reason(255)), "");
    EXPECT_STREQ(plain_reason_text(reason(255)), "");
}

TEST(PlainReason, is_found_by_its_code) {
    const auto first_of_readers = static_cast<unsigned>(PlainReason::undecided);
    for (unsigned i = 0; i < first_of_readers; ++i) {
        EXPECT_EQ(plain_reason_of(plain_reason_code(reason(i))), reason(i));
    }
    // What only a reader says of sockets without a record, and what is no reason.
    for (const char* code : {"undecided", "unseen", "stream", "start-failed", ""}) {
        EXPECT_EQ(plain_reason_of(code), PlainReason::none) << code;
    }
}

}  // namespace
}  // namespace xsock
