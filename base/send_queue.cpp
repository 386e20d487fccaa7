// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/send_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

namespace xsock {

namespace {

[[gnu::noinline]] Error check_length(const SendWr& wr, std::uint64_t length) noexcept {
    if (wr.sges.size() > kMaxSge) return {EINVAL, "a work request with too many SGEs"};
    switch (wr.opcode) {
        case SendOpcode::send:
        case SendOpcode::send_invalidate:
        case SendOpcode::write:
        case SendOpcode::write_immediate:
            break;
        case SendOpcode::read:
            if (wr.flags & kSendInline) return {EINVAL, "a Read cannot be inline"};
            break;
        case SendOpcode::local_invalidate:
            if (!wr.sges.empty()) return {EINVAL, "an invalidation takes no SGEs"};
            break;
        case SendOpcode::bind_window:
            if (!wr.sges.empty()) return {EINVAL, "a binding takes no SGEs"};
            break;
        case SendOpcode::send_immediate:
            if (wr.immediate >> 32 != 0) return {EINVAL, "a Send has 32 bits of immediate data"};
            break;
        case SendOpcode::immediate:
            if (!wr.sges.empty()) return {EINVAL, "Immediate Data takes no SGEs"};
            break;
        case SendOpcode::fetch_add:
        case SendOpcode::compare_swap:
            if (wr.atomic == nullptr) return {EINVAL, "an atomic operation without operands"};
            if (wr.flags & kSendInline) return {EINVAL, "an atomic operation cannot be inline"};
            if (wr.sges.size() > kMaxAtomicSge || length != kAtomicBytes) {
                return {EINVAL, "the result of an atomic operation is 8 bytes"};
            }
            break;
        default:
            return {EINVAL, "unknown opcode of a work request"};
    }
    if ((wr.flags & kSendInline) && length > kMaxInline) {
        return {EINVAL, "more inline data than fits a work request"};
    }
    if (length > std::numeric_limits<std::uint32_t>::max()) {
        return {EMSGSIZE, "a message of more than 2^32-1 bytes"};
    }
    return {};
}

/// A Send or Write of one piece of memory, with which nothing can be wrong.
bool plain(const SendWr& wr) noexcept {
    return (wr.opcode == SendOpcode::send || wr.opcode == SendOpcode::write) &&
           wr.sges.size() == 1 && (wr.flags & kSendInline) == 0;
}

void fill_plain(SendWqe& wqe, const SendWr& wr) noexcept {
    wqe.wr_id = wr.wr_id;
    wqe.remote_to = wr.remote_to;
    wqe.remote_stag = wr.remote_stag;
    wqe.length = wr.sges[0].length;
    wqe.opcode = wr.opcode;
    wqe.flags = wr.flags;
    wqe.sge_count = 1;
    wqe.sge[0] = in_words(wr.sges[0]);
}

[[gnu::noinline]] void fill(SendWqe& wqe, const SendWr& wr, std::uint32_t length,
                            std::byte* beside) noexcept {
    wqe.wr_id = wr.wr_id;
    wqe.remote_to = wr.remote_to;
    wqe.immediate = wr.immediate;
    wqe.remote_stag = wr.remote_stag;
    wqe.invalidate_stag = wr.invalidate_stag;
    wqe.length = length;
    wqe.opcode = wr.opcode;
    wqe.flags = wr.flags;
    if (wr.flags & kSendInline) {
        wqe.sge_count = 0;
        std::byte* to = wqe.inline_data.data();
        if (length > kInlineInWqe) to = wqe.inline_beside = beside;
        for (const Sge& sge : wr.sges) {
            if (sge.length == 0) continue;
            std::memcpy(to, sge.address, sge.length);
            to += sge.length;
        }
    } else {
        wqe.sge_count = static_cast<std::uint8_t>(wr.sges.size());
        for (std::size_t i = 0; i < wr.sges.size(); ++i) wqe.sge[i] = in_words(wr.sges[i]);
    }
    if (is_atomic(wr.opcode)) wqe.set_atomic(*wr.atomic);
}
}  // namespace

SendQueue::SendQueue(std::uint32_t depth)
    : depth_(std::bit_ceil(std::clamp(depth, kLeastDepth, kMaxQueueDepth))), chunks_(depth_) {
    static_assert(std::has_single_bit(WqeChunks::kChunk) && WqeChunks::kChunk <= kLeastDepth);
}

Error SendQueue::check(const SendWr& wr) noexcept {
    return check_length(wr, total_length(wr.sges));
}

Result<void> SendQueue::post(const SendWr& wr) {
    if (plain(wr)) {
        return post_filled([&](SendWqe& wqe, std::uint64_t) {
            fill_plain(wqe, wr);
            return true;
        });
    }
    const std::uint64_t length = total_length(wr.sges);
    if (const Error error = check_length(wr, length); error.code != 0) return error;
    return post_filled([&](SendWqe& wqe, std::uint64_t sequence) {
        std::byte* room = nullptr;
        if ((wr.flags & kSendInline) != 0 && length > kInlineInWqe) {
            room = chunks_.beside(sequence);
            if (room == nullptr) return false;
        }
        fill(wqe, wr, static_cast<std::uint32_t>(length), room);
        return true;
    });
}

Result<void> SendQueue::post_plain(std::uint64_t wr_id, const Sge& sge, std::uint8_t flags) {
    return post_filled([&](SendWqe& wqe, std::uint64_t) {
        wqe.wr_id = wr_id;
        wqe.length = sge.length;
        wqe.opcode = SendOpcode::send;
        wqe.flags = flags;
        wqe.sge_count = 1;
        wqe.sge[0] = in_words(sge);
        return true;
    });
}

/// Fills the next slot under the posters' lock. `fill` says whether there was memory.
template <typename Fill>
Result<void> SendQueue::post_filled(Fill&& fill) {
    const BiasedLock::Guard lock(mutex_);
    if (closed_) return Error{EPIPE, "the connection is closed for posting"};
    const std::uint64_t sequence = posted_.load(std::memory_order_relaxed);
    if (sequence - retired_seen_ == depth_) {
        // Acquire: the poller is done with the slot that we are about to fill.
        retired_seen_ = retired_.load(std::memory_order_acquire);
        if (sequence - retired_seen_ == depth_) return Error{ENOBUFS, "the send queue is full"};
    }
    if (sequence % WqeChunks::kChunk == 0 && !chunks_.ready(sequence, retired_seen_)) {
        retired_seen_ = retired_.load(std::memory_order_acquire);
        if (!chunks_.extend(sequence, retired_seen_)) {
            return Error{ENOMEM, "no memory for the send queue"};
        }
    }
    if (!fill(chunks_.at(sequence), sequence)) return Error{ENOMEM, "no memory for inline data"};
    posted_.store(sequence + 1, std::memory_order_release);
    return {};
}

void SendQueue::sync_with_posters() { const BiasedLock::Guard lock(mutex_); }

void SendQueue::close() {
    const BiasedLock::Guard lock(mutex_);
    closed_ = true;
}

std::uint32_t SendQueue::room() const noexcept {
    // In this order: what is retired never overtakes what is posted. The poller may retire and
    // posters fill between the two reads, so the difference may exceed the depth.
    const std::uint64_t retired = retired_.load(std::memory_order_acquire);
    const std::uint64_t posted = posted_.load(std::memory_order_acquire);
    return depth_ - static_cast<std::uint32_t>(std::min<std::uint64_t>(posted - retired, depth_));
}

}  // namespace xsock
