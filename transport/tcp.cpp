// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/tcp.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace xsock::tcp {
namespace {

constexpr int kTcpRtoMaxMs = 44;  // TCP_RTO_MAX_MS, which older headers lack

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

// The data path goes past the C library: its wrappers are cancellation points, which costs some 25
// ns a call in a process with threads, and an overlay of the socket calls (docs/overlay.md) must
// not see ours.
long raw(long number, long a, const void* b, unsigned long c, long d) noexcept {
    const long n = ::syscall(number, a, b, c, d, 0L, 0L);
    return n >= 0 ? n : -errno;
}

void set_option(int fd, int level, int option, int value) noexcept {
    // Options that a restricted system may refuse; the connection works without them.
    setsockopt(fd, level, option, &value, sizeof value);
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

Result<void> prepare(int fd, const Limits& limits, bool shared) {
    if (!shared) {
        if (auto r = make_nonblocking(fd); !r) return r;
    }
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, limits.keepalive_s != 0);
    constexpr int kQuestions = 6;
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kQuestions);
    Time limit = Time{limits.keepalive_s} * kSecond;
    if (limits.keepalive_s != 0) {
        if (limits.silence != 0) limit = std::min(limit, limits.silence);
        set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(limits.keepalive_s));
        set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL,
                   static_cast<int>(std::max<Time>(1, limit / kQuestions / kSecond)));
    }
    if (limits.silence != 0) {
        // Behind a window that is closed for long TCP asks every two minutes only, and keepalive is
        // off: a peer that dies there must be asked more often. Since Linux 6.15.
        constexpr Time kLeast = kSecond, kMost = 120 * kSecond;
        set_option(fd, IPPROTO_TCP, kTcpRtoMaxMs,
                   static_cast<int>(std::clamp(limits.silence / 3, kLeast, kMost) / kMillisecond));
    }
    return {};
}

Keepalive keepalive(int fd) noexcept {
    const auto option = [fd](int level, int name) {
        int value = 0;
        socklen_t size = sizeof value;
        return getsockopt(fd, level, name, &value, &size) == 0 ? value : 0;
    };
    return {option(SOL_SOCKET, SO_KEEPALIVE) != 0, option(IPPROTO_TCP, TCP_KEEPIDLE),
            option(IPPROTO_TCP, TCP_KEEPINTVL)};
}

// The interval first: the idle time is what starts the timer.
void set_keepalive(int fd, const Keepalive& keepalive) noexcept {
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, keepalive.interval_s);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, keepalive.on);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, keepalive.idle_s);
}

PeerInfo peer_info(int fd) noexcept {
    tcp_info info{};
    socklen_t size = sizeof info;
    PeerInfo peer_info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return peer_info;
    peer_info.waiting = info.tcpi_unacked != 0 || info.tcpi_notsent_bytes != 0;
    // Kernels before 5.4 do not tell the window; nothing in flight while something waits does.
    const bool told = size >= offsetof(tcp_info, tcpi_snd_wnd) + sizeof info.tcpi_snd_wnd;
    peer_info.window_closed =
        peer_info.waiting && (info.tcpi_unacked == 0 || (told && info.tcpi_snd_wnd == 0));
    peer_info.attempts = unsigned{info.tcpi_retransmits} + info.tcpi_probes;
    peer_info.acknowledged = info.tcpi_bytes_acked;
    // Data that acknowledges nothing new does not count as an acknowledgement, but it has come.
    peer_info.since_heard =
        Time{std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)} * kMillisecond;
    return peer_info;
}

std::size_t emss(int fd) noexcept {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
    return info.tcpi_snd_mss;
}

long send(int fd, const TxBatch& batch) noexcept {
    if (!batch.separate_groups || batch.group_ends.size() <= 1) {
        if (batch.iov.size() == 1) {  // the common small message: spares the kernel a header copy
            const int single = MSG_DONTWAIT | MSG_NOSIGNAL | (batch.separate_groups ? MSG_EOR : 0);
            return raw(SYS_sendto, fd, batch.iov[0].iov_base, batch.iov[0].iov_len, single);
        }
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(batch.iov.data());
        message.msg_iovlen = batch.iov.size();
        const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (batch.separate_groups ? MSG_EOR : 0);
        return raw(SYS_sendmsg, fd, &message, static_cast<unsigned long>(flags), 0);
    }
    constexpr std::size_t kGroups = 64;
    std::array<mmsghdr, kGroups> messages;
    long total = 0;
    for (std::size_t done = 0; done < batch.group_ends.size();) {
        const std::size_t count = std::min(kGroups, batch.group_ends.size() - done);
        std::uint32_t begin = done == 0 ? 0 : batch.group_ends[done - 1];
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint32_t end = batch.group_ends[done + i];
            messages[i] = {};
            messages[i].msg_hdr.msg_iov = const_cast<iovec*>(batch.iov.data() + begin);
            messages[i].msg_hdr.msg_iovlen = end - begin;
            begin = end;
        }
        const long sent =
            raw(SYS_sendmmsg, fd, messages.data(), count, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR);
        if (sent < 0) return total > 0 ? total : sent;
        for (long i = 0; i < sent; ++i) {
            const msghdr& m = messages[static_cast<std::size_t>(i)].msg_hdr;
            std::size_t offered = 0;
            for (std::size_t k = 0; k < m.msg_iovlen; ++k) offered += m.msg_iov[k].iov_len;
            total += messages[static_cast<std::size_t>(i)].msg_len;
            if (messages[static_cast<std::size_t>(i)].msg_len < offered) return total;
        }
        if (static_cast<std::size_t>(sent) < count) return total;
        done += count;
    }
    return total;
}

long send(int fd, ConstBytes bytes) noexcept {
    return raw(SYS_sendto, fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

long receive(int fd, Bytes into) noexcept {
    return raw(SYS_recvfrom, fd, into.data(), into.size(), MSG_DONTWAIT);
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

int pending_error(int fd) noexcept {
    int error = 0;
    socklen_t size = sizeof error;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

void finish(int fd) noexcept { ::shutdown(fd, SHUT_WR); }

void reset(int fd) noexcept {
    const linger abort{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    ::close(fd);
}

void disconnect(int fd) noexcept {
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    raw(SYS_connect, fd, &none, sizeof none, 0);
    ::close(fd);
}

void finish_and_close(int fd) noexcept {
    ::shutdown(fd, SHUT_RDWR);
    ::close(fd);
}

}  // namespace xsock::tcp
