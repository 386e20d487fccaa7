// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
//
// count_ and the ring are written under mutex_ only. size() is a hint, and for callers that build
// "publish, then check for waiters" on top (transport/wait_group.hpp): that is why count_ is
// written with sequential consistency though mutex_ would do here.
#include "base/completion_queue.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace xsock {

namespace {
constexpr std::uint32_t kFirstRing = 64;  // entries

bool fires_solicited(const Wc& wc) noexcept {
    if (wc.status != WcStatus::success) return true;
    return wc.opcode == WcOpcode::recv && (wc.flags & kWcSolicited);
}
}  // namespace

CompletionQueue::CompletionQueue(std::uint32_t depth, bool strict)
    : depth_(depth), strict_(strict), ring_(std::bit_ceil(std::clamp(depth, 1u, kFirstRing))) {}

bool CompletionQueue::grow() {
    try {
        std::vector<Wc> larger(2 * ring_.size());
        for (std::size_t i = 0; i < ring_.size(); ++i) {
            larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
        }
        ring_.swap(larger);
        head_ = 0;
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

/// @pre mutex_ is held, and there is room behind the `n` that wait
void CompletionQueue::put(std::size_t n, std::span<const Wc> wcs) noexcept {
    const std::size_t at = (head_ + n) & (ring_.size() - 1);
    const std::size_t unbroken = std::min(wcs.size(), ring_.size() - at);
    std::copy_n(wcs.begin(), unbroken, ring_.begin() + static_cast<std::ptrdiff_t>(at));
    std::copy_n(wcs.begin() + static_cast<std::ptrdiff_t>(unbroken), wcs.size() - unbroken,
                ring_.begin());
}

void CompletionQueue::push(std::span<const Wc> wcs) {
    if (sink_ != nullptr) {
        for (const Wc& wc : wcs) sink_(sink_argument_, wc);
        return;
    }
    bool notify = false;
    Notifier notifier = nullptr;
    void* argument = nullptr;
    {
        std::lock_guard lock(mutex_);
        std::size_t n = count_.load(std::memory_order_relaxed);
        // With room for all, and none of them to notify of, they are copied together.
        std::span<const Wc> left = wcs;
        const std::size_t room =
            strict_ ? std::min<std::size_t>(depth_, ring_.size()) : ring_.size();
        if (!armed() && n <= room && wcs.size() <= room - n) {
            put(n, wcs);
            n += wcs.size();
            left = {};
        }
        for (const Wc& wc : left) {
            if ((strict_ && n >= depth_) || !room_for(n)) {
                if (!overrun_.exchange(true, std::memory_order_relaxed)) notify = true;
                continue;
            }
            ring_[(head_ + n++) & (ring_.size() - 1)] = wc;
            const Armed armed = armed_.load(std::memory_order_relaxed);
            if (armed == Armed::any || (armed == Armed::solicited && fires_solicited(wc))) {
                armed_.store(Armed::no, std::memory_order_relaxed);
                notify = true;
            }
        }
        count_.store(n, std::memory_order_seq_cst);
        if (notify) {
            notifier = notifier_;
            argument = notifier_argument_;
        }
    }
    if (notifier) notifier(argument);
}

std::size_t CompletionQueue::take_waiting(std::span<Wc> out, std::size_t at_least) {
    std::lock_guard lock(mutex_);
    const std::size_t waiting = count_.load(std::memory_order_relaxed);
    if (waiting < at_least) return 0;
    const std::size_t n = std::min(out.size(), waiting);
    const std::size_t unbroken = std::min(n, ring_.size() - head_);
    std::copy_n(ring_.begin() + static_cast<std::ptrdiff_t>(head_), unbroken, out.begin());
    std::copy_n(ring_.begin(), n - unbroken, out.begin() + static_cast<std::ptrdiff_t>(unbroken));
    // Empty, it begins anew where it is in the cache.
    head_ = n == waiting ? 0 : (head_ + n) & (ring_.size() - 1);
    count_.store(waiting - n, std::memory_order_release);
    return n;
}

bool CompletionQueue::resize(std::uint32_t depth, std::uint32_t wanted) {
    std::lock_guard lock(mutex_);
    if (count_.load(std::memory_order_relaxed) > wanted) return false;
    depth_ = depth;
    return true;
}

void CompletionQueue::set_notifier(Notifier notifier, void* argument) {
    std::lock_guard lock(mutex_);
    notifier_ = notifier;
    notifier_argument_ = argument;
}

void CompletionQueue::arm(bool solicited_only) {
    std::lock_guard lock(mutex_);
    armed_polls_.store(0, std::memory_order_relaxed);
    if (!solicited_only) {
        armed_.store(Armed::any, std::memory_order_seq_cst);
    } else if (!armed()) {
        armed_.store(Armed::solicited, std::memory_order_seq_cst);
    }
}

bool CompletionQueue::disarm() {
    std::lock_guard lock(mutex_);
    if (armed_.load(std::memory_order_relaxed) != Armed::any) return false;
    armed_.store(Armed::no, std::memory_order_relaxed);
    return true;
}

std::size_t CompletionQueue::purge(std::uint32_t qp_num) {
    std::lock_guard lock(mutex_);
    const std::size_t waiting = count_.load(std::memory_order_relaxed);
    std::size_t kept = 0, sends = 0;
    for (std::size_t i = 0; i < waiting; ++i) {
        const Wc wc = ring_[(head_ + i) & (ring_.size() - 1)];
        if (wc.qp_num == qp_num) {
            if (is_signaled_send(wc)) ++sends;
            continue;
        }
        ring_[(head_ + kept++) & (ring_.size() - 1)] = wc;
    }
    count_.store(kept, std::memory_order_release);
    return sends;
}

bool CompletionQueue::holds(std::uint32_t qp_num) const {
    std::lock_guard lock(mutex_);
    const std::size_t waiting = count_.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < waiting; ++i) {
        if (ring_[(head_ + i) & (ring_.size() - 1)].qp_num == qp_num) return true;
    }
    return false;
}

}  // namespace xsock
