// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/result.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace xsock {
namespace {

Result<int> half(int n) {
    if (n % 2) return Error{EINVAL, "odd"};
    return n / 2;
}

TEST(Result, holds_a_value) {
    const Result<int> r = half(8);
    ASSERT_TRUE(r.ok());
    EXPECT_TRUE(r);
    EXPECT_EQ(r.value(), 4);
    EXPECT_EQ(r.error().code, 0);
}

TEST(Result, holds_an_error) {
    const Result<int> r = half(7);
    EXPECT_FALSE(r.ok());
    EXPECT_FALSE(r);
    EXPECT_EQ(r.error().code, EINVAL);
    EXPECT_STREQ(r.error().what, "odd");
}

TEST(Result, moves_what_cannot_be_copied) {
    Result<std::unique_ptr<int>> r{std::make_unique<int>(3)};
    EXPECT_EQ(**r, 3);
    const std::unique_ptr<int> taken = std::move(r.value());
    EXPECT_EQ(*taken, 3);
}

TEST(Result, void_is_fine_unless_told_otherwise) {
    const Result<void> fine;
    EXPECT_TRUE(fine);
    const Result<void> failed = Error{ENOMEM, "none left"};
    EXPECT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ENOMEM);
}

TEST(ResultDeathTest, asking_an_error_for_its_value_is_our_bug) {
    EXPECT_DEATH((void)half(7).value(), "");
    EXPECT_DEATH((void)Result<int>(Error{}), "");
}

}  // namespace
}  // namespace xsock
