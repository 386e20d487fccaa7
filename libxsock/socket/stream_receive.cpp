// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// recv() on a byte stream.
#include <algorithm>
#include <array>

#include "base/fault.hpp"
#include "libxsock/socket/stream_channel.hpp"

namespace xsock::sockets {
namespace {

using stream::ByteStream;

constexpr std::size_t kSpans = 16;  // of one copy

bool scatter(const IovSpan& iovs, std::size_t from, std::span<const ConstBytes> pieces) {
    for (const ConstBytes piece : pieces) {
        if (!iovs.scatter(from, piece)) return false;
        from += piece.size();
    }
    return true;
}

}  // namespace

/// Bytes that make a socket readable. Never more than half of what may be queued.
std::size_t StreamChannel::low_water() const noexcept {
    const auto low = static_cast<std::size_t>(receive_low_.load(std::memory_order_relaxed));
    return std::min(low, receive_limit_.load(std::memory_order_relaxed) / 2);
}

ssize_t StreamChannel::give_bytes(const IovSpan& iovs, std::size_t from, int flags) {
    const bool peek = (flags & MSG_PEEK) != 0, discard = (flags & MSG_TRUNC) != 0;
    Section section(*this);
    // A program that reads has said what it had to say.
    stream_->flush();
    section.await(copying_out_);
    std::size_t given = 0;
    while (from < iovs.bytes) {
        std::array<ConstBytes, kSpans> pieces;
        const std::size_t ahead = peek ? given : 0;
        const std::size_t count = stream_->peek(iovs.bytes - from, pieces, ahead);
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < count; ++i) bytes += pieces[i].size();
        if (bytes == 0 && !peek) stream_->consume(0);  // passes a mark
        if (bytes == 0) break;
        const bool to_mark = ahead + bytes == stream_->readable();
        bool there = true;
        const auto found = std::span(pieces).first(count);
        if (!discard && bytes <= kCopiedUnderLock) {
            there = scatter(iovs, from, found);
        } else if (!discard) {
            copying_out_ = true;
            section.pause();
            there = scatter(iovs, from, found);
            section.resume();
            copying_out_ = false;
        }
        if (!there) {
            if (given == 0) return -1;
            break;
        }
        given += bytes;
        from += bytes;
        if (!peek) {
            stream_->consume(bytes);
            counters_->rx_bytes = counted_.rx_bytes += bytes;
        }
        if (to_mark) break;
    }
    pump(section.actions);
    return static_cast<ssize_t>(given);
}

ssize_t StreamChannel::receive_urgent(const IovSpan& iovs, const CallMode& mode, int& out_flags) {
    for (bool tried = false;; tried = true) {
        {
            Section section(*this);
            switch (stream_->urgent()) {
                case ByteStream::Urgent::there: {
                    const std::byte value = stream_->urgent_byte();
                    if ((mode.flags & MSG_PEEK) == 0) stream_->take_urgent();
                    out_flags |= MSG_OOB;
                    if (iovs.bytes == 0) {
                        out_flags |= MSG_TRUNC;
                        return 0;
                    }
                    if ((mode.flags & MSG_TRUNC) == 0 && !iovs.scatter(0, {&value, 1})) {
                        return no(EFAULT);
                    }
                    return 1;
                }
                case ByteStream::Urgent::awaited:
                    if (tried) return no(EAGAIN);
                    break;
                case ByteStream::Urgent::none:
                    if (tried) return no(EINVAL);
                    break;
            }
        }
        progress_->poll();
    }
}

ssize_t StreamChannel::receive(const IovSpan& iovs, const CallMode& mode, int& out_flags) {
    const int flags = mode.flags;
    if (stream_ == nullptr) {  // TCP did not connect
        const int error = take_error();
        return error != 0 ? no(error) : 0;
    }
    if ((flags & MSG_ERRQUEUE) != 0) return no(EAGAIN);
    if ((flags & MSG_OOB) != 0) return receive_urgent(iovs, mode, out_flags);
    const bool all = (flags & MSG_WAITALL) != 0, peek = (flags & MSG_PEEK) != 0;
    const std::size_t target =
        all ? iovs.bytes : std::min(iovs.bytes, std::max<std::size_t>(low_water(), 1));
    const TimeLimit limit(mode.timeout);
    std::size_t got = 0;
    const auto partly = [&](ssize_t otherwise) {
        return got > 0 ? static_cast<ssize_t>(got) : otherwise;
    };
    for (bool tried = false;;) {
        // In this order: what comes before the end is queued before the end is told.
        const bool over = read_.load(std::memory_order_acquire) != Half::open;
        const ssize_t n = give_bytes(iovs, peek ? 0 : got, flags);
        if (n < 0) return partly(no(EFAULT));
        got = peek ? static_cast<std::size_t>(n) : got + static_cast<std::size_t>(n);
        // One of no bytes waits for some, too.
        const bool any = iovs.bytes > 0 || readable_.load(std::memory_order_acquire) > 0;
        if (got >= target && any) return static_cast<ssize_t>(got);
        bool at_mark = false;
        {
            const std::lock_guard hold(lock_);
            at_mark = stream_->at_mark();
        }
        if (got > 0 && at_mark) return static_cast<ssize_t>(got);  // as TCP, whatever was asked for
        if (over) {
            if (got > 0 || read_.load() == Half::shut) return static_cast<ssize_t>(got);
            bool finished = false;
            {
                const std::lock_guard hold(lock_);
                finished = stream_->receive_finished();
            }
            const int error = finished ? 0 : take_error();
            return error != 0 ? no(error) : 0;
        }
        if (!mode.blocking) {
            if (tried) return partly(no(EAGAIN));
            tried = true;
            progress_->poll();
            continue;
        }
        const std::size_t want = peek ? std::max<std::size_t>(target, 1) : 1;
        const auto waited = wait(
            *progress_,
            [&] {
                return readable_.load(std::memory_order_seq_cst) >= want ||
                       read_.load(std::memory_order_acquire) != Half::open;
            },
            limit.left());
        if (waited != PollGroup::Waited::done) return partly(fail_wait(waited, EAGAIN));
    }
}

}  // namespace xsock::sockets
