// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// send(): one message, copied, never a part of it.
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "base/fault.hpp"
#include "libxsock/sock/socket.hpp"

namespace xsock::sock {
namespace {

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
    std::array<std::byte, kMaxInline> octets;
    BufferPtr buffer;
    if (pieces.octets <= static_cast<std::size_t>(options_.inline_limit)) {
        wr.flags |= kSendInline;
        sge.address = octets.data();
    } else {
        buffer.reset(take_buffer(pieces.octets));
        if (buffer == nullptr) return no(ENOMEM);
        buffer->length = sge.length;
        wr.wr_id = reinterpret_cast<std::uintptr_t>(buffer.get());
        wr.flags |= kSendSignaled;
        sge.address = buffer->data();
    }
    if (!gather(pieces, sge.address)) return no(EFAULT);
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

// The driver: a message of ours was handed to TCP, or will not be.
void Socket::sent(const Wc& wc) {
    if (wc.wr_id != 0) {
        auto* const buffer = reinterpret_cast<Buffer*>(static_cast<std::uintptr_t>(wc.wr_id));
        tx_octets_.fetch_sub(buffer->length, std::memory_order_seq_cst);
        give_buffer(buffer);
    }
    if (tx_starved_.load(std::memory_order_seq_cst) && phase() == Phase::open && can_send() &&
        tx_starved_.exchange(false, std::memory_order_seq_cst)) {
        wake(EPOLLOUT | EPOLLWRNORM);
    }
}

}  // namespace xsock::sock
