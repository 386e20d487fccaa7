// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What signals do to a blocking socket call that sleeps in the library instead of in the kernel: a
// handler ends the call with EINTR, unless it has SA_RESTART and the call has no time limit
// (signal(7)). poll() alone does not tell which handler ran. So signals are held back while the
// call sleeps, a signalfd in the poll set says that one has come, and before it is let in its
// disposition is read.
#pragma once

#include <signal.h>

namespace xsock {

/// All but those that an instruction of a thread raises (a fault, a system call that a filter
/// traps), which must not be held back: the kernel kills a process that blocks what it has to
/// deliver.
sigset_t signals_from_outside() noexcept;

/// One blocking call of one thread. Not moved between threads.
class SignalBlocker {
  public:
    /// `restart`: the call goes on after handlers with SA_RESTART.
    explicit SignalBlocker(bool restart) noexcept : restart_(restart) {}
    ~SignalBlocker() { unblock(); }
    SignalBlocker(const SignalBlocker&) = delete;
    SignalBlocker& operator=(const SignalBlocker&) = delete;

    /// Holds signals_from_outside() back from now on.
    void hold() noexcept;
    /// One that is held back waits, and is not one that the caller blocks itself.
    [[nodiscard]] bool is_pending() const noexcept;
    /// Says that a system call was interrupted although hold() was not possible.
    void note() noexcept { noted_ = !held_; }
    /// Handles those that are pending, and holds back again what comes after. True when one of them
    /// ends the call: then none is held back any more.
    bool handle_pending() noexcept;
    /// Holds none back any more.
    void unblock() noexcept;

  private:
    const bool restart_;
    bool held_ = false;
    bool noted_ = false;
    sigset_t before_{};
};

/// A descriptor that polls readable while a signal is pending that SignalBlocker::hold() holds
/// back. -1 with errno.
int make_signal_descriptor() noexcept;

}  // namespace xsock
