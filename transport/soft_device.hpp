// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The software Device: iWARP over kernel TCP in this process (base/device.hpp).
#pragma once

#include <memory>

#include "base/device.hpp"
#include "transport/config.hpp"

namespace xsock {

/// Descriptors and staging memory are made here; threads only with the first connection.
Result<std::unique_ptr<Device>> make_soft_device(const TransportConfig& config);

/// Connections go on while no caller polls, whatever TransportConfig::progress says.
void need_soft_threads(Device& device);

/// Process exit: ends all connections in good order, and lets those that drain go on for at most
/// `limit` nanoseconds, streams for their linger time if that is longer. Then none but byte streams
/// uses the program's memory, which later exit handlers may free; listeners accept no more.
void drain_soft_device(Device& device, Time limit);
/// exit() was called by a signal handler that interrupted this thread in a poll cycle: the process
/// ends without draining.
bool soft_device_interrupted(const Device& device) noexcept;
/// Sends what is queued, for at most `limit` nanoseconds, of streams for their linger time if that
/// is longer, and ends nothing but the sending half of streams.
void flush_soft_device(Device& device, Time limit);

}  // namespace xsock
