// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Credit is a promise of memory: what a peer may send, the receiver may have to keep until the
// program takes it. All promises of a poller together stay within a limit. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>

namespace xsock::shm {

class CreditPool {
  public:
    static constexpr std::size_t kLeast = std::size_t{4} << 10;  ///< what a connection has at least
    static constexpr std::size_t kFirst = std::size_t{64} << 10;
    static constexpr std::size_t kMost = std::size_t{1} << 20;

    explicit CreditPool(std::size_t bytes) noexcept : left_(bytes) {}

    /// There is enough for one more connection.
    [[nodiscard]] bool has_room() const noexcept { return left_ >= kLeast; }
    /// What a connection begins with, taken off. The share of what is left is so small that ten
    /// thousand connections fit into 256 MiB; windows grow by use. @pre has_room()
    std::size_t take_first() noexcept {
        constexpr std::size_t kShare = 4096;
        const std::size_t share = left_ / kShare & ~(kLeast - 1);
        const std::size_t bytes = std::clamp(share, kLeast, kFirst);
        left_ -= bytes;
        return bytes;
    }
    /// More for a connection that has `window`; 0: it has enough, or others would have too little.
    std::size_t grow(std::size_t window) noexcept {
        const std::size_t bytes = std::min(window, kMost - std::min(window, kMost));
        if (bytes > left_ / 16) return 0;
        left_ -= bytes;
        return bytes;
    }
    void give_back(std::size_t bytes) noexcept { left_ += bytes; }
    [[nodiscard]] std::size_t left() const noexcept { return left_; }

  private:
    std::size_t left_;
};

}  // namespace xsock::shm
