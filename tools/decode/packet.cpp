// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/decode/packet.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace xsock::decode {
namespace {

enum LinkType : std::uint16_t {
    kLinkNull = 0,
    kLinkEthernet = 1,
    kLinkRawOld = 12,  // DLT_RAW on most systems
    kLinkRawBsd = 14,  // and on OpenBSD
    kLinkRaw = 101,
    kLinkLoop = 108,
    kLinkCooked = 113,
    kLinkIpv4 = 228,
    kLinkIpv6 = 229,
    kLinkCooked2 = 276,
};

constexpr std::uint16_t kEtherIpv4 = 0x0800, kEtherIpv6 = 0x86dd;
constexpr std::uint8_t kTcp = 6;
constexpr unsigned kVlanTagsMax = 4, kExtensionHeadersMax = 8;

bool is_vlan(std::uint16_t type) { return type == 0x8100 || type == 0x88a8 || type == 0x9100; }

std::uint16_t be16(ConstBytes bytes, std::size_t at) { return load_be16(bytes.data() + at); }
unsigned byte(ConstBytes bytes, std::size_t at) { return std::to_integer<unsigned>(bytes[at]); }

/// Behind the EtherType at `at`: the IP packet, if it is one.
ConstBytes behind_ether_type(ConstBytes bytes, std::size_t at) {
    for (unsigned tags = 0; tags <= kVlanTagsMax; ++tags) {
        if (bytes.size() < at + 2) return {};
        const std::uint16_t type = be16(bytes, at);
        if (type == kEtherIpv4 || type == kEtherIpv6) return bytes.subspan(at + 2);
        if (!is_vlan(type)) return {};
        at += 4;
    }
    return {};
}

ConstBytes ip_packet(std::uint16_t link_type, ConstBytes bytes) {
    switch (link_type) {
        case kLinkEthernet:
            return behind_ether_type(bytes, 12);
        case kLinkCooked:
            return behind_ether_type(bytes, 14);
        case kLinkCooked2:
            // The protocol comes first, 18 bytes of other things follow.
            if (bytes.size() < 20) return {};
            if (be16(bytes, 0) != kEtherIpv4 && be16(bytes, 0) != kEtherIpv6) return {};
            return bytes.subspan(20);
        case kLinkNull:
        case kLinkLoop:
            // An address family of the machine that captured; the IP version says it as well.
            return bytes.size() < 4 ? ConstBytes{} : bytes.subspan(4);
        case kLinkRawOld:
        case kLinkRawBsd:
        case kLinkRaw:
        case kLinkIpv4:
        case kLinkIpv6:
            return bytes;
        default:
            return {};
    }
}

/// The IP payload if it is TCP: captured bytes, bytes on the wire, addresses.
struct IpPayload {
    ConstBytes captured;
    std::size_t bytes = 0;
    Endpoint source, destination;
};

bool ipv4_payload(ConstBytes ip, std::size_t on_wire, IpPayload& out) {
    if (ip.size() < 20) return false;
    const std::size_t header = std::size_t{byte(ip, 0) & 15} * 4;
    std::size_t total = be16(ip, 2);
    if (total == 0) total = on_wire;  // segmentation offload: the length did not fit
    if (header < 20 || total < header || ip.size() < header) return false;
    if ((be16(ip, 6) & 0x3fff) != 0 || byte(ip, 9) != kTcp) return false;  // a fragment, or not TCP
    out.bytes = total - header;
    out.captured = ip.subspan(header, std::min(ip.size() - header, out.bytes));
    std::memcpy(out.source.address.data(), ip.data() + 12, 4);
    std::memcpy(out.destination.address.data(), ip.data() + 16, 4);
    return true;
}

bool ipv6_payload(ConstBytes ip, std::size_t on_wire, IpPayload& out) {
    constexpr std::size_t kHeader = 40;
    if (ip.size() < kHeader) return false;
    std::size_t left = be16(ip, 4);
    if (left == 0) left = on_wire > kHeader ? on_wire - kHeader : 0;
    unsigned next = byte(ip, 6);
    std::size_t at = kHeader;
    for (unsigned i = 0; next != kTcp; ++i) {
        constexpr unsigned kHopByHop = 0, kRouting = 43, kDestination = 60;
        if (next != kHopByHop && next != kRouting && next != kDestination) return false;
        if (i == kExtensionHeadersMax || ip.size() - at < 2) return false;
        const std::size_t length = 8 + std::size_t{byte(ip, at + 1)} * 8;
        if (length > left || length > ip.size() - at) return false;
        next = byte(ip, at);
        at += length;
        left -= length;
    }
    out.bytes = left;
    out.captured = ip.subspan(at, std::min(ip.size() - at, left));
    std::memcpy(out.source.address.data(), ip.data() + 8, 16);
    std::memcpy(out.destination.address.data(), ip.data() + 24, 16);
    out.source.ipv6 = out.destination.ipv6 = true;
    return true;
}

}  // namespace

std::string Endpoint::address_text() const {
    char text[INET6_ADDRSTRLEN] = "?";
    inet_ntop(ipv6 ? AF_INET6 : AF_INET, address.data(), text, sizeof text);
    return text;
}

std::string Endpoint::text() const {
    const std::string host = address_text();
    return (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool link_type_known(std::uint16_t link_type) noexcept {
    switch (link_type) {
        case kLinkNull:
        case kLinkEthernet:
        case kLinkRawOld:
        case kLinkRawBsd:
        case kLinkRaw:
        case kLinkLoop:
        case kLinkCooked:
        case kLinkIpv4:
        case kLinkIpv6:
        case kLinkCooked2:
            return true;
        default:
            return false;
    }
}

std::optional<TcpSegment> tcp_segment(const Packet& packet) {
    const ConstBytes ip = ip_packet(packet.link_type, packet.bytes);
    if (ip.empty()) return std::nullopt;
    const std::size_t below = packet.bytes.size() - ip.size();
    const std::size_t on_wire = packet.original_bytes > below ? packet.original_bytes - below : 0;
    IpPayload payload;
    const unsigned version = byte(ip, 0) >> 4;
    if (version == 4 ? !ipv4_payload(ip, on_wire, payload)
                     : version != 6 || !ipv6_payload(ip, on_wire, payload)) {
        return std::nullopt;
    }
    const ConstBytes tcp = payload.captured;
    if (tcp.size() < 20) return std::nullopt;
    const std::size_t header = std::size_t{byte(tcp, 12) >> 4} * 4;
    if (header < 20 || header > payload.bytes) return std::nullopt;

    TcpSegment segment;
    segment.source = payload.source;
    segment.destination = payload.destination;
    segment.source.port = be16(tcp, 0);
    segment.destination.port = be16(tcp, 2);
    segment.sequence = load_be32(tcp.data() + 4);
    const unsigned flags = byte(tcp, 13);
    segment.fin = (flags & 1) != 0;
    segment.syn = (flags & 2) != 0;
    segment.reset = (flags & 4) != 0;
    segment.payload = tcp.subspan(std::min(header, tcp.size()));
    segment.payload_bytes = payload.bytes - header;
    return segment;
}

}  // namespace xsock::decode
