// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// send() on a byte stream: bytes are appended to the chunk that will be the next message.

#include <algorithm>

#include "libxsock/socket/stream_channel.hpp"

namespace xsock::sockets {

// What a send on a stream that takes none answers: the reason once, then EPIPE.
ssize_t StreamChannel::send_error(int flags) noexcept {
    const int error = take_error();
    return error != 0 && error != EPIPE ? no(error) : no_pipe(flags);
}

// A small send behind others that are gathered.
bool StreamChannel::append(const IovSpan& iovs) noexcept {
    if (write_.load(std::memory_order_relaxed) != Half::open) return false;
    if (iovs.bytes == 0 || iovs.bytes > kCopiedUnderLock) return false;
    const std::unique_lock hold(lock_, std::try_to_lock);  // waiting for it, a thread may sleep
    if (!hold) return false;
    std::byte* const to = stream_->append_prepare(iovs.bytes);
    if (to == nullptr || copying_in_ || !iovs.gather(0, {to, iovs.bytes})) return false;
    stream_->append_commit(iovs.bytes);
    ++counted_.sends_gathered;
    counted_.tx_bytes += iovs.bytes;
    queued_.store(stream_->send_queued(), std::memory_order_relaxed);
    return true;
}

// One piece of room. False: the program's memory is not there.
bool StreamChannel::add_bytes(Section& section, const IovSpan& iovs, std::size_t from,
                              std::size_t bytes, bool more, std::size_t& added) {
    added = 0;
    const Bytes room = stream_->send_prepare(bytes);
    if (room.empty()) return true;
    bool there = false;
    if (room.size() <= kCopiedUnderLock) {
        there = iovs.gather(from, room);
    } else {
        copying_in_ = true;
        section.pause();
        there = iovs.gather(from, room);
        section.resume();
        copying_in_ = false;
    }
    added = there ? room.size() : 0;
    counted_.tx_bytes += added;
    stream_->send_commit(added, more, stream_->send_needs_time() ? monotonic_now() : 0);
    return there;
}

ssize_t StreamChannel::take_bytes(const IovSpan& iovs, std::size_t from, int flags) {
    Section section(*this);
    section.await(copying_in_);
    const bool urgent = (flags & MSG_OOB) != 0;
    const bool corked = cork_.load(std::memory_order_relaxed) != 0;
    std::size_t taken = 0;
    while (from + taken < iovs.bytes && stream_->send_room() > 0) {
        const std::size_t left = iovs.bytes - from - taken;
        const bool more = (flags & MSG_MORE) != 0 || corked;
        std::size_t added = 0;
        const bool there = add_bytes(section, iovs, from + taken, left, more, added);
        taken += added;
        if (!there) {
            pump(section.actions);
            if (taken == 0) errno = EFAULT;
            return taken > 0 ? static_cast<ssize_t>(taken) : -1;
        }
        if (added == 0) {
            if (taken == 0) errno = ENOBUFS;
            return taken > 0 ? static_cast<ssize_t>(taken) : -1;
        }
        if (urgent && added == left) stream_->mark_urgent();
        pump(section.actions);
    }
    return static_cast<ssize_t>(taken);
}

ssize_t StreamChannel::send(const IovSpan& iovs, const CallMode& mode) {
    const int flags = mode.flags;
    if ((flags & MSG_FASTOPEN) != 0) return no(EISCONN);
    const auto is_over = [this] { return write_.load(std::memory_order_relaxed) != Half::open; };
    const auto may_end = [&] { return is_writable() || is_over(); };
    const TimeLimit limit(mode.timeout);
    std::size_t sent = 0;
    const auto partly = [&](ssize_t otherwise) {
        return sent > 0 ? static_cast<ssize_t>(sent) : otherwise;
    };
    for (bool tried = false;;) {
        if (is_over()) return sent > 0 ? static_cast<ssize_t>(sent) : send_error(flags);
        if (iovs.bytes == 0) return 0;
        if (sent == 0 && (flags & (MSG_OOB | MSG_MORE)) == 0 && append(iovs)) {
            return static_cast<ssize_t>(iovs.bytes);
        }
        const ssize_t n = take_bytes(iovs, sent, flags);
        if (n < 0) return partly(-1);
        sent += static_cast<std::size_t>(n);
        if (sent == iovs.bytes) return static_cast<ssize_t>(sent);
        if (!mode.blocking) {
            if (n > 0) tried = false;
            if (!tried) {
                tried = true;
                progress_->poll();
                continue;
            }
            // Also for a part: a program that waits for edges goes on when it is told of room.
            tx_no_room_.store(true, std::memory_order_seq_cst);
            if (may_end()) continue;
            return partly(no(EAGAIN));
        }
        const auto waited = wait(*progress_, may_end, limit.left());
        if (waited != PollGroup::Waited::done) return partly(fail_wait(waited, EAGAIN));
    }
}

}  // namespace xsock::sockets
