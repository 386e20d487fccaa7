// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// MPA connection start-up, RFC 5044 §7.1 and RFC 6581, and between xsocks the extension frames
// behind Request and Reply (docs/wire.md): one state machine for both roles, sans-IO.
// Used by mpa::Stream only; tested on its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "base/ulp.hpp"
#include "include/xsock/iwarp.h"
#include "mpa/enhanced_data.hpp"
#include "mpa/extension_frame.hpp"
#include "mpa/startup_result.hpp"

namespace xsock::mpa {

enum class Role : std::uint8_t { initiator, responder };

struct StartupConfig {
    Role role = Role::initiator;
    std::uint8_t revision = 2;     ///< initiator: 1 or 2. Responder: the highest it answers
    bool crc = true;               ///< our C; on for the connection if either end says so
    bool markers = false;          ///< our M: the peer shall insert markers, as we do for its M
    bool negotiate_depths = true;  ///< S: enhanced data with IRD/ORD (revision 2 only)
    std::uint16_t ird = kDefaultReads, ord = kDefaultReads;
    std::uint8_t rtr = 0;  ///< RtrMask; non-zero: peer-to-peer model (initiator offers,
                           ///< responder accepts these)
    bool xsock_mark = true;
    bool extensions = true;    ///< with the mark: exchange extension frames if the peer does
    bool defer_reply = false;  ///< responder: wait for accept() or reject()
    /// Without the enhanced octets; at most 512, or 508 if the frame may be enhanced (revision 2).
    std::vector<std::byte> private_data = {};
    /// Of our frame; see append_tlv(). A responder offers shared memory by MPA_TLV_SHM_OFFER.
    std::vector<std::byte> extension_tlvs = {};
    /// Initiator: our frame waits for the peer's, and if that offers shared memory, for
    /// answer_offer(). Else it leaves as soon as the Reply was read, and an offer is skipped.
    bool answers_offer = false;
    Time timeout = 10 * kSecond;
};

/// What the initiator asked for, seen by a responder that defers its Reply.
struct Request {
    std::uint8_t revision = 0;
    bool crc = false, markers = false, enhanced = false, peer_to_peer = false, xsock = false;
    std::uint16_t ird = 0, ord = 0;  ///< as the initiator sent them
    std::vector<std::byte> private_data;
};

class Startup {
  public:
    enum class State : std::uint8_t {
        idle,
        await_reply,     // initiator: Request queued or sent
        await_request,   // responder
        await_decision,  // responder that defers: Request is there
        replying,        // responder: Reply not yet written out
        exchanging,      // our extension frame is not yet written out, or the peer's not yet there
        rejecting,       // responder: a Reply with R set not yet written out
        established,
        rejected,  // initiator: the peer said no; private_data() tells why
        failed,    // stream_error() tells why; also a responder once its reject is written
    };

    explicit Startup(StartupConfig config);

    void begin(Time now);

    /// Takes octets of the stream; answers how many were start-up octets. Fewer than given only
    /// when start-up ended. A responder treats octets behind the Request, before its Reply was
    /// written, as a stream error (RFC 5044 §7.1.2), also while a decision is pending. So are
    /// octets behind the peer's extension frame before ours was written.
    std::size_t rx(ConstBytes bytes);
    /// How many octets may be read without one that lies behind start-up, or behind what the peer
    /// may send now. 0: none now; one that can be read all the same is a stream error that rx()
    /// finds.
    [[nodiscard]] std::size_t rx_wanted() const noexcept;
    /// The peer finished sending.
    void rx_eof();

    /// Octets to write now; empty when none.
    [[nodiscard]] ConstBytes tx() const noexcept;
    void tx_commit(std::size_t n);

    /// Responder in await_decision. Depths and private data of the Reply. False when not in
    /// await_decision or private data too long: 512 octets, toward standard peers 256, and 4 fewer
    /// if the Request was enhanced.
    bool accept(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord);
    bool reject(ConstBytes private_data);

    /// Initiator: the value of the peer's MPA_TLV_SHM_OFFER while it waits for answer_offer();
    /// empty when none does. Only the time for start-up, or the connection's end, ends the wait.
    [[nodiscard]] ConstBytes offer() const noexcept;
    /// Our frame goes, with `value` as its MPA_TLV_SHM_ANSWER. False when no offer waits.
    bool answer_offer(ConstBytes value);
    /// Responder that has offered: the value of the peer's MPA_TLV_SHM_ANSWER, valid once
    /// established. Empty: its frame has none.
    [[nodiscard]] ConstBytes answer() const noexcept;

    [[nodiscard]] Time next_timeout() const noexcept;
    void on_time(Time now);

    [[nodiscard]] State state() const noexcept { return state_; }
    [[nodiscard]] StreamError stream_error() const noexcept { return stream_error_; }
    [[nodiscard]] const Negotiated& negotiated() const noexcept { return negotiated_; }
    /// Peer's Request (responder). Valid from await_decision on.
    [[nodiscard]] const Request& request() const noexcept { return request_; }
    /// Private data of the peer's frame, enhanced octets taken off. Valid once it was received.
    [[nodiscard]] ConstBytes private_data() const noexcept { return peer_private_data_; }
    /// What the peer's extension frame says of it; none without such a frame, or before it came.
    [[nodiscard]] std::optional<Implementation> peer() const noexcept { return peer_.get(); }
    /// negotiated(), private_data(), peer() and answer(), once and for all: only the destructor may
    /// follow. What private_data() named stays valid with the result. @pre established
    [[nodiscard]] StartupResult take_result() noexcept;

  private:
    [[nodiscard]] bool initiator() const noexcept { return config_.role == Role::initiator; }
    [[nodiscard]] bool receiving() const noexcept;
    [[nodiscard]] std::size_t pd_limit() const noexcept;
    bool take_key_octet(std::byte value);
    void on_header();
    void on_frame();
    void on_request();
    void on_reply();
    std::size_t take_extension_frame(ConstBytes bytes);
    void on_extension_frame(ExtensionFrame frame);
    void send_extension_frame();
    void end_exchange();
    StreamError take_depths(bool enhanced, std::uint16_t enhanced_ird, std::uint16_t enhanced_ord);
    void send_request();
    void send_reply(ConstBytes private_data, std::uint16_t ird, std::uint16_t ord);
    void send_reject(StreamError why, ConstBytes private_data);
    void queue_frame(const char* key, unsigned flags, unsigned revision, bool enhanced,
                     unsigned enhanced_ird, unsigned enhanced_ord, ConstBytes private_data);
    void fail(StreamError stream_error);

    StartupConfig config_;
    State state_ = State::idle;
    StreamError stream_error_ = StreamError::none;
    // Becomes stream_error_ once all that start-up owes the peer was exchanged.
    StreamError owed_stream_error_ = StreamError::none;
    std::uint16_t received_ = 0;     // octets of the peer's frame so far
    std::uint16_t pd_length_ = 0;    // PD_Length of the peer's frame
    std::uint16_t reply_bytes_ = 0;  // responder: of tx_, ahead of the extension frame
    Negotiated negotiated_;
    Request request_;
    std::vector<std::byte> peer_private_data_;
    std::array<std::byte, sizeof(mpa_frame)> header_{};  // of the peer's frame
    std::vector<std::byte> tx_;                          // our frames, until they are written
    std::size_t tx_written_ = 0;
    std::unique_ptr<ExtensionReceiver> exchange_;  // while the peer's extension frame is awaited
    PeerImplementation peer_;
    std::vector<std::byte> peer_shm_;  // its offer until it is answered, or its answer to ours
    bool frame_waits_ = false;         // initiator: ours, for the peer's or for answer_offer()
    Time deadline_ = kNever;
};

}  // namespace xsock::mpa
