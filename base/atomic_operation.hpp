// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The atomic operations of RFC 7306 §5.1 on memory of this process. Called by pollers, for a peer;
// atomic toward other pollers that do the same and toward the program's own lock-free atomics on
// the same eight bytes. Not toward plain stores, Writes, or Sends.
#pragma once

#include <cstdint>

#include "base/work.hpp"

namespace xsock {

/// What FetchAdd leaves of `value`: the sum, field by field. A bit set in operand_mask is the
/// highest of its field, and no carry leaves it; 0 is one field of 64 bits.
[[nodiscard]] std::uint64_t fetch_add_result(std::uint64_t value, const Atomic& operands) noexcept;

/// What CmpSwap leaves of `value`: where the compared bits are equal, the swapped ones are the
/// operand's.
[[nodiscard]] std::uint64_t compare_swap_result(std::uint64_t value,
                                                const Atomic& operands) noexcept;

/// Does it, sequentially consistent. Where the result equals what was there, that is stored again:
/// the target must be writable.
///
/// @param target aligned to 8 bytes; if it may be unmapped, inside a fault::Touch for writing
/// @pre is_atomic(opcode)
/// @return the value before, in host order
std::uint64_t perform_atomic(SendOpcode opcode, std::byte* target, const Atomic& operands) noexcept;

}  // namespace xsock
