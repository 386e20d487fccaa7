// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The handler behind guarded copies (base/fault.hpp), and programs that install one of their own
// for SIGSEGV or SIGBUS after ours. sigaction() is not interposed.
#pragma once

namespace xsock {

/// Puts ours in front again if it was replaced; says so in the log, once. When a connection begins,
/// a region is registered, and once a second where there are background threads.
void keep_fault_handler() noexcept;

}  // namespace xsock
