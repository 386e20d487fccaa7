// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <time.h>

#include "base/bytes.hpp"

namespace xsock {

/// What `clock` shows, in nanoseconds.
[[nodiscard]] inline Time clock_time(clockid_t clock) noexcept {
    timespec t{};
    clock_gettime(clock, &t);
    return static_cast<Time>(t.tv_sec) * kSecond + static_cast<Time>(t.tv_nsec);
}

}  // namespace xsock
