// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A folder that is being read.
#pragma once

#include <dirent.h>

#include <memory>

namespace xsock {

struct CloseFolder {
    void operator()(DIR* folder) const noexcept { closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

}  // namespace xsock
