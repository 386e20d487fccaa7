// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The fault guard. The handler runs on the thread that faulted, at the faulting instruction, and
// uses only what is safe there: thread-local storage of the initial-exec model (never allocated
// late), siglongjmp() and sigaction().
#include "base/fault.hpp"

#include <cerrno>
#include <csetjmp>
#include <csignal>

#include "base/assert.hpp"

namespace xsock::fault {

[[gnu::tls_model("initial-exec")]] thread_local constinit Range touched_ranges[2];

namespace {

struct Guard {
    sigjmp_buf back;
    Guard* outer;
    Range outer_ranges[2];
};

[[gnu::tls_model("initial-exec")]] thread_local constinit Guard* innermost = nullptr;

// Without the signal mask, whose saving is a system call: on_fault() runs with the mask of the
// code it interrupts. TSan runs it from a handler of its own that blocks all signals.
#if defined(__SANITIZE_THREAD__)
#define XSOCK_FAULT_SAVE_MASK 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define XSOCK_FAULT_SAVE_MASK 1
#endif
#endif
#ifndef XSOCK_FAULT_SAVE_MASK
#define XSOCK_FAULT_SAVE_MASK 0
#endif

constexpr int kSignals[] = {SIGSEGV, SIGBUS};
struct sigaction previous[2];  // in the order of kSignals; written before our handler can run

constexpr std::size_t index_of(int signal) noexcept { return signal == SIGSEGV ? 0 : 1; }

// Raised by an instruction, so that it comes again when the handler returns. Others come from
// kill() and the like, or tell of a memory error found in passing.
bool is_synchronous(const siginfo_t& info) noexcept {
    return info.si_code > 0 && !(info.si_signo == SIGBUS && info.si_code == BUS_MCEERR_AO);
}

bool contains(const Range& range, const siginfo_t& info) noexcept {
    auto address = reinterpret_cast<std::uintptr_t>(info.si_addr);
    std::uintptr_t low = range.low;
#if defined(__s390x__)
    // The hardware names the page only.
    constexpr std::uintptr_t kInPage = 4095;
    address &= ~kInPage;
    low &= ~kInPage;
#elif defined(__x86_64__)
    // No address comes with an access that is not canonical, beyond the 47 bits of user space.
    constexpr int kUserBits = 47;
    if (info.si_code == SI_KERNEL && address == 0) {
        return low != range.high && (range.high - 1) >> kUserBits != 0;
    }
#endif
    return address - low < range.high - low;
}

// What the kernel would have done had we not been there.
void pass_on(int signal, siginfo_t* info, void* context) noexcept {
    struct sigaction& before = previous[index_of(signal)];
    const bool with_info = (before.sa_flags & SA_SIGINFO) != 0;
    const bool is_default = !with_info && before.sa_handler == SIG_DFL;
    const bool is_ignored = !with_info && before.sa_handler == SIG_IGN;

    if (is_ignored && !is_synchronous(*info)) return;
    if (is_default || is_ignored) {  // the kernel lets no program ignore a fault it raises
        struct sigaction die = {};
        die.sa_handler = SIG_DFL;
        sigaction(signal, &die, nullptr);
        if (!is_synchronous(*info)) raise(signal);
        return;  // to the instruction, which faults again
    }

    sigset_t blocked = before.sa_mask;
    if ((before.sa_flags & SA_NODEFER) == 0) sigaddset(&blocked, signal);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, &blocked, &mask);
    const auto handler = before;
    if ((before.sa_flags & SA_RESETHAND) != 0) {
        before = {};
        before.sa_handler = SIG_DFL;
    }
    if (with_info) {
        handler.sa_sigaction(signal, info, context);
    } else {
        handler.sa_handler(signal);
    }
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

void on_fault(int signal, siginfo_t* info, void* context) {
    Guard* const guard = innermost;
    if (guard != nullptr && is_synchronous(*info)) {
        for (const Range& range : touched_ranges) {
            if (contains(range, *info)) siglongjmp(guard->back, 1);
        }
    }
    const int saved_errno = errno;
    pass_on(signal, info, context);
    errno = saved_errno;
}

bool install_once() noexcept {
    for (const int signal : kSignals) {
        struct sigaction& before = previous[index_of(signal)];
        XSOCK_ASSERT(sigaction(signal, nullptr, &before) == 0);
        struct sigaction ours = {};
        ours.sa_sigaction = on_fault;
        // NODEFER: the jump out has no mask to restore, see above. ONSTACK and RESTART: as the
        // handler behind us would have it.
        ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | (before.sa_flags & SA_RESTART);
        sigemptyset(&ours.sa_mask);
        XSOCK_ASSERT(sigaction(signal, &ours, nullptr) == 0);
    }
    return true;
}

void restore(const Guard& guard) noexcept {
    innermost = guard.outer;
    touched_ranges[0] = guard.outer_ranges[0];
    touched_ranges[1] = guard.outer_ranges[1];
}

}  // namespace

void install() noexcept { [[maybe_unused]] static const bool installed = install_once(); }

bool guarded(void (*body)(void*), void* argument) noexcept {
    Guard guard;
    guard.outer = innermost;
    guard.outer_ranges[0] = touched_ranges[0];
    guard.outer_ranges[1] = touched_ranges[1];
    if (sigsetjmp(guard.back, XSOCK_FAULT_SAVE_MASK) != 0) {
        restore(guard);
        return false;
    }
    innermost = &guard;
    body(argument);
    restore(guard);
    return true;
}

}  // namespace xsock::fault
