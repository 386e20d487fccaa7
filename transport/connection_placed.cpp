// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a connection has of the kernel module beside its records: it is bound when start-up has
// ended, and asked what it has placed, for Writes wake no thread. Everything runs in the poller.
#include "transport/connection.hpp"

namespace xsock {

/// False: the module does not place, or not what this connection sends.
bool Connection::bind_module() {
    if (shm_.path == DataPath::shm) {
        kernel_.choice.why_not = kernel::Reason::shared_memory;
    } else {
        kernel_.part->bind(*mpa_, core_.stream(), socket_.fd(), peer().data());
    }
    // Octets may have come before that epoll does not tell of.
    if (kernel_.part->bound()) parts_.progress->call_at_cycle_end(*this);
    return kernel_.part->bound();
}

void Connection::take_placed(PollCycle& cycle) {
    if (!socket_.is_open() || !reads_records()) return;
    receive(cycle);
    transmit(cycle);
    note_movement(cycle);
}

/// Once a second: for `xsock stat`, and for a program that counts Writes.
void Connection::report_placed(PollCycle& cycle) {
    if (kernel_.part->due() > cycle.now()) return;
    kernel_.part->reported(cycle.now());
    take_placed(cycle);
    stats_.placed_early() = kernel_.part->placed_early();
}

}  // namespace xsock
