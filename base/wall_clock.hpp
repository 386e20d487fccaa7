// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLOCK_REALTIME in nanoseconds, for what is shown and for the times of files: it may be set back.
#pragma once

#include <time.h>

#include "base/bytes.hpp"

namespace xsock {

[[nodiscard]] inline Time wall_clock_now() noexcept {
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    return static_cast<Time>(t.tv_sec) * kSecond + static_cast<Time>(t.tv_nsec);
}

}  // namespace xsock
