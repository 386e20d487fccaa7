// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The messages of the Sockets Direct Protocol as values: what a message says, each by itself,
// without what went before (include/xsock/sdp.h has the layouts). Used by stream::Sdp, the tests
// and whatever shows traffic. No state.
//
// decode() takes any octets; what it returns has passed every check that needs no history. Sources:
// draft-pinkerton-iwarp-sdp-01 §6 (messages), §8 (Hello).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.hpp"
#include "base/stream_error.hpp"
#include "include/xsock/sdp.h"

namespace xsock::stream {

inline constexpr std::size_t kBsdhOctets = sizeof(sdp_bsdh);
inline constexpr std::size_t kHelloOctets = kBsdhOctets + sizeof(sdp_hello);
inline constexpr std::size_t kHelloAckOctets = kBsdhOctets + sizeof(sdp_hello_ack);
/// Of all headers of the longest message that we send beside Data.
inline constexpr std::size_t kControlOctets = kHelloOctets;

/// How data may travel in one direction (draft §11).
enum class SdpMode : std::uint8_t {
    buffered = SDP_MODE_BUFFERED,    ///< Data only
    combined = SDP_MODE_COMBINED,    ///< and one SrcAvail, with payload
    pipelined = SDP_MODE_PIPELINED,  ///< many SrcAvails without payload, and SinkAvails
};

/// The base header. In Hello and HelloAck the sequence numbers mean nothing.
struct Bsdh {
    std::uint8_t mid = SDP_DATA;
    std::uint8_t flags = 0;      ///< SDP_FLAG_*; bits that the draft reserves are not checked
    std::uint16_t bufs = 0;      ///< private buffers that are free
    std::uint32_t length = 0;    ///< octets of the whole message
    std::uint32_t mseq = 0;      ///< number of this message
    std::uint32_t mseq_ack = 0;  ///< of the last one received
    friend bool operator==(const Bsdh&, const Bsdh&) = default;
};

/// One message of an established connection.
struct SdpMessage {
    Bsdh header;
    std::uint32_t octets = 0;  ///< RdmaWrCompl, RdmaRdCompl: done; ChRcvBuf, ChRcvBufAck: size
    SdpMode mode = SdpMode::combined;  ///< ModeChange
    bool send_half = false;            ///< ModeChange, S: of its receiver's send half
    std::uint16_t port = 0;            ///< SuspComm
    std::uint32_t length = 0;          ///< SrcAvail, SinkAvail: octets advertised
    std::uint32_t stag = 0;            ///< SrcAvail, SinkAvail
    std::uint64_t address = 0;         ///< SrcAvail, SinkAvail
    std::uint32_t non_discards = 0;    ///< SinkAvail
    ConstBytes payload;                ///< stream octets, within the octets that were decoded

    [[nodiscard]] bool carries_stream() const noexcept { return !payload.empty(); }
};

/// Takes a message apart. `octets`: one Send, whole. Payload refers to them.
///
/// @return StreamError::none and `out`; else sdp_length (the length is not that of the octets, or
///         not of this kind of message), sdp_message (an MID that is reserved or belongs to
///         start-up), sdp_mode (no such mode), sdp_advertisement (empty, above 2^31 octets, beyond
///         the end of the address space, STag 0, payload of a SrcAvail that covers all of it),
///         sdp_urgent (OOB_PRES on what is no Data, or without payload), sdp_resize (a size outside
///         37 to 2^31), sdp_suspend (SuspComm malformed)
[[nodiscard]] StreamError decode(ConstBytes octets, SdpMessage& out) noexcept;

/// Octets in front of the payload of a message of this kind; 0: no such message is decoded.
[[nodiscard]] std::size_t header_octets(std::uint8_t mid) noexcept;

/// Writes all headers of `message`, whose payload (if any) follows them: header.length is ignored
/// and computed from `payload_octets`. @pre out holds header_octets(mid), which is not 0
/// @return octets written
std::size_t encode(const SdpMessage& message, std::size_t payload_octets, Bytes out) noexcept;

/// What a Hello says, or a HelloAck (which has no wish).
struct SdpHello {
    std::uint8_t version = SDP_VERSION;
    std::uint16_t bufs = 0;         ///< private buffers posted
    std::uint16_t max_adverts = 1;  ///< SrcAvails and SinkAvails at once towards its sender
    std::uint32_t desired_remote_size = 0;
    std::uint32_t local_size = 0;  ///< of its sender's private buffers, octets
    std::uint16_t ord = 1, ird = 1;
    friend bool operator==(const SdpHello&, const SdpHello&) = default;
};

/// Whether private data of an MPA Request asks for SDP; malformed or not (docs/wire.md).
[[nodiscard]] bool looks_like_hello(ConstBytes private_data) noexcept;
/// Nothing: it is none, of another major version, or says what no Hello may say.
[[nodiscard]] std::optional<SdpHello> decode_hello(ConstBytes private_data) noexcept;
[[nodiscard]] std::optional<SdpHello> decode_hello_ack(ConstBytes private_data) noexcept;
[[nodiscard]] std::array<std::byte, kHelloOctets> encode_hello(const SdpHello& hello) noexcept;
[[nodiscard]] std::array<std::byte, kHelloAckOctets> encode_hello_ack(
    const SdpHello& hello) noexcept;

}  // namespace xsock::stream
