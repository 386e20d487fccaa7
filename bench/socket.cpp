// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "bench/socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "include/xsock/xsock.h"

namespace xsock::bench {
namespace {

sockaddr_in address_of(const Run& run, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (inet_pton(AF_INET, run.server_address.c_str(), &address.sin_addr) != 1) {
        fail("%s is not an IPv4 address", run.server_address.c_str());
    }
    return address;
}

int new_socket() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail_errno("socket");
    // Where cubic is not built in, both sides use the system's default.
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
    return fd;
}

}  // namespace

int tcp_listen(const Run& run, std::uint16_t& port) {
    const int fd = new_socket();
    sockaddr_in address = address_of(run, 0);
    socklen_t length = sizeof address;
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) fail_errno("bind");
    if (listen(fd, 4096) != 0) fail_errno("listen");
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
        fail_errno("getsockname");
    }
    port = ntohs(address.sin_port);
    return fd;
}

int tcp_connect(const Run& run, std::uint16_t port, bool is_stream) {
    const int fd = new_socket();
    if (is_stream) switch_to_streams(fd);
    const sockaddr_in address = address_of(run, port);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        fail_errno("connect");
    }
    return fd;
}

int tcp_server_socket(Child& child, const Run& run) {
    std::uint16_t port = 0;
    const int listener = tcp_listen(run, port);
    child.tell(port);
    const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) fail_errno("accept");
    close(listener);
    set_nodelay(fd);
    return fd;
}

int tcp_client_socket(Child& child, const Run& run) {
    const int fd = tcp_connect(run, child.hear<std::uint16_t>());
    set_nodelay(fd);
    return fd;
}

namespace {
int switch_to_messages(int fd, int role) {
    const int mode = DDPMODE_MESSAGE;
    if (setsockopt(fd, SOL_XSOCK, DDPROLE, &role, sizeof role) != 0) fail_errno("DDPROLE");
    if (setsockopt(fd, SOL_XSOCK, DDPMODE, &mode, sizeof mode) != 0) fail_errno("DDPMODE");
    return fd;
}
}  // namespace

int message_server_socket(Child& child, const Run& run) {
    return switch_to_messages(tcp_server_socket(child, run), XSOCK_ROLE_RESPONDER);
}

int message_client_socket(Child& child, const Run& run) {
    return switch_to_messages(tcp_client_socket(child, run), XSOCK_ROLE_INITIATOR);
}

void switch_to_streams(int fd) {
    const int mode = DDPMODE_STREAM;
    if (setsockopt(fd, SOL_XSOCK, DDPMODE, &mode, sizeof mode) != 0) fail_errno("DDPMODE");
}

void check_path(int fd, bool is_stream) {
    xsock_status status{};
    status.size = sizeof status;
    socklen_t length = sizeof status;
    if (getsockopt(fd, SOL_XSOCK, DDPSTATUS, &status, &length) != 0) fail_errno("DDPSTATUS");
    const bool carried = status.mode == DDPMODE_STREAM && status.state == XSOCK_STATUS_OPEN &&
                         status.tx_bytes > 0 && status.rx_bytes > 0;
    if (is_stream && !carried) fail("not carried over iWARP (%s)", status.code);
    if (!is_stream && status.mode != DDPMODE_OFF) fail("not plain TCP (%s)", status.code);
}

void set_nodelay(int fd) {
    const int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) fail_errno("TCP_NODELAY");
}

void send_all(int fd, const void* data, std::size_t size) {
    const char* at = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) fail_errno("send");
        at += n;
        size -= static_cast<std::size_t>(n);
    }
}

bool receive_all(int fd, void* data, std::size_t size, int flags) {
    char* at = static_cast<char*>(data);
    while (size > 0) {
        const ssize_t n = recv(fd, at, size, flags);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) fail_errno("recv");
        if (n == 0) return false;
        at += n;
        size -= static_cast<std::size_t>(n);
    }
    return true;
}

std::uint64_t send_until(std::int64_t end, int fd, std::span<std::uint8_t> data,
                         std::uint64_t per_clock) {
    std::uint64_t sent = 0;
    for (bool last = false; !last; sent++) {
        last = sent % per_clock == 0 && now_ns() >= end;
        data[0] = last;
        send_all(fd, data.data(), data.size());
    }
    std::uint8_t confirmation = 0;
    if (!receive_all(fd, &confirmation, 1, 0)) fail("no confirmation");
    return sent;
}

}  // namespace xsock::bench
