// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/parse_size.hpp"

#include <charconv>
#include <system_error>

namespace xsock {

std::optional<std::uint64_t> parse_size(std::string_view text, std::uint64_t high) noexcept {
    std::uint64_t n = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, n);
    if (error != std::errc{}) return std::nullopt;
    std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
    unsigned shift = 0;
    if (!suffix.empty()) {
        const std::size_t unit = std::string_view("KkMmGg").find(suffix[0]);
        if (unit == std::string_view::npos) return std::nullopt;
        shift = 10 * (static_cast<unsigned>(unit) / 2 + 1);
        suffix.remove_prefix(1);
        if (!suffix.empty() && suffix != "iB" && suffix != "B") return std::nullopt;
    }
    if (n > high >> shift) return std::nullopt;
    return n << shift;
}

}  // namespace xsock
