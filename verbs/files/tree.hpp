// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The files of the RoCE-like device, where programs look for those of an RDMA device: a small real
// tree of folders in memory. Below it /sys and /dev are as a program would find them; the preload
// (preload/) leads paths there, and what is not reached by it (static programs, Go) can be given
// the folder. Written once, by `xsock run`, and never changed: one for each GID table, shared by
// all programs of a user that have this table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "verbs/files/local_gids.hpp"

namespace xsock::verbs {

/// Below the tree.
inline constexpr const char* kDeviceFolder = "/sys/devices/virtual/infiniband/xsock0";

/// One file, folder or link of the tree.
struct TreeNode {
    enum class Kind : std::uint8_t { folder, file, link };
    Kind kind = Kind::folder;
    std::string path;  ///< from the tree's top, with a slash in front
    std::string text;  ///< of a file; where a link leads
};
/// What the tree has, each folder before what is in it.
std::vector<TreeNode> tree_nodes(const GidList& gids);

/// Writes it into `folder`, which must be there and empty. Folders are 0555 and files 0444 at the
/// end, the folder itself included. An errno: what has been written stays.
Result<void> write_tree(const std::string& folder, const GidList& gids);

struct Tree {
    std::string path;
    /// Of its folder, and holding it (flock): as long as a process has this descriptor, or one that
    /// it has inherited, the tree stays.
    int fd = -1;
};
/// The tree of `gids` below `parent` (an absolute path), made if it is not there yet: a folder
/// whose name has the user's number and a hash of what is in it. Made under a random name with mode
/// 0700 and renamed; one that is there is used only if it is a folder of ours. Where its name is
/// taken by what is not ours, the name gets a random ending. Trees of ours that no process holds
/// go.
///
/// @return its path, and a descriptor that is the caller's, without FD_CLOEXEC; an errno when none
///         can be made
Result<Tree> prepare_tree(const std::string& parent, const GidList& gids);

}  // namespace xsock::verbs
