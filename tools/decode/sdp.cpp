// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/decode/sdp.hpp"

#include <algorithm>

#include "base/stream_error.hpp"
#include "include/xsock/iwarp.h"

namespace xsock::decode {
namespace {

using stream::SdpMode;

constexpr std::size_t kFrontBytes = stream::kBsdhOctets + sizeof(sdp_sink_avail);
constexpr std::uint32_t kBehindData = 2;  // buffers that stream octets leave free (draft §10)

/// Whether message number `a` is `b` or a later one; numbers wrap.
bool not_before(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) >= 0; }

bool begins_as(ConstBytes octets, std::uint8_t mid, std::size_t length) {
    return octets.size() >= stream::kBsdhOctets && octets[0] == std::byte{mid} &&
           load_be32(octets.data() + offsetof(sdp_bsdh, length)) == length;
}

/// The BSDH as it is, for messages in which something is wrong, too.
stream::Bsdh bsdh_of(ConstBytes octets) {
    const std::byte* const p = octets.data();
    return {.mid = std::to_integer<std::uint8_t>(p[offsetof(sdp_bsdh, mid)]),
            .flags = std::to_integer<std::uint8_t>(p[offsetof(sdp_bsdh, flags)]),
            .bufs = load_be16(p + offsetof(sdp_bsdh, bufs)),
            .length = load_be32(p + offsetof(sdp_bsdh, length)),
            .mseq = load_be32(p + offsetof(sdp_bsdh, mseq)),
            .mseq_ack = load_be32(p + offsetof(sdp_bsdh, mseq_ack))};
}

/// What a message says by itself. Of its payload there need be nothing in `front`: decode() is
/// shown at most one octet of it, with a length that fits.
void read_message(ConstBytes front, SdpUnit& unit) {
    if (front.size() < stream::kBsdhOctets) {
        if (unit.whole) unit.wrong.push_back("shorter than a header");
        return;
    }
    const stream::Bsdh header = bsdh_of(front);
    unit.message.header = header;
    unit.has_bsdh = true;
    if (header.length != unit.bytes) unit.wrong.push_back("Len is not its length");
    const std::size_t headers = stream::header_octets(header.mid);
    if (headers == 0) {
        unit.wrong.push_back("no message of this kind may come here");
        return;
    }
    if (unit.bytes < headers) {
        unit.wrong.push_back("shorter than its kind");
        return;
    }
    if (front.size() < headers) return;  // not captured
    unit.payload_bytes = unit.bytes - headers;
    std::array<std::byte, kFrontBytes + 1> octets{};
    std::copy_n(front.begin(), headers, octets.begin());
    const std::size_t shown = headers + (unit.payload_bytes != 0 ? 1 : 0);
    store_be32(octets.data() + offsetof(sdp_bsdh, length), static_cast<std::uint32_t>(shown));
    const StreamError error = stream::decode(ConstBytes(octets).first(shown), unit.message);
    unit.message.header = header;
    unit.message.payload = {};
    unit.has_fields = true;
    if (error != StreamError::none) {
        unit.has_fields = error == StreamError::sdp_advertisement;
        unit.wrong.push_back(stream_error_info(error).text);
    } else if (header.mid == SDP_SRC_AVAIL && unit.payload_bytes >= unit.message.length &&
               unit.payload_bytes > 1) {
        unit.wrong.push_back(stream_error_info(StreamError::sdp_advertisement).text);
    }
}

/// Whether `asker` has asked that, and has the answer now.
bool answers(SdpDirection& asker, SdpDirection::Asked what) {
    const bool did = (asker.asked & what) != 0;
    asker.asked &= ~unsigned{what};
    return did;
}

void require(bool holds, const char* wrong, SdpUnit& unit) {
    if (!holds) unit.wrong.push_back(wrong);
}

}  // namespace

// ---- start-up ---------------------------------------------------------------

std::optional<SdpUnit> SdpConnection::on_startup(End from, const StartupFrame& frame) {
    const ConstBytes data = frame.private_data;
    if (frame.reply) rtr_send_ = frame.enhanced && (frame.ird & MPA_ENH_RTR_SEND) != 0;
    if (frame.reply && (frame.flags & MPA_FLAG_REJECT) != 0) {
        is_sdp_ = false;
        return std::nullopt;
    }
    const bool found = frame.reply ? begins_as(data, SDP_HELLO_ACK, stream::kHelloAckOctets)
                                   : stream::looks_like_hello(data);
    if (!found) {
        if (frame.reply) is_sdp_ = false;  // the responder speaks something else
        return std::nullopt;
    }
    is_sdp_ = true;
    SdpUnit unit;
    unit.bytes = data.size();
    unit.has_bsdh = true;
    unit.message.header = bsdh_of(data);
    unit.whole = frame.whole;
    unit.hello = frame.reply ? stream::decode_hello_ack(data) : stream::decode_hello(data);
    require(unit.hello.has_value() || !unit.whole, "it says what none may say", unit);
    if (unit.hello) {
        Direction& d = of(from);
        d.mseq = d.acked = 0;
        d.limit = unit.hello->bufs;
        d.size = unit.hello->local_size;
        d.adverts = unit.hello->max_adverts;
    }
    return unit;
}

// ---- messages ---------------------------------------------------------------

std::optional<SdpUnit> SdpConnection::on_fpdu(const Place& place, const Fpdu& fpdu) {
    if (!is_sdp_) return std::nullopt;
    if (!fpdu.has_header) {
        on_lost(place.from);
        return std::nullopt;
    }
    const ddp::Segment& segment = fpdu.segment;
    const ddp::OpcodeInfo* const info = ddp::opcode_info(segment.opcode);
    if (fpdu.stream_error != StreamError::none || info == nullptr || info->tagged ||
        segment.qn != 0) {
        return std::nullopt;
    }
    if (rtr_send_ && segment.msn == 1 && segment.last && fpdu.payload_bytes == 0) {
        return std::nullopt;
    }
    Direction& d = of(place.from);
    if (d.msn != segment.msn) {
        if (d.msn) complete_ = false;
        d.msn = segment.msn;
        d.bytes = 0;
        d.holed = false;
        d.front.clear();
        d.first_packet = place.first_packet;
    }
    if (segment.mo != d.bytes) d.holed = true;  // a segment is missing: its length is not known
    if (!d.holed && d.front.size() == d.bytes && d.front.size() < kFrontBytes) {
        const ConstBytes more =
            fpdu.payload.first(std::min(fpdu.payload.size(), kFrontBytes - d.front.size()));
        d.front.insert(d.front.end(), more.begin(), more.end());
    }
    d.bytes = std::uint64_t{segment.mo} + fpdu.payload_bytes;
    if (!fpdu.whole && d.front.size() < std::min<std::uint64_t>(d.bytes, kFrontBytes)) {
        d.holed = true;
    }
    if (!segment.last) return std::nullopt;
    return finish_message(place.from);
}

void SdpConnection::on_lost(End from) {
    complete_ = false;
    of(from).msn.reset();
}

SdpUnit SdpConnection::finish_message(End end) {
    Direction& from = of(end);
    Direction& to = of(end == End::first ? End::second : End::first);
    SdpUnit unit;
    unit.first_packet = from.first_packet;
    unit.bytes = from.bytes;
    unit.whole = !from.holed;
    from.msn.reset();
    read_message(from.front, unit);
    if (!unit.has_bsdh || !unit.whole) complete_ = false;
    if (!unit.has_bsdh) return unit;
    check_numbers(from, to, unit);
    if (complete_ && unit.has_fields) {
        check_stream(from, to, unit);
        check_kind(from, to, unit);
    }
    return unit;
}

void SdpConnection::check_numbers(Direction& from, Direction& to, SdpUnit& unit) {
    const stream::Bsdh& header = unit.message.header;
    const std::uint32_t limit = header.mseq_ack + header.bufs;
    if (complete_) {
        require(!from.mseq || header.mseq == *from.mseq + 1, "its number does not follow", unit);
        require(!to.mseq || header.mseq_ack - from.acked <= *to.mseq - from.acked,
                "acknowledges what cannot be", unit);
        require(!to.limit || not_before(*to.limit, header.mseq), "came without credit", unit);
        require(!from.limit || not_before(limit, *from.limit), "takes credit back", unit);
        require(unit.bytes <= to.size, "longer than the buffers of its receiver", unit);
    }
    from.mseq = header.mseq;
    from.acked = header.mseq_ack;
    from.limit = limit;
}

void SdpConnection::check_stream(Direction& from, const Direction& to, SdpUnit& unit) {
    const stream::Bsdh& header = unit.message.header;
    const bool pending = (header.flags & SDP_FLAG_OOB_PEND) != 0;
    const bool present = (header.flags & SDP_FLAG_OOB_PRES) != 0;
    if (pending) from.urgent_pending = true;
    if (present) {
        require(from.urgent_pending, "urgent data that were not announced", unit);
        from.urgent_pending = false;
    }
    if (unit.payload_bytes == 0) return;
    require(!from.finished, "data behind DisConn", unit);
    require(pending || present || !to.limit || not_before(*to.limit, header.mseq + kBehindData),
            "data without credit for them", unit);
}

void SdpConnection::check_kind(Direction& from, Direction& to, SdpUnit& unit) {
    const stream::SdpMessage& m = unit.message;
    switch (m.header.mid) {
        case SDP_DISCONN:
            require(!from.finished, "a second DisConn", unit);
            from.finished = true;
            break;
        case SDP_ABORT_CONN:
            require(from.finished, "AbortConn ahead of DisConn", unit);
            break;
        case SDP_SRC_AVAIL:
            return check_source(from, to, unit);
        case SDP_SEND_SM:
            return check_decline(to, unit);
        case SDP_RDMA_RD_COMPL:
            require(!to.sources.empty() && m.octets <= to.sources.front(),
                    "completes what was not advertised", unit);
            if (to.sources.empty()) break;
            to.sources.front() -= std::min<std::uint64_t>(m.octets, to.sources.front());
            if (to.sources.front() == 0) to.sources.pop_front();
            break;
        case SDP_SRC_AVAIL_CANCEL:
            require(!from.source_cancel, "a second SrcAvailCancel", unit);
            if (!from.sources.empty()) from.source_cancel = m.header.mseq;
            break;
        case SDP_SINK_AVAIL:
            // It may have been sent before its sender knew that Pipelined is over.
            require(to.mode == SdpMode::pipelined || !not_before(m.header.mseq_ack, to.mode_mseq),
                    "SinkAvail outside Pipelined", unit);
            ++from.sinks;
            break;
        case SDP_RDMA_WR_COMPL:
            require(to.sinks > 0, "completes what was not advertised", unit);
            if (to.sinks > 0) --to.sinks;
            break;
        case SDP_SINK_AVAIL_CANCEL:
            from.asked |= Direction::kSinkCancel;
            break;
        case SDP_SINK_CANCEL_ACK:
            require(answers(to, Direction::kSinkCancel), "answers no SinkAvailCancel", unit);
            break;
        case SDP_MODE_CHANGE:
            return check_mode(from, to, unit);
        case SDP_CH_RCV_BUF:
            require((from.asked & Direction::kResize) == 0, "a second ChRcvBuf", unit);
            from.asked |= Direction::kResize;
            break;
        case SDP_CH_RCV_BUF_ACK:
            require(answers(to, Direction::kResize), "answers no ChRcvBuf", unit);
            from.size = m.octets;
            break;
        case SDP_SUSP_COMM:
            from.asked |= Direction::kSuspend;
            break;
        case SDP_SUSP_COMM_ACK:
            require(answers(to, Direction::kSuspend), "answers no SuspComm", unit);
            break;
        default:
            break;
    }
}

void SdpConnection::check_source(Direction& from, const Direction& to, SdpUnit& unit) {
    require(from.mode != SdpMode::buffered, "SrcAvail in Buffered", unit);
    if (from.mode == SdpMode::combined) {
        require(unit.payload_bytes != 0, "SrcAvail without payload in Combined", unit);
        require(from.sources.empty(), "a second SrcAvail in Combined", unit);
    } else if (from.mode == SdpMode::pipelined) {
        require(unit.payload_bytes == 0, "SrcAvail with payload in Pipelined", unit);
    }
    require(from.sources.size() < to.adverts, "more SrcAvails than MaxAdverts", unit);
    if (unit.message.length > unit.payload_bytes) {
        from.sources.push_back(unit.message.length - unit.payload_bytes);
    }
}

/// A SendSm declines the oldest source, or behind a cancel all that are left.
void SdpConnection::check_decline(Direction& source, SdpUnit& unit) {
    require(!source.sources.empty(), "declines what was not advertised", unit);
    const bool ends_cancel =
        source.source_cancel && not_before(unit.message.header.mseq_ack, *source.source_cancel);
    if (ends_cancel) {
        source.sources.clear();
    } else if (!source.sources.empty()) {
        source.sources.pop_front();
    }
    if (source.sources.empty()) source.source_cancel.reset();
}

void SdpConnection::check_mode(Direction& from, Direction& to, SdpUnit& unit) {
    const stream::SdpMessage& m = unit.message;
    if (m.send_half) {  // of its receiver
        require(to.mode == SdpMode::buffered && m.mode == SdpMode::combined,
                "a ModeChange that there is not", unit);
        to.mode = m.mode;
        return;
    }
    const bool known = from.mode == SdpMode::combined
                           ? m.mode != SdpMode::combined
                           : from.mode == SdpMode::pipelined && m.mode == SdpMode::combined;
    require(known, "a ModeChange that there is not", unit);
    if (from.mode == SdpMode::pipelined) from.sources.clear();
    from.mode = m.mode;
    from.mode_mseq = m.header.mseq;
}

}  // namespace xsock::decode
