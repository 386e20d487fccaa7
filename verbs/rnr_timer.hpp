// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The times that the codes of ibv_qp_attr::min_rnr_timer stand for (InfiniBand's table).
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.hpp"

namespace xsock::verbs {

/// @param code below 32
[[nodiscard]] constexpr Time rnr_time(std::uint8_t code) noexcept {
    constexpr Time kUnit = kMillisecond / 100;
    constexpr std::array<std::uint32_t, 32> kUnits{
        65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
        48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
        2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return kUnits[code & 31] * kUnit;
}

}  // namespace xsock::verbs
