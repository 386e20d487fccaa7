// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counts the events that wait behind a descriptor of the program's: an eventfd with EFD_SEMAPHORE.
// The program may close that number, or all that it does not know, and get it again for a file: so
// it is read and written by another number, which is the library's own.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "transport/descriptors.hpp"

namespace xsock::verbs {

class EventCounter {
  public:
    EventCounter() = default;
    ~EventCounter() {
        if (fd_ >= 0) close_owned(fd_);
    }
    EventCounter(const EventCounter&) = delete;
    EventCounter& operator=(const EventCounter&) = delete;

    /// Once. The program's number, which is the caller's to close; -1 with errno.
    [[nodiscard]] int open() noexcept {
        const int fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
        if (fd < 0) return -1;
        auto own = duplicate_descriptor(fd);
        if (!own) {
            close(fd);
            errno = own.error().code;
            return -1;
        }
        fd_ = *own;
        return fd;
    }
    void add() noexcept {
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t n = write(fd_, &one, sizeof one);
    }
    /// @pre add() was called more often than take()
    void take() noexcept {
        std::uint64_t count = 0;
        [[maybe_unused]] const ssize_t n = read(fd_, &count, sizeof count);
    }

  private:
    int fd_ = -1;
};

}  // namespace xsock::verbs
