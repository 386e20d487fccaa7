// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/tcp.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "transport/at_rest.hpp"

namespace xsock::tcp {
namespace {

Result<void> check_stream_socket(int fd) {
    int value = 0;
    socklen_t size = sizeof value;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &size) != 0) {
        return Error{errno, "the descriptor is not a socket"};
    }
    int protocol = 0;
    size = sizeof protocol;
    if (value != SOCK_STREAM || getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 ||
        protocol != IPPROTO_TCP) {
        return Error{EPROTOTYPE, "the socket is not a TCP socket"};
    }
    return {};
}

using Ask = int (*)(int, sockaddr*, socklen_t*);
Address address_by(Ask ask, int fd) noexcept {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (ask(fd, generic, &size) != 0) return {};
    return {endpoint_of(generic, size).value_or(IpEndpoint{}), address.ss_family};
}

}  // namespace

Result<void> check_connected(int fd) {
    if (auto r = check_stream_socket(fd); !r) return r;
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) {
        return Error{errno, "the socket is not connected"};
    }
    return {};
}

Result<void> check_listening(int fd) {
    if (auto r = check_stream_socket(fd); !r) return r;
    int listening = 0;
    socklen_t size = sizeof listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) {
        return Error{EINVAL, "the socket is not listening"};
    }
    return {};
}

Result<void> make_nonblocking(int fd) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        return Error{errno, "the socket cannot be made non-blocking"};
    }
    return {};
}

Address peer_of(int fd) noexcept { return address_by(getpeername, fd); }

Address local_of(int fd) noexcept { return address_by(getsockname, fd); }

// Each change of state of a connection makes two. (inet_ntop() and snprintf() take 310 ns for IPv4,
// this 27.)
Name name_of(const Address& address) noexcept {
    constexpr std::size_t kIpv4At = 12;  // RFC 4291 §2.5.5.2
    Name name{'?'};
    static_assert(sizeof(Name) >= INET6_ADDRSTRLEN + sizeof "[]:65535" - 1);
    if (address.endpoint == IpEndpoint{}) return name;
    const auto& octets = address.endpoint.address.octets;
    char* at = name.data();
    char* const end = at + name.size() - 1;
    if (address.family == AF_INET6) {
        *at++ = '[';
        inet_ntop(AF_INET6, octets.data(), at, INET6_ADDRSTRLEN);
        at += std::strlen(at);
        *at++ = ']';
    } else {
        for (std::size_t i = kIpv4At; i < octets.size(); ++i) {
            if (i != kIpv4At) *at++ = '.';
            at = std::to_chars(at, end, octets[i]).ptr;
        }
    }
    *at++ = ':';
    *std::to_chars(at, end, address.endpoint.port).ptr = '\0';
    return name;
}

Result<void> set_congestion(int fd, std::string_view name) {
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                   static_cast<socklen_t>(name.size())) == 0) {
        return {};
    }
    if (errno == ENOENT) return Error{ENOENT, "the kernel has no congestion control of that name"};
    if (errno == EPERM) {
        return Error{EACCES, "net.ipv4.tcp_allowed_congestion_control does not have it"};
    }
    return Error{errno, "the congestion control cannot be set"};
}

Congestion congestion(int fd) noexcept {
    Congestion name{};
    socklen_t size = kCongestionMost;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return {};
    return name;
}

// The owner belongs to the open file, so whatever number, and call, it was set by. As the kernel,
// whose F_SETSIG is not for SIGURG.
void signal_owner(int fd) noexcept {
    const int saved = errno;
    f_owner_ex owner{};
    if (fcntl(fd, F_GETOWN_EX, &owner) == 0 && owner.pid > 0) raise_urgent(owner);
    errno = saved;
}

int pending_error(int fd) noexcept {
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace xsock::tcp
