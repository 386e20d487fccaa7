// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// send(): one message, never a part of it. It is copied, but for a large one of a blocking call:
// that waits, as send() does, until TCP has the octets, and so may lend them. When it has to return
// before, they are copied after all and the message is on its way as any other.
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"
#include "base/fault.hpp"
#include "libxsock/sock/socket.hpp"
#include "transport/log.hpp"

namespace xsock::sock {
namespace {

/// Where a second copy costs more than waiting for TCP (which has buffers of its own): at 64 KiB
/// and above.
constexpr std::size_t kLendOctets = 64 * 1024;

// Octets of all pieces, one after the other. False: the program's memory is not there.
bool gather(const Pieces& pieces, std::byte* to) {
    return fault::guard([&] {
        for (std::size_t i = 0; i < pieces.count; ++i) {
            const iovec& piece = pieces.iov[i];
            if (piece.iov_len == 0) continue;
            const fault::Touch reading(0, piece.iov_base, piece.iov_len);
            std::memcpy(to, piece.iov_base, piece.iov_len);
            to += piece.iov_len;
        }
    });
}

// Whether the memory is there, without a copy of it. (What goes away later costs the connection.)
bool readable(const std::byte* from, std::size_t n) {
    constexpr std::size_t kPage = 4096;
    return fault::guard([&] {
        const fault::Touch reading(0, from, n);
        const volatile std::byte* const at = from;
        for (std::size_t i = 0; i < n; i += kPage) static_cast<void>(at[i]);
        static_cast<void>(at[n - 1]);
    });
}

}  // namespace

// Octets of messages that may lie in buffers: one of the largest beside what is being sent.
bool Socket::can_send() const noexcept {
    return connection().send_room() > 0 &&
           tx_octets_.load(std::memory_order_seq_cst) <= message_limit();
}

bool Socket::room_to_send() const noexcept {
    return can_send() || phase() == Phase::ended || write_shut_.load(std::memory_order_relaxed);
}

// What a send on a connection that takes none answers: the reason once, then EPIPE.
ssize_t Socket::send_error(int flags) noexcept {
    if (const int error = error_.exchange(0); error != 0) return no(error);
    if ((flags & MSG_NOSIGNAL) == 0) pthread_kill(pthread_self(), SIGPIPE);
    return no(EPIPE);
}

ssize_t Socket::send(int fd, const Pieces& pieces, int flags) {
    if (phase() != Phase::open || foreign() || !exec_kept_.load(std::memory_order_relaxed)) {
        if (const int answer = gate(fd, flags, true); answer != 0) return answer;
    }
    if ((flags & (MSG_OOB | MSG_FASTOPEN)) != 0) return no(EOPNOTSUPP);
    if (pieces.octets > message_limit()) return no(EMSGSIZE);
    if (phase() == Phase::ended || write_shut_.load(std::memory_order_relaxed)) {
        return send_error(flags);
    }

    SendWr wr;
    wr.flags = kSendInternal;
    if ((flags & MSG_MORE) != 0) wr.flags |= kSendMore;
    Sge sge{nullptr, static_cast<std::uint32_t>(pieces.octets), kLkeyNone};
    std::array<std::byte, XSOCK_MAX_INLINE> octets;
    BufferPtr buffer;
    if (pieces.octets <= static_cast<std::size_t>(options_.inline_limit)) {
        wr.flags |= kSendInline;
        sge.address = octets.data();
    } else {
        const bool lend = pieces.octets >= kLendOctets && pieces.count == 1 && blocking(flags) &&
                          (flags & MSG_MORE) == 0;
        buffer.reset(take_buffer(lend ? 0 : pieces.octets));
        if (buffer == nullptr) return no(ENOMEM);
        buffer->length = sge.length;
        buffer->stands_for_lent = lend;
        buffer->lent_state.store(0, std::memory_order_relaxed);
        wr.wr_id = reinterpret_cast<std::uintptr_t>(buffer.get());
        wr.flags |= kSendSignaled;
        sge.address = lend ? static_cast<std::byte*>(pieces.iov[0].iov_base) : buffer->data();
    }
    const bool lent = buffer != nullptr && buffer->stands_for_lent;
    if (!(lent ? readable(sge.address, sge.length) : gather(pieces, sge.address))) {
        return no(EFAULT);
    }
    wr.sges = {&sge, 1};

    Connection& to = connection();
    const std::uint8_t as_asked = wr.flags;
    for (;;) {
        if (can_send()) {
            // Entries of a queue that fills report when they are done, so that whoever found it
            // full hears of room.
            wr.flags = as_asked;
            if (to.send_room() <= static_cast<std::uint32_t>(options_.sq_depth) / 2) {
                wr.flags |= kSendSignaled;
            }
            if (buffer != nullptr) tx_octets_.fetch_add(sge.length, std::memory_order_seq_cst);
            const Result<void> posted = to.post_send(wr, (flags & MSG_MORE) != 0);
            if (posted && lent) return wait_for_lent(*buffer, flags);
            if (posted) {
                [[maybe_unused]] Buffer* const queued = buffer.release();  // until sent()
                tx_messages_.fetch_add(1, std::memory_order_relaxed);
                return static_cast<ssize_t>(pieces.octets);
            }
            if (buffer != nullptr) tx_octets_.fetch_sub(sge.length, std::memory_order_seq_cst);
            if (posted.error().code == EPIPE) return send_error(flags);
            if (posted.error().code != ENOBUFS) return no(posted.error().code);
        } else if (phase() == Phase::ended || write_shut_.load(std::memory_order_relaxed)) {
            return send_error(flags);
        }
        if (!blocking(flags)) {
            progress()->drive();
            if (can_send()) continue;
            tx_starved_.store(true, std::memory_order_seq_cst);
            if (can_send() || phase() == Phase::ended) continue;
            return no(EAGAIN);
        }
        const auto waited = wait(&Socket::room_to_send, send_timeout_.load());
        if (waited != Progress::Waited::done) return fail_wait(waited, EAGAIN);
    }
}

// The message is queued and lies in the caller's memory. On return nobody looks at that any more.
ssize_t Socket::wait_for_lent(Buffer& buffer, int flags) {
    const Time timeout = send_timeout_.load();
    const Time deadline = timeout != 0 ? time_after(monotonic_now(), timeout) : kNever;
    const auto over = [&buffer] { return buffer.lent_state.load(std::memory_order_seq_cst) != 0; };
    const auto waited = progress()->wait_interruptibly(std::ref(over), deadline, timeout == 0);
    if (waited != Progress::Waited::done) {
        BufferPtr copy(take_buffer(buffer.length));
        progress()->locked([&](Pass& pass) {
            if (over()) return;
            if (copy == nullptr) {
                log(LogLevel::error, "no-memory", "a message under way finds no buffer; reset");
                connection().abort(pass);
                return;
            }
            copy->length = buffer.length;
            copy->stands_for_lent = false;
            const auto from = reinterpret_cast<std::uintptr_t>(&buffer);
            const auto to = reinterpret_cast<std::uintptr_t>(copy.get());
            if (connection().move_send(from, to, copy->data(), pass)) {
                [[maybe_unused]] Buffer* const queued = copy.release();  // until sent()
                buffer.lent_state.store(1, std::memory_order_relaxed);
            }
        });
        XSOCK_ASSERT(over());
    }
    const auto status = static_cast<WcStatus>(buffer.lent_state.load() - 1);
    if (status == WcStatus::local_protection_error) return no(EFAULT);
    if (status != WcStatus::success) return send_error(flags);
    tx_messages_.fetch_add(1, std::memory_order_relaxed);
    return static_cast<ssize_t>(buffer.length);
}

// The driver: a message of ours was handed to TCP, or will not be.
void Socket::sent(const Wc& wc) {
    if (wc.wr_id != 0) {
        auto* const buffer = reinterpret_cast<Buffer*>(static_cast<std::uintptr_t>(wc.wr_id));
        tx_octets_.fetch_sub(buffer->length, std::memory_order_seq_cst);
        if (buffer->stands_for_lent) {
            // The call's: once it sees this, the buffer is gone.
            buffer->lent_state.store(static_cast<std::uint8_t>(1 + static_cast<int>(wc.status)),
                                     std::memory_order_seq_cst);
        } else {
            give_buffer(buffer);
        }
    }
    if (tx_starved_.load(std::memory_order_seq_cst) && phase() == Phase::open && can_send() &&
        tx_starved_.exchange(false, std::memory_order_seq_cst)) {
        wake(EPOLLOUT | EPOLLWRNORM);
    }
}

}  // namespace xsock::sock
