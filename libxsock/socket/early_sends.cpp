// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/early_sends.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace xsock::sockets {

std::size_t EarlySends::add(ConstBytes bytes, int flags) {
    const std::size_t n = std::min(bytes.size(), kMost - size());
    if (n == 0 || is_closed()) return 0;
    One one{{bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)},
            flags & (MSG_OOB | MSG_MORE)};
    if (n < bytes.size()) one.flags &= ~MSG_OOB;  // the last byte is the urgent one
    const auto goes_with = [](const One& before, const One& next) {
        const bool urgent = ((before.flags | next.flags) & MSG_OOB) != 0;
        return !urgent && (before.flags == MSG_MORE || next.flags == 0);
    };
    if (!sends_.empty() && goes_with(sends_.back(), one)) {
        One& last = sends_.back();  // one segment of TCP rather than many
        last.bytes.insert(last.bytes.end(), one.bytes.begin(), one.bytes.end());
        last.flags = one.flags;
    } else {
        sends_.push_back(std::move(one));
    }
    size_.fetch_add(n, std::memory_order_release);
    return n;
}

void EarlySends::shutdown(int how) noexcept {
    if (!is_shut() || how == SHUT_RDWR) shut_how_ = how;
    shut_.store(true, std::memory_order_release);
}

void EarlySends::send_by(Channel& channel) {
    for (One& one : sends_) {
        const iovec iov{one.bytes.data(), one.bytes.size()};
        channel.send(IovSpan{&iov, 1, one.bytes.size()}, {one.flags | MSG_NOSIGNAL, false, 0});
    }
    if (is_shut()) channel.shutdown(shut_how_ == SHUT_RDWR, true);
    clear();
}

namespace {

// As close() at the time when the program called it: FIN, and no reset for what has come since. The
// poller must not wait in close().
void finish_for_close(int fd) noexcept {
    linger how{};
    socklen_t size = sizeof how;
    const bool lingers = getsockopt(fd, SOL_SOCKET, SO_LINGER, &how, &size) == 0;
    if (lingers && how.l_onoff != 0 && how.l_linger == 0) return;  // a reset, as it was asked for
    how = {};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &how, sizeof how);
    ::shutdown(fd, SHUT_WR);
    std::array<std::byte, 4096> dropped;
    constexpr int kReadsMost = 64;
    for (int i = 0; i < kReadsMost; ++i) {
        if (::recv(fd, dropped.data(), dropped.size(), MSG_DONTWAIT) <= 0) break;
    }
}

}  // namespace

// Into a send buffer that is empty. What fails now fails at the program's next call; where a small
// buffer does not take it all the connection is reset, for a hole would be worse.
void EarlySends::send_by_tcp(int fd) noexcept {
    for (const One& one : sends_) {
        const ssize_t n =
            ::send(fd, one.bytes.data(), one.bytes.size(), one.flags | MSG_NOSIGNAL | MSG_DONTWAIT);
        const bool is_short =
            n < 0 ? errno == EAGAIN : static_cast<std::size_t>(n) < one.bytes.size();
        if (!is_short) continue;
        const sockaddr nowhere{AF_UNSPEC, {}};
        (void)::connect(fd, &nowhere, sizeof nowhere);  // disconnects by a reset
        break;
    }
    if (is_shut()) ::shutdown(fd, shut_how_);
    if (is_closed()) finish_for_close(fd);
    clear();
}

void EarlySends::clear() noexcept {
    sends_.clear();
    size_.store(0, std::memory_order_release);
    shut_.store(false, std::memory_order_release);
}

}  // namespace xsock::sockets
