// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/tcp_socket.hpp"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "transport/descriptors.hpp"
#include "transport/tcp.hpp"

namespace xsock {
namespace {

constexpr int kTcpRtoMaxMs = 44;  // TCP_RTO_MAX_MS, which older headers lack

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

// How much of it the kernel has filled in; 0 when nothing is known.
socklen_t ask_info(int fd, tcp_info& info) noexcept {
    socklen_t size = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? size : 0;
}

}  // namespace

TcpSocket::~TcpSocket() {
    if (is_open()) close_internal_fd(fd_);
}

Result<void> TcpSocket::open(int fd, const Limits& limits, bool shared) {
    if (!shared) {
        if (auto r = tcp::make_nonblocking(fd); !r) return r;
    }
    const tcp::Address local = tcp::local_of(fd);
    local_ = local.endpoint;
    family_ = local.family;
    peer_ = tcp::peer_of(fd).endpoint;
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, limits.keepalive_s != 0);
    constexpr int kProbes = 6;
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
    Time limit = Time{limits.keepalive_s} * kSecond;
    if (limits.keepalive_s != 0) {
        if (limits.silence != 0) limit = std::min(limit, limits.silence);
        set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(limits.keepalive_s));
        set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL,
                   static_cast<int>(std::max<Time>(1, limit / kProbes / kSecond)));
    }
    if (limits.silence != 0) {
        // Behind a window that is closed for long TCP probes every two minutes only, and keepalive
        // is off: a peer that dies there must be probed more often. Since Linux 6.15.
        constexpr Time kLeast = kSecond, kMost = 120 * kSecond;
        set_option(fd, IPPROTO_TCP, kTcpRtoMaxMs,
                   static_cast<int>(std::clamp(limits.silence / 3, kLeast, kMost) / kMillisecond));
    }
    fd_ = fd;
    shared_ = shared;
    return {};
}

// ---- data ---------------------------------------------------------------------

long TcpSocket::send(const TxBatch& batch, bool more) noexcept {
    if (!batch.separate_groups || batch.group_ends.size() <= 1) {
        const int how = batch.separate_groups ? MSG_EOR : more ? MSG_MORE : 0;
        const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | how;
        holds_back_ = how == MSG_MORE;
        if (batch.iov.size() == 1) {  // the common small message: spares the kernel a header copy
            return raw(SYS_sendto, fd_, batch.iov[0].iov_base, batch.iov[0].iov_len, flags);
        }
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(batch.iov.data());
        message.msg_iovlen = batch.iov.size();
        return raw(SYS_sendmsg, fd_, &message, static_cast<unsigned long>(flags), 0);
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
            raw(SYS_sendmmsg, fd_, messages.data(), count, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR);
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

long TcpSocket::send(ConstBytes bytes, bool more) noexcept {
    holds_back_ = more;
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0);
    return raw(SYS_sendto, fd_, bytes.data(), bytes.size(), flags);
}

void TcpSocket::push_held_back() noexcept {
    holds_back_ = false;
    if (is_open()) set_option(fd_, IPPROTO_TCP, TCP_NODELAY, 1);
}

long TcpSocket::receive(Bytes into) noexcept {
    return raw(SYS_recvfrom, fd_, into.data(), into.size(), MSG_DONTWAIT);
}

// ---- what TCP tells ------------------------------------------------------------

std::size_t TcpSocket::emss() const noexcept {
    tcp_info info{};
    return ask_info(fd_, info) != 0 ? info.tcpi_snd_mss : 0;
}

std::string TcpSocket::congestion() const { return is_open() ? tcp::congestion(fd_).data() : ""; }

void TcpSocket::note_congestion() noexcept {
    congestion_ = is_open() ? tcp::congestion(fd_) : tcp::Congestion{};
}

TcpSocket::PeerInfo TcpSocket::peer_info() const noexcept {
    tcp_info info{};
    const socklen_t size = ask_info(fd_, info);
    PeerInfo peer_info;
    if (size == 0) return peer_info;
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

TcpSocket::Keepalive TcpSocket::keepalive() const noexcept {
    const auto option = [fd = fd_](int level, int name) {
        int value = 0;
        socklen_t size = sizeof value;
        return getsockopt(fd, level, name, &value, &size) == 0 ? value : 0;
    };
    return {option(SOL_SOCKET, SO_KEEPALIVE) != 0, option(IPPROTO_TCP, TCP_KEEPIDLE),
            option(IPPROTO_TCP, TCP_KEEPINTVL)};
}

// The interval first: the idle time is what starts the timer.
void TcpSocket::set_keepalive(const Keepalive& keepalive) noexcept {
    set_option(fd_, IPPROTO_TCP, TCP_KEEPINTVL, keepalive.interval_s);
    set_option(fd_, SOL_SOCKET, SO_KEEPALIVE, keepalive.on);
    set_option(fd_, IPPROTO_TCP, TCP_KEEPIDLE, keepalive.idle_s);
}

int TcpSocket::pending_error() const noexcept { return tcp::pending_error(fd_); }

Result<int> TcpSocket::duplicate() const {
    const int copy = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return Error{errno, "the descriptor cannot be duplicated"};
    return copy;
}

// ---- the end -------------------------------------------------------------------

void TcpSocket::finish() noexcept {
    holds_back_ = false;
    finished_ |= kOurs;
    ::shutdown(fd_, SHUT_WR);
}

void TcpSocket::close() noexcept {
    if (shared_ && finished_ != (kOurs | kPeers)) ::shutdown(fd_, SHUT_RDWR);
    close_internal_fd(std::exchange(fd_, -1));
}

void TcpSocket::reset() noexcept {
    if (shared_) {
        sockaddr none{};
        none.sa_family = AF_UNSPEC;
        raw(SYS_connect, fd_, &none, sizeof none, 0);
    } else {
        const linger abort{1, 0};
        setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    }
    close_internal_fd(std::exchange(fd_, -1));
}

}  // namespace xsock
