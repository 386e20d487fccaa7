// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The end of a process: what was queued goes.
#include <poll.h>

#include "transport/clock.hpp"
#include "transport/progress.hpp"

namespace xsock {

void Progress::poll_while_any(bool (Pollable::*is_busy)() const, Time deadline) {
    for (;;) {
        bool busy = false;
        locked([&](PollCycle& cycle) {
            run_cycle(cycle);
            busy = poll_set_.any_of([&](const Pollable& item) { return (item.*is_busy)(); });
        });
        if (!busy || monotonic_now() >= deadline) return;
        pollfd ready{epoll_fd(), POLLIN, 0};
        ::poll(&ready, 1, 1);
    }
}

void Progress::flush(Time deadline) { poll_while_any(&Pollable::unsent, deadline); }

void Progress::drain(Time deadline) {
    bool busy = false;
    locked([&](PollCycle& cycle) {
        for (const auto& item : poll_set_.items()) {
            call(*item, cycle, [&] { item->on_exit(cycle); });
        }
        busy = poll_set_.any_of([](const Pollable& item) { return item.draining(); });
    });
    if (busy && monotonic_now() < deadline) poll_while_any(&Pollable::draining, deadline);
}

}  // namespace xsock
