// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/opcode.hpp"

#include <array>

namespace xsock::ddp {
namespace {

constexpr bool kTagged = true, kUntagged = false;
constexpr std::uint8_t kNoQueue = 0xff;

constexpr std::array<OpcodeInfo, 15> kOpcodes = {{
    // name, opcode, tagged, QN, invalidates, solicited, RDMAP header, kind, feature, immediate
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
    {"Send with Immediate", RDMAP_SEND_IMMEDIATE, kUntagged, DDP_QN_SEND, false, false, 0,
     RxKind::send, MPA_FEATURE_SEND_IMMEDIATE, true},
    {"Send with SE and Immediate", RDMAP_SEND_SE_IMMEDIATE, kUntagged, DDP_QN_SEND, false, true, 0,
     RxKind::send, MPA_FEATURE_SEND_IMMEDIATE, true},
    {"Acknowledge", RDMAP_ACKNOWLEDGE, kUntagged, DDP_QN_ACKNOWLEDGE, false, false, 0,
     RxKind::acknowledge, MPA_FEATURE_ACKNOWLEDGE},
}};

constexpr bool indexed_by_opcode() {
    for (std::size_t i = 0; i < kOpcodes.size(); ++i) {
        if (kOpcodes[i].opcode != i) return false;
    }
    return true;
}
static_assert(indexed_by_opcode());

constexpr bool permitted(const OpcodeInfo& row, std::uint64_t features) noexcept {
    return (row.feature & ~features) == 0;
}

constexpr std::uint32_t queues_used(std::uint64_t features) {
    std::uint32_t mask = 0;
    for (const OpcodeInfo& row : kOpcodes) {
        if (!row.tagged && permitted(row, features)) mask |= 1u << row.qn;
    }
    return mask;
}

}  // namespace

const OpcodeInfo* opcode_info(std::uint8_t opcode, std::uint64_t features) noexcept {
    if (opcode >= kOpcodes.size()) return nullptr;
    const OpcodeInfo& row = kOpcodes[opcode];
    return permitted(row, features) ? &row : nullptr;
}

bool queue_known(std::uint32_t qn, std::uint64_t features) noexcept {
    constexpr std::uint32_t kOfRfcs = queues_used(0), kAll = queues_used(kAllFeatures);
    const std::uint32_t used = (features & MPA_FEATURE_ACKNOWLEDGE) != 0 ? kAll : kOfRfcs;
    return qn < 32 && (used >> qn & 1) != 0;
}

}  // namespace xsock::ddp
