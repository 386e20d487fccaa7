// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A lock that one thread takes nearly always: for that thread, once it is known, two plain stores
// and no locked instruction, which costs 6 to 8 ns and waits for all stores before it. Another
// thread that wants the lock takes the privilege away first, by a system call that makes every
// thread of the process pass a barrier, and then it is an ordinary lock for a while.
//
//   favourite:  F1 write inside     F2 read owner; it is still he: has it; else takes it back
//   revoker:    R1 write owner      R2 barrier in all threads     R3 read inside; wait until not
//
// F1 and F2 are in this order for the compiler only. Where R2 meets the favourite ahead of F1, F2
// sees R1; where behind F1, R3 sees it; so never both go on. The revoker holds the ordinary lock
// from before R1, and so does whoever becomes the favourite.
//
// Each favourite has a flag of his own, for ever: one who was kept from the processor between
// reading that he is the favourite and F1 writes to nobody else's. There are few flags, then none
// is chosen any more.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/spin_lock.hpp"

namespace xsock {

/// Its address tells threads apart. Initial-exec: found without a call.
struct alignas(4) ThreadTag {
    char octet;
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
                lock.lock_slowly(me);
                return;
            }
            inside_ = &lock.inside_[owner & kFlagMask];
            inside_->store(true, relaxed);
            std::atomic_signal_fence(std::memory_order_seq_cst);
            if (lock.owner_.load(std::memory_order_acquire) == owner) return;
            inside_->store(false, std::memory_order_release);
            inside_ = nullptr;
            lock.lock_slowly(me);
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
        std::atomic<bool>* inside_ = nullptr;  // as the favourite; else the ordinary lock is held
    };

    /// Once for the process, best while it has one thread: it takes some ms otherwise. Until then,
    /// and where the kernel has no membarrier(), all locks are ordinary ones.
    static void prepare() noexcept;

    /// Does one thread have the privilege? A hint.
    [[nodiscard]] bool biased() const noexcept {
        return owner_.load(std::memory_order_relaxed) != 0;
    }

    /// Locks in a row by which a thread becomes the favourite. Grows with each revocation.
    static constexpr std::uint32_t kFirstStreak = 256;

  private:
    static constexpr std::uintptr_t kFlagMask = 3;
    static_assert(alignof(ThreadTag) > kFlagMask);
    static constexpr std::uint32_t kMostStreak = 16 * 1024;

    void lock_slowly(std::uintptr_t me) noexcept;
    void revoke() noexcept;

    std::atomic<std::uintptr_t> owner_{0};  // the favourite's tag and which flag is his; or 0
    std::array<std::atomic<bool>, kFlagMask + 1> inside_{};
    SpinLock ordinary_;
    // Under ordinary_.
    std::uint8_t flags_used_ = 0;
    std::uint32_t streak_ = 0;
    std::uint32_t streak_wanted_ = kFirstStreak;
    std::uintptr_t last_ = 0;                                 // who locked last
    std::array<std::uintptr_t, kFlagMask + 1> favourites_{};  // by flag
};

}  // namespace xsock
