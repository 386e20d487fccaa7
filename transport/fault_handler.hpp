// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The handler behind guarded copies (base/fault.hpp), and programs that install one of their own
// for SIGSEGV or SIGBUS after ours. sigaction() is not interposed.
#pragma once

namespace xsock {

/// Puts ours in front again if it was replaced; says so in the log, once. When a connection begins,
/// and, where there are background threads, once a second as long as something moves.
void keep_fault_handler() noexcept;
/// The same where it is called often, as a region is registered: once in a tick of the kernel's
/// clock (1 to 10 ms).
void keep_fault_handler_by_tick() noexcept;

}  // namespace xsock
