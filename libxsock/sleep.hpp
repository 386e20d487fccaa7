// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of xsock.h that sleep: cq_wait, ep_wait, accept. They poll and spin in the engine; the
// sleep itself is a poll() of the thin library, where a thread may be cancelled: no lock is held
// then, and no frame of the engine is on the stack. Between the two the call is an object in the
// struct xsock_sleep.
#pragma once

#include <functional>
#include <span>

#include "base/poll_group.hpp"
#include "libxsock/engine/engine_table.h"
#include "transport/clock.hpp"

namespace xsock::api {

/// Waits until `done()`, for as long as `timeout_ms` says from the first call for `sleep` on.
/// @param groups  what moves the bytes that are waited for; at most XSOCK_MAX_THREADS
/// @param done    cheap, free of locks that pollers take
/// @return true: the wait is over, done() or not (see may_wait()); false: sleep.asleep is set, and
///         the answer to the thin library does not matter; its next call comes here again, where
///         `groups` and `done` have no effect
bool wait_outside(xsock_sleep& sleep, std::span<PollGroup* const> groups,
                  std::function<bool()> done, int timeout_ms);

/// After wait_outside(): there is time left to wait again, and this is still the process in which
/// the call began (a signal handler may fork).
[[nodiscard]] bool may_wait(const xsock_sleep& sleep) noexcept;

}  // namespace xsock::api
