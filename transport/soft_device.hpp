// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The software Device: iWARP over kernel TCP in this process (base/device.hpp).
#pragma once

#include <memory>

#include "base/device.hpp"
#include "transport/config.hpp"
#include "transport/connection.hpp"

namespace xsock {

/// Descriptors and staging memory are made here; threads only with the first connection.
Result<std::unique_ptr<Device>> make_soft_device(const TransportConfig& config);

/// A Progress of the device, each in its turn, for an API that polls connections of its own.
Progress& soft_progress(Device& device);
/// A fresh connection without a Qp around it. `parts` says all but its number and the memory table.
std::shared_ptr<Connection> make_soft_connection(Device& device, Connection::Parts parts);
/// The same for what a listening socket takes in (ListenSocket): how many start-ups at once.
std::size_t soft_max_starting(const Device& device);

/// Connections go on while no caller polls, whatever TransportConfig::progress says.
void need_soft_threads(Device& device);

/// Lets connections that drain go on for at most `limit` nanoseconds (process exit).
void drain_soft_device(Device& device, Time limit);
/// Sends what is queued, for at most `limit` nanoseconds, and ends nothing.
void flush_soft_device(Device& device, Time limit);

}  // namespace xsock
