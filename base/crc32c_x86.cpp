// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CRC32c on x86-64: the crc32 instruction for short runs, and folding by carry-less
// multiplication for long ones. Each function carries its own target attribute, so that the file
// needs no flags and the library runs on every CPU.
//
// Folding: bytes are taken as polynomials over GF(2). To move a 128-bit value V over the D bits
// that follow it means to add V * x^D, modulo P, to them. V's halves are multiplied by
// constants of 32 bits, x^(D+64) and x^D; reflected operands make the product of clmul(v, k) one
// of V * K * x^33, hence the constants x^(D+31) and x^(D-33). Nothing is reduced until 128 bits
// are left, and those go through the crc32 instruction twice.
#ifdef __x86_64__

// g++ 12 takes the deliberately undefined operands inside its own intrinsics for mistakes.
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "base/crc32c_methods.hpp"

#define XSOCK_PCLMUL gnu::target("sse4.2,pclmul")
// Every CPU with the others has PREFETCHW, and those without take it for no operation.
#define XSOCK_AVX512 gnu::target("sse4.2,pclmul,avx512f,avx512bw,avx512vl,vpclmulqdq,prfchw")

namespace xsock::crc32c_detail {
namespace {

// ---- SSE4.2: the crc32 instruction ----

// By assembly, since intrinsics would tie serial() to a target attribute.
struct Crc32Instruction {
    static std::uint32_t word8(std::uint32_t reg, std::uint64_t v) noexcept {
        std::uint64_t wide = reg;
        __asm__("crc32q %1, %0" : "+r"(wide) : "r"(v));
        return static_cast<std::uint32_t>(wide);
    }
    static std::uint32_t word4(std::uint32_t reg, std::uint32_t v) noexcept {
        __asm__("crc32l %1, %0" : "+r"(reg) : "r"(v));
        return reg;
    }
    static std::uint32_t word2(std::uint32_t reg, std::uint16_t v) noexcept {
        __asm__("crc32w %1, %0" : "+r"(reg) : "r"(v));
        return reg;
    }
    static std::uint32_t word1(std::uint32_t reg, std::uint8_t v) noexcept {
        __asm__("crc32b %1, %0" : "+r"(reg) : "r"(v));
        return reg;
    }
};

// ---- folding, what both widths share ----

// kShift[i] = x^(8i - 33), the factor that moves 32 bits over i bytes. A 128-bit value takes
// kShift[i + 8] for its first half and kShift[i] for its second.
constexpr std::size_t kMostShift = 64;
constexpr auto kShift = [] {
    std::array<std::uint32_t, kMostShift + 8 + 1> shift{};
    for (std::size_t i = 0; i < shift.size(); ++i) shift[i] = x_power(8 * static_cast<int>(i) - 33);
    return shift;
}();

// The two factors that move 128 bits over D bits.
struct Factors {
    long long first, second;
    constexpr explicit Factors(int bits) noexcept
        : first(x_power(bits + 31)), second(x_power(bits - 33)) {}
};

template <int bits>
[[XSOCK_PCLMUL, gnu::always_inline]] inline __m128i factors() noexcept {
    constexpr Factors f(bits);
    return _mm_set_epi64x(f.second, f.first);
}

[[XSOCK_PCLMUL, gnu::always_inline]] inline __m128i fold(__m128i v, __m128i by) noexcept {
    return _mm_xor_si128(_mm_clmulepi64_si128(v, by, 0x00), _mm_clmulepi64_si128(v, by, 0x11));
}

// The register behind the 128-bit value `v` and the `rest` bytes that follow it, whose own
// register, begun at zero, is `rest_reg`. The two are computed apart because the CPU can then do
// them at the same time.
[[XSOCK_PCLMUL, gnu::always_inline]] inline std::uint32_t reduce(__m128i v, std::size_t rest,
                                                                 std::uint32_t rest_reg) noexcept {
    v = fold(v, _mm_set_epi64x(kShift[rest], kShift[rest + 8]));
    std::uint32_t reg =
        Crc32Instruction::word8(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(v)));
    reg = Crc32Instruction::word8(reg, static_cast<std::uint64_t>(_mm_extract_epi64(v, 1)));
    return reg ^ rest_reg;
}

// ---- PCLMULQDQ: four 128-bit values at a time ----

template <bool kCopy>
[[XSOCK_PCLMUL, gnu::always_inline]] inline __m128i take16(std::byte*& to,
                                                           const std::byte*& from) noexcept {
    __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    from += 16;
    if constexpr (kCopy) {
        __asm__ volatile("" : "+x"(v));  // read once, as load_once()
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), v);
        to += 16;
    }
    return v;
}

/// @pre n > 64
template <bool kCopy>
[[XSOCK_PCLMUL, gnu::noinline]] std::uint32_t fold128(std::uint32_t reg, std::byte* to,
                                                      const std::byte* from,
                                                      std::size_t n) noexcept {
    // What is left for the end holds the last byte of a copy, whose store has its rules.
    const std::size_t rest = kCopy ? (n - 1) % 16 + 1 : n % 16;
    const std::byte* const end = from + (n - rest);
    __m128i v0 = _mm_xor_si128(take16<kCopy>(to, from), _mm_cvtsi32_si128(static_cast<int>(reg)));
    __m128i v1 = take16<kCopy>(to, from);
    __m128i v2 = take16<kCopy>(to, from);
    __m128i v3 = take16<kCopy>(to, from);
    const __m128i by512 = factors<512>();
    while (end - from >= 64) {
        v0 = _mm_xor_si128(fold(v0, by512), take16<kCopy>(to, from));
        v1 = _mm_xor_si128(fold(v1, by512), take16<kCopy>(to, from));
        v2 = _mm_xor_si128(fold(v2, by512), take16<kCopy>(to, from));
        v3 = _mm_xor_si128(fold(v3, by512), take16<kCopy>(to, from));
    }
    v3 = _mm_xor_si128(_mm_xor_si128(fold(v0, factors<384>()), fold(v1, factors<256>())),
                       _mm_xor_si128(fold(v2, factors<128>()), v3));
    while (from != end) v3 = _mm_xor_si128(fold(v3, factors<128>()), take16<kCopy>(to, from));
    const std::uint32_t rest_reg = serial<Crc32Instruction, kCopy>(0, to, from, rest);
    return reduce(v3, rest, rest_reg);
}

// ---- VPCLMULQDQ: four 512-bit values at a time ----

// How far ahead long runs ask for their bytes. The processor's own prefetching stops at each page,
// and fetches the lines of a target only once they are being written.
constexpr std::ptrdiff_t kStep = 256;
constexpr std::ptrdiff_t kAhead = 2048;

template <bool kCopy>
[[XSOCK_AVX512, gnu::always_inline]] inline void look_ahead(const std::byte* to,
                                                            const std::byte* from) noexcept {
    for (std::ptrdiff_t line = 0; line < kStep; line += 64) {
        __builtin_prefetch(from + kAhead + line);
        if constexpr (kCopy) __builtin_prefetch(to + kAhead + line, /*rw=*/1);
    }
}

template <bool kCopy>
[[XSOCK_AVX512, gnu::always_inline]] inline __m512i take64(std::byte*& to,
                                                           const std::byte*& from) noexcept {
    __m512i v = _mm512_loadu_si512(from);
    from += 64;
    if constexpr (kCopy) {
        __asm__ volatile("" : "+v"(v));  // read once, as load_once()
        _mm512_storeu_si512(to, v);
        to += 64;
    }
    return v;
}

// All four 128-bit lanes of `v` moved over the same number of bits, onto `next`.
[[XSOCK_AVX512, gnu::always_inline]] inline __m512i fold_onto(__m512i next, __m512i v,
                                                              __m512i by) noexcept {
    constexpr int kXor3 = 0x96;
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(v, by, 0x00),
                                     _mm512_clmulepi64_epi128(v, by, 0x11), next, kXor3);
}

template <int bits>
[[XSOCK_AVX512, gnu::always_inline]] inline __m512i factors_x4() noexcept {
    return _mm512_broadcast_i32x4(factors<bits>());
}

// The four lanes brought together in the place of the last.
[[XSOCK_AVX512, gnu::always_inline]] inline __m128i join_lanes(__m512i v) noexcept {
    constexpr Factors f0(384), f1(256), f2(128);
    const __m512i by =
        _mm512_set_epi64(0, 0, f2.second, f2.first, f1.second, f1.first, f0.second, f0.first);
    const __m512i last_lane = _mm512_maskz_mov_epi64(0xc0, v);
    const __m512i moved = fold_onto(last_lane, v, by);
    const __m256i two =
        _mm256_xor_si256(_mm512_castsi512_si256(moved), _mm512_extracti64x4_epi64(moved, 1));
    return _mm_xor_si128(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
}

/// @pre n > 64
template <bool kCopy>
[[XSOCK_AVX512, gnu::noinline]] std::uint32_t fold512(std::uint32_t reg, std::byte* to,
                                                      const std::byte* from,
                                                      std::size_t n) noexcept {
    const std::size_t rest = kCopy ? (n - 1) % 64 + 1 : n % 64;
    static_assert(kMostShift >= 64);
    const std::byte* const end = from + (n - rest);
    __m512i v = _mm512_xor_si512(take64<kCopy>(to, from),
                                 _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(reg))));
    if (end - from >= 192) {
        __m512i v1 = take64<kCopy>(to, from);
        __m512i v2 = take64<kCopy>(to, from);
        __m512i v3 = take64<kCopy>(to, from);
        const __m512i by2048 = factors_x4<2048>();
        while (end - from >= kStep) {
            if (end - from >= kStep + kAhead) look_ahead<kCopy>(to, from);
            v = fold_onto(take64<kCopy>(to, from), v, by2048);
            v1 = fold_onto(take64<kCopy>(to, from), v1, by2048);
            v2 = fold_onto(take64<kCopy>(to, from), v2, by2048);
            v3 = fold_onto(take64<kCopy>(to, from), v3, by2048);
        }
        v = fold_onto(v3, v, factors_x4<1536>());
        v1 = fold_onto(v, v1, factors_x4<1024>());
        v = fold_onto(v1, v2, factors_x4<512>());
    }
    const __m512i by512 = factors_x4<512>();
    while (from != end) v = fold_onto(take64<kCopy>(to, from), v, by512);
    const std::uint32_t rest_reg = serial<Crc32Instruction, kCopy>(0, to, from, rest);
    return reduce(join_lanes(v), rest, rest_reg);
}

// ---- the methods ----

// The shortest runs for which each is worth its start and end. Short runs do not enter the
// functions above at all: their prologues alone would cost a third of a small FPDU's CRC.
constexpr std::size_t kFold128Least = 512;
constexpr std::size_t kFold512Least = 192;

using Folding = std::uint32_t (*)(std::uint32_t, std::byte*, const std::byte*,
                                  std::size_t) noexcept;

template <std::size_t least, Folding fold_crc>
std::uint32_t crc_by(std::uint32_t reg, const std::byte* from, std::size_t n) noexcept {
    if (n >= least) return fold_crc(reg, nullptr, from, n);
    return serial<Crc32Instruction, false>(reg, nullptr, from, n);
}

template <std::size_t least, Folding fold_copy>
std::uint32_t copy_by(std::uint32_t reg, std::byte* to, const std::byte* from,
                      std::size_t n) noexcept {
    if (n >= least) return fold_copy(reg, to, from, n);
    return serial<Crc32Instruction, true>(reg, to, from, n);
}

}  // namespace

void add_machine_methods(MethodList& list) noexcept {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2")) return;
    list.add(serial_method<Crc32Instruction>("sse4.2"));
    if (!__builtin_cpu_supports("pclmul")) return;
    constexpr auto lanes = serial_lanes<Crc32Instruction>;
    constexpr auto fold128_copy = copy_by<kFold128Least, fold128<true>>;
    list.add({"pclmul", crc_by<kFold128Least, fold128<false>>, fold128_copy, lanes});
#ifdef XSOCK_HAVE_ISAL
    list.add({"isa-l", isal_or_serial<Crc32Instruction>, fold128_copy, lanes});
#endif
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq")) {
        list.add({"avx512", crc_by<kFold512Least, fold512<false>>,
                  copy_by<kFold512Least, fold512<true>>, lanes});
    }
}

}  // namespace xsock::crc32c_detail

#endif  // __x86_64__
