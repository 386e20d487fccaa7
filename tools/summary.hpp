// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `xsock run --summary`: what the overlay tells at the end of each process, added up.
//
// The overlay appends one line for each process, with one write(), to the file that XSOCK_SUMMARY
// names:
//
//   xsock-summary 1 pid=4711 program=NAME sockets=12 carried=2 passed=10 passed.CODE=9
//   passed.CODE2=1
//
// Words are separated by single spaces; unknown words are skipped. CODE says why sockets were
// passed through: a word of letters, digits and '-'.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace xsock::tools {

struct Summary {
    std::uint64_t processes = 0;
    std::uint64_t sockets = 0, carried = 0, passed = 0;
    std::map<std::string, std::uint64_t> reasons;

    /// Adds the lines of `text`; those that are not of the form above are skipped.
    void add(std::string_view text);
    /// In words, several lines.
    [[nodiscard]] std::string text() const;
};

/// Runs `path` as a child, passes signals on, prints the summary on standard error and ends as the
/// child did. @return an exit status; does not return when the child was killed by a signal
int run_with_summary(const std::string& path, char** argv);

}  // namespace xsock::tools
