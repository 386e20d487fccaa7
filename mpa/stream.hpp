// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// MPA over an octet stream: start-up, then FPDUs both ways (RFC 5044). Sans-IO: the transport asks
// what to write and hands in what it read; time is an argument. One thread at a time.
//
//   tx_prepare(scratch, now) -> TxBatch    what to write next, many FPDUs at once     tx_commit(n)
//   rx_consume(octets, now)  -> n          places and delivers; fewer than given: not now
//   next_timeout() / on_time(now)          state()
//
// Deviation from DESIGN §3: reception takes octets the transport has read into a buffer that all
// connections share (rx_consume), rather than naming a buffer beforehand. Copying out of a hot
// 256 KiB buffer while computing the CRC was measured at least as fast as reading in place
// (facts: 1.04 against 1.02 of TCP), and an idle connection needs no buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.hpp"
#include "base/ulp.hpp"
#include "mpa/startup.hpp"
#include "mpa/tx_batch.hpp"

namespace xsock::mpa {

struct Config {
    StartupConfig startup;
    /// Payloads of a ULPDU up to this many octets are copied beside their header (one buffer, one
    /// iovec); larger ones are gathered from where they lie.
    std::size_t copy_limit = 4096;
    /// Largest ULPDU toward another xsock, and toward siw when it takes FPDUs larger than a segment
    /// (docs/wire.md); others get what EMSS allows.
    std::size_t xsock_mulpdu = 65472 + 14;
    /// Largest ULPDU toward anyone; EMSS may make it smaller.
    std::size_t mulpdu_limit = MPA_ULPDU_MAX;
    /// Responder: time after the Reply was written until we may send first (RFC 5044 §7.1.2 rule 4
    /// wants the peer's first FPDU before; see docs/wire.md). siw gives a connection up when an
    /// FPDU is there before it has looked at the Reply, which takes a busy machine tens of
    /// milliseconds.
    Time first_fpdu_hold = 200 * kMillisecond;
    /// Initiator: silence after start-up until llp_nudge(). While the silence lasts it is called
    /// again, after four times as long each time, kNudges times in all.
    Time nudge_after = 5 * kMillisecond;
    static constexpr int kNudges = 3;
    /// Initiator that sent an RTR message, not toward an xsock: how long a silent peer is given
    /// before the connection may be finished (docs/wire.md).
    Time rtr_settle = 150 * kMillisecond;
};

class Stream {
  public:
    enum class State : std::uint8_t {
        startup,         ///< exchanging Request and Reply
        await_decision,  ///< responder: request() waits for accept() or reject()
        operational,
        failed,  ///< reception is over (violation() says why); DDP may still send a Terminate
        closed,  ///< nothing more either way
    };

    Stream(Config config, Ulp& ulp);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    void start(Time now);

    // -- reception --

    /// Takes octets read from the stream, in order. Parses FPDUs, places their ULPDUs where the Ulp
    /// says, delivers those whose CRC holds. Answers how many octets were consumed: fewer than
    /// given only when the Ulp has no room (rx_target() was empty); the caller keeps the rest and
    /// offers it again later. After failure everything is consumed and dropped. Never fails itself:
    /// faults go to Ulp::llp_failed(). (Octets that come while a decision is pending are a fault of
    /// the peer's: RFC 5044 §7.1.2.)
    std::size_t rx_consume(ConstBytes octets, Time now);
    /// The peer finished sending (FIN). Inside an FPDU this is mpa_connection_lost, so call it only
    /// once rx_consume() has taken all octets before it.
    void rx_eof(Time now);
    /// The transport failed, or a guarded call around this stream ended in a fault
    /// (base/fault.hpp): nothing else may follow that. Terminal.
    void lost();

    // -- transmission --

    /// What to write next. Pulls ULPDUs from the Ulp until `scratch` (headers, trailers, small
    /// payloads, and in its tail the iovecs), the iovecs or `octet_budget` are used up; the budget
    /// may be passed by the last FPDU. What an earlier batch left unwritten comes first, and then
    /// nothing new is pulled: the earlier scratch must stay as it was until tx_pending() is 0.
    /// Memory that was revoked meanwhile (Ulp::tx_intact()) closes the stream with local_fault.
    /// The batch is valid until the next call on this stream.
    ///
    /// @pre scratch.size() >= kMinTxScratch; it needs no alignment
    TxBatch tx_prepare(Bytes scratch, std::size_t octet_budget, Time now);
    /// The first `n` octets of the last batch were handed to TCP: Ulp::tx_done() for each ULPDU
    /// whose last octet was among them.
    void tx_commit(std::size_t n, Time now);
    /// One small FPDU, whole, laid out in `frame` (Ulp::tx_lone()), or 0 when tx_prepare() must be
    /// asked. Changes nothing: what was not written of it, tx_prepare() gives again.
    std::size_t tx_lone(Bytes frame);
    /// All of what tx_lone() gave last was handed to TCP.
    void tx_lone_done();
    /// Until when FIN must wait although all was sent: 0 when it need not. Linux dies of a
    /// connection that is finished before its siw has seen the RTR message.
    [[nodiscard]] Time finish_at() const noexcept;
    /// FpduSender::move()
    void tx_move(const std::byte* from, std::size_t n, std::byte* to) noexcept;
    /// The transport has sent FIN: no nudge is due any more, for nothing may follow.
    void tx_finished() noexcept;
    /// Octets prepared and not yet committed.
    [[nodiscard]] std::size_t tx_pending() const noexcept;
    /// True while start-up frames wait, or while FPDUs may be pulled (not held back).
    [[nodiscard]] bool tx_allowed() const noexcept;

    // -- a responder that defers --
    bool accept(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord, Time now);
    bool reject(ConstBytes private_data, Time now);
    [[nodiscard]] const Request& request() const noexcept;
    [[nodiscard]] ConstBytes private_data() const noexcept;

    // -- time --
    [[nodiscard]] Time next_timeout() const noexcept;
    void on_time(Time now);

    /// Effective maximum segment size of the path, octets (RFC 5044 §5.1). Values outside
    /// 128+…65535 are clamped (a forged ICMP must not cripple us, §9.1). Default 1460.
    void set_emss(std::size_t emss) noexcept;
    /// Largest ULPDU that will be asked of the Ulp now.
    [[nodiscard]] std::size_t mulpdu() const noexcept;

    [[nodiscard]] State state() const noexcept;
    [[nodiscard]] Violation violation() const noexcept;
    [[nodiscard]] const Negotiated& negotiated() const noexcept;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace xsock::mpa
