// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/datagram_frame.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace xsock::verbs {
namespace {

constexpr std::uint8_t kFrameVersion = 1;
constexpr std::uint8_t kImmediate = 1, kSolicited = 2;
constexpr std::uint32_t kFlowLabelMax = 0xfffff;

struct DatagramLayout {
    std::uint8_t version;
    std::uint8_t flags;
    std::uint8_t pkey[2];  // big-endian, as are the next
    std::uint8_t to[4];
    std::uint8_t from[4];
    std::uint8_t qkey[4];
    std::uint8_t data[4];  // as the program gave it
    std::uint8_t flow[4];  // 0:4 traffic class:8 flow label:20
};
static_assert(sizeof(DatagramLayout) == kDatagramHeader);

// InfiniBand volume 1, §8.3.
struct GrhLayout {
    std::uint8_t flow[4];  // version:4 traffic class:8 flow label:20
    std::uint8_t length[2];
    std::uint8_t next_header;
    std::uint8_t hop_limit;
    std::uint8_t from[16];
    std::uint8_t to[16];
};
static_assert(sizeof(GrhLayout) == kGrhBytes);

constexpr std::uint32_t kIpv6 = 6u << 28;
constexpr std::byte kUdp{17}, kHopLimit{64};

}  // namespace

std::array<std::byte, kDatagramHeader> encode(const DatagramHeader& header) noexcept {
    std::array<std::byte, kDatagramHeader> octets{};
    std::byte* const out = octets.data();
    const unsigned flags =
        (header.immediate ? kImmediate : 0u) | (header.solicited ? kSolicited : 0u);
    out[offsetof(DatagramLayout, version)] = std::byte{kFrameVersion};
    out[offsetof(DatagramLayout, flags)] = static_cast<std::byte>(flags);
    store_be16(out + offsetof(DatagramLayout, pkey), header.pkey);
    store_be32(out + offsetof(DatagramLayout, to), header.to);
    store_be32(out + offsetof(DatagramLayout, from), header.from);
    store_be32(out + offsetof(DatagramLayout, qkey), header.qkey);
    if (header.immediate) {
        std::copy(header.data.begin(), header.data.end(), out + offsetof(DatagramLayout, data));
    }
    store_be32(out + offsetof(DatagramLayout, flow),
               std::uint32_t{header.traffic_class} << 20 | header.flow_label);
    return octets;
}

std::optional<DecodedDatagram> decode_datagram(ConstBytes frame) noexcept {
    if (frame.size() < kDatagramHeader) return std::nullopt;
    DecodedDatagram decoded;
    decoded.payload = frame.subspan(kDatagramHeader);
    if (decoded.payload.size() > kDatagramPayload) return std::nullopt;
    const std::byte* const in = frame.data();
    if (std::to_integer<std::uint8_t>(in[offsetof(DatagramLayout, version)]) != kFrameVersion) {
        return std::nullopt;
    }
    const auto flags = std::to_integer<std::uint8_t>(in[offsetof(DatagramLayout, flags)]);
    if ((flags & ~unsigned{kImmediate | kSolicited}) != 0) return std::nullopt;
    DatagramHeader& header = decoded.header;
    header.immediate = (flags & kImmediate) != 0;
    header.solicited = (flags & kSolicited) != 0;
    header.pkey = load_be16(in + offsetof(DatagramLayout, pkey));
    header.to = load_be32(in + offsetof(DatagramLayout, to));
    header.from = load_be32(in + offsetof(DatagramLayout, from));
    header.qkey = load_be32(in + offsetof(DatagramLayout, qkey));
    const std::byte* const data = in + offsetof(DatagramLayout, data);
    std::copy(data, data + header.data.size(), header.data.begin());
    const std::uint32_t flow = load_be32(in + offsetof(DatagramLayout, flow));
    header.traffic_class = static_cast<std::uint8_t>(flow >> 20);
    header.flow_label = flow & kFlowLabelMax;
    if (header.to > kQpNumMax || header.from > kQpNumMax || flow >> 28 != 0) return std::nullopt;
    if (!header.immediate && header.data != std::array<std::byte, 4>{}) return std::nullopt;
    return decoded;
}

std::array<std::byte, kGrhBytes> make_grh(const DatagramHeader& header, const GidOctets& from,
                                          const GidOctets& to, std::size_t payload_bytes) noexcept {
    std::array<std::byte, kGrhBytes> octets;
    std::byte* const out = octets.data();
    store_be32(out + offsetof(GrhLayout, flow),
               kIpv6 | std::uint32_t{header.traffic_class} << 20 | header.flow_label);
    store_be16(out + offsetof(GrhLayout, length), static_cast<std::uint16_t>(payload_bytes));
    out[offsetof(GrhLayout, next_header)] = kUdp;
    out[offsetof(GrhLayout, hop_limit)] = kHopLimit;
    std::memcpy(out + offsetof(GrhLayout, from), from.data(), from.size());
    std::memcpy(out + offsetof(GrhLayout, to), to.data(), to.size());
    return octets;
}

}  // namespace xsock::verbs
