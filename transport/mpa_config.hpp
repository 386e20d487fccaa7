// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// From the attributes of a connection and the settings of the process to the configuration of its
// MPA stream, and what this build says of itself to other xsocks.
#pragma once

#include "base/device.hpp"
#include "base/implementation.hpp"
#include "mpa/stream.hpp"
#include "transport/config.hpp"

namespace xsock {

/// Name, version and features of this build with those settings, for its extension frames
/// (docs/wire.md).
[[nodiscard]] Implementation own_implementation(const TransportConfig& settings);

/// Copies the private data of `attr`.
[[nodiscard]] mpa::Config mpa_config(const ConnectAttr& attr, mpa::Role role,
                                     const TransportConfig& settings);

}  // namespace xsock
