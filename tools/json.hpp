// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Writes JSON (RFC 8259), indented, as UTF-8. The caller nests; commas and escapes are ours.
//
//   Json json;
//   json.object();
//   json("pid", 4711)("program", name);
//   json.key("list").array();  json.value(1);  json.end();
//   json.end();
//   json.print();
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace xsock::tools {

class Json {
  public:
    Json& object() { return open('{', '}'); }
    Json& array() { return open('[', ']'); }
    /// Closes the innermost object or array.
    Json& end();
    /// Names the next value of an object.
    Json& key(std::string_view name);

    /// What is not UTF-8 becomes U+FFFD: program names and private data may be anything.
    Json& value(std::string_view text);
    Json& value(const char* text) { return value(std::string_view(text)); }
    Json& value(const std::string& text) { return value(std::string_view(text)); }
    Json& value(bool truth) { return raw(truth ? "true" : "false"); }
    /// Not a number, and infinity, are null: JSON has no word for them.
    Json& value(double number);
    template <std::integral T>
    Json& value(T number) {
        return raw(std::to_string(number));
    }
    Json& null() { return raw("null"); }

    /// A member of an object.
    template <typename T>
    Json& operator()(std::string_view name, const T& member) {
        return key(name).value(member);
    }

    /// @pre everything was closed
    [[nodiscard]] const std::string& text() const { return text_; }
    /// Writes it to standard output with a line end. False when that fails.
    bool print() const;

  private:
    Json& open(char first, char last);
    Json& raw(std::string_view text);
    void begin_value();
    void quote(std::string_view text);

    std::string text_;
    std::vector<char> open_;  // what closes each level
    bool first_ = true;       // nothing yet in the innermost level
    bool after_key_ = false;
};

}  // namespace xsock::tools
