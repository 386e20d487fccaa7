// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// CRC32c (Castagnoli, reflected), as RFC 5044 section 4.4 asks for. Chosen once per process by what
// the CPU can do and per call by size; portable fallback on every machine. Any thread.
#pragma once

#include "base/bytes.hpp"

namespace xsock {

/// The running register, not inverted: start with kCrc32cInit, end with crc32c_finish().
inline constexpr std::uint32_t kCrc32cInit = 0xffffffffu;
[[nodiscard]] constexpr std::uint32_t crc32c_finish(std::uint32_t reg) noexcept { return ~reg; }

/// Continues `reg` over `bytes`.
[[nodiscard]] std::uint32_t crc32c(std::uint32_t reg, ConstBytes bytes) noexcept;

/// Copies `n` bytes from `from` to `to` and continues `reg` over them, in one pass over memory.
///
/// Bytes are stored in increasing address order, the last byte last: a program may poll the last
/// byte of its buffer. The ranges do not overlap. `from` is read once only, so a source that
/// changes meanwhile still yields a CRC that matches what was stored.
[[nodiscard]] std::uint32_t crc32c_copy(std::uint32_t reg, std::byte* to, const std::byte* from,
                                        std::size_t n) noexcept;

/// How many runs crc32c_lanes() takes.
inline constexpr std::size_t kCrc32cLanes = 4;
/// Runs below this are short; crc32c() has better ways for others. Bytes, a run: 4.3 against 7.0
/// ns at 84, 7.0 against 10.8 at 176, and 7.6 against 5.4 at 192, where AVX-512 begins to pay.
inline constexpr std::size_t kCrc32cShort = 192;

/// The finished CRCs of kCrc32cLanes short runs of `n` bytes each, of which every one begins
/// `stride` bytes behind the one before.
///
/// A single short run is a chain in which each step waits for the last; several are computed side
/// by side.
void crc32c_lanes(const std::byte* first, std::size_t stride, std::size_t n,
                  std::span<std::uint32_t, kCrc32cLanes> crcs) noexcept;

/// Name of the method in use, for reports: "avx512", "isa-l", "pclmul", "sse4.2", "arm-crc",
/// "portable".
[[nodiscard]] const char* crc32c_method() noexcept;

namespace crc32c_detail {
/// Every method this machine can run, so that tests and benchmarks can compare them.
struct Method {
    const char* name;
    std::uint32_t (*crc)(std::uint32_t reg, const std::byte* from, std::size_t n) noexcept;
    std::uint32_t (*copy)(std::uint32_t reg, std::byte* to, const std::byte* from,
                          std::size_t n) noexcept;
    /// crc32c_lanes(), not finished.
    void (*lanes)(const std::byte* first, std::size_t stride, std::size_t n,
                  std::uint32_t* regs) noexcept = nullptr;
};
[[nodiscard]] std::span<const Method> usable_methods() noexcept;
}  // namespace crc32c_detail

}  // namespace xsock
