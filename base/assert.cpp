// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/assert.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace xsock {

void assertion_failed(const char* what, const char* file, int line) noexcept {
    // Not through stdio's buffers: the program may hold their locks.
    char text[512];
    const int length = std::snprintf(text, sizeof text, "xsock: assertion failed at %s:%d: %s\n",
                                     file, line, what);
    if (length > 0) {
        const auto bytes = std::min(static_cast<std::size_t>(length), sizeof text - 1);
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, bytes);
    }
    std::abort();
}

}  // namespace xsock
