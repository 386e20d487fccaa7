// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The part of a connection that goes through shared memory: how its ends agree on a slot of a link
// in start-up (docs/wire.md, TLV 3 and 4), the events of its stream, and how it ends. TCP then
// carries nothing but the end. Everything runs in the poller.
#pragma once

#include <cstdint>
#include <memory>

#include "base/ip_address.hpp"
#include "mpa/stream.hpp"
#include "shm/offer.hpp"
#include "shm/stream.hpp"
#include "transport/shm_choice.hpp"
#include "transport/shm_link.hpp"
#include "transport/shm_node.hpp"

namespace xsock {

class Connection;

class ConnectionShared final : private shm::Stream::Owner, private ShmWaiter, private ShmResponder {
  public:
    /// `choice` says why not, as soon as that is known; it outlives this.
    ConnectionShared(Connection& connection, ShmChoice& choice) noexcept
        : connection_(connection), choice_(choice) {}
    ~ConnectionShared();
    ConnectionShared(const ConnectionShared&) = delete;
    ConnectionShared& operator=(const ConnectionShared&) = delete;

    /// Takes back what was prepared for a start, unless that goes on.
    class Preparation {
      public:
        explicit Preparation(std::unique_ptr<ConnectionShared>& shared) noexcept
            : shared_(&shared) {}
        ~Preparation();
        Preparation(const Preparation&) = delete;
        Preparation& operator=(const Preparation&) = delete;
        void keep() noexcept { shared_ = nullptr; }

      private:
        std::unique_ptr<ConnectionShared>* shared_;
    };

    // -- start-up, of the connection that has this socket --

    /// A responder offers, an initiator will answer; unless the peer is not on this host.
    void prepare(mpa::StartupConfig& config, int fd, PollCycle& cycle);
    /// Start-up has gone on: an offer may be there.
    void on_startup(PollCycle& cycle);
    /// Start-up has ended: the layer that carries the data. `startup` where TCP does.
    Llp& data_layer(mpa::Stream& startup);

    // -- afterwards --

    /// Shared memory carries the data.
    [[nodiscard]] bool in_memory() const noexcept { return choice_.path == DataPath::shm; }
    /// TCP has told its end: nothing more comes by epoll.
    [[nodiscard]] bool tcp_ended() const noexcept { return tcp_ended_; }
    /// When on_time() is due.
    [[nodiscard]] Time due() const noexcept { return due_; }
    void on_time(PollCycle& cycle);
    /// What start-up has agreed on is compared with what came by the link.
    void check_start(PollCycle& cycle);
    /// What the peer sent before this end was open.
    void take_early(PollCycle& cycle);
    /// Epoll tells something of the socket.
    void check_tcp(std::uint32_t events, PollCycle& cycle);
    /// The peer's FIN, once all before it was taken.
    void take_fin(PollCycle& cycle);
    /// Something was sent.
    void published();
    /// Data may come: programs that sleep on the channels of our queues are woken by the link.
    void join_channels();

    // -- the end --

    /// The connection has ended: what comes is dropped.
    void discard();
    /// FIN, behind all that was published.
    void finish();
    /// The slot goes back; the peer is told of an end without FIN, or of a reset behind it.
    void close(bool reset);

  private:
    // -- shm::Stream::Owner, from inside ShmLink --
    void on_rx(ConstBytes bytes) override;
    void on_fin(bool aborted) override;
    void on_room() override;
    void on_link_end(StreamError why) override;
    // -- ShmWaiter --
    void on_link(ShmLink& link, PollCycle& cycle) noexcept override;
    void on_no_link(shm::Reason why, PollCycle& cycle) noexcept override;
    // -- ShmResponder --
    shm::Stream* on_open(ShmLink& link) override;

    [[nodiscard]] bool may_be_here(const IpEndpoint& local, const IpEndpoint& peer) const noexcept;
    [[nodiscard]] bool make_stream(PollCycle& cycle);
    void offer(const IpEndpoint& local, const IpEndpoint& peer, mpa::StartupConfig& config,
               PollCycle& cycle);
    void decide(PollCycle& cycle);
    void answer(const shm::Answer& answer, PollCycle& cycle);
    void leave_node() noexcept;
    void leave_channels() noexcept;
    void stay_on_tcp(shm::Reason why);
    void fail(StreamError why);
    /// Null: no link has the stream (any more).
    [[nodiscard]] ShmLink* link() const noexcept {
        return stream_ != nullptr && stream_->attached() ? link_ : nullptr;
    }
    void take(ConstBytes bytes, PollCycle& cycle);
    void drain(PollCycle& cycle);
    [[nodiscard]] bool still_delivers();
    void call_at_cycle_end();

    Connection& connection_;
    ShmChoice& choice_;
    std::shared_ptr<ShmNode> node_;
    std::unique_ptr<shm::Stream> stream_;
    ShmLink* link_ = nullptr;
    std::weak_ptr<ShmLink> in_channels_of_;  // behind join_channels(); it may end before
    std::uint64_t token_ = 0;
    std::uint32_t counted_ = 0;  // of Stream::ring_bytes_received(), as of the next's
    std::uint32_t counted_sent_ = 0;
    std::uint32_t delivered_ = 0;  // ring_bytes_sent() when still_delivers() was last asked
    shm::Answer agreed_;           // responder: what is to be compared
    enum class Step : std::uint8_t {
        none,
        offering,  ///< responder: the node knows our token
        waiting,   ///< initiator: for a link
        opened,    ///< initiator: in a slot
        checking,  ///< responder: in the memory, the slot is to be compared
        done,
    };
    Step step_ = Step::none;
    bool fin_ = false;      // of the peer's records, or of TCP; it waits for what comes before
    bool aborted_ = false;  // that FIN did
    bool tcp_ended_ = false;
    bool link_ended_ = false;
    bool unsendable_ = false;  // behind FIN: the peer takes nothing any more
    Time due_ = kNever;
};

}  // namespace xsock
