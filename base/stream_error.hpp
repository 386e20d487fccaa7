// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Everything that may go wrong on a stream, each with its Terminate code (RFC 5040 §4.8, RFC 5041
// §7.2, RFC 5044 §8, RFC 6581 §8, RFC 7306 §8) and a sentence for the log. One table; no other
// place writes a code.
#pragma once

#include <cstdint>
#include <span>

namespace xsock {

enum class StreamError : std::uint8_t {
    none,
    // RDMAP, layer 0
    local_catastrophic,
    read_stag_invalid,
    read_bounds,
    read_access,
    read_stag_not_associated,
    read_to_wrap,
    write_access,
    response_access,
    invalidate_stag_invalid,
    invalidate_not_permitted,
    rdmap_version,
    rdmap_opcode,
    read_queue_overflow,  // more Read Requests than IRD
    response_unexpected,  // a Read Response without a request, or not the one requested
    terminate_malformed,
    read_request_malformed,
    atomic_malformed,
    atomic_opcode,
    atomic_unaligned,
    immediate_malformed,
    acknowledge_malformed,
    acknowledge_range,  // fewer messages than before, or more than were sent
    remote_operation_unspecified,
    // DDP, layer 1
    ddp_catastrophic,
    tagged_stag_invalid,
    tagged_bounds,
    tagged_stag_not_associated,
    tagged_to_wrap,
    tagged_version,
    untagged_qn,
    untagged_no_buffer,
    untagged_msn_range,
    untagged_mo,
    untagged_too_long,
    untagged_version,
    segment_truncated,  // ULPDU shorter than its DDP header
    // MPA, layer 2
    mpa_connection_lost,  // never sent: reported locally
    mpa_crc,
    mpa_marker,
    mpa_startup_frame,  // bad key, revision or length: closes, not a Terminate
    mpa_local_catastrophic,
    mpa_insufficient_ird,
    mpa_no_rtr,
    // local, closes without a Terminate
    startup_timeout,
    startup_rejected,
    startup_both_initiators,
    startup_not_mpa,
    peer_silent,
    rnr_retries_exceeded,
    local_fault,  // the program unmapped memory that a transfer needed
    mpa_extension_frame,
    shm_garbage,  // in memory shared with the peer
    // a byte stream over SDP: closes without a Terminate
    sdp_hello,
    sdp_length,
    sdp_message,
    sdp_sequence,
    sdp_credit,
    sdp_advertisement,
    sdp_completion,
    sdp_mode,
    sdp_resize,
    sdp_closing,
    sdp_urgent,
    sdp_suspend,
    stream_truncated,  // FIN without the end of the stream
    stream_aborted,    // by the peer
    kCount
};

enum class TermLayer : std::uint8_t { rdmap = 0, ddp = 1, llp = 2, none = 15 };

struct StreamErrorInfo {
    StreamError stream_error;
    TermLayer layer;  ///< none: closes without a Terminate Message
    std::uint8_t etype;
    std::uint8_t code;
    bool ddp_header;    ///< D: the message's DDP header is copied into the Terminate
    bool rdmap_header;  ///< R: and the Read Request header
    const char* name;   ///< code for the log, e.g. "tagged-bounds"
    const char* text;   ///< one sentence
    const char* rfc;    ///< e.g. "RFC 5041 §7.2"
};

/// The row of `v`.
[[nodiscard]] const StreamErrorInfo& stream_error_info(StreamError v) noexcept;

/// All rows, in enum order.
[[nodiscard]] std::span<const StreamErrorInfo> stream_error_table() noexcept;

/// Words for the three numbers of a Terminate that a peer sent; never null. They are the RFC's,
/// since the numbers tell no more: several stream errors share a triple.
[[nodiscard]] const char* terminate_text(std::uint8_t layer, std::uint8_t etype,
                                         std::uint8_t code) noexcept;

}  // namespace xsock
