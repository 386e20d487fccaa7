// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the peer of a TCP connection speaks: the first bytes that it has sent, peeked at without
// taking them. An MPA Request begins with a key of 16 bytes (RFC 5044 §7.1.1) that no other
// protocol begins with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xsock::sockets {

struct PeerPeek {
    enum class Kind : std::uint8_t {
        silent,     ///< nothing has come
        beginning,  ///< `bytes` of the key, and no more
        mpa,        ///< the whole key
        other,      ///< something else
        finished,   ///< the end of the stream, behind less than the key
        failed,     ///< an error waits
    };
    Kind kind = Kind::silent;
    std::size_t bytes = 0;
};

/// Any thread; does not block, takes nothing.
[[nodiscard]] PeerPeek peek_peer(int fd) noexcept;

}  // namespace xsock::sockets
