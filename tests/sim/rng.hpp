// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The only source of chance in a simulated world: everything follows from its seed (splitmix64).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"

namespace xsock::sim {

class Rng {
  public:
    explicit Rng(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() noexcept {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    /// 0 … n-1; 0 when n is 0.
    std::uint64_t below(std::uint64_t n) noexcept { return n == 0 ? 0 : next() % n; }
    std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept {
        return low + below(high - low + 1);
    }
    bool chance(unsigned percent) noexcept { return below(100) < percent; }
    /// Small numbers as often as large ones: uniform in the number of bits. 0 … n.
    std::uint64_t magnitude(std::uint64_t n) noexcept {
        unsigned bits = 0;
        while (bits < 63 && (std::uint64_t{1} << bits) <= n) ++bits;
        const std::uint64_t most = (std::uint64_t{1} << below(bits + 1)) - 1;
        const std::uint64_t v = below(most + 1);
        return v < n ? v : n;
    }
    template <typename T, std::size_t N>
    T pick(const T (&of)[N]) noexcept {
        return of[below(N)];
    }
    void fill(Bytes bytes) noexcept {
        std::size_t at = 0;
        for (; bytes.size() - at >= 8; at += 8) {
            const std::uint64_t v = next();
            std::memcpy(bytes.data() + at, &v, 8);
        }
        for (; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(next());
    }

  private:
    std::uint64_t state_;
};

}  // namespace xsock::sim
