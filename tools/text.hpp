// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Text for people, over fmt: quantities with units, error lines, what is safe on a terminal.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xsock::tools {

void write_error(const char* command, const std::string& text);
void write_now(const std::string& text);

/// "xsock COMMAND: sentence" on standard error, with a line end. `command` may be null.
template <typename... T>
void print_error(const char* command, fmt::format_string<T...> format, T&&... arguments) {
    write_error(command, fmt::format(format, std::forward<T>(arguments)...));
}

/// On standard output at once, for a reader at a pipe; one that has gone is no error here.
template <typename... T>
void print_now(fmt::format_string<T...> format, T&&... arguments) {
    write_now(fmt::format(format, std::forward<T>(arguments)...));
}

/// Bytes, with a binary suffix where that is shorter: "64", "64 KiB", "1.5 MiB".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);
/// A count, with a decimal suffix from 100,000 on: "99999", "1.2 M".
[[nodiscard]] std::string count_text(std::uint64_t count);
/// Nanoseconds in the unit that suits: "850 ns", "12.3 us", "1.20 ms", "3.00 s".
[[nodiscard]] std::string time_text(double nanoseconds);

/// The whole of `text` as a number from `low` to `high`.
template <std::integral T>
[[nodiscard]] std::optional<T> parse_number(std::string_view text, T low, T high) {
    T n{};
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, n);
    if (error != std::errc{} || rest != end || n < low || n > high) return {};
    return n;
}

/// The whole file, at most `limit` bytes of it; empty when it cannot be read.
[[nodiscard]] std::string file_text(const std::string& path, std::size_t limit = 65536);
/// The parts between the marks, one more than there are marks.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char mark);
/// Without white space at both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text);
/// Safe on a terminal: control characters and broken UTF-8 become '?'.
[[nodiscard]] std::string printable(std::string_view text);
/// A name of JSON for people: "queue_depth" is "queue depth".
[[nodiscard]] std::string with_blanks(std::string name);

}  // namespace xsock::tools
