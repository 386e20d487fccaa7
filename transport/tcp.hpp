// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is asked of a TCP descriptor, whether it is a connection's (TcpSocket) or not. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/ip_address.hpp"
#include "base/result.hpp"

namespace xsock::tcp {

/// ENOTSOCK, EBADF, EPROTOTYPE (not TCP), ENOTCONN.
Result<void> check_connected(int fd);
/// ENOTSOCK, EBADF, EPROTOTYPE, EINVAL (not listening).
Result<void> check_listening(int fd);

Result<void> make_nonblocking(int fd);

/// What a socket is bound or connected to.
struct Address {
    IpEndpoint endpoint;       ///< IpEndpoint{}: unknown
    std::uint16_t family = 0;  ///< AF_INET, or AF_INET6, whose peer may have IPv4
    friend bool operator==(const Address&, const Address&) = default;
};
[[nodiscard]] Address peer_of(int fd) noexcept;
[[nodiscard]] Address local_of(int fd) noexcept;
/// "127.0.0.1:4711", "[::1]:4711" or "[::ffff:127.0.0.1]:4711", as /proc/net has it; "?" when
/// unknown. NUL-terminated, so that a log line or a statistic needs no memory.
using Name = std::array<char, 56>;
[[nodiscard]] Name name_of(const Address& address) noexcept;

/// The most bytes that the name of a congestion control may have.
inline constexpr std::size_t kCongestionMost = 15;
/// TCP's congestion control of a connection, or of those that a listening socket accepts. ENOENT:
/// the kernel has none of that name; EACCES: it is not permitted.
Result<void> set_congestion(int fd, std::string_view name);
/// Its name, NUL-terminated; "" when unknown.
using Congestion = std::array<char, kCongestionMost + 1>;
[[nodiscard]] Congestion congestion(int fd) noexcept;

/// SIGURG for the owner that the program has set (fcntl(F_SETOWN)); there may be none.
void signal_owner(int fd) noexcept;

/// SO_ERROR, cleared by asking.
[[nodiscard]] int pending_error(int fd) noexcept;

}  // namespace xsock::tcp
