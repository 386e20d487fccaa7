// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The fault guard. The handler runs on the thread that faulted, at the faulting instruction, and
// uses only what is safe there: thread-local storage of the initial-exec model (never allocated
// late), siglongjmp() and sigaction().
#include "base/fault.hpp"

#include <atomic>
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

// The handlers that ours took the place of, newest last. Of more than there is room for, the newest
// takes the place of the one before it.
struct Chain {
    static constexpr int kMost = 8;
    struct sigaction handlers[kMost] = {};  // one is written before `count` says that it is there
    std::atomic<int> count{0};
};
constinit Chain chains[2];  // in the order of kSignals
constinit std::atomic<bool> installing{false};

constexpr std::size_t index_of(int signal) noexcept { return signal == SIGSEGV ? 0 : 1; }

// A fault that this thread has passed on. A handler that chains to ours calls it with the same
// context, further down the stack than where the handler was called from: the fault goes to the
// next older one then. (A later fault may have its context where one had it that was left by
// siglongjmp(), but then our frame is where it was as well.)
struct PassedOn {
    const void* context = nullptr;
    std::uintptr_t frame = 0;
    int depth = 0;
};
[[gnu::tls_model("initial-exec")]] thread_local constinit PassedOn passed_on;

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
    const auto frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    const bool nested = passed_on.context == context && frame < passed_on.frame;
    const int depth = nested ? passed_on.depth + 1 : 0;
    Chain& chain = chains[index_of(signal)];
    const int at = chain.count.load(std::memory_order_acquire) - 1 - depth;
    struct sigaction none = {};
    none.sa_handler = SIG_DFL;
    struct sigaction& before = at >= 0 ? chain.handlers[at] : none;
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
    const PassedOn outer = passed_on;
    passed_on = {context, frame, depth};
    if (with_info) {
        handler.sa_sigaction(signal, info, context);
    } else {
        handler.sa_handler(signal);
    }
    passed_on = outer;
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

bool is_ours(const struct sigaction& action) noexcept {
    return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_fault;
}

// True: another one was there, and ours was before.
bool install_for(int signal) noexcept {
    struct sigaction before;
    XSOCK_ASSERT(sigaction(signal, nullptr, &before) == 0);
    if (is_ours(before)) return false;
    Chain& chain = chains[index_of(signal)];
    const int count = chain.count.load(std::memory_order_relaxed);
    const int at = count < Chain::kMost ? count : Chain::kMost - 1;
    chain.handlers[at] = before;
    chain.count.store(at + 1, std::memory_order_release);
    struct sigaction ours = {};
    ours.sa_sigaction = on_fault;
    // NODEFER: the jump out has no mask to restore, see above. ONSTACK and RESTART: as the
    // handler behind us would have it.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | (before.sa_flags & SA_RESTART);
    sigemptyset(&ours.sa_mask);
    XSOCK_ASSERT(sigaction(signal, &ours, nullptr) == 0);
    return count != 0;
}

bool install_all() noexcept {
    bool replaced = false;
    for (const int signal : kSignals) replaced |= install_for(signal);
    return replaced;
}

void restore(const Guard& guard) noexcept {
    innermost = guard.outer;
    touched_ranges[0] = guard.outer_ranges[0];
    touched_ranges[1] = guard.outer_ranges[1];
}

}  // namespace

bool install() noexcept {
    [[maybe_unused]] static const bool first = install_all();
    // Another thread is at it, or was when this process was forked: then ours is there.
    if (installing.exchange(true, std::memory_order_acquire)) return false;
    const bool replaced = install_all();
    installing.store(false, std::memory_order_release);
    return replaced;
}

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

bool readable(const std::byte* p, std::size_t n) noexcept {
    constexpr std::size_t kPage = 4096;
    if (n == 0) return true;
    return guard([&] {
        const Touch reading(0, p, n);
        const volatile std::byte* const at = p;
        for (std::size_t i = 0; i < n; i += kPage) static_cast<void>(at[i]);
        static_cast<void>(at[n - 1]);
    });
}

}  // namespace xsock::fault
