// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/atomic_operation.hpp"

#include "base/assert.hpp"

namespace xsock {

static_assert(__atomic_always_lock_free(sizeof(std::uint64_t), nullptr),
              "a lock would not hold toward the program's own atomics");

std::uint64_t fetch_add_result(std::uint64_t value, const Atomic& operands) noexcept {
    // The highest bit of each field is added without carry, so that nothing leaves the field.
    const std::uint64_t tops = operands.operand_mask;
    const std::uint64_t sum = (value & ~tops) + (operands.operand & ~tops);
    return sum ^ ((value ^ operands.operand) & tops);
}

std::uint64_t compare_swap_result(std::uint64_t value, const Atomic& operands) noexcept {
    if (((value ^ operands.compare) & operands.compare_mask) != 0) return value;
    return (value & ~operands.operand_mask) | (operands.operand & operands.operand_mask);
}

std::uint64_t perform_atomic(SendOpcode opcode, std::byte* target,
                             const Atomic& operands) noexcept {
    XSOCK_ASSERT(is_atomic(opcode));
    XSOCK_ASSERT(reinterpret_cast<std::uintptr_t>(target) % sizeof(std::uint64_t) == 0);
    auto* const word = reinterpret_cast<std::uint64_t*>(target);
    if (opcode == SendOpcode::fetch_add && operands.operand_mask == 0) {
        return __atomic_fetch_add(word, operands.operand, __ATOMIC_SEQ_CST);
    }
    const auto result = opcode == SendOpcode::fetch_add ? &fetch_add_result : &compare_swap_result;
    std::uint64_t value = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(word, &value, result(value, operands), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
    return value;
}

}  // namespace xsock
