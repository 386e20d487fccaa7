// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/fault_handler.hpp"

#include <atomic>

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

}  // namespace xsock
