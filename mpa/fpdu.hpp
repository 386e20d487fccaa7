// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The FPDU (RFC 5044 §4.1): ULPDU_Length, ULPDU, PAD to a multiple of four octets, CRC.
#pragma once

#include <cstddef>

#include "base/bytes.hpp"
#include "base/crc32c.hpp"
#include "include/xsock/iwarp.h"

namespace xsock::mpa {

/// PAD behind a ULPDU of `ulpdu_length` octets: 0 to 3.
[[nodiscard]] constexpr std::size_t fpdu_pad(std::size_t ulpdu_length) noexcept {
    return (0 - (MPA_LENGTH_OCTETS + ulpdu_length)) & 3;
}

/// Octets of the whole FPDU, markers not counted.
[[nodiscard]] constexpr std::size_t fpdu_octets(std::size_t ulpdu_length) noexcept {
    return MPA_LENGTH_OCTETS + ulpdu_length + fpdu_pad(ulpdu_length) + MPA_CRC_OCTETS;
}

/// Are these `size` octets, from the first on, kCrc32cLanes FPDUs of `bytes` each, whose CRCs are
/// better computed together?
[[nodiscard]] inline bool equal_length_run(const std::byte* fpdu, std::size_t size,
                                           std::size_t bytes) noexcept {
    if (bytes - MPA_CRC_OCTETS >= kCrc32cShort || size < kCrc32cLanes * bytes) return false;
    bool alike = true;
    for (std::size_t i = 1; i < kCrc32cLanes; ++i) {
        alike &= fpdu_octets(load_be16(fpdu + i * bytes)) == bytes;
    }
    return alike;
}

static_assert(fpdu_octets(0) == 8 && fpdu_octets(1) == 8 && fpdu_octets(2) == 8);
static_assert(fpdu_octets(3) == 12 && fpdu_octets(42) == 48);

}  // namespace xsock::mpa
