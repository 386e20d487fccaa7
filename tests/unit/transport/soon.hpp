// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Until when a test waits for what comes at once: only a failure takes so long.
#pragma once

#include "base/bytes.hpp"
#include "transport/clock.hpp"

namespace xsock::test {

inline Time soon() { return monotonic_now() + 20 * kSecond; }

}  // namespace xsock::test
