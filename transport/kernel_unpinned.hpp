// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory regions that could not be pinned for the kernel module: counted for `xsock stat` and the
// exit summary, and told of in the log. Any thread.
#pragma once

#include <cstdint>

#include "base/kernel_reason.hpp"

namespace xsock {

struct UnpinnedRegion {
    std::uint64_t bytes = 0;
    int error = 0;                 ///< errno; E2BIG: longer than `most_bytes`
    std::uint64_t most_bytes = 0;  ///< XSOCK_KERNEL_PIN
};
/// Counts the region, and writes one line into the log (`kernel-pinning`) for each reason that this
/// process meets: with the limit, and how to raise it.
void report_unpinned(const UnpinnedRegion& region) noexcept;
/// How many were counted in this process. Async-signal-safe.
[[nodiscard]] std::uint64_t unpinned_regions(kernel::Unpinned reason) noexcept;

}  // namespace xsock
