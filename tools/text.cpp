// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace xsock::tools {
namespace {

std::string vformat(const char* format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, again);
    va_end(again);
    if (length <= 0) return {};
    std::string text(static_cast<std::size_t>(length) + 1, '\0');
    std::vsnprintf(text.data(), text.size(), format, arguments);
    text.pop_back();
    return text;
}

}  // namespace

std::string format(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string text = vformat(format, arguments);
    va_end(arguments);
    return text;
}

void complain(const char* command, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const std::string text = vformat(format, arguments);
    va_end(arguments);
    std::fflush(stdout);
    std::fprintf(stderr, "xsock%s%s: %s\n", command != nullptr ? " " : "",
                 command != nullptr ? command : "", text.c_str());
}

std::string octets_text(std::uint64_t octets) {
    static constexpr const char* kUnits[] = {"", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    auto value = static_cast<double>(octets);
    std::size_t unit = 0;
    while (value >= 1024 && unit + 1 < std::size(kUnits)) {
        value /= 1024;
        ++unit;
    }
    const bool whole = value == static_cast<double>(static_cast<std::uint64_t>(value));
    return tools::format(whole || value >= 100 ? "%.0f%s" : "%.1f%s", value, kUnits[unit]);
}

std::string count_text(std::uint64_t count) {
    static constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P", " E"};
    if (count < 100'000) return std::to_string(count);
    auto value = static_cast<double>(count);
    std::size_t unit = 0;
    while (value >= 1000 && unit + 1 < std::size(kUnits)) {
        value /= 1000;
        ++unit;
    }
    return tools::format(value >= 100 ? "%.0f%s" : "%.1f%s", value, kUnits[unit]);
}

std::string time_text(double nanoseconds) {
    static constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
    double value = nanoseconds;
    std::size_t unit = 0;
    while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
        value /= 1000;
        ++unit;
    }
    const int digits = unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    return tools::format("%.*f %s", digits, value, kUnits[unit]);
}

std::string file_text(const std::string& path, std::size_t limit) {
    std::string text;
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return text;
    while (text.size() < limit) {
        char piece[4096];
        const ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        text.append(piece, static_cast<std::size_t>(n));
    }
    close(fd);
    if (text.size() > limit) text.resize(limit);
    return text;
}

std::string_view trimmed(std::string_view text) {
    static constexpr std::string_view kWhite = " \t\r\n";
    const std::size_t first = text.find_first_not_of(kWhite);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kWhite) - first + 1);
}

std::size_t utf8_length(std::string_view text) {
    if (text.empty()) return 0;
    const auto octet = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned first = octet(0);
    if (first < 0x80) return 1;
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
    for (std::size_t i = 1; i < length; ++i) {
        if ((octet(i) & 0xc0) != 0x80) return 0;
    }
    // Overlong forms, surrogates, and what lies behind U+10FFFF.
    const unsigned second = octet(1);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) {
        return 0;
    }
    return length;
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

std::size_t columns(std::string_view text) {
    std::size_t n = 0;
    for (const char c : text) {
        if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) ++n;
    }
    return n;
}

}  // namespace xsock::tools
