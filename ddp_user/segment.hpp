// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The header of a DDP segment as a value (RFC 5041 §4, RFC 5040 §4.1), and what may lie behind it:
// Read Request (RFC 5040 §4.4), Atomic Request and Response, Immediate Data (RFC 7306 §5.2, §6.3).
// Whatever comes from the wire is parsed and validated here before it is used. No state.
// Messages are cut into segments in tx_messages.cpp (build_from_send_queue()), and put together in
// rx.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "base/stream_error.hpp"
#include "ddp_user/opcode.hpp"
#include "include/xsock/iwarp.h"

namespace xsock::ddp {

inline constexpr std::size_t kTaggedOctets = sizeof(ddp_tagged);
inline constexpr std::size_t kUntaggedOctets = sizeof(ddp_untagged);

struct Segment {
    std::uint8_t opcode = RDMAP_SEND;
    bool tagged = false;
    bool last = true;
    bool asks = false;       ///< RDMAP_ACK_REQUEST: for an Acknowledge of this message
    std::uint32_t stag = 0;  ///< tagged: where to; untagged: the Invalidate STag, the 32 bits that
                             ///< the opcode has in its place, or 0
    std::uint64_t to = 0;    ///< tagged
    std::uint32_t qn = 0;    ///< untagged, as are the following
    std::uint32_t msn = 0;
    std::uint32_t mo = 0;
    friend bool operator==(const Segment&, const Segment&) = default;
};

/// The part of a header that both models share, plus the queue and MSN of an untagged one: enough
/// to know which message it belongs to.
///
/// @param header its first kTaggedOctets octets
/// @param info     row of the opcode, when the answer is `none`
/// @param features what both ends have announced: other opcodes, queues and bits are unknown
/// @return none; *_version, untagged_qn, rdmap_version or rdmap_opcode. DDP's checks come first, as
///         the lower layer's would.
[[nodiscard]] StreamError parse_start(std::span<const std::byte, kTaggedOctets> header,
                                      Segment& out, const OpcodeInfo*& info,
                                      std::uint64_t features = kAllFeatures) noexcept;

/// The rest of an untagged header: MO. @param header all kUntaggedOctets octets
inline void parse_untagged_rest(std::span<const std::byte, kUntaggedOctets> header,
                                Segment& out) noexcept {
    out.mo = load_be32(header.data() + offsetof(ddp_untagged, mo));
}

/// Writes the header. @return its size. @pre room for kUntaggedOctets
inline std::size_t encode(const Segment& segment, std::byte* out) noexcept {
    const unsigned control =
        (segment.tagged ? DDP_FLAG_TAGGED : 0u) | (segment.last ? DDP_FLAG_LAST : 0u) | DDP_VERSION;
    out[0] = static_cast<std::byte>(control);
    out[1] = static_cast<std::byte>(RDMAP_VERSION | (segment.asks ? RDMAP_ACK_REQUEST : 0u) |
                                    segment.opcode);
    store_be32(out + 2, segment.stag);
    if (segment.tagged) {
        store_be64(out + offsetof(ddp_tagged, to), segment.to);
        return kTaggedOctets;
    }
    store_be32(out + offsetof(ddp_untagged, qn), segment.qn);
    store_be32(out + offsetof(ddp_untagged, msn), segment.msn);
    store_be32(out + offsetof(ddp_untagged, mo), segment.mo);
    return kUntaggedOctets;
}

struct ReadRequest {
    std::uint32_t sink_stag = 0;
    std::uint64_t sink_to = 0;
    std::uint32_t size = 0;
    std::uint32_t source_stag = 0;
    std::uint64_t source_to = 0;
    friend bool operator==(const ReadRequest&, const ReadRequest&) = default;
};
inline constexpr std::size_t kReadRequestOctets = sizeof(rdmap_read_request);

[[nodiscard]] inline ReadRequest parse_read_request(
    std::span<const std::byte, kReadRequestOctets> bytes) noexcept {
    const std::byte* p = bytes.data();
    return {.sink_stag = load_be32(p + offsetof(rdmap_read_request, sink_stag)),
            .sink_to = load_be64(p + offsetof(rdmap_read_request, sink_to)),
            .size = load_be32(p + offsetof(rdmap_read_request, size)),
            .source_stag = load_be32(p + offsetof(rdmap_read_request, source_stag)),
            .source_to = load_be64(p + offsetof(rdmap_read_request, source_to))};
}

inline void encode(const ReadRequest& request, std::byte* out) noexcept {
    store_be32(out + offsetof(rdmap_read_request, sink_stag), request.sink_stag);
    store_be64(out + offsetof(rdmap_read_request, sink_to), request.sink_to);
    store_be32(out + offsetof(rdmap_read_request, size), request.size);
    store_be32(out + offsetof(rdmap_read_request, source_stag), request.source_stag);
    store_be64(out + offsetof(rdmap_read_request, source_to), request.source_to);
}

struct AtomicRequest {
    std::uint8_t opcode = RDMAP_ATOMIC_FETCH_ADD;  ///< AOpCode
    std::uint32_t request_id = 0;
    std::uint32_t remote_stag = 0;
    std::uint64_t remote_to = 0;
    Atomic operands = {};
    friend bool operator==(const AtomicRequest&, const AtomicRequest&) = default;
};
inline constexpr std::size_t kAtomicRequestOctets = sizeof(rdmap_atomic_request);

[[nodiscard]] inline AtomicRequest parse_atomic_request(
    std::span<const std::byte, kAtomicRequestOctets> bytes) noexcept {
    const std::byte* p = bytes.data();
    return {
        .opcode = static_cast<std::uint8_t>(load_be32(p + offsetof(rdmap_atomic_request, opcode)) &
                                            RDMAP_ATOMIC_OPCODE_MASK),
        .request_id = load_be32(p + offsetof(rdmap_atomic_request, request_id)),
        .remote_stag = load_be32(p + offsetof(rdmap_atomic_request, remote_stag)),
        .remote_to = load_be64(p + offsetof(rdmap_atomic_request, remote_to)),
        .operands = {.operand = load_be64(p + offsetof(rdmap_atomic_request, operand)),
                     .operand_mask = load_be64(p + offsetof(rdmap_atomic_request, operand_mask)),
                     .compare = load_be64(p + offsetof(rdmap_atomic_request, compare)),
                     .compare_mask = load_be64(p + offsetof(rdmap_atomic_request, compare_mask))}};
}

inline void encode(const AtomicRequest& request, std::byte* out) noexcept {
    store_be32(out + offsetof(rdmap_atomic_request, opcode), request.opcode);
    store_be32(out + offsetof(rdmap_atomic_request, request_id), request.request_id);
    store_be32(out + offsetof(rdmap_atomic_request, remote_stag), request.remote_stag);
    store_be64(out + offsetof(rdmap_atomic_request, remote_to), request.remote_to);
    store_be64(out + offsetof(rdmap_atomic_request, operand), request.operands.operand);
    store_be64(out + offsetof(rdmap_atomic_request, operand_mask), request.operands.operand_mask);
    store_be64(out + offsetof(rdmap_atomic_request, compare), request.operands.compare);
    store_be64(out + offsetof(rdmap_atomic_request, compare_mask), request.operands.compare_mask);
}

struct AtomicResponse {
    std::uint32_t request_id = 0;
    std::uint64_t original = 0;  ///< what was there before
    friend bool operator==(const AtomicResponse&, const AtomicResponse&) = default;
};
inline constexpr std::size_t kAtomicResponseOctets = sizeof(rdmap_atomic_response);

[[nodiscard]] inline AtomicResponse parse_atomic_response(
    std::span<const std::byte, kAtomicResponseOctets> bytes) noexcept {
    return {
        .request_id = load_be32(bytes.data() + offsetof(rdmap_atomic_response, request_id)),
        .original = load_be64(bytes.data() + offsetof(rdmap_atomic_response, original)),
    };
}

inline void encode(const AtomicResponse& response, std::byte* out) noexcept {
    store_be32(out + offsetof(rdmap_atomic_response, request_id), response.request_id);
    store_be64(out + offsetof(rdmap_atomic_response, original), response.original);
}

inline constexpr std::size_t kImmediateOctets = sizeof(rdmap_immediate);

}  // namespace xsock::ddp
