// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/json.hpp"

#include <algorithm>

#include "tools/text.hpp"

namespace xsock::tools {

JsonValue::JsonValue(bool truth) : json_(truth) {}
JsonValue::JsonValue(std::uint64_t number) : json_(number) {}
JsonValue::JsonValue(std::int64_t number) : json_(number) {}
JsonValue::JsonValue(double number) : json_(number) {}
JsonValue::JsonValue(const char* text) : json_(text) {}
JsonValue::JsonValue(const std::string& text) : json_(text) {}
JsonValue::JsonValue(std::string_view text) : json_(text) {}
JsonValue::JsonValue(const Json& json) : json_(json) {}
JsonValue::~JsonValue() = default;

Json object(JsonMembers members) {
    Json json = Json::object();
    add(json, members);
    return json;
}

void add(Json& object, JsonMembers members) {
    for (const auto& [name, value] : members) object[name] = value.json();
}

std::string json_text(const Json& json) {
    return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string json_line(const Json& json) {
    std::string text = json.dump(0, ' ', false, Json::error_handler_t::replace);
    std::replace(text.begin(), text.end(), '\n', ' ');  // inside of strings they are escaped
    return text;
}

void print_table(const char* title, const Json& rows) {
    fmt::print("{}\n", title);
    for (const auto& [name, value] : rows.items()) {
        fmt::print("  {:28}{}\n", with_blanks(name), printable(value.get<std::string>()));
    }
}

void print_json(const Json& json) { print_now("{}\n", json_text(json)); }

}  // namespace xsock::tools
