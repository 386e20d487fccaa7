// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Byte spans and byte order. Used everywhere; no state, any thread.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace xsock {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// Nanoseconds on a monotonic clock that the caller owns: the cores never ask for the time.
using Time = std::uint64_t;
inline constexpr Time kNever = ~Time{0};
inline constexpr Time kMillisecond = 1'000'000;
inline constexpr Time kSecond = 1'000'000'000;

namespace detail {
template <typename T>
[[nodiscard]] constexpr T byteswap(T v) noexcept {
    if constexpr (sizeof(T) == 2) {
        return __builtin_bswap16(v);
    } else if constexpr (sizeof(T) == 4) {
        return __builtin_bswap32(v);
    } else {
        static_assert(sizeof(T) == 8);
        return __builtin_bswap64(v);
    }
}

template <typename T, std::endian order>
[[nodiscard]] inline T load(const void* from) noexcept {
    T v;
    std::memcpy(&v, from, sizeof v);
    return std::endian::native == order ? v : byteswap(v);
}

template <typename T, std::endian order>
inline void store(void* to, T v) noexcept {
    if constexpr (std::endian::native != order) v = byteswap(v);
    std::memcpy(to, &v, sizeof v);
}
}  // namespace detail

/// memcpy() for what is mostly short: 16 to 64 bytes without a call, in pieces that may overlap.
inline void copy_short(std::byte* to, const std::byte* from, std::size_t n) noexcept {
    struct Piece {
        std::array<std::byte, 16> bytes;
    };
    const auto load = [](const std::byte* at) {
        Piece piece;
        std::memcpy(&piece, at, sizeof piece);
        return piece;
    };
    if (n < sizeof(Piece) || n > 4 * sizeof(Piece)) {
        std::memcpy(to, from, n);
        return;
    }
    const std::size_t half = n <= 2 * sizeof(Piece) ? 0 : sizeof(Piece);
    const std::size_t last = n - sizeof(Piece);
    const Piece a = load(from), b = load(from + half), c = load(from + last - half),
                d = load(from + last);
    std::memcpy(to, &a, sizeof a);
    std::memcpy(to + half, &b, sizeof b);
    std::memcpy(to + last - half, &c, sizeof c);
    std::memcpy(to + last, &d, sizeof d);
}

[[nodiscard]] inline std::uint16_t load_be16(const void* p) noexcept {
    return detail::load<std::uint16_t, std::endian::big>(p);
}
[[nodiscard]] inline std::uint32_t load_be32(const void* p) noexcept {
    return detail::load<std::uint32_t, std::endian::big>(p);
}
[[nodiscard]] inline std::uint64_t load_be64(const void* p) noexcept {
    return detail::load<std::uint64_t, std::endian::big>(p);
}
[[nodiscard]] inline std::uint32_t load_le32(const void* p) noexcept {
    return detail::load<std::uint32_t, std::endian::little>(p);
}
inline void store_be16(void* p, std::uint16_t v) noexcept {
    detail::store<std::uint16_t, std::endian::big>(p, v);
}
inline void store_be32(void* p, std::uint32_t v) noexcept {
    detail::store<std::uint32_t, std::endian::big>(p, v);
}
inline void store_be64(void* p, std::uint64_t v) noexcept {
    detail::store<std::uint64_t, std::endian::big>(p, v);
}
inline void store_le32(void* p, std::uint32_t v) noexcept {
    detail::store<std::uint32_t, std::endian::little>(p, v);
}

}  // namespace xsock
