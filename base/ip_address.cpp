// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/ip_address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"
#include "base/bytes.hpp"

namespace xsock {
namespace {

constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr unsigned kMappedBits = 96;

IpAddress mapped(const void* ipv4_octets) {
    IpAddress address;
    std::copy(kMapped.begin(), kMapped.end(), address.octets.begin());
    std::memcpy(address.octets.data() + kMapped.size(), ipv4_octets, 4);
    return address;
}

std::optional<IpAddress> parse_ipv4(std::string_view text) {
    std::array<std::uint8_t, 4> octets{};
    for (std::size_t i = 0; i < octets.size(); ++i) {
        const bool last = i + 1 == octets.size();
        const std::size_t dot = text.find('.');
        if ((dot == text.npos) != last) return {};
        const auto number = parse_decimal(text.substr(0, dot), 255);
        if (!number) return {};
        octets[i] = static_cast<std::uint8_t>(*number);
        if (!last) text.remove_prefix(dot + 1);
    }
    return mapped(octets.data());
}

std::string bracketed(const IpAddress& address) {
    return address.is_ipv4() ? text_of(address) : "[" + text_of(address) + "]";
}

}  // namespace

bool IpAddress::is_ipv4() const noexcept {
    return std::equal(kMapped.begin(), kMapped.end(), octets.begin());
}

IpNetwork make_network(const IpAddress& address, unsigned length) noexcept {
    XSOCK_ASSERT(length <= 128);
    IpNetwork network{address, length};
    for (unsigned i = 0; i < network.address.octets.size(); ++i) {
        const unsigned kept = length > 8 * i ? std::min(length - 8 * i, 8u) : 0;
        network.address.octets[i] =
            static_cast<std::uint8_t>(network.address.octets[i] & (0xff00u >> kept));
    }
    return network;
}

bool IpNetwork::contains(const IpAddress& other) const noexcept {
    if (is_ipv4() != other.is_ipv4()) return false;
    const std::size_t whole = length / 8;
    if (std::memcmp(address.octets.data(), other.octets.data(), whole) != 0) return false;
    if (length % 8 == 0) return true;
    const unsigned different = address.octets[whole] ^ other.octets[whole];
    return different >> (8 - length % 8) == 0;
}

std::optional<unsigned> parse_decimal(std::string_view text, unsigned high) {
    if (text.empty()) return {};
    std::uint64_t number = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') return {};
        number = number * 10 + static_cast<unsigned>(c - '0');
        if (number > high) return {};
    }
    return static_cast<unsigned>(number);
}

std::optional<IpAddress> parse_ip_address(std::string_view text) {
    if (text.find(':') == text.npos) return parse_ipv4(text);
    char copy[INET6_ADDRSTRLEN];
    if (text.size() >= sizeof copy || text.find('\0') != text.npos) return {};
    std::memcpy(copy, text.data(), text.size());
    copy[text.size()] = '\0';
    IpAddress address;
    if (inet_pton(AF_INET6, copy, address.octets.data()) != 1) return {};
    return address;
}

std::optional<IpEndpoint> endpoint_of(const sockaddr* address, std::size_t length) {
    sa_family_t family;
    if (address == nullptr || length < offsetof(sockaddr, sa_family) + sizeof family) return {};
    std::memcpy(&family, &address->sa_family, sizeof family);
    if (family == AF_INET && length >= sizeof(sockaddr_in)) {
        sockaddr_in in;
        std::memcpy(&in, address, sizeof in);
        return IpEndpoint{mapped(&in.sin_addr), load_be16(&in.sin_port)};
    }
    if (family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
        sockaddr_in6 in;
        std::memcpy(&in, address, sizeof in);
        IpEndpoint endpoint{{}, load_be16(&in.sin6_port)};
        std::memcpy(endpoint.address.octets.data(), &in.sin6_addr, sizeof in.sin6_addr);
        return endpoint;
    }
    return {};
}

unsigned scope_of(const sockaddr* address, std::size_t length) noexcept {
    sockaddr_in6 in{};
    if (address == nullptr || length < sizeof in) return 0;
    std::memcpy(&in, address, sizeof in);
    return in.sin6_family == AF_INET6 ? in.sin6_scope_id : 0;
}

std::string text_of(const IpAddress& address) {
    char text[INET6_ADDRSTRLEN];
    const bool ipv4 = address.is_ipv4();
    const std::uint8_t* const octets = address.octets.data() + (ipv4 ? kMapped.size() : 0);
    return inet_ntop(ipv4 ? AF_INET : AF_INET6, octets, text, sizeof text) != nullptr ? text : "";
}

std::string text_of(const IpNetwork& network) {
    const unsigned length = network.is_ipv4() ? network.length - kMappedBits : network.length;
    const std::string whole = bracketed(network.address);
    return network.length == 128 ? whole : whole + "/" + std::to_string(length);
}

std::string text_of(const IpEndpoint& endpoint) {
    return bracketed(endpoint.address) + ":" + std::to_string(endpoint.port);
}

}  // namespace xsock
