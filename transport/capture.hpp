// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// XSOCK_PCAP: records what a process's connections send and receive, without any right, as Ethernet
// frames with made-up headers that Wireshark, tshark and `xsock decode` open. The connection calls,
// in its poller; one lock keeps the file's blocks in order. Nothing here throws or fails: what
// cannot be recorded is said once and left out.
//
// A frame holds one start-up frame or one FPDU where that fits; sequence numbers, acknowledgements
// and checksums are right; the end that sent the MPA Request is taken for TCP's client. How TCP
// really cut the stream, lost and repeated it, only a capture of the network can tell.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "transport/frame_cutter.hpp"

namespace xsock {

class Recorder;

class Capture {
  public:
    /// XSOCK_PCAP asks for it.
    [[nodiscard]] static bool is_wanted() noexcept;
    /// @return null unless XSOCK_PCAP asks for it (or when it cannot be had)
    static std::unique_ptr<Capture> begin(int fd, bool initiator) noexcept;
    ~Capture();
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    /// TCP took the first `bytes` of these. Read inside a fault guard; the memory may be gone.
    void sent(std::span<const struct iovec> pieces, std::size_t bytes) noexcept;
    void sent(ConstBytes bytes) noexcept { took(kLocal, bytes); }
    void received(ConstBytes bytes) noexcept { took(kPeer, bytes); }
    void sent_fin() noexcept;
    void received_fin() noexcept;
    /// The connection was reset, by us or by the peer (or by neither: it timed out).
    void was_reset(bool by_us) noexcept;

    /// What is complete goes into the file, which is closed. At exit: later calls do nothing.
    static void finish_all() noexcept;

  private:
    friend class Recorder;
    enum Side : unsigned { kLocal, kPeer };
    struct Address {
        std::array<std::byte, 16> bytes{};
        std::uint16_t port = 0;  // host order
    };
    struct Direction {  // of what `Side` sends
        Address address;
        std::uint32_t next = 0;  // TCP sequence number
        bool fin = false;
        unsigned unacknowledged = 0;  // frames since the other side last acknowledged
        FrameCutter cutter;
    };

    Capture(Recorder& recorder, bool initiator) : recorder_(recorder), initiator_(initiator) {}
    /// Lets `write` add frames, unless nothing of this connection is written any more.
    template <typename Write>
    void record(Write&& write) noexcept;
    void took(Side from, ConstBytes bytes) noexcept;
    void read_addresses(int fd);
    void handshake();
    void cut(Side from);
    void end_of(Side from);
    void data(Side from, ConstBytes bytes);
    void frame(Side from, unsigned flags, ConstBytes payload, ConstBytes options = {});

    Recorder& recorder_;
    const bool initiator_;
    bool ipv6_ = false;
    bool over_ = false;
    std::uint16_t ip_id_ = 0;
    std::array<Direction, 2> directions_;
    std::vector<std::byte> frame_;
};

}  // namespace xsock
