// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/sock/key.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "include/xsock/iwarp.h"

namespace xsock::sock {

PeerLook look_at_peer(int fd) noexcept {
    char seen[MPA_KEY_OCTETS];
    const ssize_t n = recv(fd, seen, sizeof seen, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0) {
        const bool nothing = errno == EAGAIN || errno == EINTR;
        return {nothing ? PeerLook::Kind::silent : PeerLook::Kind::failed, 0};
    }
    const auto octets = static_cast<std::size_t>(n);
    if (n == 0) return {PeerLook::Kind::finished, 0};
    if (std::memcmp(seen, MPA_KEY_REQUEST, octets) != 0) return {PeerLook::Kind::other, octets};
    if (octets == sizeof seen) return {PeerLook::Kind::mpa, octets};
    pollfd p{fd, POLLRDHUP, 0};
    if (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
        // The end may have come together with the octets that were missing a moment ago.
        const ssize_t all = recv(fd, seen, sizeof seen, MSG_PEEK | MSG_DONTWAIT);
        const bool whole = all == static_cast<ssize_t>(sizeof seen) &&
                           std::memcmp(seen, MPA_KEY_REQUEST, sizeof seen) == 0;
        return {whole ? PeerLook::Kind::mpa : PeerLook::Kind::finished, octets};
    }
    return {PeerLook::Kind::beginning, octets};
}

}  // namespace xsock::sock
