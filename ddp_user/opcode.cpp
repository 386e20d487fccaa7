// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/opcode.hpp"

#include <array>

namespace xsock::ddp {
namespace {

constexpr bool kTagged = true, kUntagged = false;
constexpr std::uint8_t kNoQueue = 0xff;

constexpr std::array<OpcodeInfo, 12> kOpcodes = {{
    // name, opcode, tagged, QN, invalidates, solicited, RDMAP header, kind
    {"Write", RDMAP_WRITE, kTagged, kNoQueue, false, false, 0, RxKind::write},
    {"Read Request", RDMAP_READ_REQUEST, kUntagged, DDP_QN_READ_REQUEST, false, false,
     sizeof(rdmap_read_request), RxKind::read_request},
    {"Read Response", RDMAP_READ_RESPONSE, kTagged, kNoQueue, false, false, 0,
     RxKind::read_response},
    {"Send", RDMAP_SEND, kUntagged, DDP_QN_SEND, false, false, 0, RxKind::send},
    {"Send with Invalidate", RDMAP_SEND_INVALIDATE, kUntagged, DDP_QN_SEND, true, false, 0,
     RxKind::send},
    {"Send with SE", RDMAP_SEND_SE, kUntagged, DDP_QN_SEND, false, true, 0, RxKind::send},
    {"Send with SE and Invalidate", RDMAP_SEND_SE_INVALIDATE, kUntagged, DDP_QN_SEND, true, true, 0,
     RxKind::send},
    {"Terminate", RDMAP_TERMINATE, kUntagged, DDP_QN_TERMINATE, false, false,
     sizeof(rdmap_terminate), RxKind::terminate},
    {"Immediate Data", RDMAP_IMMEDIATE, kUntagged, DDP_QN_SEND, false, false,
     sizeof(rdmap_immediate), RxKind::immediate},
    {"Immediate Data with SE", RDMAP_IMMEDIATE_SE, kUntagged, DDP_QN_SEND, false, true,
     sizeof(rdmap_immediate), RxKind::immediate},
    {"Atomic Request", RDMAP_ATOMIC_REQUEST, kUntagged, DDP_QN_READ_REQUEST, false, false,
     sizeof(rdmap_atomic_request), RxKind::atomic_request},
    {"Atomic Response", RDMAP_ATOMIC_RESPONSE, kUntagged, DDP_QN_ATOMIC_RESPONSE, false, false,
     sizeof(rdmap_atomic_response), RxKind::atomic_response},
}};

constexpr bool indexed_by_opcode() {
    for (std::size_t i = 0; i < kOpcodes.size(); ++i) {
        if (kOpcodes[i].opcode != i) return false;
    }
    return true;
}
static_assert(indexed_by_opcode());

constexpr std::uint32_t queues_used() {
    std::uint32_t mask = 0;
    for (const OpcodeInfo& row : kOpcodes) {
        if (!row.tagged) mask |= 1u << row.qn;
    }
    return mask;
}

}  // namespace

const OpcodeInfo* opcode_info(std::uint8_t opcode) noexcept {
    return opcode < kOpcodes.size() ? &kOpcodes[opcode] : nullptr;
}

bool queue_known(std::uint32_t qn) noexcept { return qn < 32 && (queues_used() >> qn & 1) != 0; }

}  // namespace xsock::ddp
