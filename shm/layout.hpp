// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What lies where in the memory of a link: a line of words for each side, a line of credit for each
// side of each slot, and two rings.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/shared_ring.hpp"

namespace xsock::shm {

/// The two processes of a link: the one that made its memory, and the other.
enum class Side : std::uint8_t { creator, acceptor };
[[nodiscard]] constexpr Side other(Side side) noexcept {
    return side == Side::creator ? Side::acceptor : Side::creator;
}

struct Layout {
    std::uint32_t ring_bytes = std::uint32_t{1} << 20;  ///< of each direction; a power of two
    std::uint32_t slots = 32768;                        ///< connections at a time

    // Words that `side` stores and the other loads; one line, so that a check costs one.
    [[nodiscard]] std::size_t tail_at(Side side) const noexcept { return line_at(side); }
    [[nodiscard]] std::size_t grants_at(Side side) const noexcept { return line_at(side) + 8; }
    [[nodiscard]] std::size_t wake_at(Side side) const noexcept { return line_at(side) + 12; }
    /// What `side` permits the other to send in this slot: generation << 32 | lines.
    [[nodiscard]] std::size_t credit_at(std::uint16_t slot, Side side) const noexcept {
        return kSlotsAt + (std::size_t{slot} * 2 + index(side)) * SharedMemory::kLine;
    }
    /// The ring that `side` writes.
    [[nodiscard]] RingPlace ring_of(Side side) const noexcept {
        return {.at = ring_at(side), .bytes = ring_bytes, .tail_at = tail_at(other(side))};
    }
    [[nodiscard]] std::size_t bytes() const noexcept {
        return ring_at(Side::acceptor) + ring_bytes;
    }

    friend bool operator==(const Layout&, const Layout&) = default;

  private:
    static constexpr std::size_t kSlotsAt = 4096;
    [[nodiscard]] static constexpr std::size_t index(Side side) noexcept {
        return static_cast<std::size_t>(side);
    }
    /// Two lines apart: processors fetch them in pairs.
    [[nodiscard]] static constexpr std::size_t line_at(Side side) noexcept {
        return index(side) * 2 * SharedMemory::kLine;
    }
    [[nodiscard]] std::size_t ring_at(Side side) const noexcept {
        return kSlotsAt + std::size_t{slots} * 2 * SharedMemory::kLine + index(side) * ring_bytes;
    }
};

}  // namespace xsock::shm
