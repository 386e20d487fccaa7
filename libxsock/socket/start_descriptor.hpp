// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A number of our own for a socket's TCP connection until MPA start-up takes it: while TCP
// connects, or while the peer has not shown what it speaks. When the watch ends, the socket has the
// SO_RCVLOWAT that the program set. Inside poll cycles, but for claim_watch().
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/poll_group.hpp"

namespace xsock::sockets {

class StartDescriptor {
  public:
    StartDescriptor() = default;
    ~StartDescriptor() { close(); }  // not watched any more
    StartDescriptor(const StartDescriptor&) = delete;
    StartDescriptor& operator=(const StartDescriptor&) = delete;

    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
    void assign(int fd) noexcept { fd_ = fd; }
    int release() noexcept { return std::exchange(fd_, -1); }
    void close() noexcept;
    Result<void> watch(PollGroup& group, std::shared_ptr<DescriptorWatcher> watcher,
                       std::uint32_t events);
    /// The watcher is told no more.
    void end_watch();
    /// In a forked child, where it was closed: the number may be another file's now. (The
    /// parent's SO_RCVLOWAT stays, for the socket is the same.)
    void forget() noexcept;

    /// False: a wait has begun before, and the descriptor is watched. Any thread.
    bool claim_watch() noexcept { return !is_claimed_.exchange(true); }
    void unclaim_watch() noexcept { is_claimed_.store(false, std::memory_order_relaxed); }
    [[nodiscard]] bool is_watched() const noexcept { return watch_ != nullptr; }
    /// The watch has a deadline, `limit` from now; later calls do not move it.
    void set_limit(Time limit);
    /// The same, and they make it an earlier one.
    void shorten_limit(Time limit);
    /// When it comes; kNever.
    [[nodiscard]] Time deadline() const noexcept { return deadline_; }
    /// `bytes` of a key have come: the kernel says "readable" again when there are more. That is
    /// limited in time.
    void await_more_than(std::size_t bytes, Time limit);

  private:
    int fd_ = -1;
    int low_water_ = -1;  // SO_RCVLOWAT of the program; -1: not changed
    Time deadline_ = kNever;
    std::shared_ptr<DescriptorWatch> watch_;
    std::atomic<bool> is_claimed_{false};
};

}  // namespace xsock::sockets
