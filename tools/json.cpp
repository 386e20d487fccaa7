// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/json.hpp"

#include <cmath>
#include <cstdio>

#include "base/assert.hpp"
#include "tools/text.hpp"

namespace xsock::tools {

void Json::begin_value() {
    if (after_key_) {
        after_key_ = false;
        return;
    }
    if (open_.empty()) return;
    if (!first_) text_ += ',';
    first_ = false;
    text_ += '\n';
    text_.append(2 * open_.size(), ' ');
}

Json& Json::open(char first, char last) {
    begin_value();
    text_ += first;
    open_.push_back(last);
    first_ = true;
    return *this;
}

Json& Json::end() {
    XSOCK_ASSERT(!open_.empty());
    const char last = open_.back();
    open_.pop_back();
    if (!first_) {
        text_ += '\n';
        text_.append(2 * open_.size(), ' ');
    }
    text_ += last;
    first_ = false;
    return *this;
}

Json& Json::key(std::string_view name) {
    begin_value();
    quote(name);
    text_ += ": ";
    after_key_ = true;
    return *this;
}

Json& Json::value(std::string_view text) {
    begin_value();
    quote(text);
    return *this;
}

Json& Json::value(double number) {
    if (!std::isfinite(number)) return null();
    return raw(format("%.10g", number));
}

Json& Json::raw(std::string_view text) {
    begin_value();
    text_ += text;
    return *this;
}

void Json::quote(std::string_view text) {
    text_ += '"';
    while (!text.empty()) {
        const std::size_t n = utf8_length(text);
        const char c = text[0];
        if (n == 0) {
            text_ += "\xef\xbf\xbd";  // U+FFFD
        } else if (c == '"' || c == '\\') {
            text_ += '\\';
            text_ += c;
        } else if (n == 1 && static_cast<unsigned char>(c) < 0x20) {
            text_ += format("\\u%04x", static_cast<unsigned>(c));
        } else {
            text_ += text.substr(0, n);
        }
        text.remove_prefix(n == 0 ? 1 : n);
    }
    text_ += '"';
}

bool Json::print() const {
    XSOCK_ASSERT(open_.empty());
    std::printf("%s\n", text_.c_str());
    return std::fflush(stdout) == 0;
}

}  // namespace xsock::tools
