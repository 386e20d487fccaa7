// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/progress_pool.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "transport/clock.hpp"

namespace xsock {

Result<void> ProgressPool::open() {
    for (unsigned i = 0; i < config_.threads; ++i) {
        if (auto made = make(i); !made) return made;
    }
    return {};
}

Result<void> ProgressPool::make(unsigned index) {
    const std::lock_guard lock(making_);
    if (owned_[index] != nullptr) return {};
    auto progress = Progress::create(epochs_, config_, index);
    if (!progress) return progress.error();
    owned_[index] = std::move(*progress);
    slots_[index].store(owned_[index].get(), std::memory_order_release);
    return {};
}

Progress& ProgressPool::next() noexcept {
    const unsigned n = turn_.fetch_add(1, std::memory_order_relaxed);
    return *slots_[n % config_.threads].load(std::memory_order_relaxed);
}

Progress& ProgressPool::of_thread() {
    // In a poll cycle the lock of another one must not be taken; and which thread accepts in the
    // background would decide how many there are.
    Progress* polled = nullptr;
    for_each([&](Progress& p) {
        if (p.polled_by_this_thread()) polled = &p;
    });
    if (polled != nullptr) return *polled;
    static std::atomic<unsigned> threads{0};
    static thread_local constinit unsigned number = 0;  // from 1 on
    if (number == 0) number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
    const unsigned index = (number - 1) % config_.groups();
    if (slots_[index].load(std::memory_order_acquire) == nullptr && !make(index)) {
        return *slots_[0].load(std::memory_order_relaxed);
    }
    return *slots_[index].load(std::memory_order_acquire);
}

void ProgressPool::drain(Time limit) const {
    const Time begin = monotonic_now();
    try {
        for_each([](Progress& progress) { progress.begin_exit(); });
        for_each([&](Progress& progress) { progress.drain(begin, limit); });
    } catch (const std::bad_alloc&) {
        // then nothing is waited for
    }
    for_each([](Progress& progress) { progress.end_exit(); });
}

}  // namespace xsock
