// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The state of a Stream: one part for each direction and what both share. Private to ddp_user;
// stream.cpp has its life and end, tx.cpp and rx.cpp its two directions, tx_messages.cpp
// and rx_messages.cpp what differs from message to message.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ddp_user/opcode.hpp"
#include "ddp_user/read_queues.hpp"
#include "ddp_user/segment.hpp"
#include "ddp_user/stream.hpp"
#include "ddp_user/terminate.hpp"

namespace xsock::ddp {

inline constexpr std::uint64_t kNoEntry = OutboundRead::kNoEntry;

/// A place in a list of SGEs.
struct Cursor {
    std::uint32_t index = 0;
    std::uint32_t offset = 0;  // into sges[index]

    /// The contiguous memory here, at most `max` octets of it, as an SGE of its own.
    /// @pre max > 0, and at least one octet is left
    [[nodiscard]] Sge piece(std::span<const Sge> sges, std::size_t max) noexcept {
        while (offset == sges[index].length) {
            ++index;
            offset = 0;
            XSOCK_ASSERT(index < sges.size());
        }
        const Sge& sge = sges[index];
        const std::size_t left = sge.length - offset;
        return {.address = sge.address + offset,
                .length = static_cast<std::uint32_t>(left < max ? left : max),
                .lkey = sge.lkey};
    }
};

/// RDMAP's opcode of the message that ends an entry of the send queue.
[[nodiscard]] inline std::uint8_t rdmap_opcode(const SendWqe& wqe) {
    const SendInfo& row = send_info(wqe.opcode);
    return (wqe.flags & kSendSolicited) != 0 ? row.solicited : row.message;
}

[[nodiscard]] inline std::span<const Sge> sges_of(const SendWqe& wqe) {
    return {wqe.sge.data(), wqe.sge_count};
}

/// What was given to the LLP and is not yet its promise, oldest first. Runs of like ULPDUs share an
/// entry, so that a large message or a burst of small ones takes one or two.
class TxLog {
  public:
    enum class Kind : std::uint8_t { send_queue, response, unposted, terminate };
    struct Run {
        Kind kind = Kind::unposted;
        bool last = false;  // each ULPDU of the run ends its message
        std::uint32_t ulpdus = 0;
    };

    /// No further ULPDU can be noted: the LLP must finish some first.
    [[nodiscard]] bool full() const noexcept { return size_ == kRuns; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

    void push(Kind kind, bool last, std::uint32_t ulpdus = 1) noexcept {
        if (size_ > 0) {
            Run& newest = runs_[(head_ + size_ - 1) % kRuns];
            if (newest.kind == kind && newest.last == last) {
                newest.ulpdus += ulpdus;
                return;
            }
        }
        XSOCK_ASSERT(!full());
        runs_[(head_ + size_++) % kRuns] = {kind, last, ulpdus};
    }
    /// The oldest ULPDU, as a run of one.
    Run pop() noexcept { return pop(1); }
    /// The oldest run, at most `most` ULPDUs of it.
    Run pop(std::uint32_t most) noexcept {
        XSOCK_ASSERT(!empty());
        Run& oldest = runs_[head_];
        const Run taken{oldest.kind, oldest.last, std::min(most, oldest.ulpdus)};
        oldest.ulpdus -= taken.ulpdus;
        if (oldest.ulpdus == 0) {
            head_ = (head_ + 1) % kRuns;
            --size_;
        }
        return taken;
    }
    void clear() noexcept { size_ = 0; }

  private:
    static constexpr std::uint32_t kRuns = 16;
    std::array<Run, kRuns> runs_{};
    std::uint32_t head_ = 0;
    std::uint32_t size_ = 0;
};

class BatchWriter;  // tx.cpp

struct Stream::Impl {
    explicit Impl(const Config& c)
        : config(c),
          ird(c.ird),
          ord(c.ord),
          counters(c.counters != nullptr ? *c.counters : own_counters) {}

    // -- both directions (stream.cpp) --

    Config config;
    Negotiated negotiated;
    State state = State::idle;
    StreamError stream_error = StreamError::none;
    std::uint16_t ird;
    std::uint16_t ord;
    TerminateMessage terminate;  // valid when violation has one
    bool has_terminate = false;
    bool terminate_given = false;
    bool acknowledged = false;  // set_acknowledged()
    bool terminate_seen = false;
    TerminateInfo terminate_received;
    std::uint64_t failed_sequence = kNoEntry;  // entry that caused the end, if known
    WcStatus failed_status = WcStatus::flushed;
    Counters own_counters;
    Counters& counters;

    [[nodiscard]] bool receiving() const noexcept { return state < State::terminating; }

    /// The first thing that goes wrong decides: queues its Terminate, or ends the stream when there
    /// is none for it. Anything later is ignored.
    void fail(StreamError v, const ErrorContext& error_context = {});
    /// Nothing is sent or delivered any more.
    void end();
    /// The entry that caused what comes next.
    void set_failed_wqe(std::uint64_t sequence, WcStatus status) noexcept;
    /// May these octets be touched under this SGE's key?
    [[nodiscard]] bool permits(const Sge& sge, bool write) const noexcept;

    /// Retires the oldest entry of the send queue.
    void complete_oldest(WcStatus status);
    void complete_plain();
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

    // -- tx (tx.cpp, tx_messages.cpp) --

    enum class Source : std::uint8_t { none, send_queue, response };

    struct Tx {
        TxLog log;
        Source under_way = Source::none;  // a message whose first segment was given, not its last
        Source previous = Source::response;
        Rtr rtr = Rtr::none;  // still to be sent, before anything else
        bool probe = false;
        std::uint32_t send_msn = 1;
        std::uint32_t request_msn = 1;  // of Reads and atomics
        std::uint32_t atomic_response_msn = 1;

        // The send queue: [retired, sent) are the LLP's, [sent, next) are given, next is being
        // segmented or the next to start.
        std::uint64_t next = 0;
        std::uint64_t sent = 0;
        std::uint32_t offset = 0;  // octets of entry `next` given
        Cursor cursor;
        bool immediate_due = false;  // of its message: the Write was given, the Immediate Data not
        bool held = false;           // no work request starts: hold_sends()

        // With `acknowledged`: up to where the peer was asked whether it has taken the entries, and
        // up to where it has said so.
        std::uint64_t asked = 0;
        std::uint64_t confirmed = 0;

        // Inbound Reads [0, answered) are given in full, the one at `answered` up to this.
        std::uint32_t response_offset = 0;
        std::uint32_t answered = 0;
    } tx;
    ReadQueue<OutboundRead> orq;
    ReadQueue<InboundRead> irq;
    std::uint32_t reads_delivered = 0;  // Reads answered in full whose entries are not yet retired
    bool reads_dead = false;            // the peer has finished: no Read can succeed any more

    ConstBytes move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to);
    enum class Next : std::uint8_t {
        nothing,
        local,      // entries that send nothing: run_local()
        message,    // of the send queue: it starts, or goes on
        response,   // to a Read or an atomic operation, likewise
        rtr,        // Tx::rtr
        question,   // has the peer taken the entries up to now?
        probe,      // Tx::probe
        terminate,  // the last
    };
    [[nodiscard]] Next next() const noexcept;
    [[nodiscard]] std::uint64_t messages_in_a_row() const noexcept;
    [[nodiscard]] bool is_single() const noexcept;
    UlpdusGiven tx_fill(const UlpduBatch& batch);
    void tx_done(std::uint32_t n);
    [[nodiscard]] bool tx_intact();
    bool put_messages(BatchWriter& to);
    [[nodiscard]] bool put_message(const SendWqe& wqe, std::uint32_t msn, std::byte* to) const;
    bool build(Next what, std::size_t mulpdu, UlpduOut& out);
    bool build_unposted(Rtr kind, UlpduOut& out);
    bool build_from_send_queue(std::size_t mulpdu, UlpduOut& out);
    bool build_immediate(const SendWqe& wqe, UlpduOut& out);
    bool build_request(const SendWqe& wqe, UlpduOut& out);
    void build_atomic_response(const AtomicResponse& response, UlpduOut& out);
    bool build_response(std::size_t mulpdu, UlpduOut& out);
    bool start_read(std::uint64_t sequence, const ReadRequest& request, UlpduOut& out);
    bool start_atomic(const SendWqe& wqe, UlpduOut& out);
    bool enter_orq(const OutboundRead& read);
    void fail_entry(WcStatus status);
    void finish_entry();
    [[nodiscard]] bool fenced(const SendWqe& wqe) const noexcept;
    [[nodiscard]] bool may_start(const SendWqe& wqe) const noexcept;
    [[nodiscard]] bool local(const SendWqe& wqe) const noexcept;
    bool perform(const SendWqe& wqe);
    [[nodiscard]] bool may_run_local(const SendWqe& wqe) const noexcept;
    void run_local();
    [[nodiscard]] bool revoke(std::uint32_t stag);
    [[nodiscard]] bool may_ask() const noexcept;
    void fail_read(const InboundRead& read, StreamError v);

    // -- rx (rx.cpp, rx_messages.cpp) --

    struct Rx {
        enum class Phase : std::uint8_t { start, blocked, rest, payload, discard };
        Phase phase = Phase::discard;
        std::size_t length = 0;  // of the ULPDU
        std::size_t have = 0;    // octets of it stored
        Segment segment;
        const OpcodeInfo* op = nullptr;
        Cursor* cursor = nullptr;  // where payload goes, if into SGEs
        // Found while the ULPDU was coming in. Raised when it has proved intact: of a corrupted
        // one the CRC error is the truth.
        StreamError fault = StreamError::none;
        WcStatus fault_status = WcStatus::success;  // and what it does to its work request
        std::array<std::byte, kUntaggedOctets> header;
        std::array<std::byte, kTerminateOctets> body;  // RDMAP's part of an untagged message
        static_assert(kTerminateOctets >= kAtomicRequestOctets);
        std::array<std::byte, 64> discarded;

        [[nodiscard]] std::size_t header_octets() const noexcept {
            return segment.tagged ? kTaggedOctets : kUntaggedOctets;
        }
        [[nodiscard]] std::size_t payload_bytes() const noexcept {
            return length - header_octets();
        }
        [[nodiscard]] std::size_t remaining() const noexcept { return length - have; }
    } rx;

    std::array<std::uint32_t, 4> expected_msn = {1, 1, 1, 1};  // by QN
    bool awaiting_rtr = false;                                 // peer-to-peer responder
    bool rx_discarding = false;                                // stop_receiving()

    // The Send that is coming in.
    bool receive_taken = false;
    bool rtr_send = false;  // the RTR message: takes no receive, is not delivered
    std::uint8_t message_opcode = 0;
    std::uint32_t message_stag = 0;
    std::uint32_t message_offset = 0;
    Cursor receive_cursor;
    RecvWqe receive;

    // The Write before it, for Immediate Data to tell: its octets so far, and did it end?
    std::uint64_t write_bytes = 0;
    bool write_over = true;

    // The Read Response that is coming in: to orq.front().
    std::uint32_t read_offset = 0;
    Cursor read_cursor;

    struct RxHandler {
        void (Impl::*begin)();    // the header is here and well-formed
        Bytes (Impl::*target)();  // where payload goes next; @pre some remains
        void (Impl::*deliver)();  // the ULPDU is complete and intact
    };
    static const std::array<RxHandler, static_cast<std::size_t>(RxKind::kCount)> kRxHandlers;
    [[nodiscard]] const RxHandler& rx_handler() const noexcept {
        return kRxHandlers[static_cast<std::size_t>(rx.op->kind)];
    }

    std::size_t rx_ulpdu(ConstBytes ulpdu);
    bool take_short_send(ConstBytes ulpdu);
    void rx_begin(std::size_t ulpdu_length);
    Bytes rx_target();
    void rx_advance(std::size_t n);
    void rx_end(bool intact);
    void rx_on_start();
    void rx_on_header();
    Bytes rx_fault(StreamError v, WcStatus status = WcStatus::success);
    Bytes rx_discard() noexcept;
    void rx_raise(StreamError v, ConstBytes rdmap_header = {});
    bool take_receive();
    bool find_receive();
    bool move_receive(std::uint64_t wr_id, const RecvWqe& other);

    void begin_write();
    Bytes target_write();
    void deliver_write();
    void begin_read_request();
    Bytes target_body();
    void deliver_read_request();
    void begin_read_response();
    Bytes target_read_response();
    void deliver_read_response();
    void begin_send();
    Bytes target_send();
    void deliver_send();
    void begin_terminate();
    void deliver_terminate();
    [[nodiscard]] std::uint64_t sender_of(const Segment& segment) const noexcept;
    void begin_immediate();
    void deliver_immediate();
    void begin_atomic_request();
    void deliver_atomic_request();
    void begin_atomic_response();
    void deliver_atomic_response();
    void response_delivered();
    [[nodiscard]] bool store_result(std::uint64_t value);
};

}  // namespace xsock::ddp
