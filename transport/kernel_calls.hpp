// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The system calls by which the kernel module is reached (include/xsock/ddp_uapi.h). A seam: tests
// put a module of their own in its place. Any thread.
#pragma once

#include "base/bytes.hpp"

namespace xsock {

class KernelCalls {
  public:
    virtual ~KernelCalls() = default;

    /// Opens DDP_DEVICE. A descriptor of ours, registered as internal, or -errno.
    virtual int open() = 0;
    virtual void close(int domain) noexcept = 0;
    /// ioctl() of the domain: 0 or -errno.
    virtual int control(int domain, unsigned long request, void* argument) noexcept = 0;
    /// Gives the socket the ULP of the module: 0 or -errno.
    virtual int attach(int socket) noexcept = 0;
    /// recv() without blocking. @return bytes, 0 at end of stream, or -errno
    virtual long receive(int socket, Bytes into) noexcept = 0;
};

/// Those of the system. Static storage.
[[nodiscard]] KernelCalls& system_kernel_calls() noexcept;

}  // namespace xsock
