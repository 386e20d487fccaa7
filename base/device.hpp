// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The seam above RDMAP: what every API (extended sockets, overlay, verbs) asks of a stack, and
// what the software device (transport/), a kernel one and one day a hardware one offer.
//
// Every function may be called from any thread unless it says otherwise; a Qp may be posted to, and
// a Cq polled, by many threads at once. Objects are ended by deleting them; the rule for each is
// with it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/kernel_reason.hpp"
#include "base/memory_table.hpp"
#include "base/result.hpp"
#include "base/shm_reason.hpp"
#include "base/stats_page.hpp"
#include "base/stream_error.hpp"
#include "base/ulp.hpp"
#include "base/work.hpp"

namespace xsock {

/// The connections that feed the completion queues of one channel, for a program that sleeps in a
/// poll of its own. Functions may be called by any thread.
class CompletionChannel {
  public:
    virtual ~CompletionChannel() = default;

    /// Polls readable (level-triggered) while an established connection of one of the queues has
    /// bytes to read, room to go on sending, or has ended; of one through shared memory, while the
    /// peer's process has woken us for what it sent to an armed queue. Owned by the channel; valid
    /// while it lives.
    virtual int fd() const noexcept = 0;
    /// Serves these connections, and sends what was posted. Waits while another thread serves them.
    virtual void poll() = 0;
    /// The program sleeps on fd(): the first poll of an armed, empty queue need not ask the kernel
    /// again. prepare_sleep() follows `true`.
    virtual void set_watched(bool watched) noexcept = 0;
    /// From now on fd() tells of what comes by shared memory to queues that were armed before it is
    /// watched. Waits as poll(), and may make events.
    virtual void prepare_sleep() = 0;
    /// Grows when a connection of the channel has been found ready, in whichever thread, and when
    /// fd() no longer tells of one. A program that finds fd() readable finds it grown after poll().
    /// Wraps.
    virtual std::uint32_t arrivals() const noexcept = 0;
    /// Grows when RDMA Writes of a peer have been placed. Wraps.
    virtual std::uint32_t writes() const noexcept = 0;
};

class PolledDevice;
class PollGroup;

/// Where completions are pushed; outlives the Cq that it is of.
class CompletionTarget {
  public:
    virtual ~CompletionTarget() = default;
    virtual void push(const Wc& wc) = 0;
};

class Cq {
  public:
    virtual ~Cq() = default;

    /// Takes up to out.size() completions; moves bytes of the connections that feed this queue
    /// when there are too few. Never blocks.
    virtual std::size_t poll(std::span<Wc> out) = 0;
    /// Takes up to out.size() completions, none where fewer than `at_least` wait. Does not poll for
    /// more, but for one cycle now and then.
    virtual std::size_t take(std::span<Wc> out, std::size_t at_least) = 0;
    /// What moves the bytes of the connections that feed this queue: as many as there is room for
    /// in `out`. @return how many
    virtual std::size_t groups(std::span<PollGroup*> out) = 0;
    /// For waits that poll groups(): true once `at_least` completions wait or there is another
    /// group. The queue must outlive it.
    virtual std::function<bool()> enough(std::size_t at_least) = 0;
    /// A descriptor that polls readable when poll() may find something. Level-triggered, may be
    /// spurious; owned by the queue.
    virtual Result<int> fd() = 0;
    /// One-shot notification (verbs): see CompletionQueue::arm(). The notifier runs in a poller.
    using Notifier = void (*)(void* argument);
    virtual void set_notifier(Notifier notifier, void* argument) = 0;
    virtual void arm(bool solicited_only) = 0;
    /// Takes the arming back. False: the queue was not armed, or for solicited events only.
    virtual bool disarm() = 0;
    /// Another depth (strict queues). EINVAL: more than `wanted` completions wait, which may be
    /// fewer than the depth.
    virtual Result<void> resize(std::uint32_t depth, std::uint32_t wanted) = 0;
    /// A completion was lost (strict queues). The notifier is called when that happens, armed or
    /// not.
    virtual bool overrun() const = 0;

    // What the verbs API needs besides.

    /// Adds a completion made by the API itself (a post on a QP in error).
    virtual void push(const Wc& wc) = 0;
    /// Removes completions of a QP that is being destroyed. @return CompletionQueue::purge()
    virtual std::size_t purge(std::uint32_t qp_num) = 0;
    /// Completions of this QP wait to be polled.
    virtual bool holds(std::uint32_t qp_num) const = 0;
    /// Polls what feeds this queue, or sleeps, until done() or the deadline. `done` must be cheap
    /// and must not take locks that a notifier holds. @return done()
    virtual bool wait_until(const std::function<bool()>& done, Time deadline) = 0;
    /// The caller is about to sleep outside of the library: a thread of ours takes over at once.
    virtual void hand_over() = 0;
    /// For the completions of a connection of `group`, which polls of this queue poll from now on.
    virtual std::shared_ptr<CompletionTarget> target(PollGroup& group) = 0;
};

class Srq {
  public:
    virtual ~Srq() = default;  ///< after every Qp that uses it
    virtual Result<void> post_recv(const RecvWr& wr) = 0;
    /// Takes the oldest receive, for a message that the caller places itself (Device::scatter()).
    /// False: empty. Any thread.
    virtual bool take(RecvWqe& out) = 0;
    virtual void arm_limit(std::uint32_t limit) = 0;  ///< yields AsyncEventKind::srq_limit
    virtual std::uint32_t size() const = 0;
};

/// May a connection's data go through shared memory, where its peer is on the same host?
enum class ShmMode : std::uint8_t {
    usual,      ///< as TransportConfig says
    off,        ///< no
    automatic,  ///< yes; else TCP carries them
    require,    ///< yes; else there is no connection: EPROTONOSUPPORT
};

/// May a kernel module place what the peer writes (docs/architecture.md)?
enum class KernelMode : std::uint8_t {
    usual,      ///< as TransportConfig says
    off,        ///< no
    automatic,  ///< where it can; else at user level
    require,    ///< or there is no connection
};

/// What carries the data of a connection.
enum class DataPath : std::uint8_t { tcp, shm };

/// How a QP's MPA start-up shall go (RFC 5044 §7.1, RFC 6581). Defaults suit xsock, siw and RNICs.
struct ConnectAttr {
    enum class Role : std::uint8_t { automatic, initiator, responder };
    Role role = Role::automatic;
    std::uint8_t revision = 2;
    bool crc = true;
    bool markers = false;
    /// Initiator: the owner has written the Request that start-up would write, and perhaps seen
    /// (MSG_PEEK), but not taken, what the peer has answered.
    bool request_sent = false;
    bool defer_reply = false;  ///< responder: QpState::requested until accept() or reject()
    std::uint16_t ird = kDefaultReads, ord = kDefaultReads;
    std::uint8_t rtr = 0;  ///< mask of mpa::RtrMask; 0: client-server model
    bool xsock_mark = true;
    bool extensions = true;        ///< exchange extension frames with xsocks (docs/wire.md)
    std::uint32_t fpdu_limit = 0;  ///< largest ULPDU, bytes; 0: from the path and the peer
    ShmMode shm = ShmMode::usual;  ///< `require` without extension frames is EINVAL
    KernelMode kernel = KernelMode::usual;
    std::span<const std::byte> private_data;
    std::uint32_t startup_timeout_ms = 10'000;
    std::uint32_t max_starting = 0;          ///< listener: StartupTable's; 0: TransportConfig's
    std::uint32_t user_timeout_ms = 30'000;  ///< no sign of life, though one is due; 0: no limit
    std::uint32_t keepalive_s = 60;          ///< idle time after which one is due; 0: never
    std::string_view congestion;             ///< TCP's control of it; empty: TransportConfig's
    /// The program keeps a descriptor of the same socket: its flags stay as they are, and closing
    /// ours alone would not tell the peer.
    bool shared_descriptor = false;
    /// Sends, Writes and Immediate Data complete when the peer has taken them, as InfiniBand's do.
    /// A peer that knows Acknowledge (docs/wire.md) is asked by a bit of the message; others by a
    /// zero-length RDMA Read, which takes a place of the ORD: no effect where that is 0.
    bool acknowledged = false;
    /// The peer's FIN is not told and receives stay posted: only what is sent then fails. With
    /// `confirmed` the FIN is told, as QpState::peer_closed, and nothing fails before
    /// Qp::confirm_end().
    bool outlives_peer = false;
    /// With `outlives_peer` and `confirmed`: once the peer is gone, or has refused something, what
    /// was and is sent is dropped, and succeeds; receives stay posted until Qp::confirm_end().
    bool unreliable = false;
    /// The program learns of start-up and end by events of the owner, ahead of completions: after
    /// start-up nothing is received and nothing that was posted is sent until Qp::confirm_start();
    /// after the peer's FIN or reset no posted receive is flushed until Qp::confirm_end().
    bool confirmed = false;
};

inline constexpr std::uint8_t kRnrForever = 7;

/// What happens to messages that find no receive, as hardware has it, between xsocks; beside
/// QpAttr::rnr_timeout.
struct RnrAttr {
    /// The peer is told of its messages that wait, after so long each time; 0: it is not.
    Time notice_every = 0;
    /// How often the peer may tell so of one of ours. One more fails it, with
    /// WcStatus::rnr_retries_exceeded, and ends the connection. kRnrForever: none does.
    std::uint8_t retries = kRnrForever;
};

struct QpAttr {
    PdId pd = 0;
    Cq* send_cq = nullptr;
    Cq* recv_cq = nullptr;
    Srq* srq = nullptr;
    std::uint32_t sq_depth = 128;
    std::uint32_t rq_depth = 128;
    bool require_lkeys = false;
    bool snapshot = false;                 ///< every request as with kSendSnapshot
    std::uint32_t rights = kRemoteAccess;  ///< what the peer may do, if the region permits it too
    Api api = Api::endpoint;               ///< whose it is, for `xsock stat`
    bool event_completions = false;        ///< Wc of opcode connected / closed on recv_cq
    bool async_events = false;             ///< changes of its state are AsyncEvents
    std::uint64_t context = 0;
    /// How long a Send of the peer may wait for a receive; kNever: for ever; 0: refused at once.
    Time rnr_timeout = kSecond;
    std::uint32_t linger_ms = 5000;
    /// Bytes read from TCP at a time, at least 64 KiB: what a Send without a receive may hold up.
    std::uint32_t read_most = UINT32_MAX;
};

enum class QpState : std::uint8_t {
    fresh,      ///< no connection yet
    starting,   ///< MPA start-up
    requested,  ///< responder with defer_reply: the Request is there
    established,
    peer_closed,  ///< the peer will send no more (FIN); sending is still possible
    closing,      ///< shutdown() was called: draining
    error,        ///< ended; everything was flushed
    closed,       ///< ended in good order
};

/// Everything worth telling about a connection. Strings are copies.
struct QpInfo {
    QpState state = QpState::fresh;
    Negotiated negotiated;
    Implementation peer;  ///< what its extension frame says; empty without one
    std::uint16_t ird = 0, ord = 0;
    std::size_t mulpdu = 0;
    StreamError stream_error = StreamError::none;
    int error = 0;           ///< errno that fits how it ended; 0 while nothing went wrong
    std::string error_text;  ///< in words; empty while nothing went wrong
    std::vector<std::byte> private_data;  ///< the peer's
    std::string congestion;               ///< TCP's control of it; empty once it has ended
    DataPath path = DataPath::tcp;
    shm::Reason shm_reason = shm::Reason::none;  ///< why not shared memory; none: not known yet
    kernel::Reason kernel_reason = kernel::Reason::off;  ///< why the module does not place
    bool kernel_places = false;      ///< the module places what the peer writes, or did to the end
    std::uint64_t placed_early = 0;  ///< of that, behind a lost segment, bytes
    std::uint64_t rx_bytes = 0, tx_bytes = 0;
    /// RDMA Writes of the peer, but for start-up's; also those that the kernel module has placed
    /// without waking anybody.
    std::uint64_t rx_writes = 0;
};

class Qp {
  public:
    /// Ends the connection as shutdown() does, in the background, without waiting; receives are
    /// flushed at once, sends go on until the linger time and complete on their Cq.
    virtual ~Qp() = default;

    virtual std::uint32_t num() const = 0;
    /// Takes a connected TCP socket and begins start-up. On success the descriptor is ours.
    virtual Result<void> connect(int fd, const ConnectAttr& attr) = 0;
    virtual Result<void> accept(std::span<const std::byte> private_data, std::uint16_t ird,
                                std::uint16_t ord) = 0;
    virtual Result<void> reject(std::span<const std::byte> private_data) = 0;

    /// Never blocks. Before start-up has ended, requests wait in the queue.
    virtual Result<void> post_send(const SendWr& wr) = 0;
    /// The same for a Send of one piece of memory, not inline: most requests of many programs,
    /// without the checks for what others have.
    virtual Result<void> post_plain_send(std::uint64_t wr_id, const Sge& sge,
                                         std::uint8_t flags) = 0;
    /// As many may be posted now; more once some have completed.
    virtual std::uint32_t send_room() const = 0;
    /// Posted, and not yet complete.
    virtual std::uint32_t sends_outstanding() const = 0;
    virtual Result<void> post_recv(const RecvWr& wr) = 0;

    /// Later completions carry `context`.
    virtual void set_context(std::uint64_t context) = 0;
    /// What the peer may do from now on (QpAttr::rights).
    virtual void set_rights(std::uint32_t rights) = 0;
    /// From the next time on that the peer is told of a message that waits, or tells of one.
    virtual void set_rnr(const RnrAttr& rnr) = 0;

    /// Drains what is queued, then FIN. Returns at once.
    virtual Result<void> shutdown() = 0;
    /// RST now; everything outstanding is flushed before this returns.
    virtual void abort() = 0;
    /// Verbs' destroy: on return nothing that was posted completes any more, none of its memory is
    /// touched, and the peer's Writes go nowhere. A connection with nothing outstanding ends as
    /// shutdown() does, any other as abort() does. Completions made before or here stay in the
    /// queues: Cq::purge().
    virtual void detach() = 0;

    /// With ConnectAttr::confirmed: the program was told that the connection is established; that
    /// it has ended. Without effect when there is nothing to confirm.
    virtual void confirm_start() = 0;
    virtual void confirm_end() = 0;

    virtual QpState state() const = 0;
    virtual QpInfo info() const = 0;
    /// Waits, polling, until state() is none of fresh and starting, or the deadline.
    virtual QpState wait_started(Time deadline) = 0;
    /// What moves its bytes.
    virtual PollGroup& group() = 0;
    /// Waits, polling, until state() is closed or error.
    virtual QpState wait_ended(Time deadline) = 0;
};

enum class AsyncEventKind : std::uint8_t { qp_state, srq_limit, cq_overrun };

struct AsyncEvent {
    AsyncEventKind kind = AsyncEventKind::qp_state;
    std::uint64_t context = 0;  ///< of the QP or SRQ
    QpState state = QpState::fresh;
};

/// Connections coming in on a listening socket, started side by side: a silent client delays no
/// other.
class Listener {
  public:
    virtual ~Listener() = default;  ///< pending start-ups are dropped
    /// The next connection whose start-up ended well (with defer_reply: whose Request arrived), or
    /// null. Does not poll.
    virtual std::unique_ptr<Qp> accept() = 0;
    /// accept() would find one. Any thread.
    [[nodiscard]] virtual bool has_ready() const noexcept = 0;
    /// What runs the start-ups.
    virtual PollGroup& group() = 0;
    /// Readable when accept() may find something.
    virtual Result<int> fd() = 0;
};

class Device {
  public:
    virtual ~Device() = default;

    virtual PdId create_pd() = 0;
    virtual Result<std::uint32_t> register_memory(const RegionAttr& attr) = 0;
    /// On return no poller touches the memory through this STag any more.
    virtual Result<void> deregister_memory(std::uint32_t stag) = 0;
    /// The same STag, another meaning: MemoryTable::replace().
    virtual Result<void> replace_memory(std::uint32_t stag, const RegionAttr& attr) = 0;
    /// Memory windows, for SendOpcode::bind_window: MemoryTable's functions of these names. A
    /// binding ends with deregister_memory().
    virtual Result<std::uint32_t> reserve_window() = 0;
    virtual void release_window(std::uint32_t stag) = 0;
    virtual Result<void> prepare_window(std::uint32_t stag, const RegionAttr& attr,
                                        std::uint32_t region) = 0;
    virtual void abandon_window(std::uint32_t stag) = 0;
    virtual bool window_revoked(std::uint32_t stag) const = 0;

    /// Copies from the memory of a request, or to that of a receive, what an API moves itself, as a
    /// QP of `pd` that requires keys would: local_protection_error where an SGE lies outside its
    /// region, lacks the right or is not mapped; some of it may be written then. Any thread.
    /// @pre `to`, the pieces of `from`, are as large together as what they are to be filled with
    virtual WcStatus gather(std::span<const Sge> from, PdId pd, Bytes to) = 0;
    virtual WcStatus scatter(ConstBytes from, PdId pd, std::span<const Sge> to) = 0;

    virtual Result<std::shared_ptr<CompletionChannel>> create_channel() = 0;
    /// `strict`: overflow is an error of the queue (verbs) instead of growth. `channel`, one of
    /// this device, may be null.
    virtual Result<std::unique_ptr<Cq>> create_cq(
        std::uint32_t depth, bool strict, std::shared_ptr<CompletionChannel> channel = nullptr) = 0;
    virtual Result<std::unique_ptr<Srq>> create_srq(std::uint32_t depth, std::uint64_t context) = 0;
    virtual Result<std::unique_ptr<Qp>> create_qp(const QpAttr& attr) = 0;
    /// Takes a listening TCP socket (ours on success). Each connection becomes a Qp of `attr`.
    virtual Result<std::unique_ptr<Listener>> listen(int fd, const QpAttr& attr,
                                                     const ConnectAttr& connect) = 0;

    /// Asynchronous events, of all SRQs and of QPs with QpAttr::async_events, oldest first; false
    /// when there is none. event_fd() polls readable when there is one. Collected only after the
    /// first call of event_fd().
    virtual Result<int> event_fd() = 0;
    virtual bool next_event(AsyncEvent& out) = 0;

    /// For APIs that take part in polling: base/polled_qp.hpp.
    virtual PolledDevice& polled() noexcept = 0;
};

}  // namespace xsock
