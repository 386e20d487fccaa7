// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What RDMAP says of each opcode (RFC 5040 §4, figure 3), in one table. Parsing, sending and
// receiving ask it; a new message (RFC 7306) is a new row and, if it behaves like none of those
// here, a new RxKind with its handlers.
#pragma once

#include <cstdint>
#include <span>

namespace xsock::ddp {

/// How a message is received: index of its handlers.
enum class RxKind : std::uint8_t { write, read_request, read_response, send, terminate, kCount };

struct OpcodeInfo {
    const char* name;
    std::uint8_t opcode;
    bool tagged;                ///< tagged buffer model: no queue, no MSN
    std::uint8_t qn;            ///< queue number, when untagged
    bool invalidates;           ///< the header carries an Invalidate STag
    bool solicited;             ///< asks for an event at the receiver
    std::uint8_t rdmap_octets;  ///< RDMAP header behind the DDP header (it is DDP's payload)
    RxKind kind;
};

/// The row of an opcode; null: RDMAP does not know it.
[[nodiscard]] const OpcodeInfo* opcode_info(std::uint8_t opcode) noexcept;

/// Does any opcode use this queue? (RFC 5041 §7.1: "invalid QN")
[[nodiscard]] bool queue_known(std::uint32_t qn) noexcept;

/// All rows.
[[nodiscard]] std::span<const OpcodeInfo> opcode_table() noexcept;

}  // namespace xsock::ddp
