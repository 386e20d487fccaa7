// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bytes of a fuzzer as a source of decisions. When they run out, everything is 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/bytes.hpp"

/// What must hold in a fuzz target; the fuzzer keeps the input that broke it.
#define FUZZ_CHECK(condition)                                                            \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            std::abort();                                                                \
        }                                                                                \
    } while (false)

namespace xsock::fuzz {

class Input {
  public:
    Input(const std::uint8_t* data, std::size_t size)
        : bytes_(reinterpret_cast<const std::byte*>(data), size) {}

    [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
    [[nodiscard]] ConstBytes rest() const noexcept { return bytes_; }

    unsigned next_byte() {
        if (bytes_.empty()) return 0;
        const auto value = std::to_integer<unsigned>(bytes_[0]);
        bytes_ = bytes_.subspan(1);
        return value;
    }
    std::uint32_t word() {
        std::uint32_t value = 0;
        for (int i = 0; i < 4; ++i) value = value << 8 | next_byte();
        return value;
    }
    /// At most `n` bytes, in memory of exactly their size.
    std::vector<std::byte> take(std::size_t n) {
        const ConstBytes piece = bytes_.first(std::min(n, bytes_.size()));
        bytes_ = bytes_.subspan(piece.size());
        return {piece.begin(), piece.end()};
    }

    /// What a hostile peer may make of a number in shared memory; often nothing. `step`: a unit in
    /// which such numbers count, `least`: one that they have.
    template <typename T>
    T altered(T value, std::size_t step, std::size_t least) {
        switch (next_byte() % 8) {
            case 0:
                return static_cast<T>(word());
            case 1:
                return static_cast<T>(value + step * next_byte());
            case 2:
                return static_cast<T>(value - next_byte());
            case 3:
                return static_cast<T>(least + next_byte() * 8);
            case 4:
                return static_cast<T>(T{1} << next_byte() % (8 * sizeof(T)));
            case 5:
                return static_cast<T>(value + (T{1} << 4 * sizeof(T)) + next_byte());
            default:
                return value;
        }
    }

  private:
    ConstBytes bytes_;
};

}  // namespace xsock::fuzz
