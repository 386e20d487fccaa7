// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/source.hpp"

#include <sched.h>

#include <mutex>
#include <new>
#include <utility>

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
            first_ = nullptr;
            watchers_.store(0, std::memory_order_relaxed);
            generation_.store(now, std::memory_order_release);
        }
    }
}

void Source::add_watcher(Watcher& watcher) noexcept {
    forget_if_forked();
    {
        const std::lock_guard hold(lock_);
        Watcher* before = nullptr;
        Watcher* after = first_;
        if (watcher.exclusive_) {
            while (after != nullptr) before = std::exchange(after, after->next_);
        }
        watcher.previous_ = before;
        watcher.next_ = after;
        (before != nullptr ? before->next_ : first_) = &watcher;
        if (after != nullptr) after->previous_ = &watcher;
        watchers_.store(watchers_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);  // see wake()
}

void Source::remove_watcher(Watcher& watcher) noexcept {
    const std::lock_guard hold(lock_);
    (watcher.previous_ != nullptr ? watcher.previous_->next_ : first_) = watcher.next_;
    if (watcher.next_ != nullptr) watcher.next_->previous_ = watcher.previous_;
    watcher.next_ = watcher.previous_ = nullptr;
    watchers_.store(watchers_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

void Source::notify_watchers(std::uint32_t events) noexcept {
    forget_if_forked();
    const std::lock_guard hold(lock_);
    bool enough = false;
    for (Watcher* w = first_; w != nullptr; w = w->next_) {
        if (w->exclusive_ && enough) break;  // only exclusive ones follow
        if (w->on_wake(events) && w->exclusive_) enough = true;
    }
}

void Source::mode_changed() noexcept {
    forget_if_forked();
    const std::lock_guard hold(lock_);
    for (Watcher* w = first_; w != nullptr; w = w->next_) w->on_mode_changed();
}

void Source::retire() noexcept {
    forget_if_forked();
    const std::lock_guard hold(epoll_membership_lock());
    for (;;) {
        Watcher* watcher = nullptr;
        {
            const std::lock_guard check(lock_);
            watcher = first_;
        }
        if (watcher == nullptr) return;
        watcher->on_retired();
    }
}

}  // namespace xsock::readiness
