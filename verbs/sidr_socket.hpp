// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The UDP sockets of RDMA_PS_UDP: a server's, which answers from the address that it was asked at,
// and a client's. With the engine's mutex held.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "verbs/sidr.hpp"

namespace xsock::verbs {

/// A server's. Its listener has it, and each request that has no answer yet: the program may answer
/// when its listener is gone.
class SidrSocket {
  public:
    struct Received {
        sockaddr_storage peer{}, own{};  ///< `own`: where it was sent to, with the socket's port
        /// One octet more than a request has: what is longer is none.
        std::array<std::byte, kSidrRequestBytes + 1> memory;
        std::size_t size = 0;
        [[nodiscard]] ConstBytes octets() const noexcept { return ConstBytes(memory).first(size); }
    };

    /// @param at a port of 0: the kernel chooses
    static Result<std::shared_ptr<SidrSocket>> open(const sockaddr& at, bool v6_only);
    SidrSocket() = default;
    ~SidrSocket();
    SidrSocket(const SidrSocket&) = delete;
    SidrSocket& operator=(const SidrSocket&) = delete;

    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] const sockaddr_storage& bound() const noexcept { return bound_; }
    /// The next datagram; of one that was sent to many hosts `size` is 0.
    /// @return false: none is there
    bool receive(Received& to) noexcept;
    /// In a forked child.
    void close_inherited() noexcept;
    /// What is lost is lost: it is asked for again.
    void send(ConstBytes octets, const sockaddr_storage& peer,
              const sockaddr_storage& own) noexcept;

  private:
    int fd_ = -1;
    sockaddr_storage bound_{};
};

/// A client's, connected: what others send does not come in. -1 with errno.
///
/// @param from its port may be 0; AF_UNSPEC: any address
/// @param tos -1: the system's
int open_sidr_client(const sockaddr& to, const sockaddr& from, int tos) noexcept;

}  // namespace xsock::verbs
