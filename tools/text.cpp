// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tools/fd.hpp"

namespace xsock::tools {
namespace {

/// Length in bytes of the well-formed UTF-8 sequence at the front of `text`; 0 if there is none.
std::size_t utf8_length(std::string_view text) {
    if (text.empty()) return 0;
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned first = byte(0);
    if (first < 0x80) return 1;
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return 0;
    }
    // Overlong forms, surrogates, and what lies behind U+10FFFF.
    const unsigned second = byte(1);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) {
        return 0;
    }
    return length;
}

struct Scaled {
    double value;
    const char* unit;
    std::size_t steps;
};

/// Divides by `step` as long as the value is not below `limit` and there are larger units.
Scaled scaled(double value, double step, double limit, std::initializer_list<const char*> units) {
    std::size_t steps = 0;
    for (; value >= limit && steps + 1 < units.size(); ++steps) value /= step;
    return {value, units.begin()[steps], steps};
}

}  // namespace

// fmt::print() throws when the stream is closed, and there is no better place to say so.
void write_error(const char* command, const std::string& text) {
    std::fflush(stdout);
    const std::string name = command != nullptr ? fmt::format("xsock {}", command) : "xsock";
    std::fputs(fmt::format("{}: {}\n", name, text).c_str(), stderr);
}

void write_now(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
}

std::string bytes_text(std::uint64_t bytes) {
    const Scaled s = scaled(static_cast<double>(bytes), 1024, 1024,
                            {"", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"});
    const bool whole = s.value == static_cast<double>(static_cast<std::uint64_t>(s.value));
    return fmt::format("{:.{}f}{}", s.value, whole || s.value >= 100 ? 0 : 1, s.unit);
}

std::string count_text(std::uint64_t count) {
    if (count < 100'000) return std::to_string(count);
    const Scaled s =
        scaled(static_cast<double>(count), 1000, 1000, {"", " k", " M", " G", " T", " P", " E"});
    return fmt::format("{:.{}f}{}", s.value, s.value >= 100 ? 0 : 1, s.unit);
}

std::string time_text(double nanoseconds) {
    const Scaled s = scaled(nanoseconds, 1000, 999.5, {" ns", " us", " ms", " s"});
    const bool whole = s.steps == 0 || s.value >= 100;
    return fmt::format("{:.{}f}{}", s.value, whole ? 0 : s.value >= 10 ? 1 : 2, s.unit);
}

std::string file_text(const std::string& path, std::size_t limit) {
    std::string text;
    const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    while (text.size() < limit) {
        char piece[4096];
        const ssize_t n = read(fd.get(), piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        text.append(piece, static_cast<std::size_t>(n));
    }
    if (text.size() > limit) text.resize(limit);
    return text;
}

std::vector<std::string_view> split(std::string_view text, char mark) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t end = text.find(mark);
        parts.push_back(text.substr(0, end));
        if (end == text.npos) return parts;
        text.remove_prefix(end + 1);
    }
}

std::string_view trimmed(std::string_view text) {
    static constexpr std::string_view kWhite = " \t\r\n";
    const std::size_t first = text.find_first_not_of(kWhite);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kWhite) - first + 1);
}

std::string printable(std::string_view text) {
    std::string safe;
    while (!text.empty()) {
        const std::size_t n = utf8_length(text);
        const auto first = static_cast<unsigned char>(text[0]);
        const bool control =
            first < 0x20 || first == 0x7f ||
            (n == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
        if (n == 0 || control) {
            safe += '?';
        } else {
            safe += text.substr(0, n);
        }
        text.remove_prefix(n == 0 ? 1 : n);
    }
    return safe;
}

std::string with_blanks(std::string name) {
    std::replace(name.begin(), name.end(), '_', ' ');
    return name;
}

}  // namespace xsock::tools
