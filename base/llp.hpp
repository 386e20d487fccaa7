// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The seam between a connection and what carries it: what its owner asks of a lower layer protocol.
// MPA over TCP is one lower layer, the pipe of the unit tests another. The owner calls, with what
// it has read, with room for what it may write, and with the time; the layer answers, and calls the
// Ulp (base/ulp.hpp) above it. Nothing here does I/O. One thread at a time.
//
//   startup -> started -> open() -> operational        rx(), tx_prepare(), tx_commit()
//
// What a layer promises: ULPDUs of a direction reach the Ulp in the order in which they were given
// at the other end, each once and whole, none left out, and those before a FIN before it. What may
// not be assumed: that one ULPDU arrives in one piece, that what was committed together arrives
// together, that the two directions wait for each other, or that what was committed has arrived.
//
// What the bytes of rx() and of a batch are is between the layer and what carries it: those of a
// byte stream in order, one datagram, records of a kernel module that has placed the payload. A
// layer that reads and writes memory of its own is called with none and answers with none.
//
// Start-up and data may be two layers: the Ulp learns of a connection only by open(), of the
// layer that the owner has chosen when start-up has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/implementation.hpp"
#include "base/stream_error.hpp"
#include "base/tx_batch.hpp"
#include "base/ulp.hpp"

namespace xsock {

class Llp {
  public:
    enum class State : std::uint8_t {
        startup,         ///< agreeing with the peer
        await_decision,  ///< responder: start-up waits for accept() or reject()
        started,         ///< start-up ended well: open() is to come, of this layer or of another
        operational,
        failed,  ///< reception is over (Status::stream_error); DDP may still send a Terminate
        closed,  ///< nothing more either way
    };

    /// What the owner needs to know after nearly every call. The layer renews it at the end of each
    /// of its functions, so that reading it costs no call.
    struct Status {
        State state = State::startup;
        bool tx_allowed = false;  ///< start-up frames wait, or ULPDUs may be pulled now
        StreamError stream_error = StreamError::none;
        std::size_t tx_pending = 0;  ///< bytes prepared and not yet committed
        Time next_timeout = kNever;  ///< when on_time() is due
        /// Until when FIN must wait although all was sent: 0 when it need not.
        Time finish_at = 0;
    };
    [[nodiscard]] const Status& status() const noexcept { return status_; }
    [[nodiscard]] State state() const noexcept { return status_.state; }

    Llp() = default;
    Llp(const Llp&) = delete;
    Llp& operator=(const Llp&) = delete;
    virtual ~Llp() = default;

    // -- start-up --

    virtual void start(Time now) = 0;
    /// The answer of a responder in State::await_decision. False: it cannot be sent (too much
    /// private data).
    virtual bool accept(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord,
                        Time now) = 0;
    virtual bool reject(ConstBytes private_data, Time now) = 0;

    enum class Opening : std::uint8_t {
        first,    ///< tells the Ulp, by llp_established(agreed)
        resumed,  ///< takes over from another layer between two ULPDUs of each direction
    };
    /// Full operation begins. `agreed`: what start-up came to, of whichever layer did it.
    virtual void open(Opening how, const Negotiated& agreed, Time now) = 0;

    // -- reception --

    struct Rx {
        std::size_t taken = 0;
        /// Start-up ended behind what was taken, or the first ULPDU of a peer that had to send one
        /// first (RFC 6581 §9): the owner acts on that before it offers the rest.
        bool boundary = false;
    };
    /// Takes what was read, in order; places and delivers ULPDUs. Takes fewer than given only at a
    /// boundary or when the Ulp has no room: the owner offers the rest again. After failure
    /// everything is taken and dropped. Faults go to Ulp::llp_failed().
    virtual Rx rx(ConstBytes bytes, Time now) = 0;
    /// The peer finished sending. Only once rx() has taken all that came before.
    virtual void rx_eof(Time now) = 0;
    /// What carries the layer has failed, or a guarded call around it ended in a fault
    /// (base/fault.hpp). Terminal.
    virtual void lost() = 0;

    // -- transmission --

    /// What to write next: pulls ULPDUs until `scratch` or `byte_budget` is used up; the budget
    /// may be passed by the last. What an earlier batch left unwritten comes first, and nothing new
    /// with it: the earlier scratch stays as it was until Status::tx_pending is 0. Valid until the
    /// next call.
    virtual TxBatch tx_prepare(Bytes scratch, std::size_t byte_budget, Time now) = 0;
    /// The one small message that there is to send, laid out in `frame`; 0: there is none, or it is
    /// not so simple, and tx_prepare() has it. Touches no memory of the program. It is pending: if
    /// all of it was written tx_commit() comes next, else tx_keep().
    virtual std::size_t tx_single(Bytes frame) = 0;
    /// What tx_single() gave last, as it lies in `frame`, goes on as a batch in `scratch`, of which
    /// nothing is committed yet.
    virtual void tx_keep(ConstBytes frame, Bytes scratch) = 0;
    /// The first `n` octets of what tx_prepare() or tx_single() gave last were written.
    virtual void tx_commit(std::size_t n, Time now) = 0;
    /// Bytes at `from` that are still to be written lie at `to` from now on.
    virtual void tx_move(const std::byte* from, std::size_t n, std::byte* to) noexcept = 0;
    /// FIN was sent: nothing may follow.
    virtual void tx_finished() noexcept = 0;

    // -- time --

    virtual void on_time(Time now) = 0;

    // -- what start-up came to --

    [[nodiscard]] virtual const Negotiated& negotiated() const noexcept = 0;
    [[nodiscard]] virtual ConstBytes private_data() const noexcept = 0;  ///< the peer's
    /// Largest ULPDU that will be asked of the Ulp now.
    [[nodiscard]] virtual std::size_t mulpdu() const noexcept = 0;
    /// What the peer says of itself (an extension frame, docs/wire.md); none when it says nothing.
    [[nodiscard]] virtual std::optional<Implementation> peer() const noexcept = 0;

  protected:
    Status status_;
};

}  // namespace xsock
