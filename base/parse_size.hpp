// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sizes as people write them, in the environment and on command lines. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace xsock {

/// "4096", "64K", "1M", "2G": bytes; K, M and G are powers of 1024, in either case, and B or iB may
/// follow them.
/// @return nothing when it is none, or larger than `high`
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text,
                                                      std::uint64_t high) noexcept;

}  // namespace xsock
