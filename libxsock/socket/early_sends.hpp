// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a program sends on an accepted socket before its peer has shown what it speaks, where the
// peer is going to ask for a byte stream: kept until that has begun, or the socket has turned out
// to be plain TCP. So send() takes the first bytes at once, as TCP's. Inside poll cycles, but for
// size() and has_room().
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "base/bytes.hpp"
#include "libxsock/socket/channel.hpp"

namespace xsock::sockets {

class EarlySends {
  public:
    /// Every send buffer has room for as much.
    static constexpr std::size_t kMost = 2048;

    [[nodiscard]] std::size_t size() const noexcept {
        return size_.load(std::memory_order_acquire);
    }
    [[nodiscard]] bool has_room() const noexcept { return size() < kMost; }
    [[nodiscard]] bool is_empty() const noexcept { return size() == 0 && !is_shut(); }
    /// What one send() has to say, as much as there is room for. @return bytes
    std::size_t add(ConstBytes bytes, int flags);
    /// And its shutdown(): `how` is SHUT_WR or SHUT_RDWR.
    void shutdown(int how) noexcept;
    [[nodiscard]] bool is_shut() const noexcept { return shut_.load(std::memory_order_acquire); }
    /// And its close(), perhaps of nothing else: the socket goes on without the program until the
    /// peer has shown what it speaks. For good, also behind clear().
    void close() noexcept { closed_.store(true, std::memory_order_release); }
    [[nodiscard]] bool is_closed() const noexcept {
        return closed_.load(std::memory_order_acquire);
    }
    /// All of it, in order; then there is nothing.
    void send_by(Channel& channel);
    void send_by_tcp(int fd) noexcept;
    void clear() noexcept;

  private:
    struct One {
        std::vector<std::byte> bytes;
        int flags;  // MSG_OOB, MSG_MORE
    };
    std::vector<One> sends_;
    std::atomic<std::size_t> size_{0};
    int shut_how_ = 0;
    std::atomic<bool> shut_{false}, closed_{false};
};

}  // namespace xsock::sockets
