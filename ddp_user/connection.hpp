// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One connection: a ddp::Stream over a lower layer, from start-up to its end. Sans-IO: the owner of
// the descriptor passes in what was read, writes what tx_prepare() returns, and passes the time;
// the decisions are here. The transport, the simulator and the fuzzer use this same class. One
// thread at a time.
//
//   rx(octets)                  takes all of them; what must wait for a receive is kept here
//   tx_prepare(), tx_commit()   what to write next, and how much of it was written
//   update()                    after both: changes of state, FIN, the end
//   next_timeout(), on_time()
//
//   fresh -> starting [-> requested -> starting] -> established [-> peer_closed] [-> closing]
//         -> closed or error
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/device.hpp"
#include "base/llp.hpp"
#include "base/result.hpp"
#include "ddp_user/rnr.hpp"
#include "ddp_user/stream.hpp"

namespace xsock::ddp {

/// Why a connection ended, where something went wrong.
enum class EndCause : std::uint8_t {
    none,
    stream_error,        ///< ConnectionError::stream_error says which
    terminated,          ///< by the peer: Stream::terminate_received()
    lost,                ///< what carries it failed; ConnectionError::code says how
    peer_silent,         ///< the liveness check gave the peer up
    rx_memory_unmapped,  ///< memory that something was placed in is gone
    tx_memory_unmapped,  ///< memory that was being sent is gone
    path_refused,        ///< its data may not go the way that start-up came to
    module_refused,      ///< what is to place its data does not serve it
    linger_expired,      ///< what was queued could not be sent in time
    aborted,
};

struct ConnectionError {
    EndCause cause = EndCause::none;
    int code = 0;  ///< the errno that tells a socket programmer; 0: it ended in good order
    StreamError stream_error = StreamError::none;
};

/// Limits of time.
struct ConnectionLimits {
    Time rnr_timeout = kSecond;  ///< how long a Send of the peer may wait for a receive
    Time linger = 5 * kSecond;   ///< how long what is queued at the end may take
    /// How long FIN waits toward a standard peer when we close first. Linux siw checks whether the
    /// peer has finished after it has sent a segment: a FIN that follows our answer at once makes
    /// it complete the Send that we answered, all of which has come, with an error. And of a Reply
    /// that rejects it reads nothing when FIN came in the same segment: its program is not told the
    /// private data.
    Time fin_delay = 100 * kMillisecond;
};

struct ConnectionConfig {
    Config stream;
    bool event_completions = false;  ///< Wc of opcode connected and closed on the receive queue
    ConnectionLimits limits = {};
};

/// How one start shall go: ConnectAttr, as far as it is not the lower layer's.
struct StartAttr {
    std::uint16_t ird = 16, ord = 16;  ///< unless start-up negotiates others
    bool acknowledged = false;
    bool outlives_peer = false;
    bool unreliable = false;
    bool confirmed = false;
    Time rtr_timeout = kNever;  ///< until when, from the start, the RTR message must have come
};

class Connection final {
  public:
    /// What a connection asks of the owner of the descriptor. Called from inside its functions.
    class Delegate {
      public:
        /// Start-up has ended well: the layer that shall carry the data, `startup` itself or
        /// another one, with stream() or what stands before it as its Ulp. If none may, the
        /// delegate calls lost() from here; then the answer does not count.
        virtual Llp& data_layer(Llp& startup) = 0;
        /// It is established (RTR message included), its event was queued; its state follows.
        virtual void on_started() = 0;
        virtual void on_state(QpState state) = 0;
        /// A Send finds no receive in a queue that others share: say when one is posted.
        virtual void on_rnr() = 0;
        /// FIN, behind all that was committed.
        virtual void finish() = 0;
        /// Close what carries it: with a reset, or in good order. Nothing follows.
        virtual void close(bool reset) = 0;

      protected:
        ~Delegate() = default;
    };

    Connection(const ConnectionConfig& config, Delegate& delegate);
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // -- to begin --

    /// @pre state() is fresh; `layer` outlives this, and its Ulp is stream()
    void start(Llp& layer, const StartAttr& attr, Time now);
    /// EINVAL: no Request waits for an answer, or too much private data.
    Result<void> accept(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord, Time now);
    Result<void> reject(ConstBytes private_data, Time now);
    /// StartAttr::confirmed: the program was told. False: nothing waited for that. After true,
    /// resume() and what is read next may be delivered.
    bool confirm_start();
    void confirm_end();

    // -- to receive --

    /// Nothing of what was read before waits, and more may come.
    [[nodiscard]] bool rx_wanted() const noexcept {
        return unconsumed_.empty() && remote_ == Remote::open && start_ != Start::held;
    }
    /// `now` may be 0 while !needs_time().
    void rx(ConstBytes bytes, Time now);
    /// The peer's FIN. @pre nothing waits
    void rx_eof(Time now);
    /// Octets wait: for a receive, or for confirm_start().
    [[nodiscard]] bool rx_waiting() const noexcept { return !unconsumed_.empty(); }
    /// Offers again what waits: after rx(), and whenever a receive was posted. True: some of it was
    /// taken.
    bool resume(Time now);
    /// Stream::move_receive(). False too when the memory that the octets were in is gone.
    bool move_receive(std::uint64_t wr_id, const RecvWqe& other);

    // -- to send --

    [[nodiscard]] bool tx_wanted() const noexcept;
    /// Llp::tx_prepare(). Empty too when the connection has ended over memory that is gone.
    TxBatch tx_prepare(Bytes scratch, std::size_t byte_budget, Time now);
    std::size_t tx_single(Bytes frame) { return llp_->tx_single(frame); }
    void tx_keep(ConstBytes frame, Bytes scratch) { llp_->tx_keep(frame, scratch); }
    void tx_commit(std::size_t n, Time now);
    /// Stream::move_send(). False: it has completed, or its memory is gone and it completes now.
    bool move_send(std::uint64_t wr_id, std::uint64_t new_id, std::byte* to);

    // -- changes of state --

    /// Acts on what has come about since; after each round of the above, unless quiet().
    void update(Time now);
    /// Established, nothing to send, nothing out of the ordinary: the state after nearly every
    /// message.
    [[nodiscard]] bool quiet() const noexcept {
        return is_steady() && start_ == Start::done && remote_ == Remote::open &&
               unconsumed_.empty() && llp_->status().next_timeout == kNever &&
               stream_.state() == Stream::State::established && !stream_.rnr_exceeded() &&
               !tx_wanted();
    }
    /// Another layer carries on, between two ULPDUs of each direction. The one that was there is
    /// not called again, but for the one of start-up, which may take over again.
    void hand_over(Llp& to, Time now);

    // -- to end --

    /// Drains what is queued, then FIN. No more can be posted.
    void shutdown(Time now);
    /// At once, with a reset; everything outstanding is flushed.
    void abort();
    /// The process exits, and waits no longer: FIN goes behind what was handed on already, what
    /// comes in is dropped. What is outstanding is flushed with the peer's FIN, or after the linger
    /// time: the program's memory is not used meanwhile. Takes no locks and completes nothing.
    void leave(Time now);
    /// Qp::detach(): nothing posted completes any more after it.
    void detach(Time now);
    /// The program closes it: receives are flushed, sends drain until the linger time.
    void release(Time now);
    /// It ends as an error unless it has ended, or this was called again, within the linger time.
    void linger(Time now) noexcept;
    /// A linger time that runs begins again, also that of the peer's FIN.
    void extend_linger(Time now) noexcept;
    /// What carries it has failed: nothing can be sent or closed in good order. A reset behind the
    /// peer's end is an orderly end too if the program has posted no sends.
    void lost(int error, EndCause cause = EndCause::lost);
    /// Memory that the kernel was to send is gone.
    void tx_fault();

    // -- time --

    /// False: no timer runs, and none is begun by rx() or a commit.
    [[nodiscard]] bool needs_time() const noexcept {
        return !is_steady() || llp_->status().next_timeout != kNever;
    }
    [[nodiscard]] Time next_timeout(Time now) const noexcept;
    void on_time(Time now);

    // -- to be asked --

    [[nodiscard]] QpState state() const noexcept { return state_; }
    [[nodiscard]] const ConnectionError& error() const noexcept { return error_; }
    /// The first fault of the stream; before the end too.
    [[nodiscard]] StreamError stream_error() const noexcept;
    /// Established, neither closing nor half closed.
    [[nodiscard]] bool is_steady() const noexcept { return state_ == QpState::established; }
    /// The connected event was given.
    [[nodiscard]] bool is_started() const noexcept { return start_ >= Start::held; }
    [[nodiscard]] bool is_start_held() const noexcept { return start_ == Start::held; }
    /// Everything was flushed; FIN of the peer may still be waited for.
    [[nodiscard]] bool ended() const noexcept { return life_ >= Life::ended; }
    [[nodiscard]] bool closed() const noexcept { return life_ == Life::closed; }
    [[nodiscard]] bool closing() const noexcept { return local_ != Local::open; }
    [[nodiscard]] bool fin_sent() const noexcept { return local_ == Local::finished; }
    [[nodiscard]] bool peer_finished() const noexcept { return remote_ != Remote::open; }
    /// shutdown() was called, and something is still to be sent.
    [[nodiscard]] bool draining() const noexcept {
        return life_ == Life::active && local_ == Local::closing && is_started();
    }
    /// As start() was told.
    [[nodiscard]] const StartAttr& depths() const noexcept { return attr_; }
    [[nodiscard]] Stream& stream() noexcept { return stream_; }
    [[nodiscard]] const Stream& stream() const noexcept { return stream_; }
    /// The layer that carries it; null before the start.
    [[nodiscard]] const Llp* layer() const noexcept { return llp_; }
    /// As far as start-up has come.
    [[nodiscard]] const Negotiated& negotiated() const noexcept;
    [[nodiscard]] ConstBytes private_data() const noexcept;  ///< the peer's
    /// Llp::peer() of the layer that start-up went by.
    [[nodiscard]] std::optional<Implementation> peer() const noexcept {
        return startup_ != nullptr ? startup_->peer() : std::nullopt;
    }

    void set_context(std::uint64_t context) noexcept;
    void set_rnr(const RnrAttr& rnr) noexcept;

  private:
    enum class Life : std::uint8_t { active, ended, closed };
    enum class Start : std::uint8_t {
        pending,  ///< not established, as far as the program knows
        held,     ///< established, confirm_start() is to come
        done,
    };
    /// Our direction.
    enum class Local : std::uint8_t {
        open,
        closing,   ///< shutdown(): FIN follows what is queued
        fin_owed,  ///< all is over but for FIN
        finished,  ///< FIN was sent
    };
    /// The peer's.
    enum class Remote : std::uint8_t {
        open,
        finished,  ///< its FIN has come
        over,      ///< and was told
    };
    struct Deadlines {
        Time rtr = kNever;
        Time linger = kNever;
    };

    [[nodiscard]] static Time after(Time now, Time delay) noexcept {
        return delay < kNever - now ? now + delay : kNever;
    }
    template <typename F>
    bool guarded(F&& f, EndCause cause);
    bool feed(ConstBytes bytes, Time now);
    void open_layer(Time now);
    void update_start();
    void update_end(Time now);
    void on_peer_finished();
    [[nodiscard]] bool awaits_rtr() const noexcept;
    [[nodiscard]] Time finish_at() const noexcept;
    void finish();
    void end(QpState state, const ConnectionError& error, WcStatus status, bool orderly, Time now);
    void end_by_stream(bool orderly, Time now);
    void end_by_fault(EndCause cause);
    [[nodiscard]] bool loses_nothing(int error, EndCause cause) const noexcept;
    void end_fresh(QpState state);
    void close(bool reset);
    void set_state(QpState next);
    void push_event(WcOpcode opcode, WcStatus status);
    void push(const Wc& wc);
    void leave_shared_queue();
    void begin_linger(Time now) noexcept;

    ConnectionLimits limits_;
    Delegate& delegate_;
    Stream stream_;  ///< keeps ConnectionConfig::stream
    Llp* llp_ = nullptr;
    Llp* startup_ = nullptr;  ///< the layer that start-up went by
    StartAttr attr_;
    std::unique_ptr<RecvQueue> own_queue_;  ///< after release(), instead of a shared one

    std::vector<std::byte> unconsumed_;  ///< read but not taken by the layer
    std::size_t unconsumed_at_ = 0;

    QpState state_ = QpState::fresh;
    Life life_ = Life::active;
    Start start_ = Start::pending;
    Local local_ = Local::open;
    Remote remote_ = Remote::open;
    bool event_completions_;
    bool released_ = false;
    bool awaits_confirm_end_ = false;
    bool committed_ = false;              ///< some octets were
    std::optional<WcStatus> flush_held_;  ///< ended, confirm_end() is to come: the status to flush
    Deadlines deadlines_;
    RnrWait rnr_wait_;
    Time rnr_notice_every_ = 0;  ///< RnrAttr's
    Time rnr_judged_at_ = 0;     ///< until then the peer's notices are not believed; 0: they are
    Time finish_at_ = 0;         ///< FIN waits until then
    ConnectionError error_;
};

}  // namespace xsock::ddp
