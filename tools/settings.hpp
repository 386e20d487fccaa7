// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the environment may say to the library (XSOCK_*): one row for each variable, from which
// `xsock run` makes its options and `xsock info` its report. The library itself reads them in
// transport/config.cpp and log.cpp; tests/tidy compares the two and docs/troubleshooting.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace xsock::tools {

struct Setting {
    const char* variable;      ///< "XSOCK_PROGRESS"
    const char* option;        ///< of `xsock run`, "progress"; null: has none
    const char* what;          ///< its value in a word, "MODE"
    const char* default_text;  ///< what holds without it, in words
    const char* help;
    /// What is wrong with this value; empty if nothing is.
    std::string (*check)(std::string_view value);
};

[[nodiscard]] std::span<const Setting> settings();

}  // namespace xsock::tools
