// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// MPA over an octet stream: start-up, then FPDUs both ways (RFC 5044). Sans-IO: the transport asks
// what to write and hands in what it read; time is an argument. One thread at a time.
//
// The lower layer of a connection (base/llp.hpp). The rules of the first FPDU (RFC 5044 §7.1.2), of
// the RTR message (RFC 6581 §9) and of the probe of a silent peer are kept here: the owner sees
// only tx_allowed, next_timeout and finish_at.
//
// Reception takes octets the transport has read into a buffer that all connections share, rather
// than naming a buffer beforehand. Copying out of a buffer that stays in the cache while computing
// the CRC was measured, with 256 KiB, to be at least as fast as reading in place (1.04 against 1.02
// of TCP); it has 512 KiB now (transport/progress.cpp). An idle connection needs no buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.hpp"
#include "base/llp.hpp"
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
    /// Responder, without extension frames: time after the Reply was written until we may send
    /// first (RFC 5044 §7.1.2 rule 4 wants the peer's first FPDU before; see docs/wire.md). siw
    /// gives a connection up when an FPDU is there before it has read the Reply, which takes a
    /// busy machine tens of milliseconds.
    Time first_fpdu_hold = 200 * kMillisecond;
    /// Initiator, not toward an xsock: silence after start-up until llp_probe(). While the silence
    /// lasts it is called again, after four times as long each time, kProbes times in all.
    Time probe_after = 5 * kMillisecond;
    static constexpr int kProbes = 3;
    /// Initiator that sent an RTR message, not toward an xsock: how long a silent peer is given
    /// before the connection may be finished (docs/wire.md).
    Time rtr_fin_delay = 150 * kMillisecond;
};

class Stream final : public Llp {
  public:
    Stream(Config config, Ulp& ulp);
    ~Stream() override;

    void start(Time now) override;
    bool accept(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord, Time now) override;
    bool reject(ConstBytes private_data, Time now) override;
    void open(Opening how, const Negotiated& agreed, Time now) override;

    /// Octets of the stream, or records (use_records()). Octets that come while a decision is
    /// pending are a fault of the peer's: RFC 5044 §7.1.2.
    Rx rx(ConstBytes bytes, Time now) override;
    /// Inside an FPDU this is mpa_connection_lost.
    void rx_eof(Time now) override;
    void lost() override;

    /// `scratch` takes headers, trailers, small payloads, and in its tail the iovecs. Memory that
    /// was revoked under what is left of a batch (Ulp::tx_intact()) closes the stream with
    /// local_fault.
    ///
    /// @pre scratch.size() >= kMinTxScratch; it needs no alignment
    TxBatch tx_prepare(Bytes scratch, std::size_t byte_budget, Time now) override;
    std::size_t tx_single(Bytes frame) override;
    void tx_keep(ConstBytes frame, Bytes scratch) override;
    void tx_commit(std::size_t n, Time now) override;
    void tx_move(const std::byte* from, std::size_t n, std::byte* to) noexcept override;
    void tx_finished() noexcept override;

    /// Initiator: the peer offers shared memory by this value, and start-up waits for
    /// answer_offer(). Empty: no offer waits. See StartupConfig::answers_offer.
    [[nodiscard]] ConstBytes offer() const noexcept;
    /// Our extension frame is to be written, with this value as the answer. False: no offer waits.
    bool answer_offer(ConstBytes value);
    /// Responder: the peer's answer to the offer in its extension_tlvs. Valid in State::started;
    /// empty: the peer gave none.
    [[nodiscard]] ConstBytes answer() const noexcept;

    void on_time(Time now) override;

    [[nodiscard]] const Negotiated& negotiated() const noexcept override;
    [[nodiscard]] ConstBytes private_data() const noexcept override;
    [[nodiscard]] std::size_t mulpdu() const noexcept override;
    [[nodiscard]] std::optional<Implementation> peer() const noexcept override;

    // What the owner of the TCP connection asks besides.

    /// Effective maximum segment size of the path, octets (RFC 5044 §5.1). Values outside
    /// 128+…65535 are clamped (a forged ICMP must not cripple us, §9.1). Default 1460.
    void set_emss(std::size_t emss) noexcept;
    /// Does it matter for what is sent? Valid once start-up has ended.
    [[nodiscard]] bool wants_emss() const noexcept;

    // What the owner asks for when a kernel module may place what the peer sends.

    /// State::startup: so many octets may be read and no octet of an FPDU is among them. 0: the
    /// peer is to send nothing now; what it has sent all the same is read before anything is
    /// written, so that rx() sees it. Afterwards without limit.
    [[nodiscard]] std::size_t rx_wanted() const noexcept;
    /// rx() is given records from open() on (include/xsock/ddp_uapi.h): the first stands for what
    /// lies directly behind start-up. @pre State::started, and all that was read has been taken
    void use_records();
    /// The module is unbound: rx() is given octets again. @pre use_records(), and all records have
    /// been taken
    void use_octets();
    /// Octets of the stream that records stood for.
    [[nodiscard]] std::uint64_t record_octets() const noexcept;

  private:
    void update_status() noexcept;

    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace xsock::mpa
