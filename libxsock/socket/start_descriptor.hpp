// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A number of our own for a socket's TCP connection until MPA start-up takes it: while TCP
// connects, or while the peer has not shown what it speaks. After restore_low_water() the socket
// has the SO_RCVLOWAT that the program set. Under the progress lock, but for begin_watch().
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace xsock::sockets {

class StartDescriptor {
  public:
    StartDescriptor() = default;
    ~StartDescriptor() { close(); }
    StartDescriptor(const StartDescriptor&) = delete;
    StartDescriptor& operator=(const StartDescriptor&) = delete;

    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
    void assign(int fd) noexcept { fd_ = fd; }
    int release() noexcept { return std::exchange(fd_, -1); }
    void close() noexcept;
    /// In a forked child, where it was closed: the number may be another file's now. (The
    /// parent's SO_RCVLOWAT stays, for the socket is the same.)
    void forget() noexcept;

    /// False: a wait has begun before, and the descriptor is watched. Any thread.
    bool begin_watch() noexcept { return !is_watched_.exchange(true); }
    void end_watch() noexcept { is_watched_.store(false, std::memory_order_relaxed); }
    /// `bytes` of a key have come: the kernel says "readable" again when there are more.
    /// @return true for the first part of a key
    bool await_more_than(std::size_t bytes) noexcept;
    void restore_low_water() noexcept;

  private:
    int fd_ = -1;
    int low_water_ = -1;  // SO_RCVLOWAT of the program; -1: not changed
    bool key_begun_ = false;
    std::atomic<bool> is_watched_{false};
};

}  // namespace xsock::sockets
