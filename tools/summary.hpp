// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `xsock run --summary`: what the overlay tells at the end of each process, added up.
//
// The overlay appends one line for each process to the file that XSOCK_SUMMARY names; its form is
// in libxsock/overlay/summary.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace xsock::tools {

struct Summary {
    std::uint64_t processes = 0;
    std::uint64_t made = 0, accepted = 0;  ///< TCP sockets, by socket() and by accept()
    std::uint64_t connected = 0, listening = 0, asked = 0;
    std::uint64_t inherited = 0;  ///< undecided ones of a parent that a child decided
    std::map<std::string, std::uint64_t> verdicts;  ///< of sockets in DDPMODE, when they ended
    std::map<std::string, std::uint64_t> stacks;    ///< of those that started: "kernel", or why not
    bool kernel_named = false;  ///< XSOCK_KERNEL is set: that there is no module is worth a line
    std::map<std::string, std::uint64_t> unpinned;  ///< memory regions, by kernel::Unpinned's names

    /// Adds the lines of `text`; those that are not of the form are skipped.
    void add(std::string_view text);
    /// In words, several lines.
    [[nodiscard]] std::string text() const;
};

/// Runs `path` as a child, passes signals on, prints the summary on standard error and ends as the
/// child did. @return an exit status; does not return when the child was killed by a signal
int run_with_summary(const std::string& path, char* const* argv);

}  // namespace xsock::tools
