// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/segment.hpp"

namespace xsock::ddp {

StreamError parse_start(std::span<const std::byte, kTaggedOctets> header, Segment& out,
                        const OpcodeInfo*& info, std::uint64_t features) noexcept {
    const auto control = std::to_integer<unsigned>(header[0]);
    const auto rdmap = std::to_integer<unsigned>(header[1]);
    out.tagged = (control & DDP_FLAG_TAGGED) != 0;
    out.last = (control & DDP_FLAG_LAST) != 0;
    out.asks = (rdmap & RDMAP_ACK_REQUEST) != 0 && (features & MPA_FEATURE_ACKNOWLEDGE) != 0;
    out.opcode = static_cast<std::uint8_t>(rdmap & RDMAP_OPCODE_MASK);
    out.stag = load_be32(header.data() + 2);

    if ((control & DDP_VERSION_MASK) != DDP_VERSION) {
        return out.tagged ? StreamError::tagged_version : StreamError::untagged_version;
    }
    if (out.tagged) {
        out.to = load_be64(header.data() + offsetof(ddp_tagged, to));
        out.qn = out.msn = out.mo = 0;
    } else {
        out.to = 0;
        out.qn = load_be32(header.data() + offsetof(ddp_untagged, qn));
        out.msn = load_be32(header.data() + offsetof(ddp_untagged, msn));
        out.mo = 0;
        if (!queue_known(out.qn, features)) return StreamError::untagged_qn;
    }
    if ((rdmap & RDMAP_VERSION_MASK) != RDMAP_VERSION) return StreamError::rdmap_version;

    // An opcode in the wrong model or on another opcode's queue is as unexpected as one that does
    // not exist (RFC 5040 §7.2): the queue itself is one that DDP has.
    info = opcode_info(out.opcode, features);
    if (info == nullptr || info->tagged != out.tagged) return StreamError::rdmap_opcode;
    if (!out.tagged && info->qn != out.qn) return StreamError::rdmap_opcode;
    return StreamError::none;
}

}  // namespace xsock::ddp
