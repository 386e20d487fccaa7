// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Unpredictable numbers from the kernel (getrandom), fetched in batches. Any thread; forked
// children do not repeat their parent's numbers.
#pragma once

#include <cstdint>

namespace xsock {
[[nodiscard]] std::uint32_t random_u32() noexcept;
[[nodiscard]] inline std::uint64_t random_u64() noexcept {
    return std::uint64_t{random_u32()} << 32 | random_u32();
}
}
