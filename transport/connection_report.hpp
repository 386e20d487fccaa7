// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is told of a connection: log lines of its start and its end, its row in `xsock stat`, and
// QpInfo. Called by the thread that polls it.
#pragma once

#include <string>

#include "ddp_user/connection.hpp"
#include "transport/stats.hpp"

namespace xsock {

/// One log line: it is established.
void report_start(const ddp::Connection& connection, const char* peer);

/// One log line with a code: why it has ended. @return the same in words; empty: in good order
std::string report_end(const ddp::Connection& connection, const char* peer);

/// What `xsock stat` shows besides the counters, names and texts.
StatsDescription describe(const ddp::Connection& connection);

/// All but the byte counters and the text.
QpInfo info_of(const ddp::Connection& connection);

}  // namespace xsock
