// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The fault guard. The handler runs on the thread that faulted, at the faulting instruction, and
// uses only what is safe there: thread-local storage of the initial-exec model (never allocated
// late), siglongjmp() and sigaction().
#include "base/fault.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <utility>

#include "base/assert.hpp"
#include "base/once.hpp"
#include "base/shared_range.hpp"

namespace xsock::fault {

[[gnu::tls_model("initial-exec")]] thread_local constinit Range touched_ranges[kSlots];

namespace {

struct Guard {
    sigjmp_buf back;
    Guard* outer;
    Range outer_ranges[kSlots];
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

constexpr std::size_t index_of(int signal) noexcept { return signal == SIGSEGV ? 0 : 1; }

// An action that one of our handlers stands in front of. Each has a handler function of its own,
// which is the same as the action but for the faults that are ours. So it does not matter what the
// program does with the functions that sigaction() returns to it: one that it calls, or restores
// later, means the action in whose place it got it.
struct Before {
    struct sigaction action = {};     // written before its handler is installed
    std::atomic<bool> spent[2] = {};  // SA_RESETHAND: it was called; in the order of kSignals
};

// Of more than there is room for, the newest takes the place of the one before it.
constexpr std::size_t kMostActions = 16;
constinit Before actions[kMostActions];
constinit std::size_t action_count = 0;  // written with `installing`
constinit std::atomic<bool> installing{false};

// Raised by an instruction, so that it comes again when the handler returns. Others come from
// kill() and the like, or tell of a memory error found in passing.
bool is_synchronous(const siginfo_t& info) noexcept {
    return info.si_code > 0 && !(info.si_signo == SIGBUS && info.si_code == BUS_MCEERR_AO);
}

// Not where the machine has lost what was in the page.
bool may_be_repaired(const siginfo_t& info) noexcept {
    return is_synchronous(info) && !(info.si_signo == SIGBUS && info.si_code == BUS_MCEERR_AR);
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
void pass_on(Before& before, int signal, siginfo_t* info, void* context) noexcept {
    const struct sigaction action = before.action;
    const bool one_time = (action.sa_flags & SA_RESETHAND) != 0;
    const bool is_spent = one_time && before.spent[index_of(signal)].exchange(true);
    const bool with_info = (action.sa_flags & SA_SIGINFO) != 0;
    const bool is_default = is_spent || (!with_info && action.sa_handler == SIG_DFL);
    const bool is_ignored = !is_spent && !with_info && action.sa_handler == SIG_IGN;

    if (is_ignored && !is_synchronous(*info)) return;
    if (is_default || is_ignored) {  // the kernel lets no program ignore a fault it raises
        struct sigaction die = {};
        die.sa_handler = SIG_DFL;
        sigaction(signal, &die, nullptr);
        if (!is_synchronous(*info)) raise(signal);
        return;  // to the instruction, which faults again
    }

    sigset_t blocked = action.sa_mask;
    if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&blocked, signal);
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, &blocked, &mask);
    if (with_info) {
        action.sa_sigaction(signal, info, context);
    } else {
        action.sa_handler(signal);
    }
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

void handle(std::size_t number, int signal, siginfo_t* info, void* context) noexcept {
    if (innermost != nullptr && is_synchronous(*info)) {
        for (const Range& range : touched_ranges) {
            if (contains(range, *info)) siglongjmp(innermost->back, 1);
        }
    }
    if (may_be_repaired(*info) &&
        SharedRange::replace(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
        return;
    }
    const int saved_errno = errno;
    pass_on(actions[number], signal, info, context);
    errno = saved_errno;
}

template <std::size_t kNumber>
void on_fault(int signal, siginfo_t* info, void* context) {
    handle(kNumber, signal, info, context);
}

using Handler = void (*)(int, siginfo_t*, void*);
template <std::size_t... kNumbers>
constexpr std::array<Handler, sizeof...(kNumbers)> make_handlers(std::index_sequence<kNumbers...>) {
    return {on_fault<kNumbers>...};
}
constexpr auto kHandlers = make_handlers(std::make_index_sequence<kMostActions>());

bool is_ours(const struct sigaction& action) noexcept {
    return (action.sa_flags & SA_SIGINFO) != 0 &&
           std::find(kHandlers.begin(), kHandlers.end(), action.sa_sigaction) != kHandlers.end();
}

bool is_same(const struct sigaction& a, const struct sigaction& b) noexcept {
    if (a.sa_flags != b.sa_flags || a.sa_handler != b.sa_handler) return false;
    for (int signal = 1; signal < NSIG; ++signal) {
        if (sigismember(&a.sa_mask, signal) != sigismember(&b.sa_mask, signal)) return false;
    }
    return true;
}

// Which of kHandlers is to stand in front of `action`.
std::size_t number_for(const struct sigaction& action) noexcept {
    std::size_t at = 0;
    while (at < action_count && !is_same(actions[at].action, action)) ++at;
    if (at < action_count) return at;
    if (at < kMostActions) {
        ++action_count;
    } else {
        --at;
    }
    actions[at].action = action;
    return at;
}

// False: ours is there already.
bool install_for(int signal) noexcept {
    struct sigaction before = {};
    XSOCK_ASSERT(sigaction(signal, nullptr, &before) == 0);
    if (is_ours(before)) return false;
    const std::size_t number = number_for(before);
    actions[number].spent[index_of(signal)].store(false);
    struct sigaction ours = {};
    ours.sa_sigaction = kHandlers[number];
    // NODEFER: the jump out has no mask to restore, see above. ONSTACK and RESTART: as the
    // handler behind us would have it.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | (before.sa_flags & SA_RESTART);
    sigemptyset(&ours.sa_mask);
    XSOCK_ASSERT(sigaction(signal, &ours, nullptr) == 0);
    return true;
}

bool install_all() noexcept {
    bool installed = false;
    for (const int signal : kSignals) installed |= install_for(signal);
    return installed;
}

void restore(const Guard& guard) noexcept {
    innermost = guard.outer;
    for (int slot = 0; slot < kSlots; ++slot) touched_ranges[slot] = guard.outer_ranges[slot];
}

}  // namespace

bool install() noexcept {
    static constinit Once<bool> first;
    first.get(install_all);
    // Another thread is at it, or was when this process was forked: then ours is there.
    if (installing.exchange(true, std::memory_order_acquire)) return false;
    const bool replaced = install_all();
    installing.store(false, std::memory_order_release);
    return replaced;
}

bool guarded(void (*body)(void*), void* argument) noexcept {
    Guard guard;
    guard.outer = innermost;
    for (int slot = 0; slot < kSlots; ++slot) guard.outer_ranges[slot] = touched_ranges[slot];
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
