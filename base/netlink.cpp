// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/netlink.hpp"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/bytes.hpp"

namespace xsock {
namespace {

constexpr std::size_t kIpv4At = 12;  // in an IpAddress

class Answer {
  public:
    /// The kernel's answer to one request, which is complete but for the lengths and numbers that
    /// are set here. Empty where there is none.
    Answer(int protocol, nlmsghdr& request) noexcept {
        const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
        if (fd < 0) return;
        sockaddr_nl kernel{};
        kernel.nl_family = AF_NETLINK;
        sockaddr_nl from{};
        socklen_t length = sizeof from;
        if (sendto(fd, &request, request.nlmsg_len, 0, reinterpret_cast<const sockaddr*>(&kernel),
                   sizeof kernel) == static_cast<ssize_t>(request.nlmsg_len)) {
            const ssize_t n = recvfrom(fd, octets_, sizeof octets_, 0,
                                       reinterpret_cast<sockaddr*>(&from), &length);
            if (n > 0 && from.nl_pid == 0) size_ = static_cast<std::size_t>(n);
        }
        close(fd);
    }
    /// The body of its first message. Nothing: it is not of `type`, or shorter than a T.
    template <typename T>
    [[nodiscard]] std::optional<T> body(std::uint16_t type) const noexcept {
        nlmsghdr header{};
        if (size_ < NLMSG_LENGTH(sizeof(T))) return std::nullopt;
        std::memcpy(&header, octets_, sizeof header);
        if (header.nlmsg_type != type || header.nlmsg_len < NLMSG_LENGTH(sizeof(T))) {
            return std::nullopt;
        }
        T out;
        std::memcpy(&out, octets_ + NLMSG_HDRLEN, sizeof out);
        return out;
    }

  private:
    alignas(nlmsghdr) std::byte octets_[4096];
    std::size_t size_ = 0;
};

std::span<const std::uint8_t> octets_of(const IpAddress& address) noexcept {
    const std::span<const std::uint8_t> all(address.octets);
    return address.is_ipv4() ? all.subspan(kIpv4At) : all;
}

/// TCP connects to the loopback address instead of to none.
IpAddress connected_to(const IpAddress& address) noexcept {
    IpAddress any_v4;
    any_v4.octets[10] = any_v4.octets[11] = 0xff;
    if (address == any_v4) {
        IpAddress loopback = any_v4;
        loopback.octets[12] = 127;
        loopback.octets[15] = 1;
        return loopback;
    }
    if (address == IpAddress{}) {
        IpAddress loopback;
        loopback.octets[15] = 1;
        return loopback;
    }
    return address;
}

}  // namespace

bool is_own_address(const IpAddress& to, unsigned scope) noexcept {
    const IpAddress address = connected_to(to);
    struct Request {
        nlmsghdr header{};
        rtmsg route{};
        std::byte attributes[RTA_SPACE(sizeof(in6_addr)) + RTA_SPACE(sizeof(std::uint32_t))]{};
    } request;
    const auto octets = octets_of(address);
    request.header.nlmsg_type = RTM_GETROUTE;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    request.route.rtm_family = address.is_ipv4() ? AF_INET : AF_INET6;
    request.route.rtm_dst_len = static_cast<unsigned char>(octets.size() * 8);
    std::size_t used = 0;
    const auto add = [&](std::uint16_t type, const void* value, std::size_t size) {
        const rtattr attribute{static_cast<std::uint16_t>(RTA_LENGTH(size)), type};
        std::memcpy(request.attributes + used, &attribute, sizeof attribute);
        std::memcpy(request.attributes + used + RTA_LENGTH(0), value, size);
        used += RTA_SPACE(size);
    };
    add(RTA_DST, octets.data(), octets.size());
    const std::uint32_t interface = scope;
    if (scope != 0) add(RTA_OIF, &interface, sizeof interface);
    request.header.nlmsg_len =
        static_cast<std::uint32_t>(NLMSG_LENGTH(sizeof request.route) + used);
    const Answer answer(NETLINK_ROUTE, request.header);
    const auto route = answer.body<rtmsg>(RTM_NEWROUTE);
    return route && route->rtm_type == RTN_LOCAL;
}

std::optional<std::uint64_t> find_listener(const IpEndpoint& to, unsigned scope) noexcept {
    const IpAddress address = connected_to(to.address);
    struct Request {
        nlmsghdr header{};
        inet_diag_req_v2 socket{};
    } request;
    request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    request.header.nlmsg_len = sizeof request;
    request.socket.sdiag_family = address.is_ipv4() ? AF_INET : AF_INET6;
    request.socket.sdiag_protocol = IPPROTO_TCP;
    request.socket.idiag_states = ~0u;
    // As seen from the listener: its address is the source.
    inet_diag_sockid& id = request.socket.id;
    id.idiag_sport = htons(to.port);
    const auto octets = octets_of(address);
    std::memcpy(id.idiag_src, octets.data(), octets.size());
    id.idiag_if = scope;
    id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    const Answer answer(NETLINK_SOCK_DIAG, request.header);
    const auto found = answer.body<inet_diag_msg>(SOCK_DIAG_BY_FAMILY);
    if (!found || found->idiag_state != TCP_LISTEN) return std::nullopt;
    // A listener of all addresses would be found for every address there is.
    if (!is_own_address(address, scope)) return std::nullopt;
    return found->id.idiag_cookie[0] | std::uint64_t{found->id.idiag_cookie[1]} << 32;
}

std::uint64_t network_cookie(int fd) noexcept {
    std::uint64_t cookie = 0;
#if defined SO_NETNS_COOKIE
    socklen_t size = sizeof cookie;
    if (getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) != 0) return 0;
#endif
    return cookie;
}

}  // namespace xsock
