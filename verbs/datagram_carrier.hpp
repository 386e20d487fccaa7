// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A carrier: one connection of datagrams between two processes, with the ends that this one has of
// it: what it sends by it, what comes in by it, or both. Passes on to them what the poller tells.
#pragma once

#include <memory>

#include "base/polled_qp.hpp"
#include "verbs/carrier_owner.hpp"
#include "verbs/datagram_receiver.hpp"
#include "verbs/datagram_sender.hpp"

namespace xsock::verbs {

class DatagramCarrier : public std::enable_shared_from_this<DatagramCarrier> {
  public:
    /// What this process has of it. With a sender, it has dialed the connection; else that has come
    /// in, and if it goes both ways a sender may be lent to it.
    struct Ends {
        std::shared_ptr<DatagramSender> sender;
        std::shared_ptr<DatagramReceiver> receiver;
        bool both_ways = false;
    };
    DatagramCarrier(CarrierOwner& owner, Ends ends) noexcept;
    DatagramCarrier(const DatagramCarrier&) = delete;
    DatagramCarrier& operator=(const DatagramCarrier&) = delete;
    ~DatagramCarrier();

    /// Once: its connection, which keeps this object, and is not started yet. With the engine's
    /// mutex held; throws std::bad_alloc.
    std::shared_ptr<PolledQp> make_connection();

    /// What `sender` is dialing for goes by it: of one that has come in and goes both ways. In a
    /// poll cycle. False: it is not up, or the sender dials no more.
    bool lend(const std::shared_ptr<DatagramSender>& sender);

  private:
    void on_state(PolledQp& qp, QpState state);
    void on_ended(PolledQp& qp);
    void on_completion(const Wc& wc);
    Time on_poll();
    bool on_exit();

    CarrierOwner& owner_;
    Ends ends_;
    const bool dialed_;
    PolledQp* qp_ = nullptr;  ///< which keeps this
    bool up_ = false, ended_ = false;
};

}  // namespace xsock::verbs
