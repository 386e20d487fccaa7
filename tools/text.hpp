// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Text for people: formatted strings, quantities with units, and complaints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace xsock::tools {

/// As sprintf, into a string.
[[nodiscard]] std::string format(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// "xsock COMMAND: sentence" on standard error, with a line end. `command` may be null.
void complain(const char* command, const char* format, ...) __attribute__((format(printf, 2, 3)));

/// Octets, with a binary suffix where that is shorter: "64", "64 KiB", "1.5 MiB".
[[nodiscard]] std::string octets_text(std::uint64_t octets);
/// A count, with a decimal suffix from 100,000 on: "99999", "1.2 M".
[[nodiscard]] std::string count_text(std::uint64_t count);
/// Nanoseconds in the unit that suits: "850 ns", "12.3 us", "1.20 ms", "3.00 s".
[[nodiscard]] std::string time_text(double nanoseconds);

/// The whole file, at most `limit` octets of it; empty when it cannot be read.
[[nodiscard]] std::string file_text(const std::string& path, std::size_t limit = 65536);
/// Without white space at both ends.
[[nodiscard]] std::string_view trimmed(std::string_view text);
/// Safe on a terminal: control characters and broken UTF-8 become '?'.
[[nodiscard]] std::string printable(std::string_view text);
/// Columns that the text takes on a terminal, one for each code point.
[[nodiscard]] std::size_t columns(std::string_view text);
/// Length in octets of the well-formed UTF-8 sequence at the front of `text`; 0 if there is none.
[[nodiscard]] std::size_t utf8_length(std::string_view text);

}  // namespace xsock::tools
