// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>

namespace xsock::test {

/// `n` bytes that differ from their neighbours and from those of another `seed`. Container: a
/// string or a vector of bytes.
template <typename Container>
Container pattern_of(std::size_t n, unsigned seed) {
    Container out(n, typename Container::value_type{});
    std::uint32_t x = seed * 2654435761u + 1;
    for (auto& byte : out) {
        x = x * 1664525u + 1013904223u;
        byte = static_cast<typename Container::value_type>(x >> 24);
    }
    return out;
}

}  // namespace xsock::test
