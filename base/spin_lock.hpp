// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A lock for stretches of a few dozen instructions that are taken for every message: half the cost
// of a mutex, since letting go is a plain store. Whoever finds it taken for long yields, so that a
// holder who lost the processor gets it back. BasicLockable.
#pragma once

#include <sched.h>
#include <time.h>

#include <atomic>

namespace xsock {

class SpinLock {
  public:
    void lock() noexcept {
        if (taken_.exchange(true, std::memory_order_acquire)) wait();
    }
    void unlock() noexcept { taken_.store(false, std::memory_order_release); }

  private:
    [[gnu::noinline]] void wait() noexcept {
        for (int tries = 0; taken_.exchange(true, std::memory_order_acquire); ++tries) {
            while (taken_.load(std::memory_order_relaxed) && tries < kTriesBeforeYield) ++tries;
            if (tries >= kTriesBeforeYield) sched_yield();
            // A thread of a real-time priority would keep the holder, of a lower one, from the
            // processor for ever.
            if (tries >= kTriesBeforeNap) {
                constexpr timespec kNap{0, 50'000};
                nanosleep(&kNap, nullptr);
            }
        }
    }

    static constexpr int kTriesBeforeYield = 200;
    static constexpr int kTriesBeforeNap = 2000;
    std::atomic<bool> taken_{false};
};

}  // namespace xsock
