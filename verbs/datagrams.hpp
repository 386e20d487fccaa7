// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Datagrams between UD queue pairs: they ride on connections between processes (carriers), through
// the ports that are in QP numbers (docs/wire.md). One serves both directions, unless the other end
// is an xsock that cannot, or this process itself. Here is which QPs
// and carriers there are; all carriers of a process are in one PollGroup, which every UD QP's
// completion queues poll.
//
// Locks, outermost first: the engine's mutex; `lock_`; those of senders and QPs. Pollers take none
// but the latter two.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/polled_qp.hpp"
#include "base/spin_lock.hpp"
#include "verbs/address_handle.hpp"
#include "verbs/carrier_owner.hpp"
#include "verbs/datagram_carrier.hpp"
#include "verbs/datagram_qp.hpp"
#include "verbs/datagram_receiver.hpp"
#include "verbs/datagram_sender.hpp"
#include "verbs/gid_dialer.hpp"
#include "verbs/gid_listener.hpp"
#include "verbs/incoming_carriers.hpp"

namespace xsock::verbs {

class VerbsState;
struct Qp;

class Datagrams final : public CarrierOwner {
  public:
    Datagrams(VerbsState& engine, GidDialer& dialer) noexcept;

    // -- with the engine's mutex held --

    /// Makes `qp`, which has its queues, one of datagrams. Throws std::bad_alloc.
    void add(Qp& qp);
    /// Nothing comes for it any more.
    void remove(const Qp& qp) noexcept;
    /// A connection whose greeting is one of datagrams: takes or rejects it.
    void accept(GreetedConnection connection);
    /// What was dialed has been accepted.
    void on_accepted(const GidDialer::Accepted& accepted);
    /// GidDialer::Named
    bool send_by_theirs(std::uint64_t id, std::uint32_t name);
    /// Adds what carriers have moved to the exit summary. Once.
    void count_bytes() noexcept;
    /// For the exit summary: "; 3 datagrams sent, ...", or nothing where there were none.
    /// @return characters, fewer than `size`
    int describe(char* text, std::size_t size) const noexcept;

    // -- any thread, with no lock held --

    /// Null: there are too many. Throws std::bad_alloc.
    std::shared_ptr<DatagramSender> sender(const CarrierKey& key);
    void dial(const std::shared_ptr<DatagramSender>& sender) noexcept override;

    // -- also in pollers --

    std::shared_ptr<DatagramQp> find(std::uint32_t qp_num);
    [[nodiscard]] std::uint64_t receivers_clock() const noexcept { return receivers_.clock(); }
    void remove(const DatagramReceiver& receiver) noexcept;
    /// Where the pool has no room for `bytes`: drops what QPs hold that have been without receives
    /// for too long. With no lock of a QP held.
    /// @return there may be room now; else when, if `next` becomes earlier
    bool drop_overdue(std::size_t bytes, Time& next);
    void count_ended(const PolledQp& connection) noexcept override;
    [[nodiscard]] DatagramCounters& counters() noexcept override { return counters_; }
    [[nodiscard]] Time now() const noexcept override;
    std::shared_ptr<PolledQp> make_carrier(PolledQpAttr attr) override;
    std::atomic<std::size_t>& outgoing() noexcept override { return outgoing_; }

  private:
    Result<void> start(PolledQp& carrier, int fd, const ConnectAttr& attr) noexcept;
    [[nodiscard]] Device& device() noexcept;
    /// This process has dialed there, or does, and both shall use that: what the refusal of another
    /// has as Greeting::attempt.
    std::optional<std::uint32_t> dialed_to(const CarrierKey& key, const Greeting& asked);
    void expect_to_be_there(const CarrierKey& key);
    /// Null: there is none yet.
    std::shared_ptr<DatagramSender> find_sender(const CarrierKey& key);
    /// DialTarget::id, if it does dial.
    std::optional<std::uint64_t> dialing_for(const std::shared_ptr<DatagramSender>& sender) const;
    [[nodiscard]] bool is_own(const CarrierKey& key) const noexcept;
    [[nodiscard]] std::uint16_t first_port() const noexcept;
    bool may_dial();
    void give_up(std::uint64_t id);
    bool close_an_idle_sender();
    bool erase_unused_senders(Time now);
    std::vector<std::shared_ptr<DatagramSender>> senders();
    void watch_carriers();
    void on_watch();
    std::vector<std::shared_ptr<PolledQp>> connections();

    VerbsState& engine_;
    GidDialer& dialer_;
    DatagramCounters counters_;
    DatagramPool pool_;
    PollGroup* group_ = nullptr;  ///< set with the first QP
    PdId pd_ = 0;                 ///< of carriers: no region is in it
    Loop::Token watch_ = 0;
    struct Dialing {
        std::shared_ptr<DatagramSender> sender;
        Time until;
    };
    std::map<std::uint64_t, Dialing> dialing_;  ///< by the dialer's id
    std::atomic<std::size_t> outgoing_{0};
    std::uint64_t last_id_;

    SpinLock lock_;  ///< keeps all below
    std::unordered_map<std::uint32_t, std::shared_ptr<DatagramQp>> qps_;
    std::map<CarrierKey, std::shared_ptr<DatagramSender>> senders_;
    Time senders_full_until_ = 0;  ///< there is nothing to erase
    IncomingCarriers receivers_;
};

}  // namespace xsock::verbs
