// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The Sockets Direct Protocol as a Wire: credits, what is owed to the peer, and every rule that
// needs to know what went before (draft-pinkerton-iwarp-sdp-01 §8 to §14; docs/wire.md). It sends
// its data by BCopy. Of a peer it takes every message in every mode: advertised sources are
// declined by SendSm, so that the data come as Data; sinks are counted and not used.
//
// Start-up: initiator hello() -> take_hello() responder; hello_ack() -> take_hello_ack().
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "stream/sdp_wire.hpp"
#include "stream/wire.hpp"

namespace xsock::stream {

/// SrcAvails and SinkAvails of the peer at once; more are never announced.
inline constexpr std::uint16_t kMaxAdverts = 16;

struct SdpConfig {
    std::uint32_t buffer_bytes = 65'456;  ///< of a private buffer: of a message, headers included
    std::uint64_t receive_bytes =
        1 << 22;  ///< of all private buffers that are announced together; two at least
    std::uint32_t message_bytes = 65'456;  ///< of a message of ours, at most
    std::uint16_t max_adverts = 1;         ///< towards us, 1 to kMaxAdverts
    std::uint16_t ird = 1, ord = 1;        ///< as start-up negotiates them; shown only
};

class Sdp final : public Wire {
  public:
    explicit Sdp(const SdpConfig& config);

    // -- start-up --

    [[nodiscard]] std::array<std::byte, kHelloOctets> hello() const noexcept;
    [[nodiscard]] std::array<std::byte, kHelloAckOctets> hello_ack() const noexcept;
    /// sdp_hello: what the peer sent is none.
    [[nodiscard]] StreamError take_hello(ConstBytes private_data);
    [[nodiscard]] StreamError take_hello_ack(ConstBytes private_data);

    // -- Wire --

    [[nodiscard]] std::size_t header_bytes() const noexcept override { return kBsdhOctets; }
    [[nodiscard]] std::size_t payload_limit() const noexcept override;
    [[nodiscard]] bool may_send_data() const noexcept override;
    SendKind put_data(std::size_t payload_bytes, UrgentMarks marks, Bytes header) override;
    bool put_control(Wishes& wishes, Control& out) override;
    Arrival rx(ConstBytes message) override;
    void set_room(std::int64_t bytes) override;
    [[nodiscard]] std::size_t message_limit() const noexcept override {
        return config_.buffer_bytes;
    }

    // -- to be asked --

    /// Messages that the peer takes now.
    [[nodiscard]] std::uint32_t credit() const noexcept { return tx_.limit - tx_.mseq; }
    [[nodiscard]] SdpMode send_mode() const noexcept { return tx_.mode; }
    [[nodiscard]] SdpMode receive_mode() const noexcept { return rx_.mode; }
    /// Asks for another mode of the direction towards the peer: of the draft's changes those that
    /// the source makes. False: there is none from the present mode, or one is under way.
    bool change_send_mode(SdpMode to);
    /// For tests: after start-up, the numbers of both directions go on from `mseq`.
    void start_numbers_at(std::uint32_t mseq) noexcept;

  private:
    /// An answer that a message of the peer asks for.
    enum class Owed : std::uint8_t { none, once };

    [[nodiscard]] std::uint32_t announced_limit() const noexcept;
    [[nodiscard]] std::uint32_t ack() const noexcept;
    [[nodiscard]] std::uint32_t known_credit() const noexcept { return rx_.limit - rx_.mseq; }
    [[nodiscard]] bool update_is_due() const noexcept;
    [[nodiscard]] bool may_send_control() const noexcept;
    Bsdh next_header(std::uint8_t mid, std::uint8_t flags);
    bool put(Control& out, SdpMessage message, SendKind kind, std::uint8_t flags = 0);
    bool put_owed(Control& out);

    StreamError take_limits(const std::optional<SdpHello>& hello);
    StreamError check_sequence(const SdpMessage& message);
    StreamError check_urgent(const SdpMessage& message);
    StreamError check_payload(const SdpMessage& message) const;
    StreamError take(const SdpMessage& message, Arrival& arrival);
    StreamError take_source(const SdpMessage& message);
    StreamError take_sink(const SdpMessage& message);
    StreamError take_mode_change(const SdpMessage& message);
    StreamError take_source_cancel(const SdpMessage& message);
    StreamError take_sink_cancel();
    [[nodiscard]] std::uint32_t sources_outstanding() const noexcept {
        return sources_.owed + sources_.declined;
    }
    void forget_declined(std::uint32_t mseq_ack) noexcept;

    SdpConfig config_;
    std::int64_t room_;

    struct Tx {                   // our direction
        std::uint32_t mseq = 0;   // of the last message sent
        std::uint32_t acked = 0;  // the last MSeqAck of the peer
        std::uint32_t limit = 0;  // number of the last message that it takes
        std::uint32_t size = 0;   // of its private buffers
        SdpMode mode = SdpMode::combined;
        SdpMode wanted_mode = SdpMode::combined;
        std::uint32_t mode_mseq = 0;  // of our last ModeChange
        std::uint32_t potential = 0;  // PotentialNonDiscards (draft §9.3)
        std::uint32_t sinks = 0;      // SinkAvails of the peer that are valid
        bool finished = false;        // DisConn was sent
    } tx_;
    struct Rx {                   // the peer's
        std::uint32_t mseq = 0;   // of the last message received
        std::uint32_t ack = 0;    // the last MSeqAck sent
        std::uint32_t limit = 0;  // number of the last message that the peer knows it may send
        SdpMode mode = SdpMode::combined;
        std::uint32_t mode_mseq = 0;  // of its last ModeChange
        bool finished = false;        // its DisConn came
        bool urgent_pending = false;
        std::uint32_t urgent_distance = 0;  // stream octets since that was said
    } rx_;
    struct Sources {                                  // SrcAvails of the peer
        std::uint32_t owed = 0;                       // each to be answered by a SendSm
        std::uint32_t declined = 0;                   // answered; the peer may not know it yet
        std::array<std::uint32_t, kMaxAdverts> at{};  // MSeq of those answers, oldest first
        bool cancelled = false;                       // MSeqAck stops ahead of cancel_mseq
        std::uint32_t cancel_mseq = 0;
    } sources_;
    Owed resize_ack_ = Owed::none, sink_cancel_ack_ = Owed::none;
    bool news_ = false;  // the peer, or the program by reading, has changed what we can announce
};

}  // namespace xsock::stream
