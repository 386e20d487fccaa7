// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The seam between a byte stream and the protocol that carries it in RDMAP messages. SDP
// (stream/sdp.hpp) is one such protocol; another is a class beside it. A Wire knows messages,
// credits and what is owed to the peer; the bytes, the gathering and the program's calls are
// ByteStream's. Sans-IO, no clock, one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/stream_error.hpp"

namespace xsock::stream {

/// How a message travels (RFC 5040 §4.3).
enum class SendKind : std::uint8_t { plain, solicited, solicited_invalidate };

inline constexpr std::size_t kMaxWireHeader = 40;
/// So many bytes lie at most between the message that announces an urgent one and that byte (SDP's
/// draft §14).
inline constexpr std::uint32_t kMaxUrgentAhead = 65'535;

/// A message that carries no bytes of the stream.
struct Control {
    std::array<std::byte, kMaxWireHeader> octets;
    std::size_t size = 0;
    SendKind kind = SendKind::plain;
    std::uint32_t invalidate_stag = 0;  ///< solicited_invalidate

    [[nodiscard]] ConstBytes bytes() const noexcept { return ConstBytes(octets).first(size); }
};

/// What a data message says of an urgent byte.
struct UrgentMarks {
    bool pending = false;  ///< one is on its way
    bool present = false;  ///< the last byte of this message is urgent
};

/// What a message brought.
struct Arrival {
    StreamError error =
        StreamError::none;  ///< not none: the connection is over, nothing else holds
    ConstBytes payload;     ///< bytes of the stream, within the message
    UrgentMarks urgent;
    bool finished = false;  ///< the peer sends no more
    bool aborted = false;   ///< the peer gave up
};

/// What the stream has to say besides its data.
struct Wishes {
    bool finish = false;          ///< nothing more will be sent
    bool abort = false;           ///< and nothing more will be read; behind `finish` only
    bool urgent_pending = false;  ///< announce an urgent byte ahead of data that is held back
    bool data_follows = false;    ///< no wish: news of room will go with data at once
};

class Wire {
  public:
    virtual ~Wire() = default;

    // -- sending --

    /// Bytes in front of the payload of a data message.
    [[nodiscard]] virtual std::size_t header_bytes() const noexcept = 0;
    /// Bytes of payload that a data message carries at most. Start-up may lessen it, once.
    [[nodiscard]] virtual std::size_t payload_limit() const noexcept = 0;
    /// The peer takes a data message now.
    [[nodiscard]] virtual bool may_send_data() const noexcept = 0;
    /// The next message has `payload_bytes` of the stream: writes its header.
    /// @pre may_send_data(); 0 < payload_bytes <= payload_limit(); header holds header_bytes()
    virtual SendKind put_data(std::size_t payload_bytes, UrgentMarks marks, Bytes header) = 0;
    /// The next message is one without data: what is owed to the peer, or news of room, or of the
    /// wishes those that are due. False: none now. A wish that was granted is not asked for again.
    virtual bool put_control(Wishes& wishes, Control& out) = 0;

    // -- receiving --

    /// A message, whole, in memory that nothing else changes.
    virtual Arrival rx(ConstBytes message) = 0;
    /// So many bytes may be queued besides those that are; negative: so many are too many.
    virtual void set_room(std::int64_t bytes) = 0;
    /// Bytes that a message of the peer may have; longer ones are faults.
    [[nodiscard]] virtual std::size_t message_limit() const noexcept = 0;
};

}  // namespace xsock::stream
