// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A range of TCP ports, as XSOCK_VERBS_PORTS names it.
#pragma once

#include <cstdint>
#include <optional>

namespace xsock {

struct PortRange {
    std::uint16_t low = 0, high = 0;  ///< both 0: the kernel chooses
};

/// "low-high", decimal, 1 to 65535. Nothing: anything else, or high below low.
std::optional<PortRange> parse_ports(const char* text) noexcept;

}  // namespace xsock
