// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// JSON (RFC 8259) by nlohmann-json: members keep the order in which they were added. Numbers that
// JSON lacks (infinity, not a number) are null.
#pragma once

#include <concepts>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace xsock::tools {

using Json = nlohmann::ordered_json;

/// A value on its way into an object. Out of line: nlohmann's own initializer lists cost a build
/// with sanitizers a third of a second for each member.
class JsonValue {
  public:
    JsonValue(bool truth);
    JsonValue(std::uint64_t number);
    JsonValue(std::int64_t number);
    JsonValue(double number);
    JsonValue(const char* text);
    JsonValue(const std::string& text);
    JsonValue(std::string_view text);
    JsonValue(const Json& json);
    template <std::unsigned_integral T>
    JsonValue(T number) : JsonValue(std::uint64_t{number}) {}
    template <std::signed_integral T>
    JsonValue(T number) : JsonValue(std::int64_t{number}) {}
    ~JsonValue();
    [[nodiscard]] const Json& json() const { return json_; }

  private:
    const Json json_;
};
using JsonMembers = std::initializer_list<std::pair<const char*, JsonValue>>;

[[nodiscard]] Json object(JsonMembers members);
void add(Json& object, JsonMembers members);

/// As UTF-8: in lines with an indent, and in one line. What is not UTF-8 becomes U+FFFD: program
/// names and private data may be anything.
[[nodiscard]] std::string json_text(const Json& json);
[[nodiscard]] std::string json_line(const Json& json);
/// Writes it to standard output, indented, with a line end.
void print_json(const Json& json);
/// An object of strings as a table with a title, for people.
void print_table(const char* title, const Json& rows);

}  // namespace xsock::tools
