// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the ways to compute CRC32c share: arithmetic modulo the polynomial, and the byte-serial
// loop with its rules for copying. Included by base/crc32c*.cpp only.
#pragma once

#include <array>

#include "base/bytes.hpp"
#include "base/crc32c.hpp"

namespace xsock::crc32c_detail {

/// The Castagnoli polynomial 0x11edc6f41 (RFC 3720 §12.1) without x^32, reflected: bit 31 is the
/// coefficient of x^0.
inline constexpr std::uint32_t kPolynomial = 0x82f63b78u;

/// `v` * x modulo the polynomial: what one more zero bit does to the register.
[[nodiscard]] constexpr std::uint32_t times_x(std::uint32_t v) noexcept {
    return (v >> 1) ^ ((v & 1) != 0 ? kPolynomial : 0);
}

/// x^e modulo the polynomial, reflected, also for negative e (the polynomial has a constant term,
/// so x has an inverse).
[[nodiscard]] constexpr std::uint32_t x_power(int e) noexcept {
    std::uint32_t v = 0x80000000u;
    for (; e > 0; --e) v = times_x(v);
    for (; e < 0; ++e) v = (v >> 31) != 0 ? ((v ^ kPolynomial) << 1) | 1 : v << 1;
    return v;
}

/// Reads a little-endian T from memory that others may be writing. The compiler must not read it
/// again in place of keeping it: what is stored and what is summed have to be the same bytes.
template <typename T>
[[nodiscard, gnu::always_inline]] inline T load_once(const std::byte* from) noexcept {
    T v;
    std::memcpy(&v, from, sizeof v);
    __asm__ volatile("" : "+r"(v));
    if constexpr (sizeof v != 1 && std::endian::native == std::endian::big) v = detail::byteswap(v);
    return v;
}

template <typename T>
[[gnu::always_inline]] inline void store_le(std::byte* to, T v) noexcept {
    if constexpr (sizeof v != 1 && std::endian::native == std::endian::big) v = detail::byteswap(v);
    std::memcpy(to, &v, sizeof v);
}

/// Continues `reg` over `n` bytes one word after the other, by the instructions or tables of
/// Step; with kCopy it stores them as well.
///
/// A program may poll the last byte of its buffer to learn that all have come, so that byte gets a
/// store of its own, behind all others. A wider store would not do: where it crosses a cache line
/// its halves become visible in any order.
template <typename Step, bool kCopy>
[[nodiscard, gnu::always_inline]] inline std::uint32_t serial(std::uint32_t reg, std::byte* to,
                                                              const std::byte* from,
                                                              std::size_t n) noexcept {
    constexpr std::size_t kLast = kCopy ? 1 : 0;  // bytes that the words leave over at least
    for (; n >= 8 + kLast; n -= 8, from += 8) {
        const auto word = load_once<std::uint64_t>(from);
        reg = Step::word8(reg, word);
        if constexpr (kCopy) {
            store_le(to, word);
            to += 8;
        }
    }
    if (n == 0) return reg;

    std::uint64_t rest = 0;  // the last 1 to 8 bytes
    if (kCopy && n == 8) {
        rest = load_once<std::uint64_t>(from);
        reg = Step::word8(reg, rest);
    } else {
        unsigned bits = 0;
        if ((n & 4) != 0) {
            const auto word = load_once<std::uint32_t>(from);
            reg = Step::word4(reg, word);
            rest = word;
            bits = 32;
            from += 4;
        }
        if ((n & 2) != 0) {
            const auto word = load_once<std::uint16_t>(from);
            reg = Step::word2(reg, word);
            rest |= std::uint64_t{word} << bits;
            bits += 16;
            from += 2;
        }
        if ((n & 1) != 0) {
            const auto word = load_once<std::uint8_t>(from);
            reg = Step::word1(reg, word);
            rest |= std::uint64_t{word} << bits;
        }
    }
    if constexpr (kCopy) {
        const std::size_t before_last = n - 1;
        if ((before_last & 4) != 0) {
            store_le(to, static_cast<std::uint32_t>(rest));
            rest >>= 32;
            to += 4;
        }
        if ((before_last & 2) != 0) {
            store_le(to, static_cast<std::uint16_t>(rest));
            rest >>= 16;
            to += 2;
        }
        if ((before_last & 1) != 0) {
            store_le(to, static_cast<std::uint8_t>(rest));
            rest >>= 8;
            to += 1;
        }
        __atomic_store_n(reinterpret_cast<unsigned char*>(to), static_cast<unsigned char>(rest),
                         __ATOMIC_RELEASE);
    }
    return reg;
}

/// The registers of kCrc32cLanes runs of `n` bytes, `stride` apart: word by word in turns, so that
/// the CPU computes them at the same time.
template <typename Step>
inline void serial_lanes(const std::byte* first, std::size_t stride, std::size_t n,
                         std::uint32_t* regs) noexcept {
    static_assert(kCrc32cLanes == 4);
    const std::byte* const second = first + stride;
    const std::byte* const third = second + stride;
    const std::byte* const fourth = third + stride;
    std::uint32_t r0 = kCrc32cInit, r1 = r0, r2 = r0, r3 = r0;
    std::size_t at = 0;
    for (; n - at >= 8; at += 8) {
        r0 = Step::word8(r0, load_once<std::uint64_t>(first + at));
        r1 = Step::word8(r1, load_once<std::uint64_t>(second + at));
        r2 = Step::word8(r2, load_once<std::uint64_t>(third + at));
        r3 = Step::word8(r3, load_once<std::uint64_t>(fourth + at));
    }
    if (n - at >= 4) {
        r0 = Step::word4(r0, load_once<std::uint32_t>(first + at));
        r1 = Step::word4(r1, load_once<std::uint32_t>(second + at));
        r2 = Step::word4(r2, load_once<std::uint32_t>(third + at));
        r3 = Step::word4(r3, load_once<std::uint32_t>(fourth + at));
        at += 4;
    }
    for (; at < n; ++at) {
        r0 = Step::word1(r0, load_once<std::uint8_t>(first + at));
        r1 = Step::word1(r1, load_once<std::uint8_t>(second + at));
        r2 = Step::word1(r2, load_once<std::uint8_t>(third + at));
        r3 = Step::word1(r3, load_once<std::uint8_t>(fourth + at));
    }
    regs[0] = r0;
    regs[1] = r1;
    regs[2] = r2;
    regs[3] = r3;
}

/// serial() without and with copying, as a Method has them.
template <typename Step>
std::uint32_t serial_crc(std::uint32_t reg, const std::byte* from, std::size_t n) noexcept {
    return serial<Step, false>(reg, nullptr, from, n);
}

template <typename Step>
std::uint32_t serial_copy(std::uint32_t reg, std::byte* to, const std::byte* from,
                          std::size_t n) noexcept {
    return serial<Step, true>(reg, to, from, n);
}

/// The method that goes by Step alone.
template <typename Step>
[[nodiscard]] constexpr Method serial_method(const char* name) noexcept {
    return {name, serial_crc<Step>, serial_copy<Step>, serial_lanes<Step>};
}

/// The methods found, from the slowest to the best.
struct MethodList {
    std::array<Method, 6> methods{};
    std::size_t count = 0;
    void add(const Method& m) noexcept { methods[count++] = m; }
};

/// Adds what this architecture has beyond the portable method, if the CPU can run it. One of the
/// crc32c_<architecture>.cpp defines it.
void add_machine_methods(MethodList& list) noexcept;

/// ISA-L's own choice of method; any length. Call only with XSOCK_HAVE_ISAL.
std::uint32_t isal_crc(std::uint32_t reg, const std::byte* from, std::size_t n) noexcept;

/// ISA-L for runs that are worth its start and end, serial() for shorter ones.
template <typename Step>
std::uint32_t isal_or_serial(std::uint32_t reg, const std::byte* from, std::size_t n) noexcept {
    constexpr std::size_t kIsalLeast = 256;
    if (n >= kIsalLeast) return isal_crc(reg, from, n);
    return serial<Step, false>(reg, nullptr, from, n);
}

}  // namespace xsock::crc32c_detail
