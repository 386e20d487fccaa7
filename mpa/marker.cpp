// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/marker.hpp"

#include "base/assert.hpp"
#include "include/xsock/iwarp.h"

namespace xsock::mpa {
namespace {

constexpr std::size_t kBetweenMarkers = MPA_MARKER_SPACING - MPA_MARKER_OCTETS;

}  // namespace

std::size_t MarkerGrid::until_next() const noexcept {
    if (!enabled_) return SIZE_MAX;
    return position_ == 0 ? 0 : MPA_MARKER_SPACING - position_;
}

void MarkerGrid::advance(std::size_t n) noexcept {
    if (!enabled_ || n == 0) return;
    XSOCK_ASSERT(n <= until_next());
    position_ += n;
    if (position_ == MPA_MARKER_SPACING) position_ = 0;
}

void MarkerGrid::pass_marker() noexcept {
    XSOCK_ASSERT(enabled_ && position_ == 0);
    position_ = MPA_MARKER_OCTETS;
}

void MarkerGrid::skip(std::uint64_t n) noexcept {
    if (!enabled_) return;
    position_ = (position_ + static_cast<std::size_t>(n % MPA_MARKER_SPACING)) % MPA_MARKER_SPACING;
}

std::size_t MarkerGrid::count_within(std::size_t bytes) const noexcept {
    const std::size_t free_bytes = until_next();
    if (bytes <= free_bytes) return 0;
    return 1 + (bytes - free_bytes - 1) / kBetweenMarkers;
}

std::array<std::byte, 4> marker_octets(std::size_t fpduptr) noexcept {
    std::array<std::byte, 4> marker{};
    store_be16(marker.data() + 2, static_cast<std::uint16_t>(fpduptr));
    return marker;
}

std::size_t marker_fpduptr(const std::byte* marker) noexcept {
    return load_be16(marker + 2) & ~std::size_t{3};
}

}  // namespace xsock::mpa
