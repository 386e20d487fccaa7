// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/signal_blocker.hpp"

#include <pthread.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <utility>

#include "transport/at_rest.hpp"

namespace xsock {

// The C library keeps its own to itself.
sigset_t signals_from_outside() noexcept {
    sigset_t set;
    sigfillset(&set);
    for (const int raised : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
        sigdelset(&set, raised);
    }
    return set;
}

void SignalBlocker::hold() noexcept {
    if (!held_) {
        const sigset_t set = signals_from_outside();
        held_ = pthread_sigmask(SIG_BLOCK, &set, &before_) == 0;
    }
    raise_deferred();
}

bool SignalBlocker::is_pending() const noexcept {
    sigset_t pending;
    if (!held_ || sigpending(&pending) != 0) return false;
    for (int signal = 1; signal < NSIG; ++signal) {
        if (sigismember(&pending, signal) == 1 && sigismember(&before_, signal) != 1) return true;
    }
    return false;
}

bool SignalBlocker::handle_pending() noexcept {
    raise_deferred();
    if (!held_) return std::exchange(noted_, false);
    const int saved = errno;
    bool any = false, ends = false;
    sigset_t pending;
    if (sigpending(&pending) == 0) {
        for (int signal = 1; signal < NSIG && !ends; ++signal) {
            if (sigismember(&pending, signal) != 1 || sigismember(&before_, signal) == 1) continue;
            any = true;
            struct sigaction action {};
            if (sigaction(signal, nullptr, &action) != 0) continue;
            const bool siginfo = (action.sa_flags & SA_SIGINFO) != 0;
            if (!siginfo && (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) {
                continue;  // stops, kills or does nothing, but interrupts no call
            }
            ends = !restart_ || (action.sa_flags & SA_RESTART) == 0;
        }
    }
    if (any) {
        unblock();
        if (!ends) hold();
    }
    errno = saved;
    return ends;
}

// Also what a call that got what it waited for needs; whether a signal would have ended it is not
// asked then.
void SignalBlocker::unblock() noexcept {
    raise_deferred();
    if (!held_) return;
    held_ = false;
    const AtRest rest;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int make_signal_descriptor() noexcept {
    const sigset_t set = signals_from_outside();
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace xsock
