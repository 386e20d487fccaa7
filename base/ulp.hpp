// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The seam below DDP: what a lower layer protocol (MPA over TCP, one day TRP over UDP, a simulated
// pipe) and DDP say to each other. The LLP calls; DDP answers and never calls back from inside.
// One thread at a time: the driver of the connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/violation.hpp"
#include "base/work.hpp"

namespace xsock {

inline constexpr std::size_t kMaxUlpduHeader = 80;  // a Terminate with both headers is the longest

/// RFC 6581 §9: what an initiator sends first in the peer-to-peer model.
enum class Rtr : std::uint8_t { none, send, write, read };

/// What both ends agreed on at start-up.
struct Negotiated {
    bool initiator = false;
    std::uint8_t revision = 2;
    bool crc = true;
    bool markers_tx = false;
    bool markers_rx = false;
    bool peer_is_xsock = false;
    bool peer_accepts_gso = false;  ///< siw's private bit: FPDUs may be larger than a segment
    bool enhanced = false;          ///< IRD/ORD were negotiated (RFC 6581)
    std::uint16_t ird = 0;          ///< inbound Reads we answer at once; valid if enhanced
    std::uint16_t ord = 0;          ///< outbound Reads the peer answers at once; valid if enhanced
    Rtr rtr = Rtr::none;            ///< the initiator must send this first
};

struct UlpduOut {                                   // a ULPDU on its way out
    std::array<std::byte, kMaxUlpduHeader> header;  // copied: it is small
    std::size_t header_size = 0;
    std::array<ConstBytes, kMaxSge> payload;  // referred to where the application left it
    std::size_t payload_count = 0;
    bool unstable = false;  ///< may change under us (a Read Response's source): copy, do not refer
};

/// Where Ulp::tx_run() lays ULPDUs out, each with room around it for the LLP.
struct UlpduRun {
    Bytes room;
    std::size_t before = 0;  ///< octets left free ahead of each
    std::size_t align = 1;   ///< a power of two: what is left free behind each reaches up to a
                             ///< multiple of it, counted from the start of its `before`
    std::size_t after = 0;   ///< and so many octets further
    std::size_t most = 0;    ///< octets of one ULPDU
    std::span<std::uint16_t> sizes;  ///< receives theirs; no more are given than it has entries

    /// Octets of the room that a ULPDU takes.
    [[nodiscard]] std::size_t octets(std::size_t ulpdu) const noexcept {
        return ((before + ulpdu + align - 1) & ~(align - 1)) + after;
    }
};

enum class CloseKind : std::uint8_t {
    peer_finished,  ///< orderly: the peer will send nothing more (FIN)
    reset,          ///< abortive: RST, or any failure of the transport
    local,          ///< we closed
};

class Ulp {
  public:
    /// Builds the next ULPDU of at most `mulpdu` octets. False: nothing to send now. May be called
    /// several times before tx_done(): batching. The payload spans stay valid until tx_done() of
    /// this ULPDU, inside the caller's Epochs section; later sections ask tx_intact() first.
    virtual bool tx_next(std::size_t mulpdu, UlpduOut& out) = 0;
    /// The oldest ULPDU that tx_next() gave is now the LLP's promise.
    virtual void tx_done() = 0;
    /// The `n` oldest are.
    virtual void tx_done_all(std::uint32_t n) {
        for (; n != 0; --n) tx_done();
    }
    /// May memory of ULPDUs given and not yet done still be read? False: a region was revoked
    /// meanwhile; the LLP must abandon the connection rather than send.
    virtual bool tx_intact() = 0;

    /// The next ULPDUs, made short: as long as they are messages whole, and find room, writes them
    /// where `run` says, payload and all: they count as given. Answers how many; 0: tx_next() may
    /// have one all the same.
    virtual std::size_t tx_run(const UlpduRun& run) {
        static_cast<void>(run);
        return 0;
    }

    /// The lone small message, made short: if exactly one is waiting, its octets cannot change, and
    /// it fits into `ulpdu` whole, writes it there and answers its size; else 0. Changes nothing:
    /// tx_next() would give the same octets. Between it and tx_lone_done() comes no other call.
    virtual std::size_t tx_lone(Bytes ulpdu) {
        static_cast<void>(ulpdu);
        return 0;
    }
    /// What tx_lone() gave last is now the LLP's promise.
    virtual void tx_lone_done() {}

    /// A ULPDU that the LLP has whole, and intact, made short: answers where its last octets, all
    /// that are to be placed, belong; the LLP stores them there and calls rx_whole_done(), with no
    /// other call between. Empty: it is none for this way, and begins by rx_begin().
    virtual Bytes rx_whole(ConstBytes ulpdu) {
        static_cast<void>(ulpdu);
        return {};
    }
    /// What rx_whole() was asked about is placed: delivers it.
    virtual void rx_whole_done() {}

    /// A ULPDU of this many octets begins.
    virtual void rx_begin(std::size_t ulpdu_length) = 0;
    /// Right after rx_begin(), when the LLP has the ULPDU whole, and intact: takes its head if that
    /// saves time. @return octets taken; the others go on to rx_target()
    virtual std::size_t rx_head(ConstBytes ulpdu) {
        static_cast<void>(ulpdu);
        return 0;
    }
    /// Where its next octets belong: never more than remain of it. Empty: not now (no receive is
    /// posted for this Send); the LLP stops consuming and asks again later.
    virtual Bytes rx_target() = 0;
    /// `n` octets were stored at rx_target(). @pre n <= its size
    virtual void rx_advance(std::size_t n) = 0;
    /// The ULPDU is complete; deliver only if `intact` (the CRC held, or is off). After a false one
    /// llp_failed() follows.
    virtual void rx_end(bool intact) = 0;

    virtual void llp_established(const Negotiated& negotiated) = 0;
    /// E.g. CRC or marker: DDP queues the Terminate, MPA cannot. Nothing is received after it.
    virtual void llp_failed(Violation violation) = 0;
    virtual void llp_closed(CloseKind kind) = 0;
    /// Initiator, some milliseconds after start-up with nothing heard: send a zero-length Write if
    /// nothing else is waiting (siw can miss the first FPDU).
    virtual void llp_nudge() = 0;

  protected:
    ~Ulp() = default;
};

}  // namespace xsock
