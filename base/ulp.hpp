// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The seam below DDP: what a lower layer protocol (MPA over TCP, a simulated pipe, one day rings in
// shared memory or datagrams) and DDP say to each other. The LLP calls; DDP answers and never calls
// back from inside. One thread at a time.
//
// What the LLP promises. ULPDUs are whole: one that tx_fill() gave arrives as one, of the same
// length, and nothing else arrives. They arrive in the order in which they were given, each exactly
// once, none left out: DDP compares MSN, MO and the offset of a Read Response for equality, so an
// LLP over datagrams sorts before it calls. One ULPDU is in hand at a time, and its bytes come in
// rising order. When it cannot go on it says so by llp_failed() or llp_closed().
//
// An LLP may place payload by itself: then rx_placed() and rx_placed_response() stand for the
// ULPDUs, at their place in the order.
//
// What may not be assumed. tx_done() does not say that the peer has the ULPDU, or that memory of
// the peer has changed. Batches are not kept together, nor is a ULPDU in one piece. The two
// directions have no order between them. Bytes that were stored where rx_target() said are not
// delivered before rx_end(true), and may prove damaged. Not every ULPDU that was given is done:
// after llp_failed() or llp_closed() the rest is forgotten.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/implementation.hpp"
#include "base/stream_error.hpp"
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
    bool extensions = false;        ///< both ends sent an extension frame (docs/wire.md)
    bool align_tx = false;          ///< the peer asks for FPDUs that each lie in one segment
    std::uint64_t features = 0;     ///< MPA_FEATURE_*, those that both ends' frames announce
    bool peer_accepts_gso = false;  ///< siw's private bit: FPDUs may be larger than a segment
    bool enhanced = false;          ///< IRD/ORD were negotiated (RFC 6581)
    std::uint16_t ird = 0;          ///< inbound Reads we answer at once; valid if enhanced
    std::uint16_t ord = 0;          ///< outbound Reads the peer answers at once; valid if enhanced
    Rtr rtr = Rtr::none;            ///< the initiator must send this first
};

/// A ULPDU on its way out whose payload stays where it is.
struct UlpduOut {
    std::array<std::byte, kMaxUlpduHeader> header;  // copied: it is small
    std::size_t header_size = 0;
    std::array<ConstBytes, kMaxSge> payload;  // referred to where the application left it
    std::size_t payload_count = 0;
    bool unstable = false;  ///< may change under us (a Read Response's source, kSendSnapshot):
                            ///< where a CRC is sent, copy, do not refer

    [[nodiscard]] std::size_t size() const noexcept {
        std::size_t bytes = header_size;
        for (std::size_t i = 0; i < payload_count; ++i) bytes += payload[i].size();
        return bytes;
    }
};

/// What Ulp::tx_fill() fills: small ULPDUs are written, payload and all, one behind the other, each
/// with room around it for the LLP; one that is not small, or finds no room, is described.
struct UlpduBatch {
    Bytes room = {};         ///< for the small ones
    std::size_t before = 0;  ///< bytes left free ahead of each
    std::size_t align = 1;   ///< a power of two: what is left free behind each reaches up to a
                             ///< multiple of it, counted from the start of its `before`
    std::size_t after = 0;   ///< and so many bytes further
    std::size_t small = 0;   ///< bytes of the largest that is written
    /// Receives theirs; no more are written than it has entries.
    std::span<std::uint16_t> sizes = {};
    std::size_t mulpdu = 0;         ///< bytes of the largest that is described
    UlpduOut* described = nullptr;  ///< null only with `single`
    /// Only if what there is to send is one message whose bytes are in the send queue itself, what
    /// the peer is told of its own messages, or the second ahead of the first: then these are
    /// written, without a read of program memory, for `sizes` of two entries. Else nothing is
    /// given.
    bool single = false;

    /// Bytes of the room that a ULPDU takes.
    [[nodiscard]] std::size_t bytes(std::size_t ulpdu) const noexcept {
        return ((before + ulpdu + align - 1) & ~(align - 1)) + after;
    }
};

/// What it was given, in this order.
struct UlpdusGiven {
    std::size_t small = 0;   ///< so many were written
    bool described = false;  ///< and behind them one was described
    bool more = false;       ///< and behind that another waits already
};

/// Writes that the LLP has placed itself (a kernel module does): ULPDUs behind one another in the
/// stream, each with a tagged header whose region, rights and bounds were checked as Ulp does.
struct PlacedWrites {
    std::uint64_t segments = 0;  ///< ULPDUs
    std::uint64_t messages = 0;  ///< of them, those that end one
    std::uint64_t bytes = 0;     ///< of payload
    /// How the last message stands: bytes of it that lie in this run, and whether it has ended.
    std::uint64_t last_bytes = 0;
    bool last_ended = false;

    friend bool operator==(const PlacedWrites&, const PlacedWrites&) = default;
};

enum class CloseKind : std::uint8_t {
    peer_finished,  ///< orderly: the peer will send nothing more (FIN)
    reset,          ///< abortive: RST, or any failure of the transport
};

/// No function has a body here: whatever stands between an LLP and DDP (a test that observes, a
/// filter) would compile without it, and switch a way off in silence.
class Ulp {
  public:
    /// Gives the next ULPDUs, as many as `batch` takes. Fewer small ones than it has entries, and
    /// none described: there are no more now. May be called again before tx_done(): batching. The
    /// payload spans stay valid until tx_done() of their ULPDU, inside the caller's Epochs section;
    /// later sections ask tx_intact() first. Reads program memory, except with `single`.
    /// @pre batch.mulpdu >= kMaxUlpduHeader, except with `single`
    virtual UlpdusGiven tx_fill(const UlpduBatch& batch) = 0;
    /// The `n` oldest ULPDUs that tx_fill() gave are now the LLP's promise.
    virtual void tx_done(std::uint32_t n) = 0;
    /// May memory of ULPDUs given and not yet done still be read? False: a region was revoked
    /// meanwhile; the LLP must abandon the connection rather than send.
    virtual bool tx_intact() = 0;

    /// A ULPDU that the LLP has whole, and intact: places and delivers it. The bytes are read more
    /// than once, so only the LLP may change them. Writes program memory.
    ///
    /// @return bytes taken. Fewer than all: it has begun, but its Send finds no receive posted;
    /// the rest goes on by rx_target(), later.
    virtual std::size_t rx_ulpdu(ConstBytes ulpdu) = 0;

    /// The same in steps, for what comes in pieces or is large. A ULPDU of this many bytes begins.
    virtual void rx_begin(std::size_t ulpdu_length) = 0;
    /// Where its next bytes belong: never more than remain of it. Empty: not now (no receive is
    /// posted for this Send); the LLP stops consuming and asks again later.
    virtual Bytes rx_target() = 0;
    /// `n` bytes were stored at rx_target(). @pre n <= its size
    virtual void rx_advance(std::size_t n) = 0;
    /// The ULPDU is complete; deliver only if `intact` (the CRC held, or is off). After a false one
    /// llp_failed() follows.
    virtual void rx_end(bool intact) = 0;

    /// Writes that were placed by the LLP, which stand in the stream where it calls: nothing is to
    /// be stored, they count as if they had been taken here. Between two ULPDUs only.
    /// @pre writes.segments != 0, messages <= segments, last_bytes <= bytes
    virtual void rx_placed(const PlacedWrites& writes) = 0;
    /// A segment of a Read Response that was placed by the LLP, `bytes` of payload, in its place in
    /// the stream. It is checked as any other: one that answers no Read of ours fails the stream.
    /// Between two ULPDUs only. @pre header.size() is that of the tagged header, which says so
    virtual void rx_placed_response(ConstBytes header, std::size_t bytes) = 0;

    virtual void llp_established(const Negotiated& negotiated) = 0;
    /// E.g. CRC or marker: DDP queues the Terminate, MPA cannot. Nothing is received after it.
    virtual void llp_failed(StreamError stream_error) = 0;
    virtual void llp_closed(CloseKind kind) = 0;
    /// Initiator, some milliseconds after start-up with nothing heard: send a zero-length Write if
    /// nothing else is waiting (siw can miss the first FPDU).
    virtual void llp_probe() = 0;

  protected:
    ~Ulp() = default;
};

}  // namespace xsock
