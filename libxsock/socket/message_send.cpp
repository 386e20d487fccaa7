// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// send(): one message, never a part of it. It is copied, but for a large one of a blocking call:
// that waits, as send() does, until TCP has the bytes, and so may send them without a copy of the
// whole: they are copied as FPDUs are laid out, which costs less. When it has to return before,
// what is left is copied and the message is on its way as any other.

#include <array>

#include "base/assert.hpp"
#include "base/fault.hpp"
#include "libxsock/socket/message_channel.hpp"
#include "transport/log.hpp"

namespace xsock::sockets {
namespace {

/// Where a second copy costs more than waiting for TCP (which has buffers of its own): at 64 KiB
/// and above.
constexpr std::size_t kZeroCopyBytes = 64 * 1024;

}  // namespace

// How many messages may be posted. Of bytes, one of the largest may lie in buffers beside what is
// being sent.
std::uint32_t MessageChannel::room_to_send() const noexcept {
    const bool full = tx_bytes_.load(std::memory_order_seq_cst) > message_limit();
    return full ? 0 : qp_->send_room();
}

// What a send on a connection that takes none answers: the reason once, then EPIPE.
ssize_t MessageChannel::send_error(int flags) noexcept {
    if (const int error = take_error(); error != 0) return no(error);
    return no_pipe(flags);
}

ssize_t MessageChannel::send(const IovSpan& iovs, const CallMode& mode) {
    const int flags = mode.flags;
    if ((flags & (MSG_OOB | MSG_FASTOPEN)) != 0) return no(EOPNOTSUPP);
    if (iovs.bytes > message_limit()) return no(EMSGSIZE);
    const auto is_over = [this] { return write_.load(std::memory_order_relaxed) != Half::open; };
    if (is_over()) return send_error(flags);

    SendWr wr;
    wr.flags = kSendInternal;
    if ((flags & MSG_MORE) != 0) wr.flags |= kSendMore;
    Sge sge{nullptr, static_cast<std::uint32_t>(iovs.bytes), kLkeyNone};
    std::array<std::byte, XSOCK_MAX_INLINE> bytes;
    BufferPtr buffer;
    if (iovs.bytes <= static_cast<std::size_t>(options_.inline_limit)) {
        wr.flags |= kSendInline;
        sge.address = bytes.data();
    } else {
        const bool zero_copy = iovs.bytes >= kZeroCopyBytes && iovs.count == 1 && mode.blocking &&
                               (flags & MSG_MORE) == 0;
        buffer.reset(take_buffer(zero_copy ? 0 : iovs.bytes));
        if (buffer == nullptr) return no(ENOMEM);
        buffer->length = sge.length;
        buffer->is_zero_copy = zero_copy;
        buffer->zero_copy_state.store(0, std::memory_order_relaxed);
        wr.wr_id = reinterpret_cast<std::uintptr_t>(buffer.get());
        wr.flags |= kSendSignaled;
        sge.address = zero_copy ? static_cast<std::byte*>(iovs.iov[0].iov_base) : buffer->data();
    }
    const bool zero_copy = buffer != nullptr && buffer->is_zero_copy;
    // What goes away later costs the connection.
    if (!(zero_copy ? fault::readable(sge.address, sge.length)
                    : iovs.gather(0, {sge.address, sge.length}))) {
        return no(EFAULT);
    }
    wr.sges = {&sge, 1};

    const std::uint8_t as_asked = wr.flags;
    for (;;) {
        if (const std::uint32_t room = room_to_send(); room != 0) {
            // Entries of a queue that fills report when they are done, so that a caller that found
            // it full learns of room.
            wr.flags = as_asked;
            if (room <= static_cast<std::uint32_t>(options_.sq_depth) / 2) {
                wr.flags |= kSendSignaled;
            }
            if (buffer != nullptr) tx_bytes_.fetch_add(sge.length, std::memory_order_seq_cst);
            const Result<void> posted = qp_->post_send(wr, (flags & MSG_MORE) != 0);
            if (posted && zero_copy) return wait_for_zero_copy(*buffer, mode);
            if (posted) {
                [[maybe_unused]] Buffer* const queued = buffer.release();  // until sent()
                tx_messages_.fetch_add(1, std::memory_order_relaxed);
                return static_cast<ssize_t>(iovs.bytes);
            }
            if (buffer != nullptr) tx_bytes_.fetch_sub(sge.length, std::memory_order_seq_cst);
            if (posted.error().code == EPIPE) return send_error(flags);
            if (posted.error().code != ENOBUFS) return no(posted.error().code);
        } else if (is_over()) {
            return send_error(flags);
        }
        if (!mode.blocking) {
            progress_->poll();
            if (can_send()) continue;
            tx_no_room_.store(true, std::memory_order_seq_cst);
            if (can_send() || is_over()) continue;
            return no(EAGAIN);
        }
        const auto may_end = [&] { return can_send() || is_over(); };
        const auto waited = wait(*progress_, may_end, mode.timeout);
        if (waited != PollGroup::Waited::done) return fail_wait(waited, EAGAIN);
    }
}

// The message is queued and lies in the caller's memory. On return nothing reads that memory any
// more.
ssize_t MessageChannel::wait_for_zero_copy(Buffer& buffer, const CallMode& mode) {
    const auto over = [&buffer] {
        return buffer.zero_copy_state.load(std::memory_order_seq_cst) != 0;
    };
    const std::uint32_t generation = process_generation();
    const auto waited = wait(*progress_, over, mode.timeout);
    if (process_generation() != generation) return no(EINTR);
    if (waited != PollGroup::Waited::done) {
        BufferPtr copy(take_buffer(buffer.length));
        progress_->locked([&](PollCycle& cycle) {
            if (over()) return;
            if (copy == nullptr) {
                log(LogLevel::error, "no-memory", "a message under way finds no buffer; reset");
                qp_->abort(cycle);
                return;
            }
            copy->length = buffer.length;
            copy->is_zero_copy = false;
            const auto from = reinterpret_cast<std::uintptr_t>(&buffer);
            const auto to = reinterpret_cast<std::uintptr_t>(copy.get());
            if (qp_->move_send(from, to, copy->data(), cycle)) {
                [[maybe_unused]] Buffer* const queued = copy.release();  // until sent()
                buffer.zero_copy_state.store(1, std::memory_order_relaxed);
            }
        });
        XSOCK_ASSERT(over());
    }
    const auto status = static_cast<WcStatus>(buffer.zero_copy_state.load() - 1);
    if (status == WcStatus::local_protection_error) return no(EFAULT);
    if (status != WcStatus::success) return send_error(mode.flags);
    tx_messages_.fetch_add(1, std::memory_order_relaxed);
    return static_cast<ssize_t>(buffer.length);
}

// The poller: a message of ours was handed to TCP, or will not be.
void MessageChannel::sent(const Wc& wc) {
    if (wc.wr_id != 0) {
        auto* const buffer = reinterpret_cast<Buffer*>(static_cast<std::uintptr_t>(wc.wr_id));
        tx_bytes_.fetch_sub(buffer->length, std::memory_order_seq_cst);
        if (buffer->is_zero_copy) {
            // The call's: once it sees this, the buffer is gone.
            buffer->zero_copy_state.store(
                static_cast<std::uint8_t>(1 + static_cast<int>(wc.status)),
                std::memory_order_seq_cst);
        } else {
            give_buffer(buffer);
        }
    } else {
        // The request was retired by a plain store: before a sender is looked for.
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    if (write_.load(std::memory_order_relaxed) != Half::finished) wake_senders();
}

// The poller: there may be room for a send that found none.
void MessageChannel::wake_senders() {
    if (tx_no_room_.load(std::memory_order_seq_cst) && can_send() &&
        tx_no_room_.exchange(false, std::memory_order_seq_cst)) {
        source_.wake(kWritable);
    }
}

}  // namespace xsock::sockets
