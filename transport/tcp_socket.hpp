// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The TCP socket below one connection; every system call on its descriptor but epoll's is here. An
// object of another class with the same functions could stand in its place. Used by the poller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/ip_address.hpp"
#include "base/result.hpp"
#include "base/tx_batch.hpp"
#include "transport/tcp.hpp"

namespace xsock {

class TcpSocket final {
  public:
    TcpSocket() = default;
    /// Closes what is open, without a word to the peer where other descriptors stay.
    ~TcpSocket();
    TcpSocket(const TcpSocket&) = delete;
    TcpSocket& operator=(const TcpSocket&) = delete;

    /// The time limits of an idle connection, and of one whose peer is silent.
    struct Limits {
        std::uint32_t keepalive_s = 0;  ///< idle time before the peer is probed; 0: never
        Time silence = 0;               ///< then, or while something is unacknowledged; 0: no limit
    };
    /// Takes the descriptor of a connected socket on success. Non-blocking (unless the flags are
    /// shared with the program), no Nagle, time limits. An idle peer that leaves six probes
    /// unanswered is given up by TCP itself: after keepalive_s and the limit.
    ///
    /// @param shared other descriptors of the socket may be open: closing ours does not tell the
    ///        peer
    Result<void> open(int fd, const Limits& limits, bool shared = false);
    /// The descriptor is the caller's again.
    void release() noexcept { fd_ = -1; }

    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
    /// -1 unless it is open.
    [[nodiscard]] int fd() const noexcept { return fd_; }
    /// What it was bound and connected to when it was opened; kept when it is closed.
    [[nodiscard]] const IpEndpoint& local() const noexcept { return local_; }
    [[nodiscard]] const IpEndpoint& peer() const noexcept { return peer_; }
    /// Their names; "?" before that.
    [[nodiscard]] tcp::Name peer_name() const noexcept { return tcp::name_of({peer_, family_}); }
    [[nodiscard]] tcp::Name local_name() const noexcept { return tcp::name_of({local_, family_}); }

    // -- while it is open --

    /// Writes a batch without blocking: one sendmsg, or for separate groups one sendmmsg whose
    /// messages end records (MSG_EOR), so that TCP does not join neighbours into one segment.
    ///
    /// @param more finish() or push() follows at once: TCP may wait for that, and put FIN into the
    ///        last segment. Not for separate groups.
    /// @return bytes taken by TCP (perhaps fewer than offered), or -errno when none were.
    [[nodiscard]] long send(const TxBatch& batch, bool more = false) noexcept;
    /// The same for bytes that lie together.
    [[nodiscard]] long send(ConstBytes bytes, bool more = false) noexcept;
    /// What was held back because more should follow goes now.
    void push() noexcept {
        if (holds_back_) [[unlikely]]
            push_held_back();
    }
    /// recv without blocking. @return bytes, 0 at end of stream, or -errno.
    [[nodiscard]] long receive(Bytes into) noexcept;

    /// Effective maximum segment size towards the peer, bytes; 0 when unknown.
    [[nodiscard]] std::size_t emss() const noexcept;

    /// The name of its congestion control; "" when unknown, or not open.
    [[nodiscard]] std::string congestion() const;
    /// Keeps what congestion() says now, for known_congestion().
    void note_congestion() noexcept;
    [[nodiscard]] const char* known_congestion() const noexcept { return congestion_.data(); }

    /// How far TCP has come with what it was given.
    struct PeerInfo {
        bool waiting = false;            ///< bytes are unsent or unacknowledged
        bool window_closed = false;      ///< the peer takes no more: it does not read
        unsigned attempts = 0;           ///< repetitions or probes in a row, unanswered
        std::uint64_t acknowledged = 0;  ///< bytes, since the connection began
        Time since_heard = 0;            ///< since anything came from the peer
    };
    /// All zero when unknown.
    [[nodiscard]] PeerInfo peer_info() const noexcept;

    /// When TCP probes an idle peer.
    struct Keepalive {
        bool on = false;
        int idle_s = 0, interval_s = 0;
        friend bool operator==(const Keepalive&, const Keepalive&) = default;
    };
    [[nodiscard]] Keepalive keepalive() const noexcept;
    /// Holds at once: a peer that has been idle for longer is probed now.
    void set_keepalive(const Keepalive& keepalive) noexcept;

    /// SO_ERROR, cleared by asking.
    [[nodiscard]] int pending_error() const noexcept;
    /// Another descriptor of the socket, close-on-exec, for the program.
    [[nodiscard]] Result<int> duplicate() const;

    /// receive() has answered 0.
    void note_peer_finished() noexcept { finished_ |= kPeers; }
    /// FIN. Errors do not matter: the connection is then already gone.
    void finish() noexcept;
    /// Closes; of a shared one both directions are at an end although others stay open.
    void close() noexcept;
    /// Closes so that the peer sees a reset; of a shared one, now (it becomes unconnected).
    void reset() noexcept;

  private:
    void push_held_back() noexcept;

    IpEndpoint local_, peer_;
    tcp::Congestion congestion_{};
    std::uint16_t family_ = 0;  // of both addresses
    int fd_ = -1;               // last: beside what its owner needs for each message
    bool shared_ = false;
    bool holds_back_ = false;
    enum : std::uint8_t { kOurs = 1, kPeers = 2 };
    std::uint8_t finished_ = 0;  // directions
};

}  // namespace xsock
