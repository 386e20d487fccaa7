// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the ABI's `struct xsock_socket*` means here: nothing, a socket, or (bit 0) an epoll set.
#pragma once

#include <cstdint>

#include "libxsock/engine/poll_table.h"
#include "libxsock/poll/epoll_set.hpp"
#include "libxsock/poll/source.hpp"

namespace xsock::readiness {

/// The socket behind a handle of the ABI that is neither null nor a set.
Source* source_of(xsock_socket* handle) noexcept;

class Handle {
  public:
    Handle() = default;
    explicit Handle(Source* socket) noexcept : source_(socket) {}
    explicit Handle(EpollSet* set) noexcept : source_(set), set_(set) {}

    /// Null for a plain descriptor. A set is a source too: of its own readability.
    [[nodiscard]] Source* source() const noexcept { return source_; }
    [[nodiscard]] EpollSet* set() const noexcept { return set_; }

  private:
    Source* source_ = nullptr;
    EpollSet* set_ = nullptr;
};

}  // namespace xsock::readiness
