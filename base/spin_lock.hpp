// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A lock for stretches of a few dozen instructions that are taken for every message: half the cost
// of a mutex, since letting go is a plain store. A thread that finds it taken for long yields, so
// that a holder that lost the processor gets it back. Lockable.
#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>

namespace xsock {

/// Looks until `done()`; then yields between looks, and at last sleeps, for a thread of a real-time
/// priority would keep the one it waits for, of a lower one, from the processor for ever.
template <typename Done>
[[gnu::noinline]] void wait_until(Done done) noexcept {
    constexpr int kTriesBeforeYield = 200;
    constexpr int kTriesBeforeNap = 2000;
    for (int tries = 0; !done(); ++tries) {
        if (tries >= kTriesBeforeYield) sched_yield();
        if (tries >= kTriesBeforeNap) {
            constexpr timespec kNap{0, 50'000};
            nanosleep(&kNap, nullptr);
        }
    }
}

class SpinLock {
  public:
    void lock() noexcept {
        if (taken_.exchange(true, std::memory_order_acquire)) wait();
    }
    [[nodiscard]] bool try_lock() noexcept {
        return !taken_.exchange(true, std::memory_order_acquire);
    }
    void unlock() noexcept { taken_.store(false, std::memory_order_release); }

  private:
    void wait() noexcept {
        wait_until([this] {
            return !taken_.load(std::memory_order_relaxed) &&
                   !taken_.exchange(true, std::memory_order_acquire);
        });
    }

    std::atomic<bool> taken_{false};
};

}  // namespace xsock
