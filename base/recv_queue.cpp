// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/recv_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <new>

namespace xsock {

namespace {
constexpr std::uint32_t kPostsAhead = 4;
constexpr std::size_t kFirstRing = 1;  // entries; many connections never need more

void copy(RecvWqe& to, const RecvWqe& from) noexcept {
    to.wr_id = from.wr_id;
    to.length = from.length;
    to.sge_count = from.sge_count;
    to.internal = from.internal;
    to.sge[0] = from.sge[0];
    if (from.sge_count > 1) [[unlikely]]
        std::copy_n(from.sge.begin() + 1, from.sge_count - 1, to.sge.begin() + 1);
}
}  // namespace

RecvQueue::RecvQueue(std::uint32_t depth, bool exclusive)
    : depth_(std::min(depth, kMaxQueueDepth)), exclusive_(exclusive) {}

Result<bool> RecvQueue::post(const RecvWr& wr) {
    if (wr.sges.size() > kMaxSge) return Error{EINVAL, "a receive with too many SGEs"};
    const std::uint64_t length = total_length(wr.sges);
    if (length > std::numeric_limits<std::uint32_t>::max()) {
        return Error{EMSGSIZE, "a receive of more than 2^32-1 bytes"};
    }

    const BiasedLock::Guard lock(mutex_);
    if (closed_) return Error{EPIPE, "the connection is closed for posting"};
    const std::uint32_t n = size_.load(std::memory_order_relaxed);
    // A thread that has seen a completion has seen its receive leave what was taken ahead.
    const std::uint32_t ahead = exclusive_ ? ahead_left_.load(std::memory_order_relaxed) : 0;
    if (n + ahead >= depth_) return Error{ENOBUFS, "the receive queue is full"};
    if (n == ring_.size()) {
        try {
            std::vector<RecvWqe> larger(std::max(kFirstRing, 2 * ring_.size()));
            for (std::uint32_t i = 0; i < n; ++i) {
                copy(larger[i], ring_[(head_ + i) & (ring_.size() - 1)]);
            }
            ring_.swap(larger);
            head_ = 0;
        } catch (const std::bad_alloc&) {
            return Error{ENOMEM, "no memory for the receive queue"};
        }
    }
    RecvWqe& wqe = ring_[(head_ + n) & (ring_.size() - 1)];
    // Ahead of the posts to come: their writes would keep the lock waiting.
    __builtin_prefetch(&ring_[(head_ + n + kPostsAhead) & (ring_.size() - 1)], 1);
    wqe.wr_id = wr.wr_id;
    wqe.length = static_cast<std::uint32_t>(length);
    wqe.sge_count = static_cast<std::uint8_t>(wr.sges.size());
    wqe.internal = false;
    if (!wr.sges.empty()) wqe.sge[0] = in_words(wr.sges[0]);
    if (wr.sges.size() > 1) [[unlikely]]
        std::copy(wr.sges.begin() + 1, wr.sges.end(), wqe.sge.begin() + 1);
    size_.store(n + 1, std::memory_order_release);
    return std::exchange(found_empty_, false);
}

bool RecvQueue::take_ahead(RecvWqe& out) {
    std::uint32_t left = ahead_left_.load(std::memory_order_relaxed);
    if (left == 0) {
        if (!ahead_) {
            ahead_.reset(new (std::nothrow) RecvWqe[kAhead]);
            if (!ahead_) return false;
        }
        const BiasedLock::Guard lock(mutex_);
        const std::uint32_t n = size_.load(std::memory_order_relaxed);
        left = std::min(n, kAhead);
        for (std::uint32_t i = 0; i < left; ++i) {
            const RecvWqe& wqe = ring_[(head_ + i) & (ring_.size() - 1)];
            copy(ahead_[i], wqe);
            __builtin_prefetch(wqe.sge[0].address, 1);  // touches nothing that is not mapped
        }
        head_ = static_cast<std::uint32_t>((head_ + left) & (ring_.size() - 1));
        ahead_at_ = 0;
        ahead_left_.store(left, std::memory_order_relaxed);
        size_.store(n - left, std::memory_order_release);
    }
    copy(out, ahead_[ahead_at_++]);
    ahead_left_.store(left - 1, std::memory_order_relaxed);
    return true;
}

bool RecvQueue::take(RecvWqe& out) {
    if (exclusive_ &&
        (ahead_left_.load(std::memory_order_relaxed) != 0 ||
         size_.load(std::memory_order_relaxed) >= kAhead) &&
        take_ahead(out)) {
        return true;
    }
    bool taken = false, limit = false;
    {
        const BiasedLock::Guard lock(mutex_);
        const std::uint32_t n = size_.load(std::memory_order_relaxed);
        const std::uint32_t left = n == 0 ? 0 : n - 1;
        if (left < limit_) {
            limit_ = 0;
            limit_hit_.store(true, std::memory_order_release);
            limit = true;
        }
        if (n == 0) {
            found_empty_ = true;
        } else {
            copy(out, ring_[head_]);
            head_ = static_cast<std::uint32_t>((head_ + 1) & (ring_.size() - 1));
            size_.store(left, std::memory_order_release);
            taken = true;
        }
    }
    if (limit && notifier_ != nullptr) notifier_(notifier_argument_);
    return taken;
}

void RecvQueue::close() {
    const BiasedLock::Guard lock(mutex_);
    closed_ = true;
}

std::uint32_t RecvQueue::size() const noexcept {
    return size_.load(std::memory_order_acquire) + ahead_left_.load(std::memory_order_relaxed);
}

void RecvQueue::arm_limit(std::uint32_t limit) {
    bool below = false;
    {
        const BiasedLock::Guard lock(mutex_);
        below = size_.load(std::memory_order_relaxed) < limit;
        limit_ = below ? 0 : limit;
        limit_hit_.store(below, std::memory_order_release);
    }
    if (below && notifier_ != nullptr) notifier_(notifier_argument_);
}

bool RecvQueue::limit_reached() noexcept {
    return limit_hit_.load(std::memory_order_relaxed) &&
           limit_hit_.exchange(false, std::memory_order_acquire);
}

}  // namespace xsock
