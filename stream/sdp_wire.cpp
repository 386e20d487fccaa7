// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "stream/sdp_wire.hpp"

#include <cstddef>

namespace xsock::stream {
namespace {

constexpr std::uint16_t kLeastBufs = 3;  // draft §10: posted at the start

const std::byte* at(ConstBytes octets, std::size_t offset) noexcept {
    return octets.data() + offset;
}

Bsdh decode_bsdh(ConstBytes octets) noexcept {
    return {std::to_integer<std::uint8_t>(octets[offsetof(sdp_bsdh, mid)]),
            std::to_integer<std::uint8_t>(octets[offsetof(sdp_bsdh, flags)]),
            load_be16(at(octets, offsetof(sdp_bsdh, bufs))),
            load_be32(at(octets, offsetof(sdp_bsdh, length))),
            load_be32(at(octets, offsetof(sdp_bsdh, mseq))),
            load_be32(at(octets, offsetof(sdp_bsdh, mseq_ack)))};
}

void encode_bsdh(const Bsdh& header, Bytes out) noexcept {
    out[offsetof(sdp_bsdh, mid)] = std::byte{header.mid};
    out[offsetof(sdp_bsdh, flags)] = std::byte{header.flags};
    store_be16(out.data() + offsetof(sdp_bsdh, bufs), header.bufs);
    store_be32(out.data() + offsetof(sdp_bsdh, length), header.length);
    store_be32(out.data() + offsetof(sdp_bsdh, mseq), header.mseq);
    store_be32(out.data() + offsetof(sdp_bsdh, mseq_ack), header.mseq_ack);
}

[[nodiscard]] bool may_carry_payload(std::uint8_t mid) noexcept { return mid >= SDP_SINK_AVAIL; }

[[nodiscard]] bool is_size(std::uint32_t size) noexcept {
    return size >= SDP_SIZE_MIN && size <= SDP_SIZE_MAX;
}

/// The fields that SrcAvail and SinkAvail begin with.
StreamError decode_advertisement(ConstBytes rest, SdpMessage& out) noexcept {
    out.length = load_be32(at(rest, offsetof(sdp_src_avail, length)));
    out.stag = load_be32(at(rest, offsetof(sdp_src_avail, stag)));
    out.address = load_be64(at(rest, offsetof(sdp_src_avail, address)));
    const bool valid = out.length != 0 && out.length <= SDP_SIZE_MAX && out.stag != 0 &&
                       out.length - 1 <= ~std::uint64_t{0} - out.address;
    return valid ? StreamError::none : StreamError::sdp_advertisement;
}

StreamError decode_mode(ConstBytes rest, SdpMessage& out) noexcept {
    const auto octet = std::to_integer<unsigned>(rest[offsetof(sdp_mode_change, mode)]);
    const unsigned mode = octet >> SDP_MODE_SHIFT & SDP_MODE_MASK;
    if (mode > SDP_MODE_PIPELINED) return StreamError::sdp_mode;
    out.mode = static_cast<SdpMode>(mode);
    out.send_half = (octet & SDP_MODE_SEND_HALF) != 0;
    return StreamError::none;
}

StreamError decode_suspension(ConstBytes rest, SdpMessage& out) noexcept {
    out.port = load_be16(at(rest, offsetof(sdp_susp_comm, port)));
    const bool valid = load_be32(at(rest, offsetof(sdp_susp_comm, zero))) == 0 &&
                       load_be16(at(rest, offsetof(sdp_susp_comm, one))) == 1;
    return valid ? StreamError::none : StreamError::sdp_suspend;
}

/// What follows the BSDH. @pre `rest` is as long as header_octets() says, or has payload behind it
StreamError decode_body(ConstBytes rest, SdpMessage& out) noexcept {
    switch (out.header.mid) {
        case SDP_RDMA_WR_COMPL:
        case SDP_RDMA_RD_COMPL:
            out.octets = load_be32(rest.data());
            return StreamError::none;
        case SDP_CH_RCV_BUF:
        case SDP_CH_RCV_BUF_ACK:
            out.octets = load_be32(rest.data());
            return is_size(out.octets) ? StreamError::none : StreamError::sdp_resize;
        case SDP_MODE_CHANGE:
            return decode_mode(rest, out);
        case SDP_SUSP_COMM:
            return decode_suspension(rest, out);
        case SDP_SRC_AVAIL: {
            const StreamError wrong = decode_advertisement(rest, out);
            if (wrong != StreamError::none) return wrong;
            return out.payload.size() < out.length ? StreamError::none
                                                   : StreamError::sdp_advertisement;
        }
        case SDP_SINK_AVAIL:
            out.non_discards = load_be32(at(rest, offsetof(sdp_sink_avail, non_discards)));
            return decode_advertisement(rest, out);
        default:
            return StreamError::none;
    }
}

struct HelloFields {
    std::size_t local_size, ord, ird;
};

/// What Hello and HelloAck have in common. @pre `octets` has the length of its kind
std::optional<SdpHello> decode_start(ConstBytes octets, std::uint8_t mid,
                                     const HelloFields& fields) noexcept {
    const Bsdh header = decode_bsdh(octets);
    const ConstBytes rest = octets.subspan(kBsdhOctets);
    SdpHello hello;
    hello.version = std::to_integer<std::uint8_t>(rest[offsetof(sdp_hello, version)]);
    hello.bufs = header.bufs;
    hello.max_adverts = load_be16(at(rest, offsetof(sdp_hello, max_adverts)));
    hello.local_size = load_be32(at(rest, fields.local_size));
    hello.ord = load_be16(at(rest, fields.ord));
    hello.ird = load_be16(at(rest, fields.ird));
    const bool same_major =
        (hello.version & SDP_VERSION_MAJOR_MASK) == (SDP_VERSION & SDP_VERSION_MAJOR_MASK);
    const bool valid = header.mid == mid && header.length == octets.size() && same_major &&
                       hello.bufs >= kLeastBufs && hello.max_adverts != 0 && hello.ord != 0 &&
                       hello.ird != 0 && is_size(hello.local_size);
    if (!valid) return std::nullopt;
    return hello;
}

void encode_start(const SdpHello& hello, std::uint8_t mid, const HelloFields& fields,
                  Bytes out) noexcept {
    encode_bsdh({.mid = mid, .bufs = hello.bufs, .length = static_cast<std::uint32_t>(out.size())},
                out);
    const Bytes rest = out.subspan(kBsdhOctets);
    rest[offsetof(sdp_hello, version)] = std::byte{hello.version};
    rest[offsetof(sdp_hello, reserved)] = std::byte{0};
    store_be16(rest.data() + offsetof(sdp_hello, max_adverts), hello.max_adverts);
    store_be32(rest.data() + fields.local_size, hello.local_size);
    store_be16(rest.data() + fields.ord, hello.ord);
    store_be16(rest.data() + fields.ird, hello.ird);
}

constexpr HelloFields kHelloFields{offsetof(sdp_hello, local_size), offsetof(sdp_hello, ord),
                                   offsetof(sdp_hello, ird)};
constexpr HelloFields kHelloAckFields{offsetof(sdp_hello_ack, actual_size),
                                      offsetof(sdp_hello_ack, ord), offsetof(sdp_hello_ack, ird)};

}  // namespace

std::size_t header_octets(std::uint8_t mid) noexcept {
    switch (mid) {
        case SDP_DISCONN:
        case SDP_ABORT_CONN:
        case SDP_SEND_SM:
        case SDP_SRC_AVAIL_CANCEL:
        case SDP_SINK_AVAIL_CANCEL:
        case SDP_SINK_CANCEL_ACK:
        case SDP_SUSP_COMM_ACK:
        case SDP_DATA:
            return kBsdhOctets;
        case SDP_RDMA_WR_COMPL:
        case SDP_RDMA_RD_COMPL:
        case SDP_CH_RCV_BUF:
        case SDP_CH_RCV_BUF_ACK:
            return kBsdhOctets + sizeof(sdp_count);
        case SDP_MODE_CHANGE:
            return kBsdhOctets + sizeof(sdp_mode_change);
        case SDP_SUSP_COMM:
            return kBsdhOctets + sizeof(sdp_susp_comm);
        case SDP_SRC_AVAIL:
            return kBsdhOctets + sizeof(sdp_src_avail);
        case SDP_SINK_AVAIL:
            return kBsdhOctets + sizeof(sdp_sink_avail);
        default:  // start-up's, reserved, experimental
            return 0;
    }
}

StreamError decode(ConstBytes octets, SdpMessage& out) noexcept {
    out = {};
    if (octets.size() < kBsdhOctets) return StreamError::sdp_length;
    out.header = decode_bsdh(octets);
    const Bsdh& header = out.header;
    if (header.length != octets.size()) return StreamError::sdp_length;
    const std::size_t headers = header_octets(header.mid);
    if (headers == 0) return StreamError::sdp_message;
    const bool fits =
        may_carry_payload(header.mid) ? octets.size() >= headers : octets.size() == headers;
    if (!fits) return StreamError::sdp_length;
    out.payload = octets.subspan(headers);
    if ((header.flags & SDP_FLAG_OOB_PRES) != 0 &&
        (header.mid != SDP_DATA || out.payload.empty())) {
        return StreamError::sdp_urgent;
    }
    return decode_body(octets.subspan(kBsdhOctets), out);
}

std::size_t encode(const SdpMessage& message, std::size_t payload_octets, Bytes out) noexcept {
    const std::size_t headers = header_octets(message.header.mid);
    Bsdh header = message.header;
    header.length = static_cast<std::uint32_t>(headers + payload_octets);
    encode_bsdh(header, out);
    const Bytes rest = out.first(headers).subspan(kBsdhOctets);
    switch (header.mid) {
        case SDP_RDMA_WR_COMPL:
        case SDP_RDMA_RD_COMPL:
        case SDP_CH_RCV_BUF:
        case SDP_CH_RCV_BUF_ACK:
            store_be32(rest.data(), message.octets);
            break;
        case SDP_MODE_CHANGE: {
            const unsigned mode = static_cast<unsigned>(message.mode) << SDP_MODE_SHIFT |
                                  (message.send_half ? SDP_MODE_SEND_HALF : 0u);
            store_be32(rest.data(), mode << 24);
            break;
        }
        case SDP_SUSP_COMM:
            store_be32(rest.data() + offsetof(sdp_susp_comm, zero), 0);
            store_be16(rest.data() + offsetof(sdp_susp_comm, one), 1);
            store_be16(rest.data() + offsetof(sdp_susp_comm, port), message.port);
            break;
        case SDP_SINK_AVAIL:
            store_be32(rest.data() + offsetof(sdp_sink_avail, non_discards), message.non_discards);
            [[fallthrough]];
        case SDP_SRC_AVAIL:
            store_be32(rest.data() + offsetof(sdp_src_avail, length), message.length);
            store_be32(rest.data() + offsetof(sdp_src_avail, stag), message.stag);
            store_be64(rest.data() + offsetof(sdp_src_avail, address), message.address);
            break;
        default:
            break;
    }
    return headers;
}

bool looks_like_hello(ConstBytes private_data) noexcept {
    return private_data.size() >= kBsdhOctets &&
           private_data[offsetof(sdp_bsdh, mid)] == std::byte{SDP_HELLO} &&
           load_be32(at(private_data, offsetof(sdp_bsdh, length))) == kHelloOctets;
}

std::optional<SdpHello> decode_hello(ConstBytes private_data) noexcept {
    if (private_data.size() != kHelloOctets) return std::nullopt;
    auto hello = decode_start(private_data, SDP_HELLO, kHelloFields);
    if (!hello) return std::nullopt;
    hello->desired_remote_size =
        load_be32(at(private_data, kBsdhOctets + offsetof(sdp_hello, desired_remote_size)));
    if (!is_size(hello->desired_remote_size)) return std::nullopt;
    return hello;
}

std::optional<SdpHello> decode_hello_ack(ConstBytes private_data) noexcept {
    if (private_data.size() != kHelloAckOctets) return std::nullopt;
    return decode_start(private_data, SDP_HELLO_ACK, kHelloAckFields);
}

std::array<std::byte, kHelloOctets> encode_hello(const SdpHello& hello) noexcept {
    std::array<std::byte, kHelloOctets> octets{};
    encode_start(hello, SDP_HELLO, kHelloFields, octets);
    store_be32(octets.data() + kBsdhOctets + offsetof(sdp_hello, desired_remote_size),
               hello.desired_remote_size);
    return octets;
}

std::array<std::byte, kHelloAckOctets> encode_hello_ack(const SdpHello& hello) noexcept {
    std::array<std::byte, kHelloAckOctets> octets{};
    encode_start(hello, SDP_HELLO_ACK, kHelloAckFields, octets);
    return octets;
}

}  // namespace xsock::stream
