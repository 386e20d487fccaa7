// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CLOCK_REALTIME in nanoseconds, for what is shown and for the times of files: it may be set back.
#pragma once

#include "base/clock_time.hpp"

namespace xsock {

[[nodiscard]] inline Time wall_clock_now() noexcept { return clock_time(CLOCK_REALTIME); }

}  // namespace xsock
