// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/source.hpp"

#include <sched.h>

#include <mutex>
#include <new>

#include "libxsock/poll/membership.hpp"
#include "transport/fork.hpp"

namespace xsock::readiness {
namespace {

constexpr std::uint32_t kUnderWay = 0x80000000;

}  // namespace

Source::Source() noexcept : generation_(process_generation()) {}

// In a forked child: the watchers are the parent's threads and sets, and a thread that is not here
// may have held the lock. The first thread of the child that comes along starts afresh.
void Source::forget_if_forked() noexcept {
    const std::uint32_t now = process_generation();
    const std::uint32_t under_way = now | kUnderWay;
    for (std::uint32_t seen = generation_.load(std::memory_order_acquire); seen != now;
         seen = generation_.load(std::memory_order_acquire)) {
        if (seen == under_way) {
            sched_yield();
        } else if (generation_.compare_exchange_strong(seen, under_way)) {
            new (&lock_) SpinLock;
            list_ = {};
            watchers_.store(0, std::memory_order_relaxed);
            generation_.store(now, std::memory_order_release);
        }
    }
}

void Source::add_watcher(Watcher& watcher) noexcept {
    forget_if_forked();
    {
        const std::lock_guard hold(lock_);
        if (watcher.exclusive_) {
            list_.push_back(watcher);
        } else {
            list_.push_front(watcher);
        }
        watchers_.store(watchers_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);  // see wake()
}

void Source::remove_watcher(Watcher& watcher) noexcept {
    const std::lock_guard hold(lock_);
    list_.remove(watcher);
    watchers_.store(watchers_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

void Source::notify_watchers(std::uint32_t events) noexcept {
    forget_if_forked();
    const std::lock_guard hold(lock_);
    bool enough = false;
    for (Watcher* w = list_.front(); w != nullptr; w = list_.next(*w)) {
        if (w->exclusive_ && enough) break;  // only exclusive ones follow
        if (w->on_wake(events) && w->exclusive_) enough = true;
    }
}

void Source::mode_changed() noexcept {
    forget_if_forked();
    const std::lock_guard hold(lock_);
    for (Watcher* w = list_.front(); w != nullptr; w = list_.next(*w)) w->on_mode_changed();
}

void Source::retire() noexcept {
    forget_if_forked();
    const std::lock_guard hold(epoll_membership_lock());
    for (;;) {
        Watcher* watcher = nullptr;
        {
            const std::lock_guard check(lock_);
            watcher = list_.front();
        }
        if (watcher == nullptr) return;
        watcher->on_retired();
    }
}

}  // namespace xsock::readiness
