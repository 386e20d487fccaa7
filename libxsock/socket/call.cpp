// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/call.hpp"

#include <algorithm>
#include <climits>
#include <cstring>

#include "base/fault.hpp"

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

bool IovSpan::gather(std::byte* to) const {
    return fault::guard([&] {
        for (std::size_t i = 0; i < count; ++i) {
            const iovec& piece = iov[i];
            if (piece.iov_len == 0) continue;
            const fault::Touch reading(0, piece.iov_base, piece.iov_len);
            std::memcpy(to, piece.iov_base, piece.iov_len);
            to += piece.iov_len;
        }
    });
}

bool IovSpan::scatter(const std::byte* from, std::size_t n) const {
    return fault::guard([&] {
        for (std::size_t i = 0; i < count && n > 0; ++i) {
            const std::size_t part = std::min(iov[i].iov_len, n);
            if (part == 0) continue;
            const fault::Touch writing(1, iov[i].iov_base, part);
            std::memcpy(iov[i].iov_base, from, part);
            from += part;
            n -= part;
        }
    });
}

bool IovSpan::gather(std::size_t skip, Bytes to) const {
    return fault::guard([&] {
        Bytes left = to;
        for (std::size_t i = 0; i < count && !left.empty(); ++i) {
            const std::size_t size = iov[i].iov_len;
            const std::size_t passed = std::min(skip, size);
            skip -= passed;
            const std::size_t part = std::min(size - passed, left.size());
            if (part == 0) continue;
            const auto* const from = static_cast<const std::byte*>(iov[i].iov_base) + passed;
            const fault::Touch reading(0, from, part);
            copy_short(left.data(), from, part);
            left = left.subspan(part);
        }
    });
}

bool IovSpan::scatter(std::size_t skip, ConstBytes from) const {
    return fault::guard([&] {
        ConstBytes left = from;
        for (std::size_t i = 0; i < count && !left.empty(); ++i) {
            const std::size_t size = iov[i].iov_len;
            const std::size_t passed = std::min(skip, size);
            skip -= passed;
            const std::size_t part = std::min(size - passed, left.size());
            if (part == 0) continue;
            auto* const to = static_cast<std::byte*>(iov[i].iov_base) + passed;
            const fault::Touch writing(1, to, part);
            copy_short(to, left.data(), part);
            left = left.subspan(part);
        }
    });
}

}  // namespace xsock::sockets
