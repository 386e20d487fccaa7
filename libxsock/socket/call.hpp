// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a call of the program brings along: its memory, its flags, how it waits and what it answers.
// Its own thread.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/bytes.hpp"
#include "base/poll_group.hpp"
#include "transport/at_rest.hpp"
#include "transport/clock.hpp"
#include "transport/fork.hpp"

namespace xsock::sockets {

constexpr std::uint32_t kReadable = EPOLLIN | EPOLLRDNORM;
constexpr std::uint32_t kWritable = EPOLLOUT | EPOLLWRNORM;
constexpr std::uint32_t kEverything = kReadable | kWritable | EPOLLRDHUP | EPOLLHUP | EPOLLERR;

/// Bytes to send or room to receive, as a call names them.
struct IovSpan {
    const iovec* iov = nullptr;
    std::size_t count = 0;
    std::size_t bytes = 0;  ///< all together

    /// 0; EMSGSIZE: too many pieces; EINVAL: more than SSIZE_MAX bytes; EFAULT: no memory there.
    int assign(const msghdr& message) noexcept;
    /// Fills `to` with the bytes from the `skip`th on. False: the program's memory is not there.
    /// @pre there are as many
    bool gather(std::size_t skip, Bytes to) const;
    /// Stores `from` at the `skip`th byte and behind. False: as above. @pre there is room for it
    bool scatter(std::size_t skip, ConstBytes from) const;

  private:
    template <typename Copy>
    bool each_piece(int touch, std::size_t skip, std::size_t n, Copy copy) const;
};

/// How a call that sends or receives goes about it.
struct CallMode {
    int flags = 0;         ///< MSG_*
    bool blocking = true;  ///< neither MSG_DONTWAIT nor O_NONBLOCK
    Time timeout = 0;      ///< of a blocking one, ns; 0: none
};

/// Of a call that waits several times.
class TimeLimit {
  public:
    explicit TimeLimit(Time timeout) noexcept
        : until_(timeout != 0 ? time_after(monotonic_now(), timeout) : kNever) {}
    /// For CallMode::timeout; at least 1 ns where there is one.
    [[nodiscard]] Time left() const noexcept {
        if (until_ == kNever) return 0;
        const Time now = monotonic_now();
        return until_ > now ? until_ - now : 1;
    }

  private:
    Time until_;
};

/// The answer of a call: -1 with errno.
inline int no(int error) noexcept {
    errno = error;
    return -1;
}

/// Of a send where nothing can be sent any more: EPIPE, with SIGPIPE unless MSG_NOSIGNAL is there
/// or another thread has called exit().
int no_pipe(int flags) noexcept;

/// Polls, then sleeps, until `done()`, or for `timeout` (0: without limit). `interrupted` in a
/// child that a signal handler has forked meanwhile: what the caller waited for is the parent's,
/// and any lock of it may be taken for good.
/// `timeout` at once in a handler that interrupted poll(), select() or epoll_wait().
template <typename F>
PollGroup::Waited wait(PollGroup& progress, const F& done, Time timeout) {
    if (leads_below()) {
        progress.try_poll_thoroughly();
        return done() ? PollGroup::Waited::done : PollGroup::Waited::timeout;
    }
    const std::uint32_t generation = process_generation();
    const Time deadline = timeout != 0 ? time_after(monotonic_now(), timeout) : kNever;
    const auto waited = progress.wait_interruptibly(std::cref(done), deadline, timeout == 0);
    raise_deferred();  // of a call that goes on: it may wait again without going to sleep
    return process_generation() == generation ? waited : PollGroup::Waited::interrupted;
}
/// -1 with the errno for a wait that did not end well.
inline int fail_wait(PollGroup::Waited why, int on_timeout) noexcept {
    return no(why == PollGroup::Waited::interrupted ? EINTR : on_timeout);
}

}  // namespace xsock::sockets
