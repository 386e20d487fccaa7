// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One connection of the software device: a TCP socket, its MPA stream and its DDP stream, and the
// decisions that are nobody else's: when to read, write, wait, close. Posts come from any thread;
// everything else runs in the driver of its Progress.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "ddp_user/stream.hpp"
#include "mpa/stream.hpp"
#include "transport/capture.hpp"
#include "transport/peer_watch.hpp"
#include "transport/progress.hpp"
#include "transport/soft_cq.hpp"
#include "transport/stats.hpp"

namespace xsock {

class Connection final : public Pollable {
  public:
    /// Told about every change of state, in the driver, inside a pass.
    using StateListener = std::function<void(Connection&, QpState)>;

    struct Parts {
        QpNum num = 0;
        QpAttr attr;
        std::shared_ptr<CqCore> send_cq, recv_cq;
        std::shared_ptr<SrqCore> srq;  ///< may be null
        MemoryTable* memory = nullptr;
        Progress* progress = nullptr;
        StateListener listener;
        ddp::SpareReceive spare_receive = nullptr;  ///< and its argument; may be null
        void* spare_argument = nullptr;
    };

    explicit Connection(Parts parts);
    ~Connection() override;

    // -- any thread --

    /// `gather`: may wait for others (docs/threading.md).
    Result<void> post_send(const SendWr& wr, bool gather = true);
    Result<void> post_plain_send(std::uint64_t wr_id, const Sge& sge, std::uint8_t flags);
    Result<void> post_recv(const RecvWr& wr);
    /// A receive was posted while this connection starved for one.
    void receive_posted();
    /// Send requests that can be posted now; a hint.
    [[nodiscard]] std::uint32_t send_room() const noexcept { return sq_.room(); }
    /// Send requests that are posted and not complete; a hint. The queue may have more entries than
    /// QpAttr asks for, so this is not that depth less send_room().
    [[nodiscard]] std::uint32_t sends_outstanding() const noexcept {
        return sq_.depth() - sq_.room();
    }
    [[nodiscard]] QpState state() const noexcept { return state_.load(std::memory_order_seq_cst); }
    [[nodiscard]] QpNum num() const noexcept { return parts_.num; }
    [[nodiscard]] Progress& progress() const noexcept { return *parts_.progress; }
    [[nodiscard]] const QpAttr& attr() const noexcept { return parts_.attr; }

    // -- the driver, inside a pass (Progress::locked()) --

    /// Takes the descriptor on success.
    Result<void> start(int fd, const ConnectAttr& attr, mpa::Role role, Pass& pass);
    Result<void> accept(std::span<const std::byte> private_data, std::uint16_t ird,
                        std::uint16_t ord, Pass& pass);
    Result<void> reject(std::span<const std::byte> private_data, Pass& pass);
    void shutdown(Pass& pass);
    void abort(Pass& pass);
    /// Nothing posted completes, and none of its memory is touched, after this (Qp::detach()).
    void detach(Pass& pass);
    /// The owner lets go: receives are flushed, sends drain until the linger time.
    void release(Pass& pass);
    /// ConnectAttr::confirmed: the owner's program was told.
    void confirm_start(Pass& pass);
    void confirm_end(Pass& pass);
    /// Octets that are still coming in go elsewhere: ddp::Stream::move_receive(). False too when
    /// the memory that they were in is gone.
    bool move_receive(std::uint64_t wr_id, const RecvWqe& other, Pass& pass);
    /// Who waits has what he waited for: no more is read in this pass, for he may have a better
    /// place for what comes next.
    void enough_read() noexcept { enough_read_ = true; }
    /// Octets that TCP has not taken yet go on from `to`: ddp::Stream::move_send(). False: it has
    /// completed, or its memory is gone and with it the connection, so that it completes now.
    bool move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to, Pass& pass);
    /// Later completions carry it.
    void set_context(std::uint64_t context) {
        parts_.attr.context = context;
        ddp_.set_context(context);
    }
    void set_rights(std::uint32_t rights) { ddp_.set_rights(rights); }
    [[nodiscard]] QpInfo info() const;
    [[nodiscard]] int error() const noexcept { return error_; }  ///< QpInfo::error
    /// Another descriptor of the socket, close-on-exec, for the program. ENOTCONN: it has ended.
    [[nodiscard]] Result<int> descriptor() const;
    void set_listener(StateListener listener) { parts_.listener = std::move(listener); }

    void on_ready(std::uint32_t events, Pass& pass) override;
    void meet_kickers() override { sq_.meet_posters(); }
    void on_kick(Pass& pass) override;
    void on_time(Pass& pass) override;
    void on_failure(Pass& pass) noexcept override;
    void on_exit(Pass& pass) override { shutdown(pass); }
    bool draining() const override;
    bool unsent() const override { return fd_ >= 0 && !ended_ && tx_wanted(); }

  private:
    void kick_gathering(std::uint64_t length, bool more);
    [[nodiscard]] bool begin_interval(std::uint64_t interval, std::uint32_t octets, bool more);
    void count_arrival() const noexcept {
        for (const auto& channel : channels()) {
            if (channel != nullptr) channel->count_arrival();
        }
    }
    void count_write() const noexcept {
        for (const auto& channel : channels()) {
            if (channel != nullptr) channel->count_write();
        }
    }
    bool receive(Pass& pass);
    bool consume(ConstBytes octets, Pass& pass);
    void resume(Pass& pass);
    void transmit(Pass& pass);
    std::size_t transmit_lone(Pass& pass);
    [[nodiscard]] bool quiet() const;
    void settle(Pass& pass);
    void settle_start(Pass& pass);
    void settle_end(Pass& pass);
    void update_interest();
    void update_deadline(Pass& pass);
    void check_peer(Pass& pass);
    void lost(int error, Pass& pass);
    void finish();
    void end(QpState state, int error, WcStatus status, bool orderly, Pass& pass);
    void end_without_connection(QpState state, Pass& pass);
    void close_descriptor(bool reset);
    void set_state(QpState state, Pass& pass);
    void flush_posted_receives();
    [[nodiscard]] bool is_watched() const noexcept {
        return parts_.send_cq->queue.armed() || parts_.recv_cq->queue.armed();
    }
    void push_event(WcOpcode opcode, WcStatus status);
    void note(const char* text);
    void publish() noexcept;
    void describe_end();
    [[nodiscard]] bool tx_wanted() const;
    /// MPA has started, but the RTR message (RFC 6581 §9) has not come.
    [[nodiscard]] bool awaiting_rtr() const {
        return mpa_->state() == mpa::Stream::State::operational && !connected_event_;
    }
    [[nodiscard]] Time mpa_time(Pass& pass) const noexcept;
    [[nodiscard]] bool over() const noexcept { return ended_; }

    Parts parts_;
    StatsEntry stats_;
    SendQueue sq_;
    std::shared_ptr<RecvQueue> rq_;
    std::unique_ptr<RecvQueue> unshared_;  // after release(), instead of a shared queue
    ddp::Stream ddp_;
    std::unique_ptr<mpa::Stream> mpa_;
    std::atomic<QpState> state_{QpState::fresh};

    // Gathering (any poster; relaxed, exactness does not matter).
    std::atomic<std::uint64_t> post_interval_{0};
    std::atomic<std::uint32_t> interval_posts_{0};
    std::atomic<std::uint32_t> interval_octets_{0};  ///< since the last kick
    std::atomic<std::uint32_t> kicked_octets_{0};    ///< in this interval, before that
    std::atomic<std::uint32_t> gather_octets_{0};    ///< how much may wait

    std::atomic<std::uint64_t> starved_interval_{0};  // of the last receive that was waited for

    std::atomic<bool> stranger_{false};  // established, and the peer is no xsock
    std::atomic<bool> starving_{false};  // is in the shared queue's list

    // The driver's.
    int fd_ = -1;
    bool shared_descriptor_ = false;
    std::uint32_t interest_ = 0;    // epoll bits asked for
    std::vector<std::byte> stash_;  // read but not taken by MPA: no receive was posted
    std::size_t stash_at_ = 0;
    bool small_fpdus_ = false;           // the last read brought small ones
    std::uint32_t flood_ = 0;            // evidence that the peer floods us with small messages
    std::uint64_t flood_tx_octets_ = 0;  // tx_octets_ at the last read
    std::unique_ptr<TxBuffer> tx_buffer_;
    std::unique_ptr<Capture> capture_;  // null unless XSOCK_PCAP asks for it
    bool steady_ = false;               // established, not closing
    bool tx_blocked_ = false;           // TCP's buffer is full
    bool eof_ = false;
    bool enough_read_ = false;
    bool fin_sent_ = false;
    bool closing_ = false;  // shutdown() or release() was called
    bool released_ = false;
    bool ended_ = false;  // flushed; the descriptor may still linger
    bool connected_event_ = false;
    bool receives_over_ = false;
    bool outlives_peer_ = false;
    bool confirmed_ = false;   // start-up's end and the peer's wait for the owner
    bool start_held_ = false;  // established, confirm_start() is to come
    bool end_confirmed_ = false;
    std::optional<WcStatus> flush_held_;  // ended, confirm_end() is to come: the status to flush
    Time startup_deadline_ = kNever;
    Time starve_deadline_ = kNever;
    Time linger_deadline_ = kNever;
    Time finish_at_ = 0;     // FIN waits until then
    bool fin_owed_ = false;  // all is over but for FIN
    Time emss_checked_ = 0;
    PeerWatch peer_watch_;
    std::uint64_t& rx_octets_;  // in stats_
    std::uint64_t& tx_octets_;
    int error_ = 0;
    std::string error_text_;
    std::string local_, peer_;
};

}  // namespace xsock
