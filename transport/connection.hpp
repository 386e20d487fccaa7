// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One connection of the software device: the descriptor of a TCP socket below a ddp::Connection,
// which decides. Here are epoll, the reads and writes of one poll cycle, capture, statistics, and
// the queues that any thread posts to; everything else runs in the thread that polls its Progress.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/device.hpp"
#include "base/polled_qp.hpp"
#include "ddp_user/connection.hpp"
#include "mpa/stream.hpp"
#include "transport/capture.hpp"
#include "transport/connection_kernel.hpp"
#include "transport/connection_owner.hpp"
#include "transport/connection_shared.hpp"
#include "transport/liveness.hpp"
#include "transport/post_batching.hpp"
#include "transport/progress.hpp"
#include "transport/rx_burst.hpp"
#include "transport/shm_choice.hpp"
#include "transport/soft_cq.hpp"
#include "transport/stats.hpp"
#include "transport/tcp.hpp"
#include "transport/tcp_socket.hpp"

namespace xsock {

struct ConnectionParts {
    QpNum num = 0;
    QpAttr attr;
    std::shared_ptr<CqCore> send_cq, recv_cq;
    std::shared_ptr<SrqCore> srq;  ///< may be null
    MemoryTable* memory = nullptr;
    KernelDdp* kernel = nullptr;  ///< null: there is none
    Progress* progress = nullptr;
    PolledQp::StateListener listener;
    ddp::SpareReceive spare_receive = nullptr;  ///< with owner.argument; may be null
    PolledQpCalls owner;
};

class Connection final : public Pollable, public PolledQp, private ddp::Connection::Delegate {
  public:
    using Parts = ConnectionParts;

    explicit Connection(Parts parts);
    ~Connection() override;

    // -- any thread --

    Result<void> post_send(const SendWr& wr, bool gather = true) override;
    Result<void> queue_send(const SendWr& wr) override;
    void send_queued() override { parts_.progress->notify_now(*this); }
    void poll_soon() override { parts_.progress->notify_soon(*this); }
    void request_end(End how) override;
    Result<void> post_plain_send(std::uint64_t wr_id, const Sge& sge, std::uint8_t flags);
    Result<void> post_recv(const RecvWr& wr) override;
    /// A receive was posted while this connection waited for one.
    void receive_posted() override;
    [[nodiscard]] std::uint32_t send_room() const noexcept override { return sq_.room(); }
    /// The queue may have more entries than QpAttr asks for, so this is not that depth less
    /// send_room().
    [[nodiscard]] std::uint32_t sends_outstanding() const noexcept override {
        return sq_.depth() - sq_.room();
    }
    [[nodiscard]] QpState state() const noexcept { return state_.load(std::memory_order_seq_cst); }
    [[nodiscard]] QpNum num() const noexcept { return parts_.num; }
    [[nodiscard]] Progress& progress() const noexcept { return *parts_.progress; }
    [[nodiscard]] const QpAttr& attr() const noexcept { return parts_.attr; }
    [[nodiscard]] std::uint64_t context() const noexcept override { return parts_.attr.context; }

    // -- the poller, inside a poll cycle (Progress::locked()) --

    Result<void> start(int fd, const ConnectAttr& attr, PollCycle& cycle) override;
    Result<void> accept(std::span<const std::byte> private_data, std::uint16_t ird,
                        std::uint16_t ord, PollCycle& cycle);
    Result<void> reject(std::span<const std::byte> private_data, PollCycle& cycle);
    void shutdown(PollCycle& cycle) override;
    void abort(PollCycle& cycle) override;
    /// Nothing posted completes, and none of its memory is touched, after this (Qp::detach()).
    void detach(PollCycle& cycle);
    void release(PollCycle& cycle) override;
    /// ConnectAttr::confirmed: the owner's program was told.
    void confirm_start(PollCycle& cycle);
    void confirm_end(PollCycle& cycle);
    bool move_receive(std::uint64_t wr_id, const RecvWqe& other, PollCycle& cycle) override;
    void enough_read() noexcept override { enough_read_ = true; }
    bool move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to,
                   PollCycle& cycle) override;
    void set_context(std::uint64_t context) override {
        parts_.attr.context = context;
        core_.set_context(context);
    }
    void set_rights(std::uint32_t rights) {
        core_.stream().set_rights(rights);
        if (kernel_.part != nullptr) kernel_.part->set_rights(rights);
    }
    void set_rnr(const RnrAttr& rnr) noexcept { core_.set_rnr(rnr); }
    StreamCounters& stream_counters() noexcept override { return stats_.stream_counters(); }
    [[nodiscard]] QpInfo info() const override;
    [[nodiscard]] ConstBytes peer_private_data() const override { return core_.private_data(); }
    [[nodiscard]] int error() const noexcept override { return core_.error().code; }
    [[nodiscard]] kernel::Reason kernel_reason() const noexcept override {
        return kernel_.choice.why_not;
    }
    [[nodiscard]] Result<int> descriptor() const override;
    void signal_owner() const noexcept override;
    void set_listener(StateListener listener) override { parts_.listener = std::move(listener); }

    void on_ready(std::uint32_t events, PollCycle& cycle) override;
    void sync_with_posters() override { sq_.sync_with_posters(); }
    void on_notify(PollCycle& cycle) override;
    void on_time(PollCycle& cycle) override;
    void on_cycle_end(PollCycle& cycle) override;
    /// Counts what the kernel module has placed so far: that wakes nobody.
    void take_placed(PollCycle& cycle);
    bool on_idle(PollCycle& cycle, bool due) override;
    void on_failure(PollCycle& cycle) noexcept override;
    void on_exit(PollCycle& cycle) override;
    void on_exit_limit(PollCycle& cycle) override;
    bool draining() const override;
    Time exit_limit() const override { return owner_.exit_limit(); }
    bool unsent() const override;

  private:
    friend class ConnectionShared;

    // -- ddp::Connection::Delegate --
    Llp& data_layer(Llp& startup) override;
    void on_started() override;
    void on_state(QpState next) override;
    void on_rnr() override;
    void finish() override;
    void close(bool reset) override;

    template <void (SoftChannel::*count)()>
    void count_in_channels() const noexcept;
    void note_request();
    bool receive(PollCycle& cycle);
    [[nodiscard]] bool reads_records() const noexcept {
        return kernel_.part != nullptr && kernel_.part->bound();
    }
    long read(Bytes room) noexcept {
        return reads_records() ? kernel_.part->receive(room) : socket_.receive(room);
    }
    [[nodiscard]] Bytes read_room(PollCycle& cycle) const noexcept {
        return kernel_.part != nullptr ? kernel_.part->room(*mpa_, cycle.staging)
                                       : burst_.room(cycle.staging, parts_.attr.read_most);
    }
    bool bind_module();
    void report_placed(PollCycle& cycle);
    void receive_rest(PollCycle& cycle);
    void end_as_requested(PollCycle& cycle);
    bool take(ConstBytes bytes, PollCycle& cycle);
    void take_fin(PollCycle& cycle);
    void note_owed() noexcept;
    void send_owed(PollCycle& cycle);
    void take_from_memory(ConstBytes bytes, PollCycle& cycle);
    void on_tcp_ready(std::uint32_t events, PollCycle& cycle);
    void transmit_to_memory(PollCycle& cycle);
    void join_channels();
    void resume(PollCycle& cycle);
    void transmit(PollCycle& cycle);
    void transmit_batches(PollCycle& cycle);
    void transmit_single(PollCycle& cycle);
    void on_send_error(int error, PollCycle& cycle);
    void follow_emss(PollCycle& cycle);
    /// FIN follows what is queued, or an end of that kind was asked for and on_notify() comes. (A
    /// standard peer gets FIN apart.)
    [[nodiscard]] bool is_about_to_finish() const noexcept;
    [[nodiscard]] bool ends_start_by_sending() const noexcept;
    /// Nothing to send, nothing out of the ordinary: the state after nearly every message.
    [[nodiscard]] bool quiet() const;
    void update(PollCycle& cycle);
    void update_interest();
    void update_deadline(PollCycle& cycle);
    void check_peer(PollCycle& cycle);
    void lost(int error);
    void publish() noexcept;
    [[nodiscard]] tcp::Name peer() const noexcept { return socket_.peer_name(); }
    [[nodiscard]] const char* error_text() const noexcept {
        return error_text_ != nullptr ? error_text_->c_str() : "";
    }
    /// The clock is asked only while a timer runs.
    [[nodiscard]] Time time(PollCycle& cycle) const noexcept {
        return core_.needs_time() ? cycle.now() : 0;
    }
    /// What the delegate was told counts as movement of this cycle.
    void note_movement(PollCycle& cycle) noexcept {
        if (moved_) cycle.active = true;
        moved_ = false;
    }

    // In this order the queue, which begins on a cache line, has no gap around it.
    Parts parts_;
    StatsEntry stats_;
    std::unique_ptr<RecvQueue> own_rq_;  // null: the queue of parts_.srq
    RecvQueue& rq_;
    mutable ConnectionOwner owner_;
    [[no_unique_address]] SendQueue sq_;  // what follows lies in its last line, the poller's
    ddp::Connection core_;
    std::unique_ptr<mpa::Stream> mpa_;
    PostBatching batching_;
    std::atomic<QpState> state_{QpState::fresh};  // core_.state(), for any thread
    std::atomic<std::uint32_t> refused_{0};       // ddp::refused_requests(), once established

    // The poller's.
    static constexpr std::uint32_t kReading = EPOLLIN | EPOLLRDHUP;
    TcpSocket socket_;
    ShmChoice shm_;
    KernelUse kernel_;
    std::unique_ptr<ConnectionShared> shared_;  // null: TCP carries the data
    RxBurst burst_;
    std::uint32_t interest_ = 0;  // epoll bits asked for
    bool tx_blocked_ = false;     // TCP's buffer is full
    bool enough_read_ = false;
    bool moved_ = false;  // the delegate was told something
    // Of other threads too, but rarely.
    std::atomic<bool> rnr_waiting_{false};      // is in the shared queue's list
    std::atomic<std::uint8_t> end_request_{0};  // 1 + End; 0: none
    std::unique_ptr<TxBuffer> tx_buffer_;
    std::unique_ptr<Capture> capture_;  // null unless XSOCK_PCAP asks for it
    Time emss_checked_ = 0;
    Liveness liveness_;
    std::uint64_t& rx_bytes_;  // in stats_
    std::uint64_t& tx_bytes_;
    std::unique_ptr<const std::string> error_text_;  // null: none
};

}  // namespace xsock
