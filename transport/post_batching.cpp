// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/post_batching.hpp"

#include <algorithm>

namespace xsock {
namespace {

// A connection sends at once when this much waits: more where the caller has been seen to post more
// between two polls, at most half a batch.
constexpr std::uint32_t kPosts = 256;
constexpr std::uint32_t kBytes = 64 * 1024;
constexpr std::uint32_t kBytesMax = 512 * 1024;

}  // namespace

// The first post of a poll interval goes at once, unless the caller is known to post several in a
// row: then they wait until it polls, the budget is full, or a tick. Counted without
// read-modify-write: posters that race only misjudge how much waits.
void PostBatching::posted(std::uint64_t length, bool more) {
    constexpr auto relaxed = std::memory_order_relaxed;
    const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(length, kBytesMax));
    const std::uint64_t interval = progress_.interval();
    if (interval_.load(relaxed) != interval) {
        if (begin_interval(interval, bytes, more)) {
            progress_.notify_now(item_);
            return;
        }
    } else {
        posts_.store(posts_.load(relaxed) + 1, relaxed);
        bytes_.store(bytes_.load(relaxed) + bytes, relaxed);
    }
    // With an awaited queue no poll may follow: the program is about to sleep.
    if (posts_.load(relaxed) % kPosts == 0 || bytes_.load(relaxed) >= bytes_max_.load(relaxed) ||
        (!more && (progress_.has_leader() || is_awaited()))) {
        bytes_before_.store(std::min(bytes_before_.load(relaxed) + bytes_.load(relaxed), kBytesMax),
                            relaxed);
        bytes_.store(0, relaxed);
        progress_.notify_now(item_);
        return;
    }
    progress_.notify_later(item_);
    // A leader that began to sleep between the check and notify_later() has not seen it.
    if (!more && progress_.has_leader()) progress_.notify_now(item_);
}

// True: this first post of an interval goes at once.
bool PostBatching::begin_interval(std::uint64_t interval, std::uint32_t bytes, bool more) {
    constexpr auto relaxed = std::memory_order_relaxed;
    const bool streaming = posts_.load(relaxed) > 1;
    const std::uint32_t before = bytes_before_.load(relaxed) + bytes_.load(relaxed);
    bytes_max_.store(std::clamp(before, kBytes, kBytesMax), relaxed);
    bytes_before_.store(0, relaxed);
    interval_.store(interval, relaxed);
    posts_.store(1, relaxed);
    bytes_.store(bytes, relaxed);
    return !more && (!streaming || is_awaited());
}

// The first of a poll interval is offered what waits at once; those behind it wait for one another,
// as sends do, for each would find one message and block again.
void PostBatching::receive_posted() {
    const std::uint64_t interval = progress_.interval();
    if (receive_interval_.exchange(interval, std::memory_order_relaxed) != interval ||
        progress_.has_leader()) {
        progress_.notify_now(item_);
        return;
    }
    progress_.notify_later(item_);
    if (progress_.has_leader()) progress_.notify_now(item_);
}

}  // namespace xsock
