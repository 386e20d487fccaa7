// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// By hand: a pthread mutex has no bias, and no packaged library brings a lock with one.
#include "base/biased_lock.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace xsock {

[[gnu::tls_model("initial-exec")]] thread_local constinit ThreadTag this_thread_tag{};

namespace {

bool membarrier(int command) noexcept { return syscall(SYS_membarrier, command, 0, 0) == 0; }

bool register_for_barriers() noexcept {
    return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
           membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

// No bias owner is chosen before. A forked child is as its parent was.
std::atomic<bool> barriers_available{false};

/// Every running thread of the process passes a full memory barrier before this returns.
void barrier_in_all_threads() noexcept {
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return;
    if (register_for_barriers()) return;
    // A filter of system calls was installed since. No store stays in a processor for so long.
    timespec left{0, 10'000'000};
    while (nanosleep(&left, &left) != 0) {
    }
}

}  // namespace

void BiasedLock::prepare() noexcept {
    if (barriers_available.load(std::memory_order_relaxed)) return;
    barriers_available.store(register_for_barriers(), std::memory_order_relaxed);
}

void BiasedLock::lock_slow(std::uintptr_t me) noexcept {
    ordinary_.lock();
    if (owner_.load(std::memory_order_relaxed) != 0) revoke();
    if (last_ != me) {
        last_ = me;
        streak_ = 0;
        return;
    }
    if (++streak_ < streak_wanted_) return;
    streak_ = 0;
    const auto used = bias_owners_.begin() + flags_used_;
    const auto known = std::find(bias_owners_.begin(), used, me);
    if (known == bias_owners_.end() || !barriers_available.load(std::memory_order_relaxed)) {
        return;
    }
    if (known == used) {
        *used = me;
        ++flags_used_;
    }
    owner_.store(me | static_cast<std::uintptr_t>(known - bias_owners_.begin()),
                 std::memory_order_relaxed);
}

/// @pre ordinary_ is held, and another thread may be the bias owner
void BiasedLock::revoke() noexcept {
    const std::uintptr_t owner = owner_.load(std::memory_order_relaxed);
    owner_.store(0, std::memory_order_relaxed);
    streak_wanted_ = std::min(2 * streak_wanted_, kMostStreak);
    barrier_in_all_threads();
    const std::atomic<bool>& inside = inside_[owner & kFlagMask];
    wait_until([&inside] { return !inside.load(std::memory_order_acquire); });
}

}  // namespace xsock
