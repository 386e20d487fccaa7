// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/poll/waiter.hpp"

#include <new>

#include "base/permanent.hpp"
#include "libxsock/poll/membership.hpp"

namespace xsock::readiness {
namespace {

constexpr std::size_t kIdleWaiters = 16;

constinit Permanent<WaiterPool> the_pool;  // threads may sleep until the process ends

}  // namespace

WaiterPool& WaiterPool::instance() noexcept { return the_pool.value; }

Result<WaiterPool::Lease> WaiterPool::acquire() {
    watch_forks();  // an eventfd of the parent's is not to be written, or read, by its child
    {
        const std::lock_guard hold(mutex_);
        if (!idle_.empty()) {
            Lease lease(idle_.back().release());
            idle_.pop_back();
            return lease;
        }
    }
    auto made = std::make_unique<Waiter>();
    if (auto opened = made->event_.open(); !opened) return opened.error();
    return Lease(made.release());
}

void WaiterPool::Return::operator()(Waiter* waiter) const noexcept {
    std::unique_ptr<Waiter> owned(waiter);
    // Leased before a fork in a signal handler: the parent's thread sleeps on the same eventfd.
    if (owned->generation_ != process_generation()) return;
    if (owned->notified()) owned->clear();
    WaiterPool& pool = instance();
    const std::lock_guard hold(pool.mutex_);
    if (pool.idle_.size() >= kIdleWaiters) return;
    try {
        pool.idle_.push_back(std::move(owned));
    } catch (...) {
        owned.reset();
    }
}

void WaiterPool::forget_after_fork() noexcept { idle_.clear(); }

void WaiterPool::forget_all() noexcept {
    new (&mutex_) std::mutex;
    new (&idle_) std::vector<std::unique_ptr<Waiter>>;
}

}  // namespace xsock::readiness
