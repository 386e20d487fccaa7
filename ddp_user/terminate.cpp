// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/terminate.hpp"

#include <algorithm>

namespace xsock::ddp {
namespace {

constexpr std::size_t kControlOctets = sizeof(rdmap_terminate);
constexpr std::size_t kLengthBytes = 2;

// siw's M, D and R: see parse_terminate().
constexpr unsigned kSwappedD = 0x02, kSwappedR = 0x04, kSwappedFlags = 0x07;
constexpr unsigned kFlags = RDMAP_TERM_M | RDMAP_TERM_D | RDMAP_TERM_R;

/// Is this an error that some RFC defines? (RFC 5040 §4.8, 5041 §7.2, 5044 §8, 6581 §8)
bool known(std::uint8_t layer, std::uint8_t etype, std::uint8_t code, bool starting) {
    switch (layer << 4 | etype) {
        case 0x00:  // RDMAP, local catastrophic: the code is the sender's own
        case 0x10:  // DDP, likewise
            return true;
        case 0x01:  // RDMAP, remote protection
            return code <= 0x04 || code == 0x09 || code == 0xff;
        case 0x02:  // RDMAP, remote operation
            return (code >= 0x05 && code <= 0x09) || code == 0xff;
        case 0x11:  // DDP, tagged buffer
            return code <= 0x04;
        case 0x12:  // DDP, untagged buffer
            return code >= 0x01 && code <= 0x06;
        case 0x20:  // MPA; from 05 on of a Reply (RFC 6581 §8)
            return code >= 0x01 && code <= (starting ? 0x07 : 0x04);
        default:
            return false;
    }
}

bool is_swapped(unsigned first, std::uint8_t code, unsigned flags, bool starting) {
    if ((flags & kFlags) != 0) return false;
    if ((flags & kSwappedFlags) != 0) return true;
    const auto high = static_cast<std::uint8_t>(first >> 4);
    const auto low = static_cast<std::uint8_t>(first & 0x0f);
    return !known(high, low, code, starting) && known(low, high, code, starting);
}

std::size_t append(std::byte* out, ConstBytes bytes) {
    std::copy(bytes.begin(), bytes.end(), out);
    return bytes.size();
}

}  // namespace

TerminateMessage build_terminate(StreamError stream_error, const ErrorContext& error_context) {
    const StreamErrorInfo& row = stream_error_info(stream_error);
    XSOCK_ASSERT(row.layer != TermLayer::none);
    XSOCK_ASSERT(error_context.ddp_header.size() <= kUntaggedOctets);
    XSOCK_ASSERT(error_context.rdmap_header.size() <= kReadRequestOctets);

    TerminateMessage message;
    TerminateInfo& info = message.info;
    info.layer = static_cast<std::uint8_t>(row.layer);
    info.etype = row.etype;
    info.code = row.code;
    info.has_ddp_header = row.ddp_header && !error_context.ddp_header.empty();
    info.has_rdmap_header =
        info.has_ddp_header && row.rdmap_header && !error_context.rdmap_header.empty();
    if (info.has_ddp_header) {
        info.ddp_segment_length =
            static_cast<std::uint16_t>(std::min<std::size_t>(error_context.segment_bytes, 0xffff));
    }

    std::byte* p = message.bytes.data();
    p += encode(Segment{.opcode = RDMAP_TERMINATE, .qn = DDP_QN_TERMINATE, .msn = 1}, p);
    const unsigned flags = (info.has_ddp_header ? RDMAP_TERM_M | RDMAP_TERM_D : 0u) |
                           (info.has_rdmap_header ? RDMAP_TERM_R : 0u);
    p[offsetof(rdmap_terminate, layer_etype)] =
        static_cast<std::byte>(info.layer << 4 | info.etype);
    p[offsetof(rdmap_terminate, code)] = static_cast<std::byte>(info.code);
    p[offsetof(rdmap_terminate, hdrct)] = static_cast<std::byte>(flags);
    p[offsetof(rdmap_terminate, reserved)] = std::byte{0};
    p += kControlOctets;
    if (info.has_ddp_header) {
        store_be16(p, info.ddp_segment_length);
        p += kLengthBytes;
        p += append(p, error_context.ddp_header);
    }
    if (info.has_rdmap_header) p += append(p, error_context.rdmap_header);
    message.size = static_cast<std::size_t>(p - message.bytes.data());
    return message;
}

bool parse_terminate(ConstBytes payload, TerminateInfo& info, Terminated& about, bool starting) {
    info = {};
    about = {};
    if (payload.size() < kControlOctets) return false;

    const auto first = std::to_integer<unsigned>(payload[offsetof(rdmap_terminate, layer_etype)]);
    const auto flags = std::to_integer<unsigned>(payload[offsetof(rdmap_terminate, hdrct)]);
    info.code = std::to_integer<std::uint8_t>(payload[offsetof(rdmap_terminate, code)]);
    info.first = static_cast<std::uint8_t>(first);
    info.layer = static_cast<std::uint8_t>(first >> 4);
    info.etype = static_cast<std::uint8_t>(first & 0x0f);
    info.swapped = is_swapped(first, info.code, flags, starting);
    if (info.swapped) std::swap(info.layer, info.etype);
    payload = payload.subspan(kControlOctets);

    const bool d = (flags & (info.swapped ? kSwappedD : RDMAP_TERM_D)) != 0;
    const bool r = (flags & (info.swapped ? kSwappedR : RDMAP_TERM_R)) != 0;
    if (!d || payload.size() < kLengthBytes + kTaggedOctets) return true;
    const std::uint16_t length = load_be16(payload.data());
    payload = payload.subspan(kLengthBytes);
    const OpcodeInfo* row = nullptr;
    if (parse_start(payload.first<kTaggedOctets>(), about.segment, row) != StreamError::none) {
        return true;  // we never sent such a header: it has no meaning
    }
    if (!about.segment.tagged) {
        if (payload.size() < kUntaggedOctets) return true;
        parse_untagged_rest(payload.first<kUntaggedOctets>(), about.segment);
    }
    about.known = true;
    info.has_ddp_header = true;
    info.ddp_segment_length = length;
    payload = payload.subspan(about.segment.tagged ? kTaggedOctets : kUntaggedOctets);

    if (r && about.segment.opcode == RDMAP_READ_REQUEST && payload.size() >= kReadRequestOctets) {
        about.has_read_request = true;
        about.read_request = parse_read_request(payload.first<kReadRequestOctets>());
        info.has_rdmap_header = true;
    }
    return true;
}

WcStatus status_of(const TerminateInfo& info) noexcept {
    constexpr std::uint8_t kRemoteProtection = 1, kRemoteOperation = 2;  // layer RDMAP
    constexpr std::uint8_t kTaggedBuffer = 1, kUntaggedBuffer = 2;       // layer DDP
    switch (static_cast<TermLayer>(info.layer)) {
        case TermLayer::rdmap:
            if (info.etype == kRemoteProtection) return WcStatus::remote_access_error;
            if (info.etype != kRemoteOperation) return WcStatus::remote_operation_error;
            if (info.code == stream_error_info(StreamError::invalidate_not_permitted).code) {
                return WcStatus::remote_access_error;
            }
            if (info.code == stream_error_info(StreamError::rdmap_version).code ||
                info.code == stream_error_info(StreamError::rdmap_opcode).code) {
                return WcStatus::remote_invalid_request;
            }
            return WcStatus::remote_operation_error;
        case TermLayer::ddp:
            if (info.etype == kTaggedBuffer &&
                info.code != stream_error_info(StreamError::tagged_version).code) {
                return WcStatus::remote_access_error;
            }
            if (info.etype == kTaggedBuffer || info.etype == kUntaggedBuffer) {
                return WcStatus::remote_invalid_request;
            }
            return WcStatus::remote_operation_error;
        case TermLayer::llp:
        case TermLayer::none:
            break;
    }
    return WcStatus::remote_operation_error;
}

}  // namespace xsock::ddp
