// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What signals do to a blocking socket call that sleeps in the library instead of in the kernel: a
// handler ends the call with EINTR, unless it has SA_RESTART and the call has no time limit
// (signal(7)). poll() alone does not tell which handler ran. So signals are held back while the
// call sleeps, a signalfd in the poll set says that one has come, and before it is let in its
// disposition is looked at.
#pragma once

#include <signal.h>

namespace xsock {

/// One blocking call of one thread. Not moved between threads.
class Interrupt {
  public:
    /// `restart`: the call goes on after handlers with SA_RESTART.
    explicit Interrupt(bool restart) noexcept : restart_(restart) {}
    ~Interrupt() { let_in(); }
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;

    /// Holds signals back from now on, but for those that an instruction raises.
    void hold() noexcept;
    /// Says that a system call was interrupted although hold() was not possible.
    void note() noexcept { noted_ = !held_; }
    /// Handles those that are pending, and holds back again what comes after. True when one of them
    /// ends the call: then none is held back any more.
    bool admit() noexcept;
    /// Holds none back any more.
    void let_in() noexcept;

  private:
    const bool restart_;
    bool held_ = false;
    bool noted_ = false;
    sigset_t before_{};
};

/// A descriptor that polls readable while a signal is pending that Interrupt::hold() holds back. -1
/// with errno.
int make_signal_descriptor() noexcept;

}  // namespace xsock
