// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DDP and RDMAP of one queue pair (RFC 5041, 5040): work requests <-> ULPDUs. Sans-IO; one thread
// at a time (the poller of the connection). Posters reach it only through SendQueue and RecvQueue,
// pollers only through CompletionQueue.
//
// Receiving never sends: a Read Request fills the IRQ and the next tx_fill() answers it.
// Completions are only queued. Send-queue entries complete in order, each exactly once.
#pragma once

#include <cstdint>
#include <memory>

#include "base/completion_queue.hpp"
#include "base/counters.hpp"
#include "base/memory_table.hpp"
#include "base/recv_queue.hpp"
#include "base/send_queue.hpp"
#include "base/ulp.hpp"

namespace xsock::ddp {

/// A receive of the API's own for a message that finds none posted: `bytes` of payload, or
/// kUnknownBytes when more segments follow. False: not now; Connection::receive_posted() has the
/// poller ask again. Called by the poller; what it gives completes with kWcInternal.
inline constexpr std::uint32_t kUnknownBytes = ~0u;
using SpareReceive = bool (*)(void* argument, std::uint32_t bytes, RecvWqe& out);

/// Called, by the poller, for each segment of a Write whose payload was stored here: an LLP that
/// places could place the next.
class WriteObserver {
  public:
    virtual void on_stored_write(std::uint32_t stag) noexcept = 0;

  protected:
    ~WriteObserver() = default;
};

struct Config {
    QpNum qp_num = 1;
    PdId pd = 0;
    std::uint64_t qp_context = 0;          ///< copied into every Wc
    bool require_lkeys = false;            ///< verbs: every SGE must lie in a region of this PD
    bool snapshot = false;                 ///< every request as with kSendSnapshot
    bool rq_shared = false;                ///< flush() leaves what is still queued in `rq` alone
    std::uint32_t rights = kRemoteAccess;  ///< what the peer may do here, if the region permits it
    std::uint16_t ird = 16;                ///< until llp_established() says what was negotiated
    std::uint16_t ord = 16;
    /// Of the first message of each queue, both ways. RFC 5041 wants 1; with a number below 2^32
    /// both ends come to the wrap at once.
    std::uint32_t first_msn = 1;
    MemoryTable* memory = nullptr;
    SendQueue* sq = nullptr;
    RecvQueue* rq = nullptr;  ///< may be shared (SRQ): then `rq_shared`
    SpareReceive spare_receive = nullptr;
    void* spare_argument = nullptr;
    CompletionQueue* send_cq = nullptr;
    CompletionQueue* recv_cq = nullptr;
    CompletionBatch* completions = nullptr;  ///< the poller's; null: straight into the queues
    Counters* counters = nullptr;            ///< where the stream counts; null: in itself
};

/// A Terminate Message, sent or received (RFC 5040 §4.8).
struct TerminateInfo {
    std::uint8_t layer = 0, etype = 0, code = 0;
    bool swapped = false;    ///< received from siw, whose control word has its nibbles swapped
    std::uint8_t first = 0;  ///< received: the first octet, Layer and EType, as it came
    bool has_ddp_header = false, has_rdmap_header = false;
    std::uint16_t ddp_segment_length = 0;
};

class Stream final : public Ulp {
  public:
    enum class State : std::uint8_t {
        idle,         ///< before llp_established()
        established,  ///< peer-to-peer responder: not until the RTR message has come
        terminating,  ///< a Terminate waits to be sent, or is being sent; nothing is received
        ended,        ///< nothing will be sent or delivered any more; flush() was or must be called
    };

    explicit Stream(const Config& config);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // -- Ulp --
    UlpdusGiven tx_fill(const UlpduBatch& batch) override;
    void tx_done(std::uint32_t n) override;
    bool tx_intact() override;
    std::size_t rx_ulpdu(ConstBytes ulpdu) override;
    void rx_begin(std::size_t ulpdu_length) override;
    Bytes rx_target() override;
    void rx_advance(std::size_t n) override;
    void rx_end(bool intact) override;
    void rx_placed(const PlacedWrites& writes) override;
    void rx_placed_response(ConstBytes header, std::size_t bytes) override;
    void llp_established(const Negotiated& negotiated) override;
    void llp_failed(StreamError stream_error) override;
    void llp_closed(CloseKind kind) override;
    void llp_probe() override;

    // -- the transport --

    /// Would tx_fill() give something now (fences and ORD considered)?
    [[nodiscard]] bool tx_wanted() const noexcept;
    /// Reception stands still because no receive is posted for the Send that has begun.
    [[nodiscard]] bool rx_blocked() const noexcept;
    /// The time limit for that passed: Terminate untagged_no_buffer.
    void receive_overdue();
    /// The peer is told of it, if it knows such notices. False: not now, since answers to it have
    /// still to go, or the last one.
    [[nodiscard]] bool tell_rnr() noexcept;
    /// How many of its own are too many: RnrAttr::retries.
    void set_rnr_retries(std::uint8_t most) noexcept;
    /// There were more. What has come behind them may say that the message was taken; if it does
    /// not, fail_waiting().
    [[nodiscard]] bool rnr_exceeded() const noexcept;
    void fail_waiting();
    /// The peer waits to be told what was taken of its messages, and is told with whatever is sent
    /// next, or once enough were taken.
    [[nodiscard]] bool owes_acknowledge() const noexcept;
    /// What is owed goes now: nothing will be sent for a while.
    void acknowledge() noexcept;
    /// The send queue was closed. What is left in it goes; what the peer was not asked for does not
    /// wait for it, and what it waits for is told at once.
    void finish();
    /// Everything posted was sent, every Read answered, every Read Request of the peer served.
    [[nodiscard]] bool drained() const noexcept;
    /// The peer owes answers: Reads or Atomics of ours are outstanding.
    [[nodiscard]] bool awaits_answers() const noexcept;
    /// Depths that hold if start-up negotiates none (revision 1). Before llp_established().
    void set_depths(std::uint16_t ird, std::uint16_t ord) noexcept;
    /// Puts the rest of the message that is coming in, and what has come of it, elsewhere: the
    /// receive `wr_id` of the API's own that it fills becomes `other`, and the octets placed so
    /// far are copied there. False: no message is coming in, or into another receive.
    /// @pre `other` has room for as many octets
    bool move_receive(std::uint64_t wr_id, const RecvWqe& other);
    /// The entry `wr_id` of the API's own, with one SGE, whose octets the LLP does not all have
    /// yet: they are copied to `to`, which becomes its memory, and it is `new_id` from now on.
    /// @return where they lay; the LLP must follow. Empty: there is no such entry.
    ConstBytes move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to);
    /// Discards everything that the peer sends from now on except a Terminate: it is neither placed
    /// nor delivered nor answered. Reads that were asked before are still answered.
    void stop_receiving() noexcept;
    /// Takes later receives from `own`, an empty queue, instead of the shared one.
    void leave_shared_queue(RecvQueue& own) noexcept;
    /// What the peer may do from now on (Config::rights); with an operation under way, from its
    /// next segment on.
    void set_rights(std::uint32_t rights) noexcept;
    /// Sends, Writes and Immediate Data complete when the peer has taken them. It tells so by
    /// Acknowledge messages (docs/wire.md), or where it has none by the answers to zero-length RDMA
    /// Reads (RFC 5040 §5.5: they are answered after what came before), which take a place of the
    /// ORQ at times; no effect when the depths that hold allow none. It is asked for signaled
    /// requests only, and once half of the queue waits. Before llp_established().
    void set_acknowledged() noexcept;
    /// Work requests that are posted wait until they are held no more; the RTR message and answers
    /// to Reads go. Before a message of the send queue has started.
    void hold_sends(bool held) noexcept;
    /// The peer will send no more, but posted receives stay: see flush_receives().
    void peer_finished();
    /// Is told of Writes from now on; outlives this. Null: none is.
    void set_write_observer(WriteObserver* observer) noexcept;
    /// Completions from now on carry `context`.
    void set_context(std::uint64_t context) noexcept;
    [[nodiscard]] const Config& config() const noexcept;
    /// A fault of ours or of the program's (e.g. unmapped memory): Terminate if there is one for
    /// it.
    void fail(StreamError stream_error);

    /// Memory that was being sent is gone, or memory that something was being placed into: flush()
    /// completes the request whose memory it was with local_protection_error. Of what a peer's
    /// Read or Write names there is none.
    void tx_memory_gone();
    void rx_memory_gone();

    /// Ends the stream and completes all that was posted, exactly once, in order: the entry that
    /// caused the end with its own status if known, the rest `status`. Closes the SQ (and the RQ
    /// unless shared) for posting first, so that nothing can slip in behind. Idempotent.
    void flush(WcStatus status);
    /// Ends the stream, and completes what was to be sent as if it had been; what is done at this
    /// end alone is flushed. Closes the SQ first; receives stay posted.
    void drop_sends();
    /// Completes posted receives with `flushed`, in order, that of a message under way first, and
    /// closes the RQ, which is not shared. Everything else goes on, Reads and what answers the
    /// peer's; a message that needs a receive waits for one.
    void drop_receives();
    /// The same, and Reads outstanding fail too: the peer will send no more, we still may.
    /// (Half-close, docs/wire.md.)
    void flush_receives();

    [[nodiscard]] State state() const noexcept;
    /// First thing that went wrong; none if the end was orderly.
    [[nodiscard]] StreamError stream_error() const noexcept;
    [[nodiscard]] const TerminateInfo* terminate_sent() const noexcept;      ///< null: none
    [[nodiscard]] const TerminateInfo* terminate_received() const noexcept;  ///< null: none
    [[nodiscard]] const Negotiated& negotiated() const noexcept;
    [[nodiscard]] std::uint16_t ird() const noexcept;
    [[nodiscard]] std::uint16_t ord() const noexcept;
    [[nodiscard]] const Counters& counters() const noexcept;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace xsock::ddp
