// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/shared_receives.hpp"

#include <new>
#include <utility>

namespace xsock::verbs {

bool SharedReceives::take(RecvWqe& out) {
    if (any_back_.load(std::memory_order_acquire)) {
        const std::lock_guard lock(mutex_);
        if (!back_.empty()) {
            out = back_.back();
            back_.pop_back();
            any_back_.store(!back_.empty(), std::memory_order_release);
            return true;
        }
    }
    return take_(out);
}

void SharedReceives::give_back(const RecvWqe& wqe) noexcept {
    const std::lock_guard lock(mutex_);
    try {
        back_.push_back(wqe);
        any_back_.store(true, std::memory_order_release);
    } catch (const std::bad_alloc&) {
    }
}

bool SharedReceives::add_waiter(std::weak_ptr<Waiter> waiter) noexcept {
    const std::lock_guard lock(mutex_);
    try {
        waiters_.push_back(std::move(waiter));
    } catch (const std::bad_alloc&) {
        return false;
    }
    any_waits_.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with posted()'s
    return true;
}

void SharedReceives::posted() {
    // Either the waiter's second take() comes after the post, and finds it, or its entry came
    // before the post and is seen here.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!any_waits_.load(std::memory_order_relaxed)) return;
    std::vector<std::weak_ptr<Waiter>> waiters;
    {
        const std::lock_guard lock(mutex_);
        waiters.swap(waiters_);
        any_waits_.store(false, std::memory_order_relaxed);
    }
    for (const auto& weak : waiters) {
        if (const auto waiter = weak.lock()) waiter->on_shared_posted();
    }
}

}  // namespace xsock::verbs
