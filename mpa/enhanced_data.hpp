// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The enhanced data of RFC 6581 §9: depths, and the kinds of RTR message as bits of both fields.
// Used by mpa::Startup.
#pragma once

#include <cstdint>

#include "base/ulp.hpp"
#include "include/xsock/iwarp.h"

namespace xsock::mpa {

enum RtrMask : std::uint8_t { kRtrSend = 1, kRtrWrite = 2, kRtrRead = 4 };

[[nodiscard]] constexpr bool has(unsigned flags, unsigned flag) { return (flags & flag) != 0; }

[[nodiscard]] inline unsigned depth(unsigned field) { return field & MPA_ENH_DEPTH_MASK; }

/// The kinds of RTR message that enhanced data names.
[[nodiscard]] inline std::uint8_t rtr_mask(unsigned enhanced_ird, unsigned enhanced_ord) {
    unsigned mask = 0;
    if (has(enhanced_ird, MPA_ENH_RTR_SEND)) mask |= kRtrSend;
    if (has(enhanced_ord, MPA_ENH_RTR_WRITE)) mask |= kRtrWrite;
    if (has(enhanced_ord, MPA_ENH_RTR_READ)) mask |= kRtrRead;
    return static_cast<std::uint8_t>(mask);
}

[[nodiscard]] inline unsigned rtr_bits_in_ird(unsigned mask) {
    return MPA_ENH_P2P | (has(mask, kRtrSend) ? MPA_ENH_RTR_SEND : 0u);
}

[[nodiscard]] inline unsigned rtr_bits_in_ord(unsigned mask) {
    return (has(mask, kRtrWrite) ? MPA_ENH_RTR_WRITE : 0u) |
           (has(mask, kRtrRead) ? MPA_ENH_RTR_READ : 0u);
}

/// A Write disturbs the peer least: it needs neither a receive nor an answer. As siw prefers.
[[nodiscard]] inline Rtr preferred_rtr(unsigned mask) {
    if (has(mask, kRtrWrite)) return Rtr::write;
    if (has(mask, kRtrRead)) return Rtr::read;
    if (has(mask, kRtrSend)) return Rtr::send;
    return Rtr::none;
}

[[nodiscard]] inline unsigned mask_of(Rtr rtr) {
    switch (rtr) {
        case Rtr::none:
            return 0;
        case Rtr::send:
            return kRtrSend;
        case Rtr::write:
            return kRtrWrite;
        case Rtr::read:
            return kRtrRead;
    }
    return 0;
}

}  // namespace xsock::mpa
