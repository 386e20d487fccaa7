// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The device seam for an API that takes part in polling, instead of posting receives and taking
// completions from a queue: sockets in DDPMODE. It has the memory for what comes in, is told of
// each completion by the poller that makes it, and does in one poll cycle what belongs together.
//
// What takes a PollCycle is called inside one (PollGroup::locked(), or by what the poller calls);
// everything else by any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/device.hpp"
#include "base/poll_group.hpp"
#include "base/work.hpp"

namespace xsock {

/// One connection. It lives until it has ended and the last reference is given back; release() it
/// before.
class PolledQp {
  public:
    /// Told of every change of state by the poller, inside a poll cycle, until release().
    using StateListener = std::function<void(PolledQp&, QpState)>;

    /// `gather`: may wait for others (docs/threading.md).
    virtual Result<void> post_send(const SendWr& wr, bool gather) = 0;
    /// The same without sending it: send_queued() follows. It calls nothing back, so locks of the
    /// API may be held.
    virtual Result<void> queue_send(const SendWr& wr) = 0;
    /// Sends what queue_send() was given; as post_send() without gathering.
    virtual void send_queued() = 0;
    /// PolledQpAttr::on_poll is to be called by the next poll cycle, within half a millisecond
    /// where there is a background thread.
    virtual void poll_soon() = 0;
    /// How a connection ends by request_end(). `linger`: as an error, unless another of these or
    /// the same comes within the linger time.
    enum class End : std::uint8_t { linger, shutdown, abort, release };
    /// The poller ends it, in a poll cycle that follows at once, behind what queue_send() was
    /// given; also what it calls may ask for it. Of several requests the last in this order holds.
    virtual void request_end(End how) = 0;
    /// Such receives are taken before PolledQpAttr::provide_receive is asked.
    virtual Result<void> post_recv(const RecvWr& wr) = 0;
    /// There is memory again after provide_receive had none.
    virtual void receive_posted() = 0;
    /// Send requests that can be posted now; a hint.
    [[nodiscard]] virtual std::uint32_t send_room() const noexcept = 0;
    /// Send requests that are posted and not complete; a hint.
    [[nodiscard]] virtual std::uint32_t sends_outstanding() const noexcept = 0;
    /// QpAttr::context, or the last of set_context().
    [[nodiscard]] virtual std::uint64_t context() const noexcept = 0;

    /// Takes a connected TCP socket on success, and begins MPA start-up; with Role::automatic as
    /// the initiator.
    virtual Result<void> start(int fd, const ConnectAttr& attr, PollCycle& cycle) = 0;
    virtual void shutdown(PollCycle& cycle) = 0;
    virtual void abort(PollCycle& cycle) = 0;
    /// The owner releases it: receives are flushed, sends drain until the linger time.
    virtual void release(PollCycle& cycle) = 0;
    /// Bytes of receive `wr_id` that are still coming in go to `other`, and what has come is copied
    /// there. False: it has completed, or the memory that they were in is gone.
    virtual bool move_receive(std::uint64_t wr_id, const RecvWqe& other, PollCycle& cycle) = 0;
    /// Bytes of send `wr_id` that TCP has not taken yet go on from `to`, as send `new_id`. False:
    /// it has completed, or its memory is gone and with it the connection, so that it completes
    /// now.
    virtual bool move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to,
                           PollCycle& cycle) = 0;
    virtual void set_listener(StateListener listener) = 0;

    // Inside a poll cycle, too.

    /// A waiting call has what it waited for: no more is read in this cycle, since the call may
    /// offer a better place for what comes next.
    virtual void enough_read() noexcept = 0;
    /// Where the owner of a byte stream counts, for `xsock stat`; as long as the connection lives.
    virtual StreamCounters& stream_counters() noexcept = 0;
    /// Later completions that are not internal carry it.
    virtual void set_context(std::uint64_t context) = 0;
    [[nodiscard]] virtual QpInfo info() const = 0;
    /// That of info(), without the questions to the kernel; valid until the connection goes.
    [[nodiscard]] virtual std::span<const std::byte> peer_private_data() const = 0;
    [[nodiscard]] virtual int error() const noexcept = 0;  ///< QpInfo::error
    [[nodiscard]] virtual kernel::Reason kernel_reason() const noexcept = 0;  ///< QpInfo's
    /// Another descriptor of the socket, close-on-exec, for the program. ENOTCONN: it has ended.
    [[nodiscard]] virtual Result<int> descriptor() const = 0;
    /// SIGURG for the owner of the socket, if the program has set one.
    virtual void signal_owner() const noexcept = 0;

  protected:
    ~PolledQp() = default;
};

/// How far exit() has come.
enum class ExitStep : std::uint8_t {
    waits,  ///< it waits for what is still to be sent
    over,   ///< it does so no longer: memory of the program may be gone soon
};

/// What the owner of a PolledQp is asked, and what with; each may be null.
struct PolledQpCalls {
    void* argument = nullptr;  ///< also of those of PolledQpAttr
    /// Called by the poller ahead of what it sends for poll_soon(), and at the time that it
    /// answered last (kNever: not again); may call queue_send().
    Time (*on_poll)(void* argument) = nullptr;
    /// Asked where start-up ends: will something be queued as soon as it has? Any lock may be held.
    bool (*waits_to_send)(void* argument) = nullptr;
    /// The process exits. `waits`: begins to end it; true: something is still to be sent, and
    /// request_end() will follow; asked again until then. `brief`: not for the linger time, which
    /// it is false for before the call. `over`: true: it leaves the program's memory alone from now
    /// on; false: it uses none, and goes on. Null: PolledQp::shutdown(), then true.
    bool (*on_exit)(void* argument, ExitStep step, bool& brief) = nullptr;
    /// Nor is what it has sent waited for, once its end was asked for.
    bool exits_briefly = false;
    /// exec() is going to replace the process, or to fail: as on_exit with `waits`, but the
    /// connection goes on.
    bool (*on_exec)(void* argument, bool& brief) = nullptr;
    /// With ConnectAttr::defer_reply: answers a Request by its private data, in the poller. False:
    /// refused.
    bool (*on_request)(void* argument, std::span<const std::byte> request,
                       std::vector<std::byte>& reply) = nullptr;
};

struct PolledQpAttr : PolledQpCalls {
    QpAttr qp;  ///< without queues
    PollGroup* group = nullptr;
    PolledQp::StateListener listener;
    std::shared_ptr<void> keeper;  ///< given back when the connection is gone
    /// Memory for a message that begins to come in, of `bytes` at most: fills in `out`. False: none
    /// now; the message waits until receive_posted().
    bool (*provide_receive)(void* argument, std::uint32_t bytes, RecvWqe& out) = nullptr;
    /// It must not end the connection that it is called for.
    void (*on_completion)(void* argument, const Wc& wc) = nullptr;
};

/// Accepts in poll cycles and runs start-ups side by side.
class PolledListener {
  public:
    /// Makes a connection for an accepted socket, in the poller: its listener calls `tell` last.
    using Make = std::function<std::shared_ptr<PolledQp>(PolledQp::StateListener tell)>;
    /// Told, in the poller, when a connection has become ready or there is a shortage(), and of
    /// each that did not become ready.
    struct Observer {
        std::function<void()> on_connection_ready;
        std::function<void(PolledQp&)> on_connection_failed;
    };

    virtual void set_observer(Observer observer) = 0;
    /// Without success the descriptor is the caller's again.
    virtual Result<void> open(PollCycle& cycle) = 0;
    /// Start-ups under way and connections not taken are dropped.
    virtual void close(PollCycle& cycle) = 0;
    /// The next connection whose start-up ended well, or null.
    virtual std::shared_ptr<PolledQp> take() = 0;
    /// It is the next again.
    virtual void give_back(std::shared_ptr<PolledQp> qp) = 0;
    [[nodiscard]] virtual bool has_ready() const noexcept = 0;
    /// The errno for want of which connections wait in the listen queue (EMFILE, ENFILE, ENOMEM,
    /// ENOBUFS), or EINVAL when it was shut down elsewhere; 0: none does.
    [[nodiscard]] virtual int shortage() const noexcept = 0;
    /// Tries again at once instead of after a pause.
    virtual void retry(PollCycle& cycle) = 0;

  protected:
    ~PolledListener() = default;
};

/// What a Device has for such an API.
class PolledDevice {
  public:
    /// For what the calling thread makes: threads are spread over the groups, and one thread's
    /// connections share one, so that none is woken for what another thread waits for.
    virtual PollGroup& group_of_thread() = 0;
    virtual std::shared_ptr<PolledQp> create_polled_qp(PolledQpAttr attr) = 0;
    /// Takes a listening TCP socket, which does not block.
    virtual std::shared_ptr<PolledListener> create_polled_listener(int fd, PollGroup& group,
                                                                   const ConnectAttr& attr,
                                                                   PolledListener::Make make) = 0;
    /// The connection as a Qp, for a user of the API: its end is not the connection's, which
    /// outlives it. `may_post_recv` is asked before each receive.
    virtual std::unique_ptr<Qp> borrow(PolledQp& qp,
                                       std::function<Result<void>()> may_post_recv) = 0;

  protected:
    ~PolledDevice() = default;
};

}  // namespace xsock
