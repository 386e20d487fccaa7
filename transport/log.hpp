// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The log: silent by default. XSOCK_LOG=error|warn|info|debug[:file]. Each line carries a code that
// docs/troubleshooting.md explains; a code that comes too often is counted instead of written.
// Any thread; never throws, never blocks on more than its own short lock and a write().
#pragma once

#include <cstdint>

namespace xsock {

enum class LogLevel : std::uint8_t { error = 1, warn, info, debug };

/// True when a line of this level would be written (before rate limiting).
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;

/// What holds where XSOCK_LOG is not set. Of effect before the first line and before log_enabled()
/// only. A text that is too long is ignored.
void log_set_default(const char* setting) noexcept;

/// One line: "xsock[pid] warn code: text". `code` has static storage.
void log(LogLevel level, const char* code, const char* format, ...) noexcept
    __attribute__((format(printf, 3, 4)));

/// Around fork(), in parent and child: no other thread is writing a line (transport/fork.cpp).
void log_begin_fork() noexcept;
void log_end_fork() noexcept;
/// In a child for which no fork handler held the lock.
void log_forget_lock() noexcept;

}  // namespace xsock
