// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests that need the environment to say something: it is read at the first use of the library,
// so they run in a process of their own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

namespace xsock::test {

/// Runs `body` in a fresh process (this program started again, up to here) in which `name` is
/// `value` in the environment; its failures are failures of this test.
inline void with_environment(const char* name, const char* value,
                             const std::function<void()>& body) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    setenv(name, value, 1);
    EXPECT_EXIT(
        {
            body();
            _exit(::testing::Test::HasFailure() ? 1 : 0);
        },
        ::testing::ExitedWithCode(0), "")
        << "with " << name << "=" << value;
    unsetenv(name);
}

}  // namespace xsock::test
