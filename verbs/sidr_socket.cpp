// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/sidr_socket.hpp"

#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "verbs/addresses.hpp"

namespace xsock::verbs {
namespace {

// For messages about the address that a datagram was sent to, or one about that which it is to be
// sent from.
union SidrControl {
    cmsghdr align;
    char memory[CMSG_SPACE(sizeof(in6_pktinfo)) + CMSG_SPACE(sizeof(in_pktinfo))];
};

msghdr sidr_message(sockaddr_storage& peer, iovec& octets, SidrControl& control) noexcept {
    msghdr message{};
    message.msg_name = &peer;
    message.msg_namelen = sizeof peer;
    message.msg_iov = &octets;
    message.msg_iovlen = 1;
    message.msg_control = control.memory;
    message.msg_controllen = sizeof control.memory;
    return message;
}

// False: to many hosts, or not known where to. An IPv6 socket tells of IPv4 datagrams by both
// messages; only that of IPv4 knows whether one was sent to many.
bool find_own(msghdr& message, sockaddr_storage& own) noexcept {
    bool to_one = true;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            in_pktinfo info;
            std::memcpy(&info, CMSG_DATA(c), sizeof info);
            if (info.ipi_addr.s_addr != info.ipi_spec_dst.s_addr) to_one = false;
            if (own.ss_family != AF_UNSPEC) continue;
            auto& address = reinterpret_cast<sockaddr_in&>(own);
            address.sin_family = AF_INET;
            address.sin_addr = info.ipi_addr;
        }
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            in6_pktinfo info;
            std::memcpy(&info, CMSG_DATA(c), sizeof info);
            auto& address = reinterpret_cast<sockaddr_in6&>(own);
            own = {};
            address.sin6_family = AF_INET6;
            address.sin6_addr = info.ipi6_addr;
            if (IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr)) address.sin6_scope_id = info.ipi6_ifindex;
            if (IN6_IS_ADDR_MULTICAST(&info.ipi6_addr)) to_one = false;
        }
    }
    return to_one && own.ss_family != AF_UNSPEC;
}

template <typename Info>
void put_control(cmsghdr& to, int level, int type, const Info& info) noexcept {
    to.cmsg_level = level;
    to.cmsg_type = type;
    to.cmsg_len = CMSG_LEN(sizeof info);
    std::memcpy(CMSG_DATA(&to), &info, sizeof info);
}

void write_own(const sockaddr_storage& own, cmsghdr& to) noexcept {
    if (own.ss_family == AF_INET) {
        in_pktinfo info{};
        info.ipi_spec_dst = reinterpret_cast<const sockaddr_in&>(own).sin_addr;
        put_control(to, IPPROTO_IP, IP_PKTINFO, info);
        return;
    }
    const auto& address = reinterpret_cast<const sockaddr_in6&>(own);
    in6_pktinfo info{};
    info.ipi6_addr = address.sin6_addr;
    info.ipi6_ifindex = address.sin6_scope_id;
    put_control(to, IPPROTO_IPV6, IPV6_PKTINFO, info);
}

int udp_socket(int family) noexcept {
    return socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// 0 or an errno.
int bind_server(int fd, const sockaddr& at, bool v6_only) noexcept {
    const int on = 1, only = v6_only;
    const bool v6 = at.sa_family == AF_INET6;
    if (v6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
        setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    }
    if (setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVPKTINFO : IP_PKTINFO, &on,
                   sizeof on) != 0 ||
        ::bind(fd, &at, length_of(&at)) != 0) {
        return errno;
    }
    return 0;
}

}  // namespace

Result<std::shared_ptr<SidrSocket>> SidrSocket::open(const sockaddr& at, bool v6_only) {
    auto made = std::make_shared<SidrSocket>();
    const int fd = made->fd_ = udp_socket(at.sa_family);
    if (fd < 0) return Error{errno, "no UDP socket"};
    if (const int error = bind_server(fd, at, v6_only); error != 0) {
        return Error{error, "the UDP socket cannot be bound"};
    }
    socklen_t size = sizeof made->bound_;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&made->bound_), &size) != 0) {
        return Error{errno, "the UDP socket has no address"};
    }
    return made;
}

SidrSocket::~SidrSocket() { close_inherited(); }

void SidrSocket::close_inherited() noexcept {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
}

bool SidrSocket::receive(Received& to) noexcept {
    iovec octets{to.memory.data(), to.memory.size()};
    SidrControl control;
    msghdr message = sidr_message(to.peer, octets, control);
    const ssize_t n = recvmsg(fd_, &message, MSG_DONTWAIT);
    if (n < 0) return false;
    to.own = {};
    to.size = find_own(message, to.own) ? static_cast<std::size_t>(n) : 0;
    set_port(reinterpret_cast<sockaddr*>(&to.own),
             port_of(reinterpret_cast<const sockaddr*>(&bound_)));
    return true;
}

void SidrSocket::send(ConstBytes octets, const sockaddr_storage& peer,
                      const sockaddr_storage& own) noexcept {
    iovec part{const_cast<std::byte*>(octets.data()), octets.size()};
    SidrControl control{};
    sockaddr_storage to = peer;
    msghdr message = sidr_message(to, part, control);
    message.msg_namelen = length_of(reinterpret_cast<const sockaddr*>(&to));
    cmsghdr& c = *CMSG_FIRSTHDR(&message);
    write_own(own, c);
    message.msg_controllen =
        CMSG_SPACE(own.ss_family == AF_INET ? sizeof(in_pktinfo) : sizeof(in6_pktinfo));
    (void)!sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int open_sidr_client(const sockaddr& to, const sockaddr& from, int tos) noexcept {
    const int fd = udp_socket(to.sa_family);
    if (fd < 0) return -1;
    const bool v6 = to.sa_family == AF_INET6;
    if (tos >= 0) {
        setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, &tos, sizeof tos);
    }
    const bool named = length_of(&from) != 0 && from.sa_family == to.sa_family;
    if ((!named || ::bind(fd, &from, length_of(&from)) == 0) &&
        ::connect(fd, &to, length_of(&to)) == 0) {
        return fd;
    }
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

}  // namespace xsock::verbs
