// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A peer made of plain socket calls: says exactly what a test tells it to, well-formed or not.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/crc32c.hpp"
#include "include/xsock/iwarp.h"
#include "libxsock/socket/syn_mark.hpp"

namespace xsock::test {

/// A plain socket, connected to `port` by a SYN that says that it will ask for a byte stream.
inline int marked_client(int port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int mark = sockets::kSynMark;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool is_connected =
        setsockopt(fd, IPPROTO_IP, IP_TOS, &mark, sizeof mark) == 0 &&
        ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    if (is_connected) return fd;
    ::close(fd);
    return -1;
}

class RawPeer {
  public:
    explicit RawPeer(int port) {
        fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(static_cast<uint16_t>(port));
        connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    }
    /// The other end of a socket that an endpoint initiates on. Takes the descriptor.
    struct Connected {
        int fd;
    };
    explicit RawPeer(Connected connected) : fd_(connected.fd), connected_(true) {}
    ~RawPeer() {
        if (fd_ >= 0) ::close(fd_);
    }
    RawPeer(const RawPeer&) = delete;
    RawPeer& operator=(const RawPeer&) = delete;

    [[nodiscard]] bool connected() const { return connected_; }
    [[nodiscard]] int fd() const { return fd_; }

    bool say(const std::string& bytes) {
        return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(bytes.size());
    }
    /// Reads until `n` bytes, the end of the stream, or the limit.
    std::string hear(std::size_t n, int limit_ms = 10'000) {
        std::string heard;
        while (heard.size() < n) {
            pollfd p{fd_, POLLIN, 0};
            if (::poll(&p, 1, limit_ms) <= 0) break;
            char buffer[4096];
            const ssize_t r = ::recv(fd_, buffer, std::min(sizeof buffer, n - heard.size()), 0);
            if (r <= 0) {
                ended_ = true;
                was_reset_ = r < 0 && errno == ECONNRESET;
                break;
            }
            heard.append(buffer, static_cast<std::size_t>(r));
        }
        return heard;
    }
    /// Everything until the peer closes; true when it did.
    bool hear_end(std::string& heard, int limit_ms = 10'000) {
        heard = hear(std::string::npos, limit_ms);
        return ended_;
    }
    /// Whether the end that hear_end() met was a RST instead of a FIN.
    [[nodiscard]] bool was_reset() const { return was_reset_; }
    void reset() {
        const linger abort{1, 0};
        setsockopt(fd_, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
        ::close(fd_);
        fd_ = -1;
    }
    void finish() { ::shutdown(fd_, SHUT_WR); }

    /// Start-up as revision 1 initiator with CRC; true when the Reply accepts.
    bool start() {
        if (!say(request(MPA_FLAG_CRC, 1, ""))) return false;
        const std::string reply = hear(sizeof(mpa_frame));
        return reply.size() == sizeof(mpa_frame) && reply.compare(0, 16, MPA_KEY_REPLY) == 0 &&
               (static_cast<unsigned char>(reply[16]) & MPA_FLAG_REJECT) == 0;
    }

    /// The responder's half: accepts the Request of a revision 1 initiator. `more` follows in the
    /// same segment.
    bool answer(const std::string& more = "") {
        return hear(sizeof(mpa_frame)).size() == sizeof(mpa_frame) && say(reply() + more);
    }

    static std::string reply() {
        return MPA_KEY_REPLY + std::string{static_cast<char>(MPA_FLAG_CRC), 1, 0, 0};
    }
    static std::string request(int flags, int revision, const std::string& data, int length = -1) {
        std::string frame(MPA_KEY_REQUEST);
        const std::size_t n = length >= 0 ? static_cast<std::size_t>(length) : data.size();
        frame += static_cast<char>(flags);
        frame += static_cast<char>(revision);
        frame += static_cast<char>(n >> 8);
        frame += static_cast<char>(n & 0xff);
        return frame + data;
    }
    /// A ULPDU framed, padded and with its CRC; `declared` overrides the length field.
    static std::string fpdu(const std::string& ulpdu, int declared = -1) {
        const std::size_t n = declared >= 0 ? static_cast<std::size_t>(declared) : ulpdu.size();
        std::string f;
        f += static_cast<char>(n >> 8);
        f += static_cast<char>(n & 0xff);
        f += ulpdu;
        while (f.size() % 4 != 0) f += '\0';
        const uint32_t crc = crc32c_finish(
            crc32c(kCrc32cInit, {reinterpret_cast<const std::byte*>(f.data()), f.size()}));
        char trailer[4];
        store_le32(trailer, crc);
        return f + std::string(trailer, 4);
    }
    static std::string untagged(int control, int rdmap, uint32_t qn, uint32_t msn, uint32_t mo,
                                const std::string& payload, uint32_t stag = 0) {
        std::string h(sizeof(ddp_untagged), '\0');
        h[0] = static_cast<char>(control);
        h[1] = static_cast<char>(rdmap);
        store_be32(h.data() + 2, stag);
        store_be32(h.data() + 6, qn);
        store_be32(h.data() + 10, msn);
        store_be32(h.data() + 14, mo);
        return h + payload;
    }
    static std::string tagged(int control, int rdmap, uint32_t stag, uint64_t to,
                              const std::string& payload) {
        std::string h(sizeof(ddp_tagged), '\0');
        h[0] = static_cast<char>(control);
        h[1] = static_cast<char>(rdmap);
        store_be32(h.data() + 2, stag);
        store_be64(h.data() + 6, to);
        return h + payload;
    }
    static std::string send_message(uint32_t msn, const std::string& payload) {
        return fpdu(untagged(0x41, 0x43, 0, msn, 0, payload));
    }
    /// The first message of an initiator that has nothing to say: lets the responder speak.
    static std::string empty_write() { return fpdu(tagged(0xc1, 0x40, 1, 0, "")); }
    static std::string read_request(uint32_t msn, uint32_t size, uint32_t stag, uint64_t to) {
        std::string r(sizeof(rdmap_read_request), '\0');
        store_be32(r.data(), 0x1234);
        store_be32(r.data() + 12, size);
        store_be32(r.data() + 16, stag);
        store_be64(r.data() + 20, to);
        return fpdu(untagged(0x41, 0x41, 1, msn, 0, r));
    }

    /// The first Terminate in what was received: its layer, type and code as 0xLTCC; -1 when none.
    static int terminate_in(const std::string& heard) {
        std::size_t at = 0;
        while (heard.size() - at >= 2) {
            const std::size_t n = load_be16(heard.data() + at);
            const std::size_t whole = (2 + n + 3) / 4 * 4 + 4;
            if (heard.size() - at < whole) return -1;
            const auto* u = reinterpret_cast<const unsigned char*>(heard.data() + at + 2);
            if (n >= sizeof(ddp_untagged) + 4 && (u[0] & DDP_FLAG_TAGGED) == 0 &&
                (u[1] & RDMAP_OPCODE_MASK) == RDMAP_TERMINATE) {
                return u[18] << 8 | u[19];
            }
            at += whole;
        }
        return -1;
    }

  private:
    int fd_ = -1;
    bool connected_ = false;
    bool ended_ = false, was_reset_ = false;
};

}  // namespace xsock::test
