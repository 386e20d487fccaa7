// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/early_sends.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace xsock::sockets {

std::size_t EarlySends::add(ConstBytes bytes, int flags) {
    const std::size_t n = std::min(bytes.size(), kMost - size());
    if (n == 0) return 0;
    One one{{bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)},
            flags & (MSG_OOB | MSG_MORE)};
    if (n < bytes.size()) one.flags &= ~MSG_OOB;  // the last byte is the urgent one
    sends_.push_back(std::move(one));
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

// Into a send buffer that is empty. What fails now fails at the program's next call.
void EarlySends::send_by_tcp(int fd) noexcept {
    for (const One& one : sends_) {
        ::send(fd, one.bytes.data(), one.bytes.size(), one.flags | MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (is_shut()) ::shutdown(fd, shut_how_);
    clear();
}

void EarlySends::clear() noexcept {
    sends_.clear();
    size_.store(0, std::memory_order_release);
    shut_.store(false, std::memory_order_release);
}

}  // namespace xsock::sockets
