// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CRC32c on aarch64: the CRC32 instructions, optional in ARMv8.0; ISA-L, where it is there, for
// long runs that are not copied.
#ifdef __aarch64__

#include <sys/auxv.h>

#include "base/crc32c_methods.hpp"

namespace xsock::crc32c_detail {
namespace {

// By assembly, since intrinsics would tie serial() to a target attribute.
struct Crc32Instruction {
    static std::uint32_t word8(std::uint32_t reg, std::uint64_t v) noexcept {
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(reg) : "r"(v));
        return reg;
    }
    static std::uint32_t word4(std::uint32_t reg, std::uint32_t v) noexcept {
        __asm__(".arch_extension crc\n\tcrc32cw %w0, %w0, %w1" : "+r"(reg) : "r"(v));
        return reg;
    }
    static std::uint32_t word2(std::uint32_t reg, std::uint16_t v) noexcept {
        __asm__(".arch_extension crc\n\tcrc32ch %w0, %w0, %w1" : "+r"(reg) : "r"(v));
        return reg;
    }
    static std::uint32_t word1(std::uint32_t reg, std::uint8_t v) noexcept {
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(reg) : "r"(v));
        return reg;
    }
};

std::uint32_t instruction_crc(std::uint32_t reg, const std::byte* from, std::size_t n) noexcept {
    return serial<Crc32Instruction, false>(reg, nullptr, from, n);
}

std::uint32_t instruction_copy(std::uint32_t reg, std::byte* to, const std::byte* from,
                               std::size_t n) noexcept {
    return serial<Crc32Instruction, true>(reg, to, from, n);
}

void lanes(const std::byte* first, std::size_t stride, std::size_t n,
           std::uint32_t* regs) noexcept {
    serial_lanes<Crc32Instruction>(first, stride, n, regs);
}

#ifdef XSOCK_HAVE_ISAL
std::uint32_t isal_or_instruction(std::uint32_t reg, const std::byte* from,
                                  std::size_t n) noexcept {
    constexpr std::size_t kIsalLeast = 256;
    return n < kIsalLeast ? instruction_crc(reg, from, n) : isal_crc(reg, from, n);
}
#endif

}  // namespace

void add_machine_methods(MethodList& list) noexcept {
    if ((getauxval(AT_HWCAP) & HWCAP_CRC32) == 0) return;
    list.add({"arm-crc", instruction_crc, instruction_copy, lanes});
#ifdef XSOCK_HAVE_ISAL
    list.add({"isa-l", isal_or_instruction, instruction_copy, lanes});
#endif
}

}  // namespace xsock::crc32c_detail

#endif  // __aarch64__
