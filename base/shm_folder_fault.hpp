// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <string>

namespace xsock {

/// Bytes of the name of XSOCK_SHM_DIR: a key must fit behind it in the address of a local socket.
inline constexpr std::size_t kShmFolderMostBytes = 75;

/// Why names of listeners in this folder would be no good; null: they are. Makes a system call.
[[nodiscard]] const char* shm_folder_fault(const std::string& folder) noexcept;

}  // namespace xsock
