// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/assert.hpp"
#include "base/work.hpp"

namespace xsock::ddp {

/// A place in a list of SGEs.
struct Cursor {
    std::uint32_t index = 0;
    std::uint32_t offset = 0;  // into sges[index]

    /// The contiguous memory here, at most `max` octets of it, as an SGE of its own.
    /// @pre max > 0, and at least one octet is left
    [[nodiscard]] Sge piece(std::span<const Sge> sges, std::size_t max) noexcept {
        while (offset == sges[index].length) {
            ++index;
            offset = 0;
            XSOCK_ASSERT(index < sges.size());
        }
        const Sge& sge = sges[index];
        const std::size_t left = sge.length - offset;
        return {.address = sge.address + offset,
                .length = static_cast<std::uint32_t>(left < max ? left : max),
                .lkey = sge.lkey};
    }
};

[[nodiscard]] inline std::span<const Sge> sges_of(const SendWqe& wqe) {
    return {wqe.sge.data(), wqe.sge_count};
}
[[nodiscard]] inline std::span<const Sge> sges_of(const RecvWqe& wqe) {
    return {wqe.sge.data(), wqe.sge_count};
}

}  // namespace xsock::ddp
