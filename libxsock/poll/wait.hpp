// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One wait of poll, select or epoll_wait: check, poll, spin, sleep, in this order and no further
// than needed (docs/threading.md). The thread that waits polls the engine itself; when it sleeps,
// it sleeps in one ppoll() that covers the plain descriptors, the engine's progress and the news of
// other threads.
#pragma once

#include <poll.h>
#include <signal.h>

#include <span>

#include "libxsock/poll/waiter.hpp"
#include "transport/clock.hpp"

namespace xsock::readiness {

/// How check() learns about descriptors that the kernel knows.
enum class Kernel : std::uint8_t {
    skip,    ///< not now
    ask,     ///< by a call that does not block
    polled,  ///< from the `revents` that a ppoll() has just left in kernel()
};

/// What a wait is for.
class Target {
  public:
    /// Descriptors for the ppoll() of a sleep and a few places behind them, for the wait's own.
    struct KernelSet {
        std::span<pollfd> fds;  ///< all places
        std::size_t used = 0;   ///< of them filled
    };
    static constexpr std::size_t kMaxProgresses = 64;  ///< that one caller knows
    static constexpr std::size_t kMaxLeads = 8;        ///< and of these, leads
    static constexpr std::size_t kExtraFds = 1 + 2 * kMaxLeads;

    /// @return how many events there are in all; a negative errno if that cannot be said
    virtual int check(Kernel kernel) = 0;
    /// What moves the bytes of those that are waited for, at most kMaxProgresses. May change with
    /// every check().
    virtual std::span<PollGroup* const> progresses() = 0;
    /// Valid until the next check().
    virtual KernelSet kernel() = 0;
    /// Events from now on notify the waiter. check() follows, then perhaps the sleep, then
    /// finish_wait().
    virtual void prepare_wait(Waiter& waiter) = 0;
    /// The thread checks by itself from here on; check() follows in any case.
    virtual void finish_wait(Waiter& waiter) = 0;

  protected:
    ~Target() = default;
};

/// Waits until check() finds something, the deadline (0: not at all; kNever), or a signal.
/// @param mask as for ppoll(); may be null
/// @return check()'s answer; 0 at the deadline; -EINTR
int wait_for(Target& target, Time deadline, const sigset_t* mask);

}  // namespace xsock::readiness
