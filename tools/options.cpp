// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/options.hpp"

#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tools/command.hpp"
#include "tools/text.hpp"

namespace xsock::tools {

Options& Options::flag(char letter, const char* name, bool& value, const char* help) {
    options_.push_back({letter, name, nullptr, help, [&value](std::string_view) {
                            value = true;
                            return std::string();
                        }});
    return *this;
}

Options& Options::text(char letter, const char* name, const char* what, std::string& value,
                       const char* help) {
    options_.push_back({letter, name, what, help, [&value](std::string_view given) {
                            value = given;
                            return std::string();
                        }});
    return *this;
}

Options& Options::number(char letter, const char* name, const char* what, std::uint64_t& value,
                         std::uint64_t low, std::uint64_t high, const char* help) {
    options_.push_back({letter, name, what, help, [&value, low, high](std::string_view given) {
                            std::uint64_t n = 0;
                            const char* end = given.data() + given.size();
                            const auto [rest, error] = std::from_chars(given.data(), end, n);
                            if (error != std::errc{} || rest != end || n < low || n > high) {
                                return format("a whole number from %llu to %llu is wanted",
                                              static_cast<unsigned long long>(low),
                                              static_cast<unsigned long long>(high));
                            }
                            value = n;
                            return std::string();
                        }});
    return *this;
}

Options& Options::real(char letter, const char* name, const char* what, double& value, double low,
                       double high, const char* help) {
    options_.push_back({letter, name, what, help, [&value, low, high](std::string_view given) {
                            const std::string text(given);
                            char* end = nullptr;
                            const double n = std::strtod(text.c_str(), &end);
                            if (text.empty() || *end != '\0' || !(n >= low && n <= high)) {
                                return format("a number from %g to %g is wanted", low, high);
                            }
                            value = n;
                            return std::string();
                        }});
    return *this;
}

Options& Options::other(char letter, const char* name, const char* what,
                        std::function<std::string(std::string_view)> take, const char* help) {
    options_.push_back({letter, name, what, help, std::move(take)});
    return *this;
}

Options& Options::heading(const char* words) {
    options_.push_back({0, nullptr, nullptr, words, nullptr});
    return *this;
}

const Options::Option* Options::find(std::string_view name) const {
    for (const Option& option : options_) {
        if (option.name != nullptr && option.name == name) return &option;
    }
    return nullptr;
}

const Options::Option* Options::find(char letter) const {
    for (const Option& option : options_) {
        if (option.name != nullptr && option.letter == letter) return &option;
    }
    return nullptr;
}

int Options::wrong(const char* format, ...) const {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    complain(command_, "%s", text);
    std::fprintf(stderr, "usage: xsock %s %s\nTry 'xsock %s --help'.\n", command_, synopsis_,
                 command_);
    return kUsage;
}

std::optional<int> Options::apply(const Option& option, const std::string& said,
                                  std::string_view value) const {
    const std::string complaint = option.take(value);
    if (complaint.empty()) return {};
    return wrong("%s %s: %s", said.c_str(), std::string(value).c_str(), complaint.c_str());
}

std::optional<int> Options::parse(int argc, char** argv) {
    int i = 1;
    for (; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--") {
            ++i;
            break;
        }
        if (word.size() < 2 || word[0] != '-') {
            if (stop_at_argument_) break;
            arguments_.push_back(argv[i]);
            continue;
        }
        if (word == "--help" || (word == "-h" && find('h') == nullptr)) {
            help();
            return kOk;
        }
        if (word[1] == '-') {
            const std::size_t equals = word.find('=');
            const std::string said(word.substr(0, equals));
            const Option* option = find(std::string_view(said).substr(2));
            if (option == nullptr) return wrong("there is no option %s", said.c_str());
            std::string_view value;
            if (option->what == nullptr) {
                if (equals != word.npos) return wrong("%s takes no value", said.c_str());
            } else if (equals != word.npos) {
                value = word.substr(equals + 1);
            } else if (++i < argc) {
                value = argv[i];
            } else {
                return wrong("%s wants a value (%s)", said.c_str(), option->what);
            }
            if (const auto status = apply(*option, said, value)) return status;
            continue;
        }
        for (std::size_t at = 1; at < word.size(); ++at) {
            const Option* option = find(word[at]);
            const std::string said = {'-', word[at]};
            if (option == nullptr) return wrong("there is no option %s", said.c_str());
            std::string_view value;
            const bool valued = option->what != nullptr;
            if (valued && at + 1 < word.size()) {
                value = word.substr(at + 1);
            } else if (valued && ++i < argc) {
                value = argv[i];
            } else if (valued) {
                return wrong("%s wants a value (%s)", said.c_str(), option->what);
            }
            if (const auto status = apply(*option, said, value)) return status;
            if (valued) break;
        }
    }
    for (; i < argc; ++i) arguments_.push_back(argv[i]);
    return {};
}

void Options::help() const {
    std::printf("usage: xsock %s %s\n\n%s\n", command_, synopsis_, purpose_);
    static constexpr std::size_t kColumn = 28;
    const auto line = [](const std::string& left, std::string_view right) {
        std::string text = left;
        bool first = true;
        do {
            const std::size_t end = right.find('\n');
            if (!first || columns(text) + 2 > kColumn) {
                if (first) std::printf("%s\n", text.c_str());
                text.clear();
            }
            text.append(kColumn - columns(text), ' ');
            std::printf("%s%s\n", text.c_str(), std::string(right.substr(0, end)).c_str());
            right = end == right.npos ? std::string_view() : right.substr(end + 1);
            text.clear();
            first = false;
        } while (!right.empty());
    };
    bool any = false;
    for (const Option& option : options_) {
        if (option.name == nullptr) {
            std::printf("\n%s:\n", option.help);
            any = true;
            continue;
        }
        if (!any) std::printf("\nOptions:\n");
        any = true;
        std::string left = option.letter != 0 ? format("  -%c, --%s", option.letter, option.name)
                                              : format("      --%s", option.name);
        if (option.what != nullptr) left += format(" %s", option.what);
        line(left, option.help);
    }
    if (!any) std::printf("\nOptions:\n");
    line(find('h') == nullptr ? "  -h, --help" : "      --help", "this text");
    if (epilogue_ != nullptr) std::printf("\n%s\n", epilogue_);
    std::fflush(stdout);
}

std::optional<std::uint64_t> parse_size(std::string_view text, std::uint64_t high) {
    std::uint64_t n = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, n);
    if (error != std::errc{} || rest == text.data()) return {};
    std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
    unsigned shift = 0;
    if (!suffix.empty()) {
        switch (suffix[0] | 0x20) {
            case 'k':
                shift = 10;
                break;
            case 'm':
                shift = 20;
                break;
            case 'g':
                shift = 30;
                break;
            default:
                return {};
        }
        suffix.remove_prefix(1);
        if (!suffix.empty() && suffix != "iB" && suffix != "B") return {};
    }
    if (n > high >> shift) return {};
    return n << shift;
}

std::vector<std::uint64_t> parse_sizes(std::string_view text, std::uint64_t high) {
    std::vector<std::uint64_t> sizes;
    for (;;) {
        const std::size_t comma = text.find(',');
        const auto size = parse_size(text.substr(0, comma), high);
        if (!size) return {};
        sizes.push_back(*size);
        if (comma == text.npos) return sizes;
        text.remove_prefix(comma + 1);
    }
}

bool parse_host(std::string_view text, std::string& host, std::string& port) {
    std::string_view name = text;
    std::string_view number;
    bool has_number = false;
    if (!text.empty() && text[0] == '[') {
        const std::size_t end = text.find(']');
        if (end == text.npos) return false;
        name = text.substr(1, end - 1);
        if (end + 1 < text.size()) {
            if (text[end + 1] != ':') return false;
            number = text.substr(end + 2);
            has_number = true;
        }
    } else if (const std::size_t colon = text.find(':');
               colon != text.npos && text.find(':', colon + 1) == text.npos) {
        name = text.substr(0, colon);
        number = text.substr(colon + 1);
        has_number = true;
    }
    if (name.empty() || (has_number && number.empty())) return false;
    host = name;
    if (has_number) port = number;
    return true;
}

}  // namespace xsock::tools
