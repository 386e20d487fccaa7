// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/call.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "base/fault.hpp"
#include "libxsock/engine/runtime.hpp"

namespace xsock::sockets {

int IovSpan::assign(const msghdr& message) noexcept {
    int error = 0;
    const bool there = fault::guard([&] {
        {
            const fault::Touch reading(0, &message, sizeof message);
            iov = message.msg_iov;
            count = message.msg_iovlen;
        }
        bytes = 0;
        if (count > IOV_MAX) {
            error = EMSGSIZE;
            return;
        }
        const fault::Touch reading(0, iov, count * sizeof *iov);
        for (std::size_t i = 0; i < count && error == 0; ++i) {
            if (iov[i].iov_len > static_cast<std::size_t>(SSIZE_MAX) - bytes) error = EINVAL;
            bytes += iov[i].iov_len;
        }
    });
    return there ? error : EFAULT;
}

// Calls copy(at, n) for the program's memory of `n` bytes from the `skip`th on, piece by piece.
template <typename Copy>
bool IovSpan::each_piece(int touch, std::size_t skip, std::size_t n, Copy copy) const {
    return fault::guard([&] {
        std::size_t left = n;
        for (std::size_t i = 0; i < count && left > 0; ++i) {
            const std::size_t size = iov[i].iov_len;
            const std::size_t passed = std::min(skip, size);
            skip -= passed;
            const std::size_t part = std::min(size - passed, left);
            if (part == 0) continue;
            auto* const at = static_cast<std::byte*>(iov[i].iov_base) + passed;
            const fault::Touch touching(touch, at, part);
            copy(at, part);
            left -= part;
        }
    });
}

bool IovSpan::gather(std::size_t skip, Bytes to) const {
    std::byte* next = to.data();
    return each_piece(0, skip, to.size(), [&next](const std::byte* at, std::size_t n) {
        copy_short(next, at, n);
        next += n;
    });
}

bool IovSpan::scatter(std::size_t skip, ConstBytes from) const {
    const std::byte* next = from.data();
    return each_piece(1, skip, from.size(), [&next](std::byte* at, std::size_t n) {
        copy_short(at, next, n);
        next += n;
    });
}

int no_pipe(int flags) noexcept {
    // (On the kernel's TCP a thread goes on sending until the process is gone.)
    const bool is_silent = (flags & MSG_NOSIGNAL) != 0 || runtime::ends_elsewhere();
    if (!is_silent) pthread_kill(pthread_self(), SIGPIPE);
    return no(EPIPE);
}

}  // namespace xsock::sockets
