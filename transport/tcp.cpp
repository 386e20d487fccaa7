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

std::string name_of(const sockaddr_storage& address, int failed) {
    char text[INET6_ADDRSTRLEN] = "?";
    if (failed != 0) return "?";
    if (address.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(address);
        inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
        return std::string(text) + ":" + std::to_string(ntohs(in.sin_port));
    }
    if (address.ss_family == AF_INET6) {
        const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
        inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
        std::string name = "[";
        name.append(text).append("]:").append(std::to_string(ntohs(in6.sin6_port)));
        return name;
    }
    return "?";
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

std::string peer_name(int fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    return name_of(peer, getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size));
}

std::string local_name(int fd) {
    sockaddr_storage local{};
    socklen_t size = sizeof local;
    return name_of(local, getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size));
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

std::string congestion(int fd) {
    std::array<char, kCongestionMost + 1> name{};
    socklen_t size = sizeof name;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return {};
    return {name.data(), strnlen(name.data(), name.size())};
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
