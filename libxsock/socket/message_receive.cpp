// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// recv(): one message, as on a SOCK_SEQPACKET socket. Messages wait in buffers that are taken from
// the pool when a message begins to come in; a blocked receiver with much room offers its own
// memory for the next one, so that a large message is copied once.
#include <algorithm>
#include <mutex>
#include <utility>

#include "libxsock/socket/message_channel.hpp"
#include "transport/log.hpp"

namespace xsock::sockets {
namespace {

constexpr std::uint64_t kDirectId = 1;  // wr_id; those of buffers are addresses
constexpr std::size_t kDirectBytes = 16 * 1024;
constexpr std::size_t kDirectIovs = kMaxSge - 1;
constexpr std::uint64_t kLeastBudget = 256 * 1024;

}  // namespace

std::uint64_t MessageChannel::budget() const noexcept {
    return std::max<std::uint64_t>(2 * std::uint64_t{message_limit()}, kLeastBudget);
}

bool MessageChannel::something_to_read() const noexcept {
    return rx_count_.load(std::memory_order_seq_cst) != 0 ||
           read_.load(std::memory_order_acquire) != Half::open;
}

bool MessageChannel::direct_done() const noexcept {
    return direct_.state.load(std::memory_order_seq_cst) == DirectReceive::State::done ||
           something_to_read();
}

// Takes the oldest message out of the queue. @pre rx_lock_ is held, there is one
Buffer* MessageChannel::pop_message() noexcept {
    Buffer* const first = rx_first_;
    rx_first_ = first->next;
    if (rx_first_ == nullptr) rx_last_ = nullptr;
    first->next = nullptr;
    rx_count_.store(rx_count_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    return first;
}

// The program has it. True: the poller waits for the room. @pre rx_lock_ is held
bool MessageChannel::account_message(BufferPtr& buffer) noexcept {
    rx_held_ -= buffer->reserved;
    if (rx_spare_ == nullptr && small(*buffer)) rx_spare_ = buffer.release();
    const bool notify = rx_no_room_ && rx_held_ <= budget() - message_limit();
    if (notify) rx_no_room_ = false;
    return notify;
}

// The oldest message, if there is one.
ssize_t MessageChannel::take_message(const IovSpan& iovs, int flags, int& out_flags, bool& found) {
    found = false;
    if (rx_count_.load(std::memory_order_acquire) == 0) return 0;
    const bool peek = (flags & MSG_PEEK) != 0;
    BufferPtr buffer;
    std::size_t length = 0, copied = 0;
    bool notify = false, intact = true, here = true;
    {
        const std::lock_guard hold(rx_lock_);
        if (rx_first_ == nullptr) return 0;
        found = true;
        length = rx_first_->length;
        copied = std::min(length, iovs.bytes);
        here = peek || copied <= kCopiedUnderLock;
        if (here) intact = iovs.scatter(0, {rx_first_->data(), copied});
        if (!peek && intact) {
            buffer.reset(pop_message());
            if (here) notify = account_message(buffer);
        }
    }
    if (!here) {
        intact = iovs.scatter(0, {buffer->data(), copied});
        const std::lock_guard hold(rx_lock_);
        if (intact) {
            notify = account_message(buffer);
        } else {  // it stays the next one
            buffer->next = rx_first_;
            rx_first_ = buffer.release();
            if (rx_last_ == nullptr) rx_last_ = rx_first_;
            rx_count_.store(rx_count_.load(std::memory_order_relaxed) + 1,
                            std::memory_order_release);
        }
    }
    if (notify) qp_->receive_posted();
    if (!intact) return no(EFAULT);
    if (!peek) rx_messages_.fetch_add(1, std::memory_order_relaxed);
    out_flags = MSG_EOR | (length > iovs.bytes ? MSG_TRUNC : 0);
    return static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? length : copied);
}

ssize_t MessageChannel::receive(const IovSpan& iovs, const CallMode& mode, int& out_flags) {
    const int flags = mode.flags;
    if ((flags & MSG_OOB) != 0) return no(EINVAL);
    if ((flags & MSG_ERRQUEUE) != 0) return no(EAGAIN);
    bool tried = false;
    for (;;) {
        // In this order: what comes before the end is queued before the end is told.
        const bool over = read_.load(std::memory_order_acquire) != Half::open;
        bool found = false;
        const ssize_t n = take_message(iovs, flags, out_flags, found);
        if (found) return n;
        if (over) {
            if (read_.load() == Half::shut) return 0;
            const int error = take_error();
            return error != 0 ? no(error) : 0;
        }
        if (!mode.blocking) {
            if (tried) return no(EAGAIN);
            tried = true;
            progress_->poll();
            continue;
        }
        if (iovs.bytes >= kDirectBytes && iovs.count <= kDirectIovs && (flags & MSG_PEEK) == 0) {
            bool done = false;
            const ssize_t answer = receive_direct(iovs, mode, out_flags, done);
            if (done) return answer;
            continue;
        }
        const auto waited = wait(
            *progress_, [this] { return something_to_read(); }, mode.timeout);
        if (waited != PollGroup::Waited::done) return fail_wait(waited, EAGAIN);
    }
}

// Blocked, with its iovec offered for the next message. `over`: the call has its answer.
ssize_t MessageChannel::receive_direct(const IovSpan& iovs, const CallMode& mode, int& out_flags,
                                       bool& over) {
    using State = DirectReceive::State;
    bool offered = false;
    {
        const std::lock_guard hold(rx_lock_);
        // Not while an older message is coming in elsewhere: it must be the next.
        offered = rx_first_ == nullptr && !rx_incoming_ && !rx_closed_ &&
                  direct_.state.load(std::memory_order_relaxed) == State::none;
        if (offered) {
            direct_.where = &iovs;
            direct_.state.store(State::offered, std::memory_order_relaxed);
        }
    }
    if (!offered) offered = redirect_rest(iovs);
    const auto done_waiting = [&] { return offered ? direct_done() : something_to_read(); };
    const std::uint32_t generation = process_generation();
    const auto waited = wait(*progress_, done_waiting, mode.timeout);
    over = waited != PollGroup::Waited::done;
    if (process_generation() != generation) return no(EINTR);
    if (offered) {
        rx_lock_.lock();
        if (direct_.where == &iovs &&
            direct_.state.load(std::memory_order_relaxed) == State::under_way) {
            rx_lock_.unlock();
            withdraw_direct(iovs);
            rx_lock_.lock();
        }
        // A message that failed, or was withdrawn, has left the place to another call's.
        const bool ours = direct_.where == &iovs;
        const bool done = ours && direct_.state.load(std::memory_order_relaxed) == State::done;
        const std::uint32_t length = direct_.length;
        if (ours) {
            direct_.where = nullptr;
            direct_.state.store(State::none, std::memory_order_relaxed);
        }
        rx_lock_.unlock();
        if (done) {
            over = true;
            rx_messages_.fetch_add(1, std::memory_order_relaxed);
            out_flags = MSG_EOR | (length > iovs.bytes ? MSG_TRUNC : 0);
            return static_cast<ssize_t>(
                (mode.flags & MSG_TRUNC) != 0 ? length : std::min<std::size_t>(length, iovs.bytes));
        }
    }
    return over ? fail_wait(waited, EAGAIN) : 0;
}

// The next message has begun to come into a buffer, behind the last one: it goes on into the
// pieces, and what has come of it is copied there.
bool MessageChannel::redirect_rest(const IovSpan& iovs) {
    bool moved = false;
    progress_->locked([&](PollCycle& cycle) {
        Buffer* from = nullptr;
        RecvWqe other;
        {
            const std::lock_guard hold(rx_lock_);
            if (rx_first_ != nullptr || rx_filling_ == nullptr || rx_closed_ ||
                direct_.state.load(std::memory_order_relaxed) != DirectReceive::State::none) {
                return;
            }
            from = rx_filling_;
            direct_.where = &iovs;
            if (!lay_out_direct(iovs, from->reserved, other)) return;
        }
        moved = qp_->move_receive(reinterpret_cast<std::uintptr_t>(from), other, cycle);
        const std::lock_guard hold(rx_lock_);
        if (!moved) {
            give_buffer(std::exchange(direct_.rest, nullptr));
            return;
        }
        give_buffer(std::exchange(rx_filling_, nullptr));
        direct_.state.store(DirectReceive::State::under_way, std::memory_order_relaxed);
    });
    return moved;
}

// The call ends while a message is coming into its memory: the rest, and what has come of it, goes
// to a buffer.
void MessageChannel::withdraw_direct(const IovSpan& iovs) {
    progress_->locked([&](PollCycle& cycle) {
        if (direct_.state.load(std::memory_order_relaxed) != DirectReceive::State::under_way ||
            direct_.where != &iovs) {
            return;
        }
        Buffer* const buffer = take_buffer(message_limit());
        if (buffer == nullptr) {
            log(LogLevel::error, "no-memory", "a message under way finds no buffer; reset");
            qp_->abort(cycle);
            return;
        }
        buffer->reserved = direct_.reserved;
        RecvWqe other;
        other.wr_id = reinterpret_cast<std::uintptr_t>(buffer);
        other.internal = true;
        other.length = direct_.limit;
        other.sge_count = 1;
        other.sge[0] = {buffer->data(), direct_.limit, kLkeyNone};
        if (!qp_->move_receive(kDirectId, other, cycle)) {
            give_buffer(buffer);
            return;
        }
        const std::lock_guard hold(rx_lock_);
        give_buffer(std::exchange(direct_.rest, nullptr));
        rx_filling_ = buffer;
        direct_.state.store(DirectReceive::State::none, std::memory_order_relaxed);
    });
}

// ---- the poller -------------------------------------------------------------

// Makes `out` a receive of `need` bytes into the pieces and, where they end, a buffer. False: no
// memory for that. @pre rx_lock_ is held
bool MessageChannel::lay_out_direct(const IovSpan& where, std::uint32_t need, RecvWqe& out) {
    std::uint32_t left = need;
    std::uint8_t count = 0;
    for (std::size_t i = 0; i < where.count && left > 0; ++i) {
        const auto n =
            static_cast<std::uint32_t>(std::min<std::size_t>(where.iov[i].iov_len, left));
        out.sge[count++] = {static_cast<std::byte*>(where.iov[i].iov_base), n, kLkeyNone};
        left -= n;
    }
    if (left > 0) {
        direct_.rest = take_buffer(left);
        if (direct_.rest == nullptr) return false;
        out.sge[count++] = {direct_.rest->data(), left, kLkeyNone};
    }
    if (count == 0) out.sge[count++] = {nullptr, 0, kLkeyNone};
    out.internal = true;
    out.length = need;
    out.wr_id = kDirectId;
    out.sge_count = count;
    direct_.limit = need;
    direct_.reserved = need;
    return true;
}

bool MessageChannel::provide_receive(void* self, std::uint32_t bytes, RecvWqe& out) {
    return static_cast<MessageChannel*>(self)->give_receive(bytes, out);
}

// Memory for a message that begins to come in: of `bytes`, or of not yet known length.
bool MessageChannel::give_receive(std::uint32_t bytes, RecvWqe& out) {
    const auto limit = static_cast<std::uint32_t>(message_limit());
    const std::uint32_t need = std::min(bytes, limit);  // longer ones end in a Terminate
    const std::lock_guard hold(rx_lock_);
    if (rx_closed_) return false;
    out.internal = true;
    out.length = need;
    if (direct_.state.load(std::memory_order_relaxed) == DirectReceive::State::offered) {
        if (lay_out_direct(*direct_.where, need, out)) {
            rx_held_ += need;
            rx_incoming_ = true;
            direct_.state.store(DirectReceive::State::under_way, std::memory_order_relaxed);
            return true;
        }
    }
    const bool dropping = read_.load(std::memory_order_relaxed) == Half::shut;
    if (!dropping && (rx_count_.load(std::memory_order_relaxed) >=
                          static_cast<std::uint32_t>(options_.buffer_count) ||
                      (rx_held_ != 0 && rx_held_ + need > budget()))) {
        rx_no_room_ = true;
        return false;
    }
    Buffer* buffer = nullptr;
    if (rx_spare_ != nullptr && rx_spare_->capacity >= need) {
        buffer = std::exchange(rx_spare_, nullptr);
    } else {
        buffer = take_buffer(need);
    }
    if (buffer == nullptr) {
        rx_no_room_ = true;  // until the program reads something
        return false;
    }
    buffer->reserved = need;
    rx_held_ += need;
    rx_incoming_ = true;
    rx_filling_ = buffer;
    out.wr_id = reinterpret_cast<std::uintptr_t>(buffer);
    out.sge_count = 1;
    out.sge[0] = {buffer->data(), need, kLkeyNone};
    return true;
}

// A message is complete, or will not come any more.
void MessageChannel::received(const Wc& wc) {
    const bool success = wc.status == WcStatus::success;
    // Immediate Data (RFC 7306 §6) brings no bytes; byte_len then tells of a Write.
    const std::uint32_t length = (wc.flags & kWcImmediate) != 0 ? 0 : wc.byte_len;
    bool queued = false;
    BufferPtr dropped;
    {
        const std::lock_guard hold(rx_lock_);
        rx_incoming_ = false;
        rx_filling_ = nullptr;
        if (wc.wr_id == kDirectId) {
            rx_held_ -= direct_.reserved;
            dropped.reset(std::exchange(direct_.rest, nullptr));
            direct_.length = length;
            qp_->enough_read();
            // In one order with the check for waiters at the end of the cycle.
            direct_.state.store(success ? DirectReceive::State::done : DirectReceive::State::none,
                                std::memory_order_seq_cst);
        } else {
            auto* const buffer = reinterpret_cast<Buffer*>(static_cast<std::uintptr_t>(wc.wr_id));
            rx_held_ -= buffer->reserved;
            if (!success || rx_closed_ || read_.load(std::memory_order_relaxed) == Half::shut) {
                dropped.reset(buffer);
            } else {
                buffer->length = length;
                buffer->reserved = length;
                rx_held_ += length;
                buffer->next = nullptr;
                (rx_last_ != nullptr ? rx_last_->next : rx_first_) = buffer;
                rx_last_ = buffer;
                queued = true;
                rx_count_.store(rx_count_.load(std::memory_order_relaxed) + 1,
                                std::memory_order_seq_cst);
            }
        }
    }
    if (queued) source_.wake(kReadable);
}

void MessageChannel::drop_messages() noexcept {
    const std::lock_guard hold(rx_lock_);
    while (Buffer* const buffer = rx_first_) {
        rx_first_ = buffer->next;
        rx_held_ -= buffer->reserved;
        give_buffer(buffer);
    }
    rx_last_ = nullptr;
    rx_count_.store(0, std::memory_order_release);
    rx_no_room_ = false;
}

// ---- posted receives ----------------------------------------------------------

Result<void> MessageChannel::may_post_recv() const {
    const std::lock_guard hold(rx_lock_);
    if (rx_first_ != nullptr || rx_incoming_) return Error{EBUSY, "messages wait for recv()"};
    return {};
}

}  // namespace xsock::sockets
