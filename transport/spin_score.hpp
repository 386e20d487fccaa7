// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whether it pays to spin before sleeping, judged by how that went of late. It does not where the
// other end is slow, nor where it waits for the very processor that we spin on; there it may pay to
// yield the processor, judged by another score. Callers that race may lose a count, or what is
// left of a give_up().
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace xsock {

class SpinScore {
  public:
    /// @param pays before anything is known; if not, one success shows it
    explicit SpinScore(bool pays = true) noexcept : score_(pays ? kMost : kMost - kGain) {}

    /// Shall the wait that begins now spin? While spinning fails, one wait in `gap_` tries it again
    /// at full length: a shorter spin would miss an answer of a peer that sleeps as well, and both
    /// would sleep for ever after.
    [[nodiscard]] bool worth_while() noexcept {
        if (score_.load(kRelaxed) > 0) return true;
        const std::uint32_t left = left_.load(kRelaxed);
        if (left == 0) return true;
        left_.store(left - 1, kRelaxed);
        return false;
    }

    /// The spin has ended. `found`: by what was waited for.
    void count(bool found) noexcept {
        const std::uint32_t score = score_.load(kRelaxed);
        if (found) {
            if (score == kMost) return;
            // After failures it has to prove itself: the time slice of a thread in the way may just
            // have come while we spun.
            score_.store(std::min(score + kGain, kMost), kRelaxed);
            if (score + kGain < kMost) return;
            gap_.store(kLeastGap, kRelaxed);
            long_gap_.store(kLeastLongGap, kRelaxed);
            return;
        }
        if (score > 1) {
            score_.store(score - 1, kRelaxed);
            return;
        }
        score_.store(0, kRelaxed);
        const std::uint32_t gap = gap_.load(kRelaxed);
        left_.store(std::max(gap, left_.load(kRelaxed)), kRelaxed);
        gap_.store(std::min(gap * 2, kMostGap), kRelaxed);
    }

    /// It has found what was waited for each time of late.
    [[nodiscard]] bool pays() const noexcept { return score_.load(kRelaxed) == kMost; }
    /// It has cost as much as many waits: it is not tried for 64, and four times as many each time
    /// that this comes again before it pays(), up to 16,384.
    void give_up() noexcept {
        const std::uint32_t gap = long_gap_.load(kRelaxed);
        score_.store(0, kRelaxed);
        left_.store(gap, kRelaxed);
        long_gap_.store(std::min(gap * 4, kMostLongGap), kRelaxed);
    }

  private:
    static constexpr auto kRelaxed = std::memory_order_relaxed;
    static constexpr std::uint32_t kMost = 8;
    static constexpr std::uint32_t kGain = 2;
    static constexpr std::uint32_t kLeastGap = 8, kMostGap = 512;
    static constexpr std::uint32_t kLeastLongGap = 64, kMostLongGap = 16 * 1024;

    std::atomic<std::uint32_t> score_;
    std::atomic<std::uint32_t> left_{0};  // waits until the next try
    std::atomic<std::uint32_t> gap_{kLeastGap};
    std::atomic<std::uint32_t> long_gap_{kLeastLongGap};
};

}  // namespace xsock
