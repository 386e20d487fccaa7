// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Inbound, of an LLP that has placed the payload itself: nothing is stored here. What holds of the
// message is as in rx.cpp and rx_messages.cpp.
#include <algorithm>

#include "ddp_user/stream_impl.hpp"

namespace xsock::ddp {

void Stream::Impl::rx_placed(const PlacedWrites& writes) {
    XSOCK_ASSERT(writes.segments != 0 && writes.messages <= writes.segments);
    XSOCK_ASSERT(writes.last_bytes <= writes.bytes);
    if (!state.receiving() || rx_discarding) return;
    counters.rx_segments += writes.segments;
    counters.rx_payload_bytes += writes.bytes;
    counters.rx_messages[RDMAP_WRITE] += writes.messages;
    // The last message began before this run if none ended ahead of it here.
    if (writes.messages > (writes.last_ended ? 1u : 0u)) message.write.forget();
    message.write.add(static_cast<std::size_t>(writes.last_bytes), writes.last_ended);
    // Who placed them does not say which asked for an Acknowledge: any may have.
    const bool asks = (negotiated.features & MPA_FEATURE_ACKNOWLEDGE) != 0;
    const std::uint64_t rtr = awaits_rtr() && writes.messages != 0 ? 1 : 0;
    if (writes.messages != rtr)
        replies.took(asks, static_cast<std::uint32_t>(writes.messages - rtr));
    if (awaits_rtr()) state.establish();
}

void Stream::Impl::rx_placed_response(ConstBytes header, std::size_t bytes) {
    XSOCK_ASSERT(header.size() == kTaggedOctets);
    rx_begin(kTaggedOctets + bytes);
    if (rx.phase == RxUlpdu::Phase::start) {
        std::copy(header.begin(), header.end(), rx.header.begin());
        rx.have = kTaggedOctets;
        rx_on_start();
    }
    if (rx.phase == RxUlpdu::Phase::payload && rx.op->kind != RxKind::read_response) {
        rx.fail(StreamError::rdmap_opcode);  // no LLP places those as a Response
    }
    // Memory that is not the program's any more is as bad as it is in rx_target().
    while (rx.phase == RxUlpdu::Phase::payload && rx.remaining() != 0) {
        rx_advance(target_read_response().size());
    }
    if (rx.phase != RxUlpdu::Phase::payload) rx.have = rx.length;
    rx_end(true);
}

}  // namespace xsock::ddp
