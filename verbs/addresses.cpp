// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/addresses.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace xsock::verbs {
namespace {

constexpr int kPorts = 65535;  // the largest

const sockaddr_in& v4(const sockaddr* address) {
    return *reinterpret_cast<const sockaddr_in*>(address);
}
const sockaddr_in6& v6(const sockaddr* address) {
    return *reinterpret_cast<const sockaddr_in6*>(address);
}

}  // namespace

std::vector<LocalAddress> local_addresses() {
    std::vector<LocalAddress> all = interface_addresses();
    const auto rank = [](const LocalAddress& a) {
        return (a.address.ss_family == AF_INET6 ? 2 : 0) + (a.loopback ? 1 : 0);
    };
    std::stable_sort(all.begin(), all.end(), [&](const LocalAddress& a, const LocalAddress& b) {
        return rank(a) < rank(b);
    });
    return all;
}

ibv_gid gid_of(const sockaddr_storage& address) noexcept {
    ibv_gid gid{};
    const auto octets = gid_octets(reinterpret_cast<const sockaddr&>(address));
    std::memcpy(gid.raw, octets.data(), sizeof gid.raw);
    return gid;
}

socklen_t length_of(const sockaddr* address) noexcept {
    if (address == nullptr) return 0;
    if (address->sa_family == AF_INET) return sizeof(sockaddr_in);
    if (address->sa_family == AF_INET6) return sizeof(sockaddr_in6);
    return 0;
}

std::uint16_t port_of(const sockaddr* address) noexcept {
    if (address->sa_family == AF_INET) return ntohs(v4(address).sin_port);
    if (address->sa_family == AF_INET6) return ntohs(v6(address).sin6_port);
    return 0;
}

void set_port(sockaddr* address, std::uint16_t port) noexcept {
    if (address->sa_family == AF_INET) {
        reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
    } else if (address->sa_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
    }
}

bool to_tcp_port(sockaddr* address, int offset) noexcept {
    const int port = port_of(address);
    if (port == 0 || offset == 0) return true;
    if (port + offset < 1 || port + offset > kPorts) return false;
    set_port(address, static_cast<std::uint16_t>(port + offset));
    return true;
}

void to_program_port(sockaddr* address, int offset) noexcept {
    const int port = port_of(address);
    if (port == 0 || offset == 0) return;
    const int left = (port - 1 - offset) % kPorts;
    set_port(address, static_cast<std::uint16_t>((left < 0 ? left + kPorts : left) + 1));
}

bool is_wildcard(const sockaddr* address) noexcept {
    if (address->sa_family == AF_INET) return v4(address).sin_addr.s_addr == htonl(INADDR_ANY);
    if (address->sa_family == AF_INET6) return IN6_IS_ADDR_UNSPECIFIED(&v6(address).sin6_addr);
    return true;
}

bool copy_address(sockaddr_storage& to, const sockaddr* from) noexcept {
    const socklen_t length = length_of(from);
    if (length == 0) return false;
    sockaddr_storage copy{};
    std::memcpy(&copy, from, length);  // rsockets hands us the id's own address
    to = copy;
    return true;
}

std::string text_of(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = "?";
    if (address->sa_family == AF_INET) {
        inet_ntop(AF_INET, &v4(address).sin_addr, text, sizeof text);
        return std::string(text) + ":" + std::to_string(port_of(address));
    }
    if (address->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &v6(address).sin6_addr, text, sizeof text);
        return "[" + std::string(text) + "]:" + std::to_string(port_of(address));
    }
    return text;
}

}  // namespace xsock::verbs
