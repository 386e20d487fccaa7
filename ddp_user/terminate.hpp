// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Terminate Messages (RFC 5040 §4.8): built from a row of the table of stream errors, and read from
// peers that lay them out as the RFC says or as Linux siw does. No state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/stream_error.hpp"
#include "base/ulp.hpp"
#include "base/work.hpp"
#include "ddp_user/segment.hpp"
#include "ddp_user/stream.hpp"

namespace xsock::ddp {

/// What the error is about: headers as they came, so that the peer can find the message.
struct ErrorContext {
    ConstBytes ddp_header = {};     ///< 14 or 18 octets; empty: none
    ConstBytes rdmap_header = {};   ///< the 28 octets of a Read Request; empty: none
    std::size_t segment_bytes = 0;  ///< whole DDP segment, header included
};

/// A Terminate ULPDU, header and all, ready to be sent.
struct TerminateMessage {
    std::array<std::byte, kMaxUlpduHeader> bytes;
    std::size_t size = 0;
    TerminateInfo info;
};

/// @pre the stream error has a layer: it is one that goes on the wire
[[nodiscard]] TerminateMessage build_terminate(StreamError stream_error,
                                               const ErrorContext& error_context);

/// Longest payload worth keeping: control word, segment length, both headers.
inline constexpr std::size_t kTerminateOctets =
    sizeof(rdmap_terminate) + 2 + kUntaggedOctets + kReadRequestOctets;

/// Which of our messages the peer speaks of.
struct Terminated {
    bool known = false;
    Segment segment;
    bool has_read_request = false;
    ReadRequest read_request;
};

/// Reads the payload of a received Terminate, as far as it goes.
///
/// Deviation: Linux siw declares the control word with bit-fields in host order, so that Layer and
/// EType change places in the first octet, and M, D, R arrive as 1, 2, 4 in the third. Flags tell
/// which it is; where there are none, the reading that names a known error wins, the RFC's first.
/// siw's bare "RDMAP version" and "opcode", 20 05 and 20 06, are MPA errors too, but such as only
/// an initiator reports, about our Reply (RFC 6581 §8).
///
/// @param starting  nothing else has come from the peer, and it is the initiator
/// @return false: shorter than its control word; nothing is known
bool parse_terminate(ConstBytes payload, TerminateInfo& info, Terminated& about,
                     bool starting = true);

/// The status of the work request that a received Terminate concerns.
[[nodiscard]] WcStatus status_of(const TerminateInfo& info) noexcept;

}  // namespace xsock::ddp
