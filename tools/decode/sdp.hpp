// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The Sockets Direct Protocol of one connection (docs/wire.md): Hello and HelloAck in the private
// data of MPA's start-up, messages in RDMAP's Sends, however they were segmented. Beside what a
// message says by itself (stream/sdp_wire.hpp) the rules between messages are checked, from both
// directions as an observer sees them; once bytes are missing, only what a message says by itself.
// Not by the code that speaks SDP, whose mistakes would then be in both.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "stream/sdp_wire.hpp"
#include "tools/decode/stream.hpp"

namespace xsock::decode {

/// A message, or what start-up says of SDP.
struct SdpUnit {
    std::uint64_t first_packet = 0;  ///< that held its first byte
    std::uint64_t bytes = 0;         ///< all, as they travelled
    std::uint64_t payload_bytes = 0;
    bool whole = true;        ///< false: bytes of it are missing
    bool has_bsdh = false;    ///< message.header holds
    bool has_fields = false;  ///< the fields of its kind in `message` hold
    stream::SdpMessage message;
    std::optional<stream::SdpHello> hello;  ///< of a Hello or HelloAck without a fault
    std::vector<const char*> wrong;         ///< rules that it breaks; static storage
};

/// One direction: the message that comes in, and what its sender has said so far.
struct SdpDirection {
    /// What it asked for and the other end has not answered.
    enum Asked : unsigned { kSinkCancel = 1, kResize = 2, kSuspend = 4 };

    std::optional<std::uint32_t> msn;  // of the message that comes in
    bool holed = false;                // bytes of it are missing
    std::uint64_t bytes = 0, first_packet = 0;
    std::vector<std::byte> front;  // all headers

    std::optional<std::uint32_t> mseq;           // of its last message
    std::optional<std::uint32_t> limit;          // number of the last message that it takes
    std::uint32_t acked = 0;                     // its last MSeqAck
    std::uint32_t size = SDP_SIZE_MAX;           // of its private buffers
    std::uint32_t adverts = UINT16_MAX;          // towards it, at once
    std::deque<std::uint64_t> sources;           // octets left of its SrcAvails, oldest first
    std::optional<std::uint32_t> source_cancel;  // MSeq of its SrcAvailCancel
    std::uint64_t sinks = 0;                     // SinkAvails that may be open
    unsigned asked = 0;
    bool finished = false, urgent_pending = false;
    stream::SdpMode mode = stream::SdpMode::combined;
    std::uint32_t mode_mseq = 0;  // of its last ModeChange
};

class SdpConnection {
  public:
    /// A start-up frame. @return what it says of SDP, if anything
    std::optional<SdpUnit> on_startup(End from, const StartupFrame& frame);
    /// An FPDU. @return the message that it completes, if this connection is one of SDP
    std::optional<SdpUnit> on_fpdu(const Place& place, const Fpdu& fpdu);
    /// A direction lost step.
    void on_lost(End from);

  private:
    using Direction = SdpDirection;

    [[nodiscard]] Direction& of(End end) { return ends_[static_cast<std::size_t>(end)]; }
    SdpUnit finish_message(End from);
    void check_numbers(Direction& from, Direction& to, SdpUnit& unit);
    static void check_stream(Direction& from, const Direction& to, SdpUnit& unit);
    static void check_kind(Direction& from, Direction& to, SdpUnit& unit);
    static void check_source(Direction& from, const Direction& to, SdpUnit& unit);
    static void check_decline(Direction& source, SdpUnit& unit);
    static void check_mode(Direction& from, Direction& to, SdpUnit& unit);

    std::array<Direction, 2> ends_;
    bool is_sdp_ = false;
    bool rtr_send_ = false;  // the initiator's first Send says nothing (RFC 6581)
    bool complete_ = true;   // no message was missed
};

}  // namespace xsock::decode
