// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/port_range.hpp"

#include <charconv>
#include <cstring>

namespace xsock {

std::optional<PortRange> parse_ports(const char* text) noexcept {
    const char* const end = text + std::strlen(text);
    PortRange range;
    const auto [dash, low] = std::from_chars(text, end, range.low);
    if (low != std::errc{} || dash == end || *dash != '-') return std::nullopt;
    const auto [rest, high] = std::from_chars(dash + 1, end, range.high);
    if (high != std::errc{} || rest != end || range.low == 0 || range.low > range.high) {
        return std::nullopt;
    }
    return range;
}

}  // namespace xsock
