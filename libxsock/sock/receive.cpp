// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// recv(): one message, as on a SOCK_SEQPACKET socket. Messages wait in buffers that are taken from
// the pool when a message begins to come in; a blocked receiver with much room lends its own memory
// for the next one, so that a large message is copied once.
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/fault.hpp"
#include "ddp_user/stream.hpp"
#include "libxsock/sock/socket.hpp"
#include "transport/log.hpp"

namespace xsock::sock {
namespace {

constexpr std::uint64_t kLandingId = 1;  // wr_id; those of buffers are addresses
constexpr std::size_t kLandingOctets = 16 * 1024;
constexpr std::size_t kLandingPieces = kMaxSge - 1;
constexpr std::size_t kCopiedUnderLock = 4096;
constexpr std::uint64_t kLeastBudget = 256 * 1024;
constexpr std::uint32_t kReadable = EPOLLIN | EPOLLRDNORM;

// The first `octets` of `from`, into the pieces. False: the program's memory is not there.
bool scatter(const std::byte* from, std::size_t octets, const Pieces& pieces) {
    return fault::guard([&] {
        for (std::size_t i = 0; i < pieces.count && octets > 0; ++i) {
            const std::size_t n = std::min(pieces.iov[i].iov_len, octets);
            if (n == 0) continue;
            const fault::Touch writing(1, pieces.iov[i].iov_base, n);
            std::memcpy(pieces.iov[i].iov_base, from, n);
            from += n;
            octets -= n;
        }
    });
}

}  // namespace

std::uint64_t Socket::budget() const noexcept {
    return std::max<std::uint64_t>(2 * std::uint64_t{message_limit()}, kLeastBudget);
}

bool Socket::something_to_read() const noexcept {
    return rx_count_.load(std::memory_order_seq_cst) != 0 || over_.load(std::memory_order_acquire);
}

bool Socket::landed() const noexcept {
    return landing_.state.load(std::memory_order_acquire) == Landing::State::done ||
           something_to_read();
}

// Takes the oldest message out of the queue. @pre rx_lock_ is held, there is one
Buffer* Socket::pop_message() noexcept {
    Buffer* const first = rx_first_;
    rx_first_ = first->next;
    if (rx_first_ == nullptr) rx_last_ = nullptr;
    first->next = nullptr;
    rx_count_.store(rx_count_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    return first;
}

// The program has it. True: the driver waits for the room. @pre rx_lock_ is held
bool Socket::settle_message(BufferPtr& buffer) noexcept {
    rx_held_ -= buffer->reserved;
    if (rx_spare_ == nullptr && small(*buffer)) rx_spare_ = buffer.release();
    const bool kick = rx_starved_ && rx_held_ <= budget() - message_limit();
    if (kick) rx_starved_ = false;
    return kick;
}

// The oldest message, if there is one.
ssize_t Socket::take_message(const Pieces& pieces, int flags, int& out_flags, bool& found) {
    found = false;
    if (rx_count_.load(std::memory_order_acquire) == 0) return 0;
    const bool peek = (flags & MSG_PEEK) != 0;
    BufferPtr buffer;
    std::size_t length = 0, copied = 0;
    bool kick = false, intact = true, here = true;
    {
        const std::lock_guard hold(rx_lock_);
        if (rx_first_ == nullptr) return 0;
        found = true;
        length = rx_first_->length;
        copied = std::min(length, pieces.octets);
        here = peek || copied <= kCopiedUnderLock;
        if (here) intact = scatter(rx_first_->data(), copied, pieces);
        if (!peek && intact) {
            buffer.reset(pop_message());
            if (here) kick = settle_message(buffer);
        }
    }
    if (!here) {
        intact = scatter(buffer->data(), copied, pieces);
        const std::lock_guard hold(rx_lock_);
        if (intact) {
            kick = settle_message(buffer);
        } else {  // it stays the next one
            buffer->next = rx_first_;
            rx_first_ = buffer.release();
            if (rx_last_ == nullptr) rx_last_ = rx_first_;
            rx_count_.store(rx_count_.load(std::memory_order_relaxed) + 1,
                            std::memory_order_release);
        }
    }
    if (kick) connection().receive_posted();
    if (!intact) return no(EFAULT);
    if (!peek) rx_messages_.fetch_add(1, std::memory_order_relaxed);
    out_flags = MSG_EOR | (length > pieces.octets ? MSG_TRUNC : 0);
    return static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? length : copied);
}

ssize_t Socket::receive(int fd, const Pieces& pieces, int flags, int& out_flags) {
    out_flags = 0;
    if (phase() != Phase::open || foreign() || !exec_kept_.load(std::memory_order_relaxed)) {
        if (const int answer = gate(fd, flags, false); answer != 0) return answer;
    }
    if ((flags & MSG_OOB) != 0) return no(EINVAL);
    if ((flags & MSG_ERRQUEUE) != 0) return no(EAGAIN);
    bool tried = false;
    for (;;) {
        // In this order: what comes before the end is queued before the end is told.
        const bool over = over_.load(std::memory_order_acquire);
        bool found = false;
        const ssize_t n = take_message(pieces, flags, out_flags, found);
        if (found) return n;
        if (over) {
            if (read_shut_.load()) return 0;
            const int error = error_.exchange(0);
            return error != 0 ? no(error) : 0;
        }
        if (!blocking(flags)) {
            if (tried) return no(EAGAIN);
            tried = true;
            progress()->drive();
            continue;
        }
        const Time timeout = receive_timeout_.load(std::memory_order_relaxed);
        if (pieces.octets >= kLandingOctets && pieces.count <= kLandingPieces &&
            (flags & MSG_PEEK) == 0) {
            bool done = false;
            const ssize_t answer = receive_landing(pieces, flags, out_flags, timeout, done);
            if (done) return answer;
            continue;
        }
        const auto waited = wait(&Socket::something_to_read, timeout);
        if (waited != Progress::Waited::done) return fail_wait(waited, EAGAIN);
    }
}

// Blocked, with the pieces lent for the next message. `over`: the call has its answer.
ssize_t Socket::receive_landing(const Pieces& pieces, int flags, int& out_flags, Time timeout,
                                bool& over) {
    using State = Landing::State;
    bool lent = false;
    {
        const std::lock_guard hold(rx_lock_);
        // Not while an older message is coming in elsewhere: it must be the next.
        lent = rx_first_ == nullptr && !rx_incoming_ && !rx_closed_ &&
               landing_.state.load(std::memory_order_relaxed) == State::none;
        if (lent) {
            landing_.where = &pieces;
            landing_.state.store(State::offered, std::memory_order_relaxed);
        }
    }
    if (!lent) lent = land_the_rest(pieces);
    const auto waited = wait(lent ? &Socket::landed : &Socket::something_to_read, timeout);
    over = waited != Progress::Waited::done;
    if (lent) {
        rx_lock_.lock();
        if (landing_.state.load(std::memory_order_relaxed) == State::under_way) {
            rx_lock_.unlock();
            take_back_landing();
            rx_lock_.lock();
        }
        const bool done = landing_.state.load(std::memory_order_relaxed) == State::done;
        const std::uint32_t length = landing_.length;
        landing_.state.store(State::none, std::memory_order_relaxed);
        rx_lock_.unlock();
        if (done) {
            over = true;
            rx_messages_.fetch_add(1, std::memory_order_relaxed);
            out_flags = MSG_EOR | (length > pieces.octets ? MSG_TRUNC : 0);
            return static_cast<ssize_t>(
                (flags & MSG_TRUNC) != 0 ? length : std::min<std::size_t>(length, pieces.octets));
        }
    }
    return over ? fail_wait(waited, EAGAIN) : 0;
}

// The next message has begun to come into a buffer, behind the last one: it goes on into the
// pieces, and what has come of it is copied there.
bool Socket::land_the_rest(const Pieces& pieces) {
    bool moved = false;
    progress()->locked([&](Pass& pass) {
        Buffer* from = nullptr;
        RecvWqe other;
        {
            const std::lock_guard hold(rx_lock_);
            if (rx_first_ != nullptr || rx_filling_ == nullptr || rx_closed_ ||
                landing_.state.load(std::memory_order_relaxed) != Landing::State::none) {
                return;
            }
            from = rx_filling_;
            landing_.where = &pieces;
            if (!lay_landing(pieces, from->reserved, other)) return;
        }
        moved = connection().move_receive(reinterpret_cast<std::uintptr_t>(from), other, pass);
        const std::lock_guard hold(rx_lock_);
        if (!moved) {
            give_buffer(std::exchange(landing_.rest, nullptr));
            return;
        }
        give_buffer(std::exchange(rx_filling_, nullptr));
        landing_.state.store(Landing::State::under_way, std::memory_order_relaxed);
    });
    return moved;
}

// The call ends while a message is coming into its memory: the rest, and what has come of it, goes
// to a buffer.
void Socket::take_back_landing() {
    progress()->locked([this](Pass& pass) {
        if (landing_.state.load(std::memory_order_relaxed) != Landing::State::under_way) return;
        Buffer* const buffer = take_buffer(message_limit());
        if (buffer == nullptr) {
            log(LogLevel::error, "no-memory", "a message under way finds no buffer; reset");
            connection().abort(pass);
            return;
        }
        buffer->reserved = landing_.reserved;
        RecvWqe other;
        other.wr_id = reinterpret_cast<std::uintptr_t>(buffer);
        other.internal = true;
        other.length = landing_.limit;
        other.sge_count = 1;
        other.sge[0] = {buffer->data(), landing_.limit, kLkeyNone};
        if (!connection().move_receive(kLandingId, other, pass)) {
            give_buffer(buffer);
            return;
        }
        const std::lock_guard hold(rx_lock_);
        give_buffer(std::exchange(landing_.rest, nullptr));
        rx_filling_ = buffer;
        landing_.state.store(Landing::State::none, std::memory_order_relaxed);
    });
}

// ---- the driver -------------------------------------------------------------

// Makes `out` a receive of `need` octets into the pieces and, where they end, a buffer. False: no
// memory for that. @pre rx_lock_ is held
bool Socket::lay_landing(const Pieces& where, std::uint32_t need, RecvWqe& out) {
    std::uint32_t left = need;
    std::uint8_t count = 0;
    for (std::size_t i = 0; i < where.count && left > 0; ++i) {
        const auto n =
            static_cast<std::uint32_t>(std::min<std::size_t>(where.iov[i].iov_len, left));
        out.sge[count++] = {static_cast<std::byte*>(where.iov[i].iov_base), n, kLkeyNone};
        left -= n;
    }
    if (left > 0) {
        landing_.rest = take_buffer(left);
        if (landing_.rest == nullptr) return false;
        out.sge[count++] = {landing_.rest->data(), left, kLkeyNone};
    }
    if (count == 0) out.sge[count++] = {nullptr, 0, kLkeyNone};
    out.internal = true;
    out.length = need;
    out.wr_id = kLandingId;
    out.sge_count = count;
    landing_.limit = need;
    landing_.reserved = need;
    return true;
}

bool Socket::spare_receive(void* self, std::uint32_t octets, RecvWqe& out) {
    return static_cast<Socket*>(self)->give_receive(octets, out);
}

// Memory for a message that begins to come in: of `octets`, or of not yet known length.
bool Socket::give_receive(std::uint32_t octets, RecvWqe& out) {
    const auto limit = static_cast<std::uint32_t>(message_limit());
    const std::uint32_t need = std::min(octets, limit);  // longer ones end in a Terminate
    const std::lock_guard hold(rx_lock_);
    if (rx_closed_) return false;
    out.internal = true;
    out.length = need;
    if (landing_.state.load(std::memory_order_relaxed) == Landing::State::offered) {
        if (lay_landing(*landing_.where, need, out)) {
            rx_held_ += need;
            rx_incoming_ = true;
            landing_.state.store(Landing::State::under_way, std::memory_order_relaxed);
            return true;
        }
    }
    const bool dropping = read_shut_.load(std::memory_order_relaxed);
    if (!dropping && (rx_count_.load(std::memory_order_relaxed) >=
                          static_cast<std::uint32_t>(options_.buffer_count) ||
                      (rx_held_ != 0 && rx_held_ + need > budget()))) {
        rx_starved_ = true;
        return false;
    }
    Buffer* buffer = nullptr;
    if (rx_spare_ != nullptr && rx_spare_->capacity >= need) {
        buffer = std::exchange(rx_spare_, nullptr);
    } else {
        buffer = take_buffer(need);
    }
    if (buffer == nullptr) {
        rx_starved_ = true;  // until the program reads something
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
void Socket::received(const Wc& wc) {
    const bool success = wc.status == WcStatus::success;
    // Immediate Data (RFC 7306 §6) brings no octets; byte_len then tells of a Write.
    const std::uint32_t length = (wc.flags & kWcImmediate) != 0 ? 0 : wc.byte_len;
    bool queued = false;
    BufferPtr dropped;
    {
        const std::lock_guard hold(rx_lock_);
        rx_incoming_ = false;
        rx_filling_ = nullptr;
        if (wc.wr_id == kLandingId) {
            rx_held_ -= landing_.reserved;
            dropped.reset(std::exchange(landing_.rest, nullptr));
            landing_.length = length;
            connection().enough_read();
            landing_.state.store(success ? Landing::State::done : Landing::State::none,
                                 std::memory_order_release);
        } else {
            auto* const buffer = reinterpret_cast<Buffer*>(static_cast<std::uintptr_t>(wc.wr_id));
            rx_held_ -= buffer->reserved;
            if (!success || rx_closed_ || read_shut_.load(std::memory_order_relaxed)) {
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
    if (queued) wake(kReadable);
}

void Socket::drop_messages() noexcept {
    const std::lock_guard hold(rx_lock_);
    while (Buffer* const buffer = rx_first_) {
        rx_first_ = buffer->next;
        rx_held_ -= buffer->reserved;
        give_buffer(buffer);
    }
    rx_last_ = nullptr;
    rx_count_.store(0, std::memory_order_release);
    rx_starved_ = false;
}

// ---- posted receives ----------------------------------------------------------

Result<void> Socket::post_recv(const RecvWr& wr) {
    {
        const std::lock_guard hold(rx_lock_);
        if (rx_first_ != nullptr || rx_incoming_) {
            return Error{EBUSY, "messages wait for recv()"};
        }
    }
    return connection().post_recv(wr);
}

}  // namespace xsock::sock
