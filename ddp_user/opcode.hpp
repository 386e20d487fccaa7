// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What RDMAP says of each opcode (RFC 5040 §4, figure 3; RFC 7306 §4; docs/wire.md), in one table,
// and of each kind of work request, in another. Parsing, sending and receiving ask them; a new
// message is a new row and, if it behaves like none of those here, a new RxKind with its handlers.
#pragma once

#include <array>
#include <cstdint>

#include "base/ulp.hpp"
#include "base/work.hpp"
#include "include/xsock/iwarp.h"

namespace xsock::ddp {

/// How a message is received: index of its handlers.
enum class RxKind : std::uint8_t {
    write,
    read_request,
    read_response,
    send,
    terminate,
    immediate,
    atomic_request,
    atomic_response,
    acknowledge,
    kCount
};

struct OpcodeInfo {
    const char* name;
    std::uint8_t opcode;
    bool tagged;                ///< tagged buffer model: no queue, no MSN
    std::uint8_t qn;            ///< queue number, when untagged
    bool invalidates;           ///< the header carries an Invalidate STag
    bool solicited;             ///< asks for an event at the receiver
    std::uint8_t rdmap_octets;  ///< RDMAP header behind the DDP header (it is DDP's payload)
    RxKind kind;
    std::uint8_t feature = 0;  ///< MPA_FEATURE_* that both ends must have; 0: an RFC's
    bool immediate = false;    ///< the header carries immediate data, where others invalidate
};

/// Whatever two ends may have announced.
inline constexpr std::uint64_t kAllFeatures = ~std::uint64_t{0};

/// The row of an opcode; null: with these features RDMAP does not know it.
[[nodiscard]] const OpcodeInfo* opcode_info(std::uint8_t opcode,
                                            std::uint64_t features = kAllFeatures) noexcept;

/// Does any of these opcodes use this queue? (RFC 5041 §7.1: "invalid QN")
[[nodiscard]] bool queue_known(std::uint32_t qn, std::uint64_t features = kAllFeatures) noexcept;

/// Is it one that an Acknowledge counts, once its last segment was taken?
[[nodiscard]] constexpr bool is_counted(RxKind kind) noexcept {
    return kind == RxKind::write || kind == RxKind::send || kind == RxKind::immediate;
}

/// Does its message take a receive of the peer's, and a number of the queue of Sends?
[[nodiscard]] constexpr bool takes_receive(SendOpcode opcode) noexcept {
    return opcode == SendOpcode::send || opcode == SendOpcode::send_invalidate ||
           opcode == SendOpcode::send_immediate || opcode == SendOpcode::immediate ||
           opcode == SendOpcode::write_immediate;
}

/// What becomes of a work request.
struct SendInfo {
    SendOpcode opcode;
    std::uint8_t message;    ///< RDMAP opcode that ends it; 0xff: it sends nothing
    std::uint8_t solicited;  ///< the same with kSendSolicited
    WcOpcode completion;
    std::uint8_t counted = 0;  ///< messages of it that an Acknowledge counts
    std::uint8_t feature = 0;  ///< MPA_FEATURE_* that both ends must have
};
inline constexpr std::array<SendInfo, static_cast<std::size_t>(SendOpcode::kCount)> kSendTable = {{
    {SendOpcode::send, RDMAP_SEND, RDMAP_SEND_SE, WcOpcode::send, 1},
    {SendOpcode::send_invalidate, RDMAP_SEND_INVALIDATE, RDMAP_SEND_SE_INVALIDATE, WcOpcode::send,
     1},
    {SendOpcode::write, RDMAP_WRITE, RDMAP_WRITE, WcOpcode::write, 1},
    {SendOpcode::read, RDMAP_READ_REQUEST, RDMAP_READ_REQUEST, WcOpcode::read},
    {SendOpcode::local_invalidate, 0xff, 0xff, WcOpcode::local_invalidate},
    {SendOpcode::fetch_add, RDMAP_ATOMIC_REQUEST, RDMAP_ATOMIC_REQUEST, WcOpcode::fetch_add},
    {SendOpcode::compare_swap, RDMAP_ATOMIC_REQUEST, RDMAP_ATOMIC_REQUEST, WcOpcode::compare_swap},
    {SendOpcode::write_immediate, RDMAP_IMMEDIATE, RDMAP_IMMEDIATE_SE, WcOpcode::write_immediate,
     2},
    {SendOpcode::immediate, RDMAP_IMMEDIATE, RDMAP_IMMEDIATE_SE, WcOpcode::immediate, 1},
    {SendOpcode::bind_window, 0xff, 0xff, WcOpcode::bind_window},
    {SendOpcode::send_immediate, RDMAP_SEND_IMMEDIATE, RDMAP_SEND_SE_IMMEDIATE,
     WcOpcode::send_immediate, 1, MPA_FEATURE_SEND_IMMEDIATE},
}};

[[nodiscard]] constexpr const SendInfo& send_info(SendOpcode opcode) noexcept {
    return kSendTable[static_cast<std::size_t>(opcode)];
}
/// Is it done here, without a message?
[[nodiscard]] constexpr bool sends_nothing(SendOpcode opcode) noexcept {
    return send_info(opcode).message == 0xff;
}
/// May it be sent to this peer? RFC 7306 leaves it to the ends to know: xsocks have all of it.
[[nodiscard]] constexpr bool may_send(SendOpcode opcode, const Negotiated& to) noexcept {
    if (is_extension(opcode)) return to.peer_is_xsock;
    return (send_info(opcode).feature & ~to.features) == 0;
}
/// The kinds for which may_send() answers no, a bit each.
[[nodiscard]] constexpr std::uint32_t refused_requests(const Negotiated& by) noexcept {
    std::uint32_t refused = 0;
    for (std::size_t i = 0; i < kSendTable.size(); ++i) {
        if (!may_send(static_cast<SendOpcode>(i), by)) refused |= 1u << i;
    }
    return refused;
}
[[nodiscard]] constexpr bool is_refused(std::uint32_t refused, SendOpcode opcode) noexcept {
    return (refused >> (static_cast<unsigned>(opcode) & 31) & 1) != 0;
}
static_assert(kSendTable.size() <= 32);
static_assert([] {
    for (std::size_t i = 0; i < kSendTable.size(); ++i) {
        if (kSendTable[i].opcode != static_cast<SendOpcode>(i)) return false;
    }
    return true;
}());

}  // namespace xsock::ddp
