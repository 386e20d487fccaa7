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

class DatagramCarrier {
  public:
    /// Which ends there are; null where there is none.
    struct Ends {
        std::shared_ptr<DatagramSender> sender;
        std::shared_ptr<DatagramReceiver> receiver;
        bool dialed = false;  ///< by this process
        /// Of a carrier that has come in: it also takes the place of one that the sender has
        /// dialed.
        bool preferred = false;
    };
    DatagramCarrier(CarrierOwner& owner, Ends ends) noexcept;
    DatagramCarrier(const DatagramCarrier&) = delete;
    DatagramCarrier& operator=(const DatagramCarrier&) = delete;
    ~DatagramCarrier();

    /// A connection with such ends, which keeps them, and is not started yet. With the engine's
    /// mutex held; throws std::bad_alloc.
    static std::shared_ptr<PolledQp> make(CarrierOwner& owner, Ends ends);

  private:
    void on_state(PolledQp& qp, QpState state);
    void on_established(PolledQp& qp);
    void on_ended(PolledQp& qp);
    void on_completion(const Wc& wc);
    Time on_poll();
    bool on_exit();

    CarrierOwner& owner_;
    Ends ends_;
    PolledQp* qp_ = nullptr;  ///< which keeps this
    bool ended_ = false;
};

}  // namespace xsock::verbs
