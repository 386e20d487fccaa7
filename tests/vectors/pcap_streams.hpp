// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The two byte streams of a capture that holds one TCP connection (classic pcap, Ethernet, IPv4),
// put in order by sequence number, duplicates dropped. For tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/bytes.hpp"

namespace xsock::test {

struct TcpStreams {
    std::vector<std::byte> from_client;  // the end that sent the first SYN
    std::vector<std::byte> from_server;
};

namespace pcap_detail {

/// One direction: segments by their distance from the first byte of the stream.
struct Direction {
    std::uint32_t first = 0;  // sequence number behind the SYN
    std::map<std::uint32_t, std::vector<std::byte>> segments;

    [[nodiscard]] std::vector<std::byte> joined() const {
        std::vector<std::byte> out;
        for (const auto& [offset, bytes] : segments) {
            if (offset > out.size()) throw std::runtime_error("capture has a gap");
            const std::size_t known = out.size() - offset;
            if (known < bytes.size()) {
                out.insert(out.end(), bytes.begin() + static_cast<std::ptrdiff_t>(known),
                           bytes.end());
            }
        }
        return out;
    }
};

inline std::uint32_t field(ConstBytes bytes, std::size_t at, bool big) {
    if (at > bytes.size() || bytes.size() - at < 4) throw std::runtime_error("pcap is short");
    return big ? load_be32(bytes.data() + at) : load_le32(bytes.data() + at);
}

}  // namespace pcap_detail

/// Throws std::runtime_error when the file is not as described above.
inline TcpStreams read_tcp_streams(const std::string& path) {
    using pcap_detail::field;
    std::ifstream in(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const auto file = std::as_bytes(std::span(text));

    const bool big = field(file, 0, true) == 0xa1b2c3d4u;
    if (!big && field(file, 0, false) != 0xa1b2c3d4u) throw std::runtime_error("no pcap: " + path);
    if (field(file, 20, big) != 1) throw std::runtime_error("not Ethernet: " + path);

    pcap_detail::Direction directions[2];
    std::uint16_t client_port = 0;
    for (std::size_t at = 24; at < file.size();) {
        const std::size_t captured = field(file, at + 8, big);
        if (captured != field(file, at + 12, big)) throw std::runtime_error("packet is cut");
        at += 16;
        if (captured > file.size() - at) throw std::runtime_error("pcap is short");
        const ConstBytes packet = file.subspan(at, captured);
        at += captured;

        constexpr std::size_t kEthernet = 14;
        if (packet.size() < kEthernet + 20 || load_be16(packet.data() + 12) != 0x0800) continue;
        const ConstBytes ip = packet.subspan(kEthernet);
        const std::size_t ip_header = 4 * (std::to_integer<std::size_t>(ip[0]) & 15);
        const std::size_t ip_length = load_be16(ip.data() + 2);
        if (ip[9] != std::byte{6} || ip_length > ip.size() || ip_length < ip_header + 20) continue;
        const ConstBytes tcp = ip.subspan(ip_header, ip_length - ip_header);
        const std::size_t tcp_header = 4 * (std::to_integer<std::size_t>(tcp[12]) >> 4);
        if (tcp_header > tcp.size()) throw std::runtime_error("bad TCP header");
        const ConstBytes payload = tcp.subspan(tcp_header);

        const std::uint16_t source_port = load_be16(tcp.data());
        const bool syn = (tcp[13] & std::byte{2}) != std::byte{0};
        if (syn && client_port == 0) client_port = source_port;
        pcap_detail::Direction& direction = directions[source_port == client_port ? 0 : 1];
        const std::uint32_t sequence = load_be32(tcp.data() + 4);
        if (syn) direction.first = sequence + 1;
        if (payload.empty()) continue;
        auto& segment = direction.segments[sequence - direction.first];
        if (payload.size() > segment.size()) segment.assign(payload.begin(), payload.end());
    }
    return {directions[0].joined(), directions[1].joined()};
}

}  // namespace xsock::test
