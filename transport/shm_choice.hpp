// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What settings and attributes say of shared memory for a connection, and what came of it.
#pragma once

#include "base/device.hpp"
#include "base/result.hpp"
#include "base/shm_reason.hpp"
#include "transport/config.hpp"

namespace xsock {

/// Of one connection. The poller's.
struct ShmChoice {
    bool required = false;  ///< a connection that stays on TCP fails
    DataPath path = DataPath::tcp;
    /// Why it is TCP. `none` before start-up has ended: shared memory may be offered, or an offer
    /// answered.
    shm::Reason why_not = shm::Reason::off;

    /// It is still possible.
    [[nodiscard]] bool possible() const noexcept { return why_not == shm::Reason::none; }
};

/// Before anything is known of the peer. EINVAL: shared memory is required, and extension frames,
/// by which the ends agree on it, are off.
[[nodiscard]] Result<ShmChoice> shm_choice(const ConnectAttr& attr,
                                           const TransportConfig& settings);

}  // namespace xsock
