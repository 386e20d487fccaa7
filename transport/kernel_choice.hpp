// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What settings and attributes say of the kernel module for a connection, and what came of it.
#pragma once

#include "base/device.hpp"
#include "base/kernel_reason.hpp"
#include "base/result.hpp"
#include "transport/config.hpp"

namespace xsock {

class KernelDdp;

/// Of one connection. The poller's.
struct KernelChoice {
    bool required = false;  ///< a connection that stays at user level fails
    bool in_order = true;   ///< nothing is placed behind a hole
    /// Why the module does not place. `none` before start-up has ended: it may be asked.
    kernel::Reason why_not = kernel::Reason::off;

    /// Nothing is known against it.
    [[nodiscard]] bool possible() const noexcept { return why_not == kernel::Reason::none; }
};

/// Which of settings and attributes counts.
[[nodiscard]] KernelMode kernel_mode(const ConnectAttr& attr,
                                     const TransportConfig& settings) noexcept;

/// Before anything is known of the peer. `module` may be null: there is none. EOPNOTSUPP, or what
/// keeps it from being used (ENOENT, EACCES, EPROTO): the module is required, and cannot be used;
/// one log line says so.
[[nodiscard]] Result<KernelChoice> kernel_choice(const ConnectAttr& attr, Api api,
                                                 const TransportConfig& settings, KernelDdp* module,
                                                 Time now);

}  // namespace xsock
