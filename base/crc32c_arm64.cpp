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

}  // namespace

void add_machine_methods(MethodList& list) noexcept {
    if ((getauxval(AT_HWCAP) & HWCAP_CRC32) == 0) return;
    list.add(serial_method<Crc32Instruction>("arm-crc"));
#ifdef XSOCK_HAVE_ISAL
    list.add({"isa-l", isal_or_serial<Crc32Instruction>, serial_copy<Crc32Instruction>,
              serial_lanes<Crc32Instruction>});
#endif
}

}  // namespace xsock::crc32c_detail

#endif  // __aarch64__
