// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The device that looks like RoCE, for `xsock run --roce` and `xsock info --roce`: its files, and
// what must be said of it.
#pragma once

#include <string>
#include <vector>

#include "verbs/files/local_gids.hpp"

namespace xsock::tools {

/// What it is and is not, in three lines.
extern const char* const kRoceTruth;

/// The device's GIDs here, as XSOCK_VERBS_INTERFACES chooses.
[[nodiscard]] verbs::GidList roce_gids();
/// Folders in which its files may lie, the one that is tried first at first.
[[nodiscard]] std::vector<std::string> roce_tree_parents();
/// The library that leads paths to them; "" where it is not installed.
[[nodiscard]] std::string roce_preload();

/// Makes the device's files and tells the program of them: XSOCK_VERBS, XSOCK_VERBS_TREE, and the
/// preload that leads paths there. Where there is no folder for files, one line on standard error,
/// and the device is there without.
/// @return false: an error was printed
[[nodiscard]] bool set_roce();

/// Writes the device's files into the folder `path`, made if it is not there, for programs that a
/// preload does not reach. @return exit status
int write_roce_tree(const std::string& path);

}  // namespace xsock::tools
