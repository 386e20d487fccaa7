// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Why the kernel module does not place what the peer of a connection writes: a number in the
// shared page, a name in all that is shown (docs/troubleshooting.md).
#pragma once

#include <cstddef>
#include <cstdint>

namespace xsock::kernel {

enum class Reason : std::uint8_t {
    none,           ///< it does
    off,            ///< a setting says so
    absent,         ///< there is no /dev/ddp, or it does not serve sockets
    denied,         ///< /dev/ddp is not for this user
    abi,            ///< the module speaks another ABI, or lacks what the connection needs
    capture,        ///< what it places cannot be captured
    pinning,        ///< a region cannot be pinned: it is served at user level, others are not
    socket,         ///< the kernel refuses this socket
    shared_memory,  ///< the data do not go by TCP
    kCount
};
/// E.g. "kernel-absent", which is a code of the log too; of a number that we do not know
/// "unknown". Static storage.
[[nodiscard]] const char* name_of(Reason reason) noexcept;
/// One sentence. Static storage.
[[nodiscard]] const char* text_of(Reason reason) noexcept;

/// Why a memory region is not pinned for the module, so that Writes to it are placed at user level.
/// An index in the shared page.
enum class Unpinned : std::uint8_t {
    memlock,   ///< RLIMIT_MEMLOCK
    too_long,  ///< XSOCK_KERNEL_PIN
    file,      ///< memory of a file or a device
    other,     ///< an error of the kernel, or no thread to pin with
    kCount
};
inline constexpr std::size_t kUnpinnedReasons = static_cast<std::size_t>(Unpinned::kCount);
/// E.g. "memlock"; of a number that we do not know "other". Static storage.
[[nodiscard]] const char* name_of(Unpinned reason) noexcept;
/// Behind "not pinned: ". Static storage.
[[nodiscard]] const char* text_of(Unpinned reason) noexcept;

}  // namespace xsock::kernel
