// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Runs another program to hear what it says.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace xsock::tools {

struct ChildEnd {
    int status = -1;   ///< as waitpid() has it; -1: it could not be run
    std::string said;  ///< on both of its outputs, bounded
};

/// Runs `arguments` (the first is a path) with `environment` added and waits for its end.
[[nodiscard]] ChildEnd run_child(
    const std::vector<std::string>& arguments,
    const std::vector<std::pair<const char*, std::string>>& environment);

}  // namespace xsock::tools
