// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLOCK_MONOTONIC in nanoseconds. The cores get the time as an argument; this is where it comes
// from.
#pragma once

#include "base/clock_time.hpp"

namespace xsock {

[[nodiscard]] inline Time monotonic_now() noexcept { return clock_time(CLOCK_MONOTONIC); }

/// `now + delta`, kNever when either is kNever or the sum would wrap.
[[nodiscard]] inline Time time_after(Time now, Time delta) noexcept {
    return delta > kNever - now ? kNever : now + delta;
}

/// For poll(): rounded up; -1 for kNever.
[[nodiscard]] inline int milliseconds_until(Time deadline) noexcept {
    constexpr Time kMost = 1'000'000'000;
    if (deadline == kNever) return -1;
    const Time now = monotonic_now();
    const Time left = deadline > now ? deadline - now : 0;
    const Time ms = (left + kMillisecond - 1) / kMillisecond;
    return static_cast<int>(ms < kMost ? ms : kMost);
}

}  // namespace xsock
