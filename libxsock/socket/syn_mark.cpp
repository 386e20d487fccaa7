// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/syn_mark.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cstring>

namespace xsock::sockets {
namespace {

bool get(int fd, int level, int name, int& value) noexcept {
    socklen_t size = sizeof value;
    return getsockopt(fd, level, name, &value, &size) == 0;
}

bool put(int fd, int level, int name, int value) noexcept {
    return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

// A socket of either family may connect over IPv4.
bool is_over_ipv4(const sockaddr* address, socklen_t length) noexcept {
    if (address->sa_family != AF_INET6 || length < sizeof(sockaddr_in6)) return true;
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof v6);
    return IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
}

}  // namespace

void SynMark::set(int fd, const sockaddr* address, socklen_t length) noexcept {
    if (address == nullptr || length < sizeof address->sa_family) return;
    const bool ipv4 = is_over_ipv4(address, length);
    level_ = ipv4 ? IPPROTO_IP : IPPROTO_IPV6;
    name_ = ipv4 ? IP_TOS : IPV6_TCLASS;
    if (!get(fd, level_, name_, value_)) return;
    if (ipv4 && !get(fd, SOL_SOCKET, SO_PRIORITY, priority_)) return;
    is_set_ = put(fd, level_, name_, kSynMark);
}

void SynMark::restore(int fd) noexcept {
    if (!is_set_) return;
    is_set_ = false;
    put(fd, level_, name_, value_);
    // Linux sets the priority by each IP_TOS: by 0 to 0.
    if (level_ != IPPROTO_IP || (value_ == 0 && priority_ == 0)) return;
    int priority = priority_;
    if (get(fd, SOL_SOCKET, SO_PRIORITY, priority) && priority != priority_) {
        put(fd, SOL_SOCKET, SO_PRIORITY, priority_);
    }
}

bool save_syns(int listening) noexcept {
    // From the link layer's header on (Linux 5.10): a value that programs hardly use tells what
    // another process of ours has set from what the program has.
    constexpr int kFromLink = 2, kFromIp = 1;
    int kept = 0;
    if (!get(listening, IPPROTO_TCP, TCP_SAVE_SYN, kept)) return false;
    if (kept != 0) return kept == kFromLink;
    return put(listening, IPPROTO_TCP, TCP_SAVE_SYN, kFromLink) ||
           put(listening, IPPROTO_TCP, TCP_SAVE_SYN, kFromIp);
}

bool had_marked_syn(int accepted) noexcept {
    std::byte headers[256];  // of the link; 40 and extension headers, 60 of TCP
    socklen_t size = sizeof headers;
    if (getsockopt(accepted, IPPROTO_TCP, TCP_SAVED_SYN, headers, &size) != 0) return false;
    return is_marked_syn(without_link_header({headers, size}));
}

// How long that of the link is the kernel does not say. A client of ours sends no data with its
// SYN, so that what follows has the length that it says itself.
ConstBytes without_link_header(ConstBytes headers) noexcept {
    for (; headers.size() >= 40; headers = headers.subspan(1)) {
        const auto number = [&](std::size_t i) {
            return std::to_integer<std::size_t>(headers[i]) << 8 |
                   std::to_integer<std::size_t>(headers[i + 1]);
        };
        const int version = std::to_integer<int>(headers[0]) >> 4;
        if (version == 4 && number(2) == headers.size()) return headers;
        if (version == 6 && number(4) + 40 == headers.size()) return headers;
    }
    return {};
}

bool is_marked_syn(ConstBytes headers) noexcept {
    if (headers.size() < 20) return false;
    const auto octet = [&](std::size_t i) { return std::to_integer<int>(headers[i]); };
    const int version = octet(0) >> 4;
    constexpr int kDscp = 0xfc;
    if (version == 4) return (octet(1) & kDscp) == kSynMark;
    if (version != 6) return false;
    const int traffic_class = (octet(0) & 0x0f) << 4 | octet(1) >> 4;
    return (traffic_class & kDscp) == kSynMark;
}

}  // namespace xsock::sockets
