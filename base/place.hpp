// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Copies into program memory whose last byte arrives last: programs poll it.
#pragma once

#include <cstddef>
#include <cstring>

namespace xsock {

/// Copies `n` bytes; the last (at most eight) are stored behind all others. memcpy() alone may
/// store in any order: glibc's writes the first vector last.
inline void place(std::byte* to, const std::byte* from, std::size_t n) noexcept {
    constexpr std::size_t kTail = 8;
    if (n < kTail) {
        for (; n != 0; --n) *reinterpret_cast<volatile std::byte*>(to++) = *from++;
        return;
    }
    constexpr std::size_t kVector = 16, kFew = 8 * kVector;
    if (const std::size_t body = n - kTail; body >= kVector && body <= kFew) {
        std::size_t at = 0;
        for (; at + kVector < body; at += kVector) std::memcpy(to + at, from + at, kVector);
        std::memcpy(to + body - kVector, from + body - kVector, kVector);
    } else {
        std::memcpy(to, from, body);
    }
    __atomic_thread_fence(__ATOMIC_RELEASE);
    std::memcpy(to + n - kTail, from + n - kTail, kTail);
}

/// What was placed becomes visible before what its delivery tells.
inline void show_placed() noexcept { __atomic_thread_fence(__ATOMIC_RELEASE); }

}  // namespace xsock
