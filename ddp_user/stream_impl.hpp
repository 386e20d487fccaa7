// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A Stream puts its parts together: StreamState (how it ends), TxState (the send queue on its way
// out), RxUlpdu and RxMessage (what is coming in), and the two queues of Reads. Private to
// ddp_user; stream.cpp has what both directions share, tx.cpp and rx.cpp the directions,
// tx_messages.cpp and rx_messages.cpp what differs from message to message, short_reads.cpp Reads
// of one segment, many at once, rx_placed.cpp what the LLP has placed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ddp_user/opcode.hpp"
#include "ddp_user/read_queues.hpp"
#include "ddp_user/rx_state.hpp"
#include "ddp_user/segment.hpp"
#include "ddp_user/stream.hpp"
#include "ddp_user/stream_state.hpp"
#include "ddp_user/terminate.hpp"
#include "ddp_user/tx_state.hpp"

namespace xsock::ddp {

/// RDMAP's opcode of the message that ends an entry of the send queue.
[[nodiscard]] inline std::uint8_t rdmap_opcode(const SendWqe& wqe) {
    const SendInfo& row = send_info(wqe.opcode);
    return (wqe.flags & kSendSolicited) != 0 ? row.solicited : row.message;
}

class BatchWriter;

struct Stream::Impl {
    explicit Impl(const Config& c)
        : config(c),
          ird(c.ird),
          ord(c.ord),
          own_counters(c.counters != nullptr ? nullptr : std::make_unique<Counters>()),
          counters(c.counters != nullptr ? *c.counters : *own_counters),
          tx(c.sq->retired(), c.first_msn, c.sq->depth()),
          replies(c.first_msn),
          orq(c.first_msn),
          irq(c.first_msn) {
        expected_msn.fill(c.first_msn);
    }

    Config config;
    Negotiated negotiated;
    std::uint16_t ird;
    std::uint16_t ord;
    std::unique_ptr<Counters> own_counters;  // null: the owner's are used
    Counters& counters;
    StreamState state;

    TxState tx;
    AckReplies replies;
    OutboundReads orq;
    InboundReads irq;

    RxUlpdu rx;
    bool rx_discarding = false;                 // stop_receiving()
    std::array<std::uint32_t, 5> expected_msn;  // by QN; checked in rx.cpp
    WriteObserver* write_observer = nullptr;
    RxMessage message;

    // -- both directions (stream.cpp) --

    /// StreamState's, and nothing more is received.
    void fail(StreamError v, const ErrorContext& error_context = {});
    void end(StreamError v = StreamError::none);
    /// May these octets be touched under this SGE's key?
    [[nodiscard]] bool permits(const Sge& sge, bool write) const noexcept;

    /// Retires the oldest entry of the send queue.
    void complete_oldest(WcStatus status);
    void complete_plain();
    [[nodiscard]] bool forgotten(const SendWqe& wqe) const noexcept;
    /// Makes the completion where it is to stay.
    template <typename Fill>
    void complete(CompletionQueue& queue, Fill&& fill) {
        if (config.completions != nullptr && !queue.has_sink()) {
            fill(config.completions->place(queue));
            return;
        }
        Wc wc;
        fill(wc);
        queue.push(wc);
    }
    void complete_receive(const RecvWqe& wqe, WcStatus status, std::uint32_t byte_len = 0);
    /// Memory of ours that the peer names, if the region and this QP permit it.
    [[nodiscard]] MemoryTable::Found remote(std::uint32_t stag, Right right, std::uint64_t to,
                                            std::uint64_t length) const noexcept;
    /// Completes what is done at the head of the send queue.
    void complete_sent();
    void flush_posted_receives(WcStatus status);
    void discard_segment_of_receive() noexcept;

    // -- tx (tx.cpp, tx_messages.cpp) --

    ConstBytes move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to);
    enum class Next : std::uint8_t {
        nothing,
        local,        // entries that send nothing: run_local()
        message,      // of the send queue: it starts, or goes on
        response,     // to a Read or an atomic operation, likewise
        rtr,          // TxState::rtr
        ack_request,  // has the peer taken the entries up to now? By itself
        acknowledge,  // what was taken of the peer's
        probe,        // TxState::probe
        terminate,    // the last
    };
    [[nodiscard]] Next next() const noexcept;
    [[nodiscard]] Next next_message() const noexcept;
    [[nodiscard]] std::uint64_t messages_in_a_row() const noexcept;
    [[nodiscard]] bool is_single() const noexcept;
    UlpdusGiven tx_fill(const UlpduBatch& batch);
    UlpdusGiven fill_single(const UlpduBatch& batch);
    void tx_done(std::uint32_t n);
    void tx_memory_gone();
    [[nodiscard]] bool tx_intact();
    bool put_small(Next what, BatchWriter& to);
    bool put_messages(BatchWriter& to);
    bool put_requests(BatchWriter& to);
    bool put_responses(BatchWriter& to);
    [[nodiscard]] bool put_message(const SendWqe& wqe, std::uint32_t msn, bool asks,
                                   std::byte* to) const;
    bool build(Next what, std::size_t mulpdu, UlpduOut& out);
    bool build_unposted(Rtr kind, UlpduOut& out);
    bool build_ack_request(UlpduOut& out);
    std::size_t put_acknowledge(std::byte* to);
    bool build_from_send_queue(std::size_t mulpdu, UlpduOut& out);
    bool build_immediate(const SendWqe& wqe, UlpduOut& out);
    bool build_request(const SendWqe& wqe, UlpduOut& out);
    void build_atomic_response(const AtomicResponse& response, UlpduOut& out);
    bool build_response(std::size_t mulpdu, UlpduOut& out);
    bool start_read(std::uint64_t sequence, const ReadRequest& request, UlpduOut& out);
    bool start_atomic(const SendWqe& wqe, UlpduOut& out);
    bool enter_orq(const OutboundRead& read);
    void fail_entry(WcStatus status);
    [[nodiscard]] bool fenced(const SendWqe& wqe) const noexcept;
    [[nodiscard]] bool may_start(const SendWqe& wqe) const noexcept;
    [[nodiscard]] bool local(const SendWqe& wqe) const noexcept;
    bool perform(const SendWqe& wqe);
    [[nodiscard]] bool may_run_local(const SendWqe& wqe) const noexcept;
    void run_local();
    [[nodiscard]] bool revoke(std::uint32_t stag);
    [[nodiscard]] bool may_request_ack() const noexcept;
    void fail_read(const InboundRead& read, StreamError v);

    // -- rx (rx.cpp, rx_messages.cpp) --

    /// Peer-to-peer responder: the RTR message has not come.
    [[nodiscard]] bool awaits_rtr() const noexcept {
        return state.now() == State::idle && negotiated.rtr != Rtr::none;
    }

    struct RxHandler {
        void (Impl::*begin)();                      // the header is here and well-formed
        Bytes (Impl::*target)();                    // where payload goes next; @pre some remains
        void (Impl::*deliver)();                    // the ULPDU is complete and intact
        StreamError malformed = StreamError::none;  // of begin_body()
    };
    static const std::array<RxHandler, static_cast<std::size_t>(RxKind::kCount)> kRxHandlers;
    [[nodiscard]] const RxHandler& rx_handler() const noexcept {
        return kRxHandlers[static_cast<std::size_t>(rx.op->kind)];
    }

    std::size_t rx_ulpdu(ConstBytes ulpdu);
    bool take_short(ConstBytes ulpdu);
    bool take_short_send(ConstBytes ulpdu, bool asks);
    bool take_short_request(ConstBytes ulpdu);
    bool take_short_response(ConstBytes ulpdu);
    bool take_short_acknowledge(ConstBytes ulpdu);
    void rx_begin(std::size_t ulpdu_length);
    Bytes rx_target();
    void rx_advance(std::size_t n);
    void rx_end(bool intact);
    void rx_placed(const PlacedWrites& writes);
    void rx_placed_response(ConstBytes header, std::size_t bytes);
    void rx_on_start();
    void rx_on_header();
    void rx_raise(StreamError v, ConstBytes rdmap_header = {});
    void fail_answered(WcStatus status);
    void fail_receive(WcStatus status);
    void rx_memory_gone();
    bool take_receive();
    bool find_receive();
    bool move_receive(std::uint64_t wr_id, const RecvWqe& other);

    Bytes target_write();
    void deliver_write();
    void begin_any() {}
    void begin_body();
    Bytes target_body();
    void deliver_read_request();
    void begin_read_response();
    Bytes target_read_response();
    void deliver_read_response();
    void begin_send();
    Bytes target_send();
    void deliver_send();
    void deliver_terminate();
    [[nodiscard]] std::uint64_t sender_of(const Segment& segment) const noexcept;
    void begin_immediate();
    void deliver_immediate();
    void deliver_atomic_request();
    void begin_atomic_response();
    void deliver_atomic_response();
    void begin_acknowledge();
    void deliver_acknowledge();
    [[nodiscard]] bool may_acknowledge(std::uint32_t value) const noexcept;
    [[nodiscard]] bool take_acknowledge(std::uint32_t value);
    void fail_waiting();
    void response_delivered();
    [[nodiscard]] bool store_result(std::uint64_t value);
};

}  // namespace xsock::ddp
