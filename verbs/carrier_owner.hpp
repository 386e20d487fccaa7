// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What the ends of carriers ask of the process that they are in: Datagrams, or a test.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/polled_qp.hpp"
#include "verbs/datagram_qp.hpp"

namespace xsock::verbs {

class DatagramSender;

class CarrierOwner {
  public:
    /// Any thread, with no lock held, the engine's neither: begins to dial for it, and gives up
    /// after a while. Out of memory is giving up.
    virtual void dial(const std::shared_ptr<DatagramSender>& sender) noexcept = 0;
    /// A connection of which `attr` has what the carrier itself wants. With the engine's mutex
    /// held; throws std::bad_alloc.
    virtual std::shared_ptr<PolledQp> make_carrier(PolledQpAttr attr) = 0;
    /// In pollers: a carrier has ended, and what it moved is in the exit summary.
    virtual void count_ended(const PolledQp& connection) noexcept = 0;
    virtual DatagramCounters& counters() noexcept = 0;
    /// Connections of senders that have not gone. Any thread.
    virtual std::atomic<std::size_t>& outgoing() noexcept = 0;
    [[nodiscard]] virtual Time now() const noexcept = 0;  ///< CLOCK_MONOTONIC, nanoseconds

  protected:
    ~CarrierOwner() = default;
};

}  // namespace xsock::verbs
