// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The end of a process: what was queued goes.
#include <poll.h>

#include <algorithm>

#include "transport/clock.hpp"
#include "transport/progress.hpp"

namespace xsock {

template <typename Busy>
void Progress::poll_while_any(Busy busy) {
    for (;;) {
        bool any = false;
        locked([&](PollCycle& cycle) {
            run_cycle(cycle);
            const Time now = monotonic_now();
            any = poll_set_.any_of([&](const Pollable& item) { return busy(item, now); });
        });
        if (!any) return;
        pollfd ready{epoll_fd(), POLLIN, 0};
        ::poll(&ready, 1, 1);
    }
}

void Progress::flush(Time begin, Time limit) {
    poll_while_any([&](const Pollable& item, Time now) {
        return item.unsent() && now < time_after(begin, std::max(limit, item.exit_limit()));
    });
}

void Progress::tell_all(void (Pollable::*what)(PollCycle&)) {
    locked([&](PollCycle& cycle) {
        for (const auto& item : poll_set_.items()) {
            call(*item, cycle, [&] { (*item.*what)(cycle); });
        }
    });
}

void Progress::begin_exit() { tell_all(&Pollable::on_exit); }

void Progress::drain(Time begin, Time limit) {
    const auto busy = [&](const Pollable& item, Time now) {
        return item.draining() && now < time_after(begin, std::max(limit, item.exit_limit()));
    };
    bool any = false;
    locked([&](PollCycle&) {
        const Time now = monotonic_now();
        any = poll_set_.any_of([&](const Pollable& item) { return busy(item, now); });
    });
    if (any) poll_while_any(busy);
}

// Other threads may poll on while the program's own exit handlers free what it uses.
void Progress::end_exit() { tell_all(&Pollable::on_exit_limit); }

}  // namespace xsock
