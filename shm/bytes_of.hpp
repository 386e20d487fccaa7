// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <vector>

namespace xsock::shm {

/// A structure of the wire as bytes.
template <typename T>
std::vector<std::byte> bytes_of(const T& value) {
    const auto* const from = reinterpret_cast<const std::byte*>(&value);
    return {from, from + sizeof value};
}

}  // namespace xsock::shm
