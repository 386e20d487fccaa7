// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Who is at the other end of a TCP connection: the first octets that it has sent, looked at without
// taking them. An MPA Request begins with a key of 16 octets (RFC 5044 §7.1.1) that no other
// protocol begins with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xsock::sock {

struct PeerLook {
    enum class Kind : std::uint8_t {
        silent,     ///< nothing has come
        beginning,  ///< `octets` of the key, and no more
        mpa,        ///< the whole key
        other,      ///< something else
        finished,   ///< the end of the stream, behind less than the key
        failed,     ///< an error waits
    };
    Kind kind = Kind::silent;
    std::size_t octets = 0;
};

/// Any thread; does not block, takes nothing.
[[nodiscard]] PeerLook look_at_peer(int fd) noexcept;

}  // namespace xsock::sock
