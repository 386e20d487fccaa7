// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is asked of a TCP descriptor that is no connection's, or not yet: those belong to TcpSocket.
// Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace xsock::tcp {

/// ENOTSOCK, EBADF, EPROTOTYPE (not TCP), ENOTCONN.
Result<void> check_connected(int fd);
/// ENOTSOCK, EBADF, EPROTOTYPE, EINVAL (not listening).
Result<void> check_listening(int fd);

Result<void> make_nonblocking(int fd);

/// "127.0.0.1:4711" or "[::1]:4711"; "?" when unknown.
[[nodiscard]] std::string peer_name(int fd);
/// The same of our end.
[[nodiscard]] std::string local_name(int fd);

/// The most bytes that the name of a congestion control may have.
inline constexpr std::size_t kCongestionMost = 15;
/// TCP's congestion control of a connection, or of those that a listening socket accepts. ENOENT:
/// the kernel has none of that name; EACCES: it is not permitted.
Result<void> set_congestion(int fd, std::string_view name);
/// Its name; "" when unknown.
[[nodiscard]] std::string congestion(int fd);

/// SIGURG for the owner that the program has set (fcntl(F_SETOWN)); there may be none.
void signal_owner(int fd) noexcept;

/// SO_ERROR, cleared by asking.
[[nodiscard]] int pending_error(int fd) noexcept;

}  // namespace xsock::tcp
