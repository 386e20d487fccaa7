// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/stream_error.hpp"

#include <cstddef>

#include "base/assert.hpp"

namespace xsock {

namespace {

constexpr auto kRdmap = TermLayer::rdmap;
constexpr auto kDdp = TermLayer::ddp;
constexpr auto kLlp = TermLayer::llp;
constexpr auto kCloses = TermLayer::none;

// Which headers a Terminate copies (RFC 5040 §4.8).
struct Headers {
    bool ddp, rdmap;
};
constexpr Headers kNone{false, false};
constexpr Headers kD{true, false};
constexpr Headers kDR{true, true};  // a Read Request that failed the protection checks

constexpr StreamErrorInfo row(StreamError v, TermLayer layer, unsigned etype, unsigned code,
                              Headers h, const char* name, const char* text, const char* rfc) {
    return {v,
            layer,
            static_cast<std::uint8_t>(etype),
            static_cast<std::uint8_t>(code),
            h.ddp,
            h.rdmap,
            name,
            text,
            rfc};
}

using V = StreamError;

// Where the RFCs have no code of their own, the comment gives the reason for the one chosen.
constexpr StreamErrorInfo kTable[] = {
    row(V::none, kCloses, 0, 0, kNone, "none", "Nothing went wrong.", ""),

    row(V::local_catastrophic, kRdmap, 0, 0x00, kNone, "local-catastrophic",
        "RDMAP failed locally and cannot go on.", "RFC 5040 §4.8"),
    row(V::read_stag_invalid, kRdmap, 1, 0x00, kDR, "read-stag-invalid",
        "A Read or Atomic Request names an STag that does not exist or was revoked.",
        "RFC 5040 §7.2"),
    row(V::read_bounds, kRdmap, 1, 0x01, kDR, "read-bounds",
        "A Read or Atomic Request reaches outside its region.", "RFC 5040 §7.2"),
    row(V::read_access, kRdmap, 1, 0x02, kDR, "read-access",
        "A Read or Atomic Request names a region without the right for it.", "RFC 5040 §7.2"),
    row(V::read_stag_not_associated, kRdmap, 1, 0x03, kDR, "read-stag-not-associated",
        "A Read or Atomic Request names an STag of another protection domain or stream.",
        "RFC 5040 §7.2"),
    row(V::read_to_wrap, kRdmap, 1, 0x04, kDR, "read-to-wrap",
        "The offset and length of a Read or Atomic Request wrap around 2^64.", "RFC 5040 §7.2"),
    // DDP has no code for rights; RDMAP's is used for whatever its tagged messages may not do.
    row(V::write_access, kRdmap, 1, 0x02, kD, "write-access",
        "An RDMA Write names a region that peers may not write.", "RFC 5040 §7.2"),
    row(V::response_access, kRdmap, 1, 0x02, kD, "response-access",
        "A Read Response names a region that may not be written.", "RFC 5040 §7.2"),
    row(V::invalidate_stag_invalid, kRdmap, 1, 0x00, kD, "invalidate-stag-invalid",
        "A Send with Invalidate names an STag that does not exist or was revoked.",
        "RFC 5040 §7.2"),
    row(V::invalidate_not_permitted, kRdmap, 1, 0x09, kD, "invalidate-not-permitted",
        "A Send with Invalidate names an STag that this stream may not invalidate.",
        "RFC 5040 §7.2"),
    row(V::rdmap_version, kRdmap, 2, 0x05, kD, "rdmap-version",
        "A message carries an unknown RDMAP version.", "RFC 5040 §7.2"),
    row(V::rdmap_opcode, kRdmap, 2, 0x06, kD, "rdmap-opcode",
        "A message carries an RDMAP opcode that is unknown or does not fit its queue.",
        "RFC 5040 §7.2"),
    // To DDP a Read Request is an untagged message on QN 1, whose buffers are the IRD slots.
    row(V::read_queue_overflow, kDdp, 2, 0x02, kD, "read-queue-overflow",
        "More Read and Atomic Requests are outstanding than the IRD permits.", "RFC 5041 §7.1"),
    row(V::response_unexpected, kRdmap, 2, 0x06, kD, "response-unexpected",
        "A Response does not answer the oldest outstanding Read or Atomic Request.",
        "RFC 5040 §7.2"),
    row(V::terminate_malformed, kRdmap, 2, 0xff, kD, "terminate-malformed",
        "A Terminate Message is too short, too long or not a single segment.", "RFC 5040 §4.8"),
    row(V::read_request_malformed, kRdmap, 2, 0xff, kD, "read-request-malformed",
        "A Read Request is not a single segment of 28 bytes.", "RFC 5040 §4.4"),
    row(V::atomic_malformed, kRdmap, 2, 0xff, kD, "atomic-malformed",
        "An Atomic Request is not a single segment of 52 bytes.", "RFC 7306 §5.2"),
    row(V::atomic_opcode, kRdmap, 2, 0x06, kD, "atomic-opcode",
        "An Atomic Request asks for an operation that does not exist.", "RFC 7306 §5.2"),
    row(V::atomic_unaligned, kRdmap, 2, 0x07, kD, "atomic-unaligned",
        "The target of an Atomic Request is not aligned to 8 bytes.", "RFC 7306 §8.2"),
    row(V::immediate_malformed, kRdmap, 2, 0xff, kD, "immediate-malformed",
        "Immediate Data are not a single segment of 8 bytes.", "RFC 7306 §6.3"),
    row(V::acknowledge_malformed, kRdmap, 2, 0xff, kD, "acknowledge-malformed",
        "An Acknowledge is not a single segment without payload.", "RFC 5040 §4.8"),
    row(V::acknowledge_range, kRdmap, 2, 0xff, kD, "acknowledge-range",
        "An Acknowledge tells of fewer messages than one before, or of more than were sent.",
        "RFC 5040 §4.8"),
    row(V::remote_operation_unspecified, kRdmap, 2, 0xff, kD, "remote-operation-unspecified",
        "A message asks for something that cannot be done.", "RFC 5040 §4.8"),

    row(V::ddp_catastrophic, kDdp, 0, 0x00, kD, "ddp-catastrophic",
        "DDP failed locally and cannot go on.", "RFC 5041 §7.2"),
    row(V::tagged_stag_invalid, kDdp, 1, 0x00, kD, "tagged-stag-invalid",
        "A tagged segment names an STag that does not exist or was revoked.", "RFC 5041 §7.2"),
    row(V::tagged_bounds, kDdp, 1, 0x01, kD, "tagged-bounds",
        "A tagged segment reaches outside its region.", "RFC 5041 §7.2"),
    row(V::tagged_stag_not_associated, kDdp, 1, 0x02, kD, "tagged-stag-not-associated",
        "A tagged segment names an STag of another protection domain or stream.", "RFC 5041 §7.2"),
    row(V::tagged_to_wrap, kDdp, 1, 0x03, kD, "tagged-to-wrap",
        "The offset and length of a tagged segment wrap around 2^64.", "RFC 5041 §7.2"),
    row(V::tagged_version, kDdp, 1, 0x04, kD, "tagged-version",
        "A tagged segment carries an unknown DDP version.", "RFC 5041 §7.2"),
    row(V::untagged_qn, kDdp, 2, 0x01, kD, "untagged-qn",
        "An untagged segment names a queue that does not exist.", "RFC 5041 §7.2"),
    row(V::untagged_no_buffer, kDdp, 2, 0x02, kD, "untagged-no-buffer",
        "No receive is posted for an untagged message.", "RFC 5041 §7.2"),
    row(V::untagged_msn_range, kDdp, 2, 0x03, kD, "untagged-msn-range",
        "The MSN of an untagged segment is not the expected one.", "RFC 5041 §7.2"),
    row(V::untagged_mo, kDdp, 2, 0x04, kD, "untagged-mo",
        "The MO of an untagged segment is not the expected one.", "RFC 5041 §7.2"),
    row(V::untagged_too_long, kDdp, 2, 0x05, kD, "untagged-too-long",
        "An untagged message is longer than the receive posted for it.", "RFC 5041 §7.2"),
    row(V::untagged_version, kDdp, 2, 0x06, kD, "untagged-version",
        "An untagged segment carries an unknown DDP version.", "RFC 5041 §7.2"),
    // No RFC has a code for it, and there is no DDP header to show. What is wrong is the ULPDU
    // length that MPA framed it by; siw answers a bad one with the same code.
    row(V::segment_truncated, kLlp, 0, 0x03, kNone, "segment-truncated",
        "A ULPDU is shorter than its DDP header.", "RFC 5044 §8"),

    row(V::mpa_connection_lost, kCloses, 0, 0x01, kNone, "mpa-connection-lost",
        "The TCP connection was closed, reset or lost.", "RFC 5044 §8"),
    row(V::mpa_crc, kLlp, 0, 0x02, kNone, "mpa-crc", "The CRC of an FPDU is wrong.", "RFC 5044 §8"),
    row(V::mpa_marker, kLlp, 0, 0x03, kNone, "mpa-marker",
        "A marker and the ULPDU lengths disagree on where an FPDU starts.", "RFC 5044 §8"),
    row(V::mpa_startup_frame, kCloses, 0, 0x04, kNone, "mpa-startup-frame",
        "An MPA Request or Reply has a bad key, revision or length.", "RFC 5044 §8"),
    row(V::mpa_local_catastrophic, kLlp, 0, 0x05, kNone, "mpa-local-catastrophic",
        "MPA failed locally and cannot go on.", "RFC 6581 §8"),
    row(V::mpa_insufficient_ird, kLlp, 0, 0x06, kNone, "mpa-insufficient-ird",
        "The peer answers fewer Read Requests at once than are needed.", "RFC 6581 §8"),
    row(V::mpa_no_rtr, kLlp, 0, 0x07, kNone, "mpa-no-rtr",
        "The peer offers no way to send the first FPDU that suits both ends.", "RFC 6581 §8"),

    row(V::startup_timeout, kCloses, 0, 0, kNone, "startup-timeout",
        "The peer did not complete MPA start-up in time.", "RFC 5044 §7.1"),
    row(V::startup_rejected, kCloses, 0, 0, kNone, "startup-rejected",
        "The peer's application rejected the connection.", "RFC 5044 §7.1"),
    row(V::startup_both_initiators, kCloses, 0, 0, kNone, "startup-both-initiators",
        "Both ends sent an MPA Request.", "RFC 5044 §7.1"),
    row(V::startup_not_mpa, kCloses, 0, 0, kNone, "startup-not-mpa", "The peer does not speak MPA.",
        "RFC 5044 §7.1"),
    row(V::peer_silent, kCloses, 0, 0, kNone, "peer-silent",
        "The peer has been silent for too long.", ""),
    row(V::rnr_retries_exceeded, kCloses, 0, 0, kNone, "rnr-retries-exceeded",
        "The peer had no receive for a message for too long.", ""),
    row(V::local_fault, kCloses, 0, 0, kNone, "local-fault",
        "The program unmapped memory that a transfer needed.", ""),
    row(V::mpa_extension_frame, kCloses, 0, 0, kNone, "mpa-extension-frame",
        "The extension frame of another xsock is missing or malformed.", ""),
    row(V::shm_garbage, kCloses, 0, 0, kNone, "shm-garbage",
        "The memory shared with the peer holds what no xsock writes.", ""),

    // SDP is draft-pinkerton-iwarp-sdp-01.
    row(V::sdp_hello, kCloses, 0, 0, kNone, "sdp-hello",
        "The peer's Hello or HelloAck is missing or malformed.", "SDP §8"),
    row(V::sdp_length, kCloses, 0, 0, kNone, "sdp-length",
        "An SDP message has another length than its kind and its header say.", "SDP §6"),
    row(V::sdp_message, kCloses, 0, 0, kNone, "sdp-message",
        "An SDP message is of a kind that does not exist or may not come now.", "SDP §6"),
    row(V::sdp_sequence, kCloses, 0, 0, kNone, "sdp-sequence",
        "An SDP message has a number or acknowledges one that cannot be.", "SDP §6"),
    row(V::sdp_credit, kCloses, 0, 0, kNone, "sdp-credit",
        "An SDP message came without credit, or takes credit back.", "SDP §10"),
    row(V::sdp_advertisement, kCloses, 0, 0, kNone, "sdp-advertisement",
        "A SrcAvail or SinkAvail is malformed, or one too many for the mode.", "SDP §9"),
    row(V::sdp_completion, kCloses, 0, 0, kNone, "sdp-completion",
        "An SDP message answers an advertisement or a cancel that there is not.", "SDP §9"),
    row(V::sdp_mode, kCloses, 0, 0, kNone, "sdp-mode",
        "A ModeChange of SDP is not one that the present mode permits.", "SDP §11"),
    row(V::sdp_resize, kCloses, 0, 0, kNone, "sdp-resize",
        "A ChRcvBuf or ChRcvBufAck has no valid size, or was not expected.", "SDP §12"),
    row(V::sdp_closing, kCloses, 0, 0, kNone, "sdp-closing",
        "Data or a DisConn follows the DisConn of SDP, or an AbortConn precedes it.", "SDP §13"),
    row(V::sdp_urgent, kCloses, 0, 0, kNone, "sdp-urgent",
        "Urgent data of SDP was not announced, or did not follow.", "SDP §14"),
    row(V::sdp_suspend, kCloses, 0, 0, kNone, "sdp-suspend",
        "The peer wants to suspend the SDP connection, which is not possible.", "SDP §15"),
    row(V::stream_truncated, kCloses, 0, 0, kNone, "stream-truncated",
        "The peer's TCP connection ended before its byte stream did.", "SDP §13"),
    row(V::stream_aborted, kCloses, 0, 0, kNone, "stream-aborted",
        "The peer aborted the byte stream.", "SDP §13"),
};

constexpr bool in_enum_order() {
    std::size_t i = 0;
    for (const StreamErrorInfo& info : kTable) {
        if (info.stream_error != static_cast<StreamError>(i++)) return false;
    }
    return i == static_cast<std::size_t>(StreamError::kCount);
}
static_assert(in_enum_order());

// What the RFCs call a code: all that a peer's Terminate tells. (IANA rddp registry, RFC 6580.)
struct CodeText {
    std::uint8_t layer, etype, code;
    const char* text;
};
constexpr CodeText kCodes[] = {
    {0, 1, 0x00, "remote protection error: invalid STag"},
    {0, 1, 0x01, "remote protection error: base or bounds violation"},
    {0, 1, 0x02, "remote protection error: access rights violation"},
    {0, 1, 0x03, "remote protection error: STag not associated with RDMAP stream"},
    {0, 1, 0x04, "remote protection error: TO wrap"},
    {0, 1, 0x09, "remote protection error: STag cannot be invalidated"},
    {0, 1, 0xff, "remote protection error, unspecified"},
    {0, 2, 0x05, "remote operation error: invalid RDMAP version"},
    {0, 2, 0x06, "remote operation error: unexpected opcode"},
    {0, 2, 0x07, "remote operation error: catastrophic, this RDMAP stream"},
    {0, 2, 0x08, "remote operation error: catastrophic, global"},
    {0, 2, 0x09, "remote operation error: STag cannot be invalidated"},
    {0, 2, 0xff, "remote operation error, unspecified"},
    {1, 1, 0x00, "DDP tagged buffer error: invalid STag"},
    {1, 1, 0x01, "DDP tagged buffer error: base or bounds violation"},
    {1, 1, 0x02, "DDP tagged buffer error: STag not associated with DDP stream"},
    {1, 1, 0x03, "DDP tagged buffer error: TO wrap"},
    {1, 1, 0x04, "DDP tagged buffer error: invalid DDP version"},
    {1, 2, 0x01, "DDP untagged buffer error: invalid QN"},
    {1, 2, 0x02, "DDP untagged buffer error: no buffer available for this MSN"},
    {1, 2, 0x03, "DDP untagged buffer error: MSN out of range"},
    {1, 2, 0x04, "DDP untagged buffer error: invalid MO"},
    {1, 2, 0x05, "DDP untagged buffer error: message too long for the buffer"},
    {1, 2, 0x06, "DDP untagged buffer error: invalid DDP version"},
    {2, 0, 0x01, "MPA error: TCP connection closed, terminated or lost"},
    {2, 0, 0x02, "MPA error: CRC"},
    {2, 0, 0x03, "MPA error: marker and ULPDU length disagree"},
    {2, 0, 0x04, "MPA error: invalid Request or Reply frame"},
    {2, 0, 0x05, "MPA error: local catastrophic"},
    {2, 0, 0x06, "MPA error: insufficient IRD resources"},
    {2, 0, 0x07, "MPA error: no matching RTR option"},
};

const char* other_code(std::uint8_t layer, std::uint8_t etype) noexcept {
    switch (layer) {
        case 0:
            if (etype == 0) return "RDMAP: local catastrophic error";  // any code
            if (etype == 1) return "remote protection error of an unknown code";
            if (etype == 2) return "remote operation error of an unknown code";
            return "RDMAP error of an unknown type";
        case 1:
            if (etype == 0) return "DDP: local catastrophic error";  // any code
            if (etype == 1) return "DDP tagged buffer error of an unknown code";
            if (etype == 2) return "DDP untagged buffer error of an unknown code";
            if (etype == 3) return "DDP error of the LLP";
            return "DDP error of an unknown type";
        case 2:
            return "LLP error of an unknown code";
        default:
            return "error of an unknown layer";
    }
}

}  // namespace

const StreamErrorInfo& stream_error_info(StreamError v) noexcept {
    XSOCK_ASSERT(v < StreamError::kCount);
    return kTable[static_cast<std::size_t>(v)];
}

std::span<const StreamErrorInfo> stream_error_table() noexcept { return kTable; }

const char* terminate_text(std::uint8_t layer, std::uint8_t etype, std::uint8_t code) noexcept {
    for (const CodeText& c : kCodes) {
        if (c.layer == layer && c.etype == etype && c.code == code) return c.text;
    }
    return other_code(layer, etype);
}

}  // namespace xsock
