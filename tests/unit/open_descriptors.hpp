// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How many descriptors this process has open, to compare with an earlier number.
#pragma once

#include <dirent.h>

#include <cstddef>

namespace xsock::test {

/// A constant more than there are: the folder's own descriptor, `.` and `..` count too.
inline std::size_t open_descriptors() {
    std::size_t count = 0;
    DIR* const folder = opendir("/proc/self/fd");
    while (readdir(folder) != nullptr) ++count;
    closedir(folder);
    return count;
}

}  // namespace xsock::test
