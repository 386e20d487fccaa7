// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/shm_folder_fault.hpp"

#include <sys/stat.h>

namespace xsock {

const char* shm_folder_fault(const std::string& folder) noexcept {
    struct stat status {};
    if (folder.size() > kShmFolderMostBytes) return "is longer than 75 bytes";
    if (folder.empty() || folder.front() != '/') return "does not begin at the root";
    if (stat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) return "is no folder";
    const bool shared = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (shared && (status.st_mode & S_ISVTX) == 0) {
        return "can be written by others and has no sticky bit, so they could remove its names";
    }
    return nullptr;
}

}  // namespace xsock
