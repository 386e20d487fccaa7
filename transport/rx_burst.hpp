// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Does the peer send small messages in bursts? Then less is read at a time, and an empty socket is
// asked less often. One connection's, used by the thread that polls it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/bytes.hpp"

namespace xsock {

class RxBurst {
  public:
    /// How long to pause before an empty socket is asked again.
    static constexpr Time kPause = 1400;

    /// As much of `staging` as is to be read into, `most` bytes where that is not less than for
    /// small messages.
    [[nodiscard]] Bytes room(Bytes staging, std::size_t most) const noexcept {
        return staging.first(small_ ? kSmallRead : std::min(staging.size(), most));
    }
    /// Nothing was found. True: pause before reading again.
    [[nodiscard]] bool found_nothing() noexcept {
        const bool pause = evidence_ >= kSeen;
        if (evidence_ > 0) --evidence_;
        return pause;
    }
    /// A read brought `messages` in `bytes`; `tx_bytes`: sent in all, so far.
    void received(std::size_t bytes, std::uint64_t messages, std::uint64_t tx_bytes) noexcept {
        small_ = messages * kSmallFpdu > bytes;
        const auto now = static_cast<std::uint32_t>(tx_bytes);
        const bool sent = std::exchange(tx_bytes_, now) != now;
        const bool burst = small_ && messages >= kMessages && !sent;
        evidence_ = burst ? static_cast<std::uint8_t>(std::min(evidence_ + kPerRead, kMost)) : 0;
    }

  private:
    // Of small messages less is read at a time: they, their receives and their completions then
    // stay in the first-level cache from one of the three to the next.
    static constexpr std::size_t kSmallRead = 48 * 1024;
    static constexpr std::size_t kSmallFpdu = 512;

    // A burst: reads in a row that each bring at least kMessages small ones while nothing is sent.
    // While it lasts, a poller that is up to date reads less often: a read of an empty socket takes
    // locks that the peer's system calls wait for, on loopback, and each early read acknowledges
    // one batch alone. A read adds to the evidence, an empty read takes from it.
    static constexpr std::uint64_t kMessages = 8;
    static constexpr int kPerRead = 4;
    static constexpr int kSeen = 32;
    static constexpr int kMost = 64;

    std::uint32_t tx_bytes_ = 0;  ///< at the last read; wraps
    bool small_ = false;          ///< the last read brought small ones
    std::uint8_t evidence_ = 0;
};

}  // namespace xsock
