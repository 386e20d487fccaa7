// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is ready on a byte stream, its options and its figures.
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <climits>
#include <limits>

#include "libxsock/engine/socket_table.h"
#include "libxsock/socket/stream_channel.hpp"

namespace xsock::sockets {

/// As TCP: a third of the buffer is free.
bool StreamChannel::is_writable() const noexcept {
    const std::size_t queued = queued_.load(std::memory_order_seq_cst);
    const std::size_t limit = send_limit_.load(std::memory_order_relaxed);
    return limit != 0 && queued <= limit / 3 * 2;
}

std::uint32_t StreamChannel::events() const noexcept {
    std::uint32_t events = 0;
    const bool end = read_.load(std::memory_order_acquire) != Half::open;
    const bool shut = write_.load(std::memory_order_relaxed) != Half::open;
    if (end) events |= kReadable | EPOLLRDHUP;
    if (readable_.load(std::memory_order_seq_cst) >= low_water()) events |= kReadable;
    events |= urgent_events_.load(std::memory_order_acquire);
    if (shut || is_writable()) {
        events |= kWritable;
    } else {
        // Room made from now on is reported; it may have been made in between.
        tx_no_room_.store(true, std::memory_order_seq_cst);
        if (is_writable()) events |= kWritable;
    }
    if (shut && end) events |= EPOLLHUP;
    return events;
}

int StreamChannel::ioctl(int fd, unsigned long request, void* argument) {
    if (stream_ == nullptr) return XSOCK_PASS;  // TCP did not connect
    int& answer = *static_cast<int*>(argument);
    const auto as_int = [](std::size_t n) {
        return static_cast<int>(std::min<std::size_t>(n, INT_MAX));
    };
    switch (request) {
        case FIONREAD: {
            if (readable_.load(std::memory_order_acquire) == 0) progress_->poll();
            const std::lock_guard hold(lock_);
            answer = as_int(stream_->readable_to_mark());
            return 0;
        }
        case SIOCOUTQ: {
            int queued = 0;
            if (fd < 0 || ::ioctl(fd, SIOCOUTQ, &queued) < 0) queued = 0;
            answer = as_int(queued_.load() + static_cast<unsigned>(queued));
            return 0;
        }
        case SIOCATMARK: {
            const std::lock_guard hold(lock_);
            answer = stream_->at_mark() ? 1 : 0;
            return 0;
        }
        default:
            return XSOCK_PASS;
    }
}

void StreamChannel::set_option(int level, int name, int value) {
    if (stream_ == nullptr) return;
    Section section(*this);
    if (level == IPPROTO_TCP && name == TCP_NODELAY) {
        nodelay_.store(value != 0 ? 1 : 0);
        stream_->set_nodelay(value != 0);
    } else if (level == IPPROTO_TCP && name == TCP_CORK) {
        cork_.store(value != 0 ? 1 : 0);
        if (value == 0) stream_->push();
    } else if (level == SOL_SOCKET && name == SO_OOBINLINE) {
        oob_inline_.store(value != 0 ? 1 : 0);
        stream_->set_urgent_inline(value != 0);
    } else if (level == SOL_SOCKET && name == SO_SNDBUF) {
        send_limit_.store(std::max(static_cast<std::uint64_t>(value), kLeastSend));
        stream_->set_send_limit(send_limit_.load());
        section.actions.wake |= kWritable;
    } else if (level == SOL_SOCKET && name == SO_RCVBUF) {
        receive_limit_.store(grant_.ask(static_cast<std::uint64_t>(std::max(value, 1))));
        // The size of messages was agreed at the start, and two must have room (stream/sdp.cpp).
        stream_->set_receive_limit(std::max(receive_limit_.load(), 2 * sdp_->message_limit()));
    } else if (level == SOL_SOCKET && name == SO_RCVLOWAT) {
        receive_low_.store(value < 0 ? INT_MAX : std::max(value, 1));
        section.actions.wake |= kReadable;
    }
    pump(section.actions);
}

bool StreamChannel::get_option(int level, int name, int& value) const {
    if (stream_ == nullptr) return false;
    if (level == IPPROTO_TCP && name == TCP_NODELAY) {
        value = nodelay_.load();
    } else if (level == IPPROTO_TCP && name == TCP_CORK) {
        value = cork_.load();
    } else if (level == SOL_SOCKET && name == SO_OOBINLINE) {
        value = oob_inline_.load();
    } else if (level == SOL_SOCKET && name == SO_RCVLOWAT) {
        value = receive_low_.load();
    } else if (level == SOL_SOCKET && name == SO_RCVBUF) {
        value = static_cast<int>(receive_limit_.load());
    } else if (level == SOL_SOCKET && name == SO_SNDBUF) {
        value = static_cast<int>(send_limit_.load());
    } else {
        return false;
    }
    return true;
}

void StreamChannel::describe(xsock_status& status) const noexcept {
    status.tx_messages = tx_messages_.load();
    status.rx_messages = rx_messages_.load();
    status.waiting.rx = static_cast<std::uint32_t>(
        std::min<std::size_t>(readable_.load(), std::numeric_limits<std::uint32_t>::max()));
}

}  // namespace xsock::sockets
