// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Work requests and completions, as values. Posted by the application through base/device.hpp,
// consumed by ddp_user. Field words follow the verbs (RFC 5040 §1.2, RFC 7306 and the InfiniBand
// verbs).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bytes.hpp"

namespace xsock {

inline constexpr std::size_t kMaxSge = 6;  // as siw
/// Reads and atomics that start-up offers to have under way at once, each way; the peer may lower
/// it. rdma_cm shows a program 8 bits of it; memory for them is taken when they are used.
inline constexpr std::uint16_t kDefaultReads = 255;
/// At most so many of ours at once where start-up does not negotiate (MPA revision 1): what devices
/// of that time answer.
inline constexpr std::uint16_t kUnnegotiatedReads = 16;
inline constexpr std::uint32_t kMaxQueueDepth = 1u << 24;
inline constexpr std::size_t kMaxInline = 256;
inline constexpr std::size_t kInlineInWqe = 144;  ///< more lies beside the send queue's entry

/// A piece of local memory. The memory stays the application's: it must stay mapped and, for what
/// is sent without kSendSnapshot, unchanged until the completion of the work request that names it.
struct Sge {
    std::byte* address = nullptr;
    std::uint32_t length = 0;  ///< bytes
    std::uint32_t lkey = 0;    ///< STag of a region that covers it, or kLkeyNone
};
static_assert(sizeof(Sge) == 16);

/// A copy, member by member. One that was just written that way must not be read as a whole: the
/// processor would wait until the writes have reached its cache.
[[nodiscard]] inline Sge in_words(const Sge& sge) noexcept {
    std::uint32_t length = sge.length;
    std::uint32_t lkey = sge.lkey;
    __asm__("" : "+r"(length), "+r"(lkey));  // or the compiler reads both at once
    return {sge.address, length, lkey};
}

/// Memory of the calling process that no region covers. Accepted unless the QP requires keys.
inline constexpr std::uint32_t kLkeyNone = 0;

enum class SendOpcode : std::uint8_t {
    send,
    send_invalidate,
    write,
    read,
    local_invalidate,
    // RFC 7306: only toward a peer that speaks it
    fetch_add,
    compare_swap,
    write_immediate,  ///< a Write, then Immediate Data
    immediate,        ///< Immediate Data alone: takes a receive, and no memory
    // here again, nothing on the wire
    bind_window,  ///< remote_stag: a prepared window to switch on; or 0, and invalidate_stag: one
                  ///< to switch off
    send_immediate,  ///< a Send with 32 bits beside it: only toward an xsock that announces it
    kCount
};

/// Is it a request with a response, so that it takes a place in the ORQ and completes with that?
[[nodiscard]] constexpr bool awaits_response(SendOpcode opcode) noexcept {
    return opcode == SendOpcode::read || opcode == SendOpcode::fetch_add ||
           opcode == SendOpcode::compare_swap;
}
[[nodiscard]] constexpr bool is_atomic(SendOpcode opcode) noexcept {
    return opcode == SendOpcode::fetch_add || opcode == SendOpcode::compare_swap;
}
/// Does only RFC 7306 have it?
[[nodiscard]] constexpr bool is_extension(SendOpcode opcode) noexcept {
    return opcode >= SendOpcode::fetch_add && opcode <= SendOpcode::immediate;
}

inline constexpr std::uint32_t kAtomicBytes = 8;  ///< of target and result
inline constexpr std::size_t kMaxAtomicSge = 2;

/// Operands of an atomic operation (RFC 7306 §5.1), as numbers. A plain fetch and add has
/// operand_mask 0; a plain compare and swap both masks ~0.
struct Atomic {
    std::uint64_t operand = 0;       ///< what is added, or swapped in
    std::uint64_t operand_mask = 0;  ///< fetch_add: the highest bit of each field, which no carry
                                     ///< leaves; compare_swap: bits to swap
    std::uint64_t compare = 0;       ///< compare_swap
    std::uint64_t compare_mask = 0;  ///< compare_swap: bits to compare
    friend bool operator==(const Atomic&, const Atomic&) = default;
};

enum SendFlag : std::uint8_t {
    kSendSignaled = 1,    ///< yields a completion on success; failures always do
    kSendSolicited = 2,   ///< Send or Immediate Data with Solicited Event
    kSendFence = 4,       ///< start only after all earlier Reads and atomics of this QP completed
    kSendInline = 8,      ///< payload copied at post time, at most kMaxInline bytes
    kSendMore = 16,       ///< another post follows: may wait for it
    kSendSnapshot = 32,   ///< the payload may change before the completion
    kSendInternal = 128,  ///< the API's own, not the program's: completes with kWcInternal
};

struct SendWr {
    std::uint64_t wr_id = 0;
    SendOpcode opcode = SendOpcode::send;
    std::uint8_t flags = kSendSignaled;
    std::uint32_t remote_stag = 0;      ///< Write, Read, atomics
    std::uint64_t remote_to = 0;        ///< Write, Read, atomics (the target is 8-byte aligned)
    std::uint32_t invalidate_stag = 0;  ///< send_invalidate: the peer's; local_invalidate: ours
    std::span<const Sge> sges = {};     ///< at most kMaxSge; for a Read, where its bytes go; for
                                        ///< an atomic, at most kMaxAtomicSge of kAtomicBytes in
                                        ///< all: where the former value goes, in host order
    const Atomic* atomic = nullptr;     ///< atomics; read during the post only
    std::uint64_t immediate = 0;        ///< write_immediate, immediate; send_immediate: 32 bits
};

struct RecvWr {
    std::uint64_t wr_id = 0;
    std::span<const Sge> sges = {};
};

/// A send work request as it lies in the send queue. Aligned so that one with a single SGE is one
/// cache line.
struct alignas(64) SendWqe {
    std::uint64_t wr_id;
    std::uint64_t remote_to;
    std::uint64_t immediate;
    std::uint32_t remote_stag;
    std::uint32_t invalidate_stag;
    std::uint32_t length;  ///< bytes of payload, all SGEs
    SendOpcode opcode;
    std::uint8_t flags;
    std::uint8_t sge_count;
    union {
        std::array<Sge, kMaxSge> sge;
        std::array<std::byte, kInlineInWqe> inline_data;  ///< flags has kSendInline, and it fits
        std::byte* inline_beside;  ///< the same, and it does not: memory of the queue
    };
    SendWqe() noexcept : sge{} {}

    /// Where the payload lies. @pre flags has kSendInline
    [[nodiscard]] const std::byte* inline_payload() const noexcept {
        return length <= kInlineInWqe ? inline_data.data() : inline_beside;
    }

    /// Operands of an atomic operation lie behind its SGEs, which are few.
    void set_atomic(const Atomic& operands) noexcept {
        static_assert((kMaxSge - kMaxAtomicSge) * sizeof(Sge) >= sizeof(Atomic));
        std::memcpy(inline_data.data() + kMaxAtomicSge * sizeof(Sge), &operands, sizeof operands);
    }
    [[nodiscard]] Atomic atomic() const noexcept {
        Atomic operands;
        std::memcpy(&operands, inline_data.data() + kMaxAtomicSge * sizeof(Sge), sizeof operands);
        return operands;
    }
};

static_assert(sizeof(SendWqe) == 192);  // no less without inline_data, which fills the last line

struct alignas(64) RecvWqe {
    std::uint64_t wr_id;
    std::uint32_t length;  ///< bytes, all SGEs
    std::uint8_t sge_count;
    bool internal;  ///< the API's own, not the program's: completes with kWcInternal
    std::array<Sge, kMaxSge> sge;
};

enum class WcStatus : std::uint8_t {
    success,
    local_length_error,      ///< a message longer than the receive, or than the protocol allows
    local_protection_error,  ///< an SGE outside its region, without the right, or not mapped
    local_qp_error,          ///< operation not possible on this connection
    flushed,                 ///< the connection ended before this was done
    remote_access_error,     ///< the peer refused the STag, bounds or right (its Terminate says so)
    remote_invalid_request,  ///< the peer found our message malformed or unexpected
    remote_operation_error,  ///< the peer failed otherwise
    bad_response,            ///< the peer's answer did not fit the question
    connection_lost,         ///< reset, time-out: the transport failed
    rnr_retries_exceeded,    ///< the peer had no receive for too long (RnrAttr)
};

enum class WcOpcode : std::uint8_t {
    send,
    write,
    read,
    local_invalidate,
    recv,
    connected,
    closed,
    fetch_add,
    compare_swap,
    write_immediate,
    immediate,
    bind_window,
    send_immediate,
};

enum WcFlag : std::uint8_t {
    kWcSolicited = 1,
    kWcInvalidated = 2,  ///< invalidated_stag is valid
    kWcImmediate = 4,    ///< a receive taken by Immediate Data: `immediate` is valid, its memory is
                         ///< untouched, and byte_len counts the Write directly before it, if any
    kWcSendImmediate = 8,  ///< a receive of a Send with Immediate: `immediate` is valid, 32 bits
    kWcDatagram = 32,      ///< a receive of a datagram (verbs): the upper half of qp_context is the
                           ///< sender's QP number
    kWcUnsignaled = 64,    ///< of a send request without kSendSignaled that failed
    kWcInternal = 128,     ///< of a request that the API made for itself
};

struct Wc {
    std::uint64_t wr_id = 0;
    std::uint64_t qp_context = 0;  ///< what the owner of the QP gave at creation
    std::uint32_t qp_num = 0;
    std::uint32_t byte_len = 0;  ///< receives, Reads and atomics: bytes placed
    std::uint32_t invalidated_stag = 0;
    WcOpcode opcode = WcOpcode::send;
    WcStatus status = WcStatus::success;
    std::uint8_t flags = 0;
    std::uint64_t immediate = 0;
    friend bool operator==(const Wc&, const Wc&) = default;
};

/// Of a send request that was to complete whatever became of it.
[[nodiscard]] inline bool is_signaled_send(const Wc& wc) noexcept {
    return wc.opcode != WcOpcode::recv && wc.opcode != WcOpcode::connected &&
           wc.opcode != WcOpcode::closed && (wc.flags & kWcUnsignaled) == 0;
}

/// Bytes of all SGEs together, as 64 bits so that it cannot wrap.
[[nodiscard]] inline std::uint64_t total_length(std::span<const Sge> sges) noexcept {
    if (sges.size() == 1) return sges[0].length;  // nearly always
    std::uint64_t n = 0;
    for (const Sge& s : sges) n += s.length;
    return n;
}

}  // namespace xsock
