// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A lock that one thread takes nearly always: for that thread, once it is known, two plain stores
// and no locked instruction, which costs 6 to 8 ns and waits for all stores before it. Another
// thread that wants the lock takes the privilege away first, by a system call that makes every
// thread of the process pass a barrier, and then it is an ordinary lock for a while.
//
//   bias owner:  F1 write inside     F2 read owner; still its tag: has it; else takes it back
//   revoker:     R1 write owner      R2 barrier in all threads            R3 read inside; wait
//   until not
//
// F1 and F2 are in this order for the compiler only. Where R2 meets the bias owner ahead of F1, F2
// sees R1; where behind F1, R3 sees it; so never both go on. The revoker holds the ordinary lock
// from before R1, and so does the thread that becomes the bias owner.
//
// Each bias owner has a flag of its own, for ever: a thread that lost the processor between reading
// its own tag and F1 then writes to no other thread's flag. There are few flags; when all are in
// use, no further bias owner is chosen.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/spin_lock.hpp"

namespace xsock {

/// Its address tells threads apart. Initial-exec: found without a call.
struct alignas(4) ThreadTag {
    char byte;
};
[[gnu::tls_model("initial-exec")]] extern thread_local constinit ThreadTag this_thread_tag;

class BiasedLock {
  public:
    /// Holds the lock. For stretches as short as a SpinLock's; not from signal handlers.
    class [[nodiscard]] Guard {
      public:
        explicit Guard(BiasedLock& lock) noexcept : lock_(lock) {
            constexpr auto relaxed = std::memory_order_relaxed;
            const auto me = reinterpret_cast<std::uintptr_t>(&this_thread_tag);
            const std::uintptr_t owner = lock.owner_.load(relaxed);
            if ((owner & ~kFlagMask) != me) {
                lock.lock_slow(me);
                return;
            }
            inside_ = &lock.inside_[owner & kFlagMask];
            inside_->store(true, relaxed);
            std::atomic_signal_fence(std::memory_order_seq_cst);
            if (lock.owner_.load(std::memory_order_acquire) == owner) return;
            inside_->store(false, std::memory_order_release);
            inside_ = nullptr;
            lock.lock_slow(me);
        }
        ~Guard() {
            if (inside_ != nullptr) {
                inside_->store(false, std::memory_order_release);
                // The barrier that others pass for us orders what the CPU does, not the compiler.
                std::atomic_signal_fence(std::memory_order_seq_cst);
            } else {
                lock_.ordinary_.unlock();
            }
        }
        Guard(const Guard&) = delete;
        Guard& operator=(const Guard&) = delete;

      private:
        BiasedLock& lock_;
        std::atomic<bool>* inside_ = nullptr;  // as the bias owner; else the ordinary lock is held
    };

    /// Once for the process, best while it has one thread: it takes some ms otherwise. Until then,
    /// and where the kernel has no membarrier(), all locks are ordinary ones.
    static void prepare() noexcept;

    /// Does one thread have the privilege? A hint.
    [[nodiscard]] bool biased() const noexcept {
        return owner_.load(std::memory_order_relaxed) != 0;
    }

    /// Locks in a row by which a thread becomes the bias owner. Grows with each revocation.
    static constexpr std::uint32_t kFirstStreak = 256;

  private:
    static constexpr std::uintptr_t kFlagMask = 3;
    static_assert(alignof(ThreadTag) > kFlagMask);
    static constexpr std::uint32_t kMostStreak = 16 * 1024;

    void lock_slow(std::uintptr_t me) noexcept;
    void revoke() noexcept;

    std::atomic<std::uintptr_t> owner_{0};  // the bias owner's tag and the index of its flag; or 0
    std::array<std::atomic<bool>, kFlagMask + 1> inside_{};
    SpinLock ordinary_;
    // Under ordinary_.
    std::uint8_t flags_used_ = 0;
    std::uint32_t streak_ = 0;
    std::uint32_t streak_wanted_ = kFirstStreak;
    std::uintptr_t last_ = 0;                                  // tag of the thread that locked last
    std::array<std::uintptr_t, kFlagMask + 1> bias_owners_{};  // by flag
};

}  // namespace xsock
