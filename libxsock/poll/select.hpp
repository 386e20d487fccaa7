// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// select(), made of poll().
#pragma once

#include <signal.h>
#include <sys/select.h>

#include <span>

#include "libxsock/poll/handle.hpp"
#include "transport/clock.hpp"

namespace xsock::readiness {

/// As pselect(): bits set, 0 at the deadline, or a negative errno; then the sets are as they were.
/// Each set may be null. `handles` has an element for each descriptor below its size.
int select(std::span<const Handle> handles, fd_set* readable, fd_set* writable, fd_set* exceptional,
           Time deadline, const sigset_t* mask);

}  // namespace xsock::readiness
