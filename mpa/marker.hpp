// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where markers fall in a stream direction (RFC 5044 §4.3): the first lies directly before the
// first FPDU, every later one 512 octets after the last, start to start, markers included. Counts
// octets of the full-operation phase; needs no TCP sequence numbers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"

namespace xsock::mpa {

class MarkerGrid {
  public:
    explicit MarkerGrid(bool enabled) : enabled_(enabled) {}

    [[nodiscard]] bool enabled() const noexcept { return enabled_; }

    /// Octets of FPDU that may pass before the next marker starts; 0: a marker is due now.
    /// SIZE_MAX when markers are off.
    [[nodiscard]] std::size_t until_next() const noexcept;

    /// `n` octets of FPDU (not of marker) passed. @pre n <= until_next()
    void advance(std::size_t n) noexcept;
    /// The marker that was due passed. @pre until_next() == 0
    void pass_marker() noexcept;

    /// `n` octets of the stream passed, markers among them.
    void skip(std::uint64_t n) noexcept;

    /// Markers that fall into `bytes` octets of FPDU that start now, one that is due now included.
    [[nodiscard]] std::size_t count_within(std::size_t bytes) const noexcept;

  private:
    bool enabled_;
    std::size_t position_ = 0;  // octets since the start of the last marker; 0: one is due
};

/// Encodes a marker that lies `fpduptr` octets behind the ULPDU_Length of its FPDU (0: between).
[[nodiscard]] std::array<std::byte, 4> marker_octets(std::size_t fpduptr) noexcept;
/// The FPDUPTR of a marker, its low two bits cleared (RFC 5044 §4.3).
[[nodiscard]] std::size_t marker_fpduptr(const std::byte* marker) noexcept;

}  // namespace xsock::mpa
