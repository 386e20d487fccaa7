// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What /proc/self/fdinfo tells of an epoll instance: its members and their events. Read when a set
// is made, and when a socket that may be in one enters DDPMODE.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace xsock::readiness {

/// How many descriptors are registered in the epoll instance behind `epfd`; nothing without /proc.
std::optional<std::size_t> count_registered(int epfd) noexcept;

/// Whether another epoll instance of this process has `epfd` registered; nothing without /proc.
std::optional<bool> is_nested(int epfd) noexcept;

/// One descriptor in an epoll instance. `event` as it was asked for, EPOLLERR and EPOLLHUP with it;
/// without any event a one-shot registration that has fired.
struct Registration {
    int fd = -1;
    epoll_event event{};
};

/// The registrations of the socket behind `fd` in the epoll instance behind `epfd`, by `fd` and by
/// its other numbers. None without /proc. May throw std::bad_alloc.
std::vector<Registration> registrations_of(int fd, int epfd);

/// The next descriptor above `after` that is an epoll instance with such registrations; -1: none.
/// The engine's own are passed over.
int next_registered(int fd, int after);

/// The other threads of this process that sleep in system calls of their own on one epoll instance.
class KernelWaiters {
  public:
    /// On the instance that has `marker` registered.
    explicit KernelWaiters(int marker) : marker_(marker) {}
    /// Reads /proc. True: some sleep, or did when they were last seen and are on their way out, for
    /// all that can be told. False without /proc. May throw std::bad_alloc.
    bool check();

  private:
    const int marker_;
    std::vector<int> threads_;
};

}  // namespace xsock::readiness
