// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The receiving end of a carrier: datagrams of one process come in by it, for any QP of this one.
// Each is one Send into memory of ours, and is copied from there to a receive of its QP. As long as
// one finds neither a receive nor room, the connection is not read, and TCP holds back the sender.
// In pollers, but for what says otherwise; takes no lock of the engine.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/polled_qp.hpp"
#include "verbs/datagram_qp.hpp"
#include "verbs/gid_greeting.hpp"
#include "verbs/incoming_carriers.hpp"

namespace xsock::verbs {

class Datagrams;

class DatagramReceiver final : public ReceiveWaiter,
                               public std::enable_shared_from_this<DatagramReceiver> {
  public:
    /// `peer`, `own`: the addresses that TCP shows.
    DatagramReceiver(Datagrams& owner, const GidOctets& peer, const GidOctets& own) noexcept
        : owner_(owner), peer_(peer), own_(own) {}

    /// Its place among those that have come in.
    [[nodiscard]] IncomingCarriers::Carrier place(std::shared_ptr<PolledQp> connection,
                                                  const Greeting& greeting) const;
    /// Once, before it is started: its connection, which keeps this object.
    void set_connection(const std::shared_ptr<PolledQp>& connection);
    /// Null: it is gone.
    [[nodiscard]] std::shared_ptr<PolledQp> connection() const { return qp_.lock(); }
    /// The carrier has carried something, in or out.
    void note_used() noexcept;

    void on_receives_posted() override {
        if (const auto qp = qp_.lock()) qp->receive_posted();
    }

    // What the poller tells (base/polled_qp.hpp).

    bool provide_receive(RecvWqe& out) noexcept;
    void on_completion(const Wc& wc);
    Time on_poll();
    /// The peer sends no more. False: what has come still waits; the connection is ended later.
    bool finish() noexcept;
    /// The connection has ended.
    void end() noexcept;

  private:
    bool deliver();
    DatagramQp* destination(std::uint32_t num);

    // The GRH of a datagram is made over what lies ahead of its payload.
    static constexpr std::size_t kSpare = kGrhBytes - kDatagramHeader;

    Datagrams& owner_;
    const GidOctets peer_, own_;
    std::weak_ptr<PolledQp> qp_;
    std::atomic<std::uint64_t> used_{0};       ///< IncomingCarriers::Carrier::used
    std::shared_ptr<DatagramQp> destination_;  ///< of the last datagram
    std::uint32_t destination_num_ = 0;
    DatagramHeader header_;   ///< of the one in memory, as is the next
    std::size_t octets_ = 0;  ///< with its GRH
    bool waits_ = false;      ///< it waits for a receive
    bool finished_ = false;   ///< and nothing comes behind it
    Time overdue_ = kNever;   ///< there may be room then, where it finds none
    std::array<std::byte, kGrhBytes + kDatagramPayload> memory_;
};

}  // namespace xsock::verbs
