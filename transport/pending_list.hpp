// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The items of a Progress that were notified and not served since, each once, in that order. The
// list is made of links in the items: a post that is queued already must not fail for want of
// memory to say so.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "base/biased_lock.hpp"
#include "transport/pollable.hpp"

namespace xsock {

class PendingList {
  public:
    PendingList() = default;
    ~PendingList() {
        serve([](Pollable&) {});  // one by one: a chain would end by recursion
    }
    PendingList(const PendingList&) = delete;
    PendingList& operator=(const PendingList&) = delete;

    // -- any thread --

    /// Adds `item` and keeps it alive until it was served. False: it is in the list already, and
    /// what was posted will be seen.
    bool add(Pollable& item) noexcept {
        // serve() clears the flag before the item checks what was posted: set means that check is
        // to come.
        if (item.pending_.load(std::memory_order_seq_cst)) return false;
        const BiasedLock::Guard lock(lock_);
        if (item.pending_.load(std::memory_order_seq_cst)) return false;
        (last_ == nullptr ? first_ : last_->next_pending_) = item.shared_from_this();
        last_ = &item;
        any_.store(true, std::memory_order_seq_cst);
        // Behind any_: a poster that finds the flag set relies on any_ being checked.
        item.pending_.store(true, std::memory_order_release);
        return true;
    }
    [[nodiscard]] bool any(std::memory_order order) const noexcept { return any_.load(order); }

    // -- the poller --

    /// Takes out what is in the list now, and calls `f(item)` for each. From then on the item can
    /// be added again.
    template <typename F>
    void serve(F&& f) {
        std::shared_ptr<Pollable> next;
        {
            const BiasedLock::Guard lock(lock_);
            next = std::exchange(first_, nullptr);
            last_ = nullptr;
            // A thread that reads the old value makes an empty poll cycle.
            any_.store(false, std::memory_order_relaxed);
        }
        while (next != nullptr) {
            const std::shared_ptr<Pollable> item = std::exchange(next, nullptr);
            next = std::exchange(item->next_pending_, nullptr);
            item->pending_.store(false, std::memory_order_seq_cst);
            f(*item);
        }
    }

  private:
    BiasedLock lock_;
    std::shared_ptr<Pollable> first_;  // under lock_, as are the next and the links
    Pollable* last_ = nullptr;
    std::atomic<bool> any_{false};
};

}  // namespace xsock
