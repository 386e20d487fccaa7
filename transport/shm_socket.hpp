// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The sockets by which links in shared memory are made: local, of datagrams in order, non-blocking,
// with an abstract name, so that nothing is left behind. Any process of the network namespace
// may connect: what protects is the user id at the other end.
//
// All descriptors are close-on-exec, registered as internal, and the caller's. Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "shm/offer.hpp"

namespace xsock::shm_socket {

/// That wait to be accepted, at most.
inline constexpr int kBacklog = 4096;

/// A socket without a name. EMFILE and the like.
Result<int> open() noexcept;
/// A socket that listens under the name of this key. EADDRINUSE; EMFILE and the like.
Result<int> listen_at(const shm::Key& key) noexcept;
/// EAGAIN: none waits.
Result<int> accept_from(int listening) noexcept;
/// A socket connected to that listener. ECONNREFUSED: there is none in this network namespace.
/// EAGAIN: too many wait to be accepted.
Result<int> connect_to(const shm::Key& key) noexcept;

/// The process that has called connect() or listen() at the other end was our effective user then,
/// or one of `users`. The id that stands for all that a user namespace does not know never is.
[[nodiscard]] bool is_peer_permitted(int fd, std::span<const uid_t> users) noexcept;

/// Why there is no shared memory, after what one of these, make_shm_memfd() or ShmMemory::map() has
/// answered.
[[nodiscard]] shm::Reason reason_of(const Error& error) noexcept;

/// One datagram, with a descriptor beside it unless it is -1. EAGAIN, EPIPE and others.
Result<void> send(int fd, ConstBytes datagram, int descriptor = -1) noexcept;

struct Received {
    std::size_t bytes = 0;  ///< what did not fit is lost; 0: the peer has closed its end
    int descriptor = -1;    ///< the only one that came; of several none is kept
};
/// EAGAIN: there is nothing.
Result<Received> receive(int fd, Bytes datagram) noexcept;

}  // namespace xsock::shm_socket
