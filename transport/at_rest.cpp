// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/at_rest.hpp"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "transport/fork.hpp"

namespace xsock {
namespace {

std::atomic<RestHook> rest_hook{nullptr};

int change(int state) noexcept {
    const RestHook hook = rest_hook.load(std::memory_order_acquire);
    return hook != nullptr ? hook(state) : 0;
}

// Initial-exec: found without a call, and without memory in a handler. Of a forked child the parent
// leads nothing.
[[gnu::tls_model("initial-exec")]] thread_local constinit bool leads = false;
[[gnu::tls_model("initial-exec")]] thread_local constinit std::uint32_t leads_generation = 0;
[[gnu::tls_model("initial-exec")]] thread_local constinit f_owner_ex deferred{};

void raise_now(const f_owner_ex& owner) noexcept {
    const int saved = errno;
    switch (owner.type) {
        case F_OWNER_TID:
            syscall(SYS_tkill, owner.pid, SIGURG);
            break;
        case F_OWNER_PID:
            kill(owner.pid, SIGURG);
            break;
        case F_OWNER_PGRP:
            kill(-owner.pid, SIGURG);
            break;
        default:
            break;
    }
    errno = saved;
}

}  // namespace

[[gnu::tls_model("initial-exec")]] thread_local constinit bool urgent_is_deferred = false;

void set_rest_hook(RestHook hook) noexcept { rest_hook.store(hook, std::memory_order_release); }

AtRest::AtRest() noexcept : before_(change(kRestBegin)) {}
AtRest::~AtRest() { change(before_); }

AtRestAsLeader::AtRestAsLeader() noexcept {
    leads_generation = process_generation();
    leads = true;
}
AtRestAsLeader::~AtRestAsLeader() { leads = false; }

bool leads_below() noexcept { return leads && leads_generation == process_generation(); }

void raise_urgent(const f_owner_ex& owner) noexcept {
    if (change(kRestAsk) == 0) return raise_now(owner);
    const bool another = deferred.type != owner.type || deferred.pid != owner.pid;
    if (urgent_is_deferred && another) raise_now(deferred);  // (rare: its handler may be refused)
    deferred = owner;
    urgent_is_deferred = true;
}

void raise_deferred_slow() noexcept {
    urgent_is_deferred = false;
    const f_owner_ex owner = deferred;
    const AtRest rest;
    raise_now(owner);
}

}  // namespace xsock
