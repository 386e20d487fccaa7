// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/event_fd.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "transport/descriptors.hpp"

namespace xsock {

Result<void> EventFd::open(Kind kind, unsigned count) noexcept {
    const DescriptorChange change;
    const int semaphore = kind == Kind::semaphore ? EFD_SEMAPHORE : 0;
    const int fd = move_and_register(eventfd(count, semaphore | EFD_CLOEXEC | EFD_NONBLOCK));
    if (fd < 0) return Error{errno, "eventfd failed"};
    fd_ = fd;
    return {};
}

Result<int> EventFd::open_for_program() noexcept {
    const int fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (fd < 0) return Error{errno, "eventfd failed"};
    auto own = duplicate_descriptor(fd);
    if (!own) {
        ::close(fd);
        return own.error();
    }
    fd_ = *own;
    return fd;
}

void EventFd::close() noexcept {
    if (fd_ >= 0) close_internal_fd(std::exchange(fd_, -1));
}

// Fails only when the counter is full, and then the descriptor is readable already. One that is
// interrupted has not been made: nobody would be told.
void EventFd::notify() noexcept {
    const std::uint64_t one = 1;
    while (fd_ >= 0 && write(fd_, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

bool EventFd::take() noexcept {
    std::uint64_t count = 0;
    ssize_t n = -1;
    while (fd_ >= 0 && (n = read(fd_, &count, sizeof count)) < 0 && errno == EINTR) {
    }
    return n == sizeof count;
}

}  // namespace xsock
