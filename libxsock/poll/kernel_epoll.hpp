// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The kernel's half of an epoll set: plain members, DDPMODE sockets while they are kernel-ready,
// and descriptors of our own among them, which the program is never shown. Calls one at a time, but
// for wake_waiters().
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <vector>

#include "libxsock/poll/eventpoll_info.hpp"

namespace xsock::readiness {

class KernelEpoll {
  public:
    /// `epfd`, a number of our own for the epoll instance, is closed at the end. `members`: at most
    /// so many are registered there.
    KernelEpoll(int epfd, std::size_t members) noexcept : epfd_(epfd), members_(members) {}
    ~KernelEpoll();
    KernelEpoll(const KernelEpoll&) = delete;
    KernelEpoll& operator=(const KernelEpoll&) = delete;

    [[nodiscard]] int fd() const noexcept { return epfd_; }
    /// Nothing is registered, so there is nothing to be asked.
    [[nodiscard]] bool empty() const noexcept { return members_ == 0; }

    // -- epoll_ctl(); 0 or a negative errno --

    int add(int fd, const epoll_event& event) noexcept;
    int modify(int fd, const epoll_event& event) noexcept;
    int remove(int fd) noexcept;
    /// Would add() succeed?
    int probe(int fd) noexcept;
    /// Adds a descriptor of our own, readable when something is ready that the kernel does not
    /// know. Errors as of epoll_ctl().
    int add_internal(int fd) noexcept;

    /// The registrations of the socket behind `fd` that are the program's. Counts members exactly,
    /// for calls that did not come through the overlay.
    std::vector<Registration> registrations(int fd);

    /// epoll_wait() that does not block, without the events of our own descriptors. A negative
    /// errno on failure.
    int collect(epoll_event* out, int room) noexcept;
    /// Removes what is not for the program from an answer of the kernel's. @return how many are
    /// left
    static int filter_internal(epoll_event* events, int count) noexcept;

    /// Wakes the threads that sleep on the kernel's set alone, from before it was ours: each gets
    /// an event that filter_internal() removes. When it returns none is asleep there, as far as can
    /// be seen. Any thread.
    void wake_waiters();

  private:
    const int epfd_;
    std::size_t members_;
};

}  // namespace xsock::readiness
