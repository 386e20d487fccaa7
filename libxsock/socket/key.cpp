// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/key.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "include/xsock/iwarp.h"

namespace xsock::sockets {

PeerPeek peek_peer(int fd) noexcept {
    char seen[MPA_KEY_OCTETS];
    const ssize_t n = recv(fd, seen, sizeof seen, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0) {
        const bool nothing = errno == EAGAIN || errno == EINTR;
        return {nothing ? PeerPeek::Kind::silent : PeerPeek::Kind::failed, 0};
    }
    const auto bytes = static_cast<std::size_t>(n);
    if (n == 0) return {PeerPeek::Kind::finished, 0};
    if (std::memcmp(seen, MPA_KEY_REQUEST, bytes) != 0) return {PeerPeek::Kind::other, bytes};
    if (bytes == sizeof seen) return {PeerPeek::Kind::mpa, bytes};
    pollfd p{fd, POLLRDHUP, 0};
    if (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
        // The end may have come together with the bytes that were missing a moment ago.
        const ssize_t all = recv(fd, seen, sizeof seen, MSG_PEEK | MSG_DONTWAIT);
        const bool whole = all == static_cast<ssize_t>(sizeof seen) &&
                           std::memcmp(seen, MPA_KEY_REQUEST, sizeof seen) == 0;
        return {whole ? PeerPeek::Kind::mpa : PeerPeek::Kind::finished, bytes};
    }
    return {PeerPeek::Kind::beginning, bytes};
}

}  // namespace xsock::sockets
