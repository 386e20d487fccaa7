// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What /proc/self/fdinfo tells of an epoll instance: who is in it. Asked once, when a set is made.
#pragma once

#include <cstddef>
#include <optional>

namespace xsock::readiness {

/// How many descriptors are registered in the epoll instance behind `epfd`; nothing without /proc.
std::optional<std::size_t> count_registered(int epfd) noexcept;

/// Whether another epoll instance of this process has `epfd` registered; nothing without /proc.
std::optional<bool> is_nested(int epfd) noexcept;

}  // namespace xsock::readiness
