// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// An eventfd of the library: readable while its count is not zero. Every wake-up of a thread that
// sleeps in the kernel, and every descriptor that a program polls for events, is one of these.
#pragma once

#include <utility>

#include "base/result.hpp"

namespace xsock {

class EventFd {
  public:
    EventFd() = default;
    ~EventFd() { close(); }
    EventFd(EventFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    EventFd& operator=(EventFd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }

    enum class Kind {
        flag,       ///< take() takes the whole count
        semaphore,  ///< take() takes one
    };
    /// Non-blocking, close-on-exec, the library's own, with a number out of the way of the
    /// program's. EMFILE, ENFILE, ENOMEM.
    /// @pre it is not open
    Result<void> open(Kind kind = Kind::flag, unsigned count = 0) noexcept;
    /// A blocking semaphore that a program is given. The program may close its number, or all
    /// numbers that it does not know, and get the same one again for a file: the object uses a
    /// number of its own.
    /// @return the program's number, which the caller closes
    /// @pre it is not open
    Result<int> open_for_program() noexcept;
    /// Again is harmless.
    void close() noexcept;

    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
    /// -1 while it is not open.
    [[nodiscard]] int fd() const noexcept { return fd_; }

    /// Adds one to the count, in any thread, or does nothing when not open. Async-signal-safe.
    void notify() noexcept;
    /// False: the count was zero, or it is not open.
    /// @pre open_for_program(): the count is not zero
    bool take() noexcept;

  private:
    int fd_ = -1;
};

}  // namespace xsock
