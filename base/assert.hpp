// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// XSOCK_ASSERT: our own invariants, kept in release builds. Never for a peer's or a caller's input.
#pragma once

namespace xsock {
[[noreturn]] void assertion_failed(const char* what, const char* file, int line) noexcept;
}

#define XSOCK_ASSERT(condition)         \
    (__builtin_expect(!!(condition), 1) \
         ? static_cast<void>(0)         \
         : ::xsock::assertion_failed(#condition, __FILE__, __LINE__))
