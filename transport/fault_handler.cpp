// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/fault_handler.hpp"

#include <time.h>

#include <atomic>

#include "base/bytes.hpp"
#include "base/fault.hpp"
#include "transport/log.hpp"

namespace xsock {

void keep_fault_handler() noexcept {
    static std::atomic<bool> told{false};
    if (!fault::install() || told.exchange(true)) return;
    log(LogLevel::warn, "fault-handler",
        "the program has replaced the handler of SIGSEGV or SIGBUS; it is called for its own "
        "faults, behind xsock's");
}

void keep_fault_handler_by_tick() noexcept {
    static std::atomic<Time> last{0};
    timespec tick{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &tick);
    const Time now = static_cast<Time>(tick.tv_sec) * kSecond + static_cast<Time>(tick.tv_nsec);
    if (last.load(std::memory_order_relaxed) == now) return;
    last.store(now, std::memory_order_relaxed);
    keep_fault_handler();
}

}  // namespace xsock
