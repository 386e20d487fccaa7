// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A whole capture -> what its MPA connections said: packets are sorted into TCP connections, these
// into MpaConnections, and what those find is told under the connection's number. Bounded in
// connections and memory, whatever the file holds.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/decode/packet.hpp"
#include "tools/decode/sdp.hpp"
#include "tools/decode/stream.hpp"

namespace xsock::decode {

/// What a connection came to.
struct ConnectionSummary {
    struct Direction {
        std::array<std::uint64_t, 16> messages{};  ///< by opcode: FPDUs with the L bit
        std::uint64_t fpdus = 0, payload_bytes = 0;
        std::uint64_t crc_good = 0, crc_bad = 0, crc_unchecked = 0;
        std::uint64_t markers = 0, bad_markers = 0;
        // Of FPDUs and extension frames:
        std::uint64_t incomplete = 0;  ///< bytes are missing
        std::uint64_t senseless = 0;   ///< a receiver refuses the header, or the TLVs
        std::uint64_t losses = 0;      ///< times that it fell out of step
        std::uint64_t sdp_messages = 0, sdp_wrong = 0;                  ///< of a byte stream
        std::uint64_t retransmitted = 0, early = 0, missing_bytes = 0;  ///< of TCP
        bool fin = false, reset = false;
    };
    std::uint64_t number = 0;  ///< from 1, in the order in which MPA was found
    Endpoint first, second;    ///< the initiator first, where it is known
    bool initiator_known = false;
    bool request = false, reply = false, rejected = false, terminated = false;
    unsigned revision = 0;
    std::array<Direction, 2> directions;
};

/// Ends are numbered as in ConnectionSummary: `from` 0 is `first`.
class CaptureListener {
  public:
    virtual void on_connection(const ConnectionSummary& connection) = 0;
    virtual void on_startup(const ConnectionSummary& connection, const Place& place,
                            const StartupFrame& frame) = 0;
    virtual void on_extension_frame(const ConnectionSummary& connection, const Place& place,
                                    const ExtensionFrame& frame) = 0;
    virtual void on_fpdu(const ConnectionSummary& connection, const Place& place,
                         const Fpdu& fpdu) = 0;
    /// Behind the start-up frame, or the FPDU, that completes it.
    virtual void on_sdp(const ConnectionSummary& connection, const Place& place,
                        const SdpUnit& unit) = 0;
    virtual void on_lost(const ConnectionSummary& connection, const Place& place, const char* why,
                         std::uint64_t bytes) = 0;
    virtual void on_end(const ConnectionSummary& connection) = 0;

  protected:
    ~CaptureListener() = default;
};

class CaptureDecoder {
  public:
    struct Totals {
        std::uint64_t packets = 0, tcp_segments = 0;
        std::uint64_t unknown_link = 0;  ///< packets of a link type we do not know
        std::uint64_t tcp_connections = 0;
        std::uint64_t mpa_connections = 0;
        std::uint64_t ignored_segments = 0;  ///< of more connections than are followed
    };

    explicit CaptureDecoder(CaptureListener& listener);
    ~CaptureDecoder();
    CaptureDecoder(const CaptureDecoder&) = delete;
    CaptureDecoder& operator=(const CaptureDecoder&) = delete;

    void add(const Packet& packet);
    /// No more packets: everything open ends.
    void finish();
    [[nodiscard]] const Totals& totals() const noexcept { return totals_; }

  private:
    struct Key {
        Endpoint low, high;
        friend auto operator<=>(const Key&, const Key&) = default;
    };
    class Connection;

    void end(std::map<Key, std::unique_ptr<Connection>>::iterator at);

    CaptureListener& listener_;
    Totals totals_;
    ReassemblyBudget budget_;
    std::map<Key, std::unique_ptr<Connection>> connections_;
};

}  // namespace xsock::decode
