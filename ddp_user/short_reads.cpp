// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reads whose answer is one segment: Requests and Responses are written many at a time, straight
// into the LLP's batch, and taken without the steps that longer ones go through. Whatever is not so
// simple, or wrong, is left to tx_messages.cpp and rx_messages.cpp.
#include <algorithm>

#include "base/fault.hpp"
#include "base/place.hpp"
#include "ddp_user/batch_writer.hpp"
#include "ddp_user/stream_impl.hpp"

namespace xsock::ddp {
namespace {

constexpr std::uint32_t kMaxShort = 0xffff;  // a ULPDU has no more; with its header it cannot wrap

}  // namespace

// -- ours --

/// Read Requests in a row. Touches no program memory. False: the next message is none, or fails.
bool Stream::Impl::put_requests(BatchWriter& to) {
    constexpr std::size_t kSize = kUntaggedOctets + kReadRequestOctets;
    SendQueue& sq = *config.sq;
    const auto permitted = [&](const SendWqe& wqe) {
        return std::all_of(sges_of(wqe).begin(), sges_of(wqe).end(),
                           [&](const Sge& sge) { return sge.length == 0 || permits(sge, true); });
    };
    std::uint64_t left = messages_in_a_row();
    std::uint32_t n = 0;
    for (; left != 0 && orq.size() < ord && to.takes(kSize); --left, ++n) {
        const SendWqe& wqe = sq.at(tx.next);
        if (wqe.opcode != SendOpcode::read || fenced(wqe) || !permitted(wqe)) break;
        const ReadRequest request{.sink_stag = orq.next_sink_stag(),
                                  .size = wqe.length,
                                  .source_stag = wqe.remote_stag,
                                  .source_to = wqe.remote_to};
        const std::uint32_t msn = orq.next_msn();
        if (!orq.push({.sequence = tx.next,
                       .confirms = tx.next + 1,
                       .sink_stag = request.sink_stag,
                       .length = request.size,
                       .msn = msn})) {
            break;
        }
        std::byte* const at = to.at();
        encode(Segment{.opcode = RDMAP_READ_REQUEST, .qn = DDP_QN_READ_REQUEST, .msn = msn}, at);
        encode(request, at + kUntaggedOctets);
        to.advance(kSize);
        tx.acks.asked(++tx.next);
    }
    if (n == 0) return false;
    counters.tx_segments += n;
    counters.tx_messages[RDMAP_READ_REQUEST] += n;
    tx.log.push(TxLog::Kind::send_queue, true, n);
    tx.previous = TxState::Source::send_queue;
    tx.probe = false;
    return true;
}

/// The answer to the oldest Read, if it is one segment. False: it is none, or the region has gone.
bool Stream::Impl::take_short_response(ConstBytes ulpdu) {
    if (orq.empty() || orq.offset != 0) return false;
    const OutboundRead& read = orq.front();
    const std::size_t bytes = ulpdu.size() - kTaggedOctets;
    const std::byte* const header = ulpdu.data();
    if (read.atomic || read.sequence == kNoEntry || bytes != read.length ||
        load_be32(header + 2) != read.sink_stag ||
        load_be64(header + offsetof(ddp_tagged, to)) != 0) {
        return false;
    }
    const SendWqe& wqe = config.sq->at(read.sequence);
    const Sge& sge = sges_of(wqe)[0];
    if (sge.length < bytes) return false;
    const Sge piece{sge.address, static_cast<std::uint32_t>(bytes), sge.lkey};
    if (!permits(piece, true)) return false;
    rx.op = opcode_info(RDMAP_READ_RESPONSE);  // for rx_memory_gone()
    {
        const fault::Touch touch(1, piece.address, bytes);
        place(piece.address, header + kTaggedOctets, bytes);
    }
    show_placed();
    ++counters.rx_segments;
    counters.rx_payload_bytes += bytes;
    ++counters.rx_messages[RDMAP_READ_RESPONSE];
    response_delivered();
    return true;
}

// -- the peer's --

/// A Read Request. False: it is malformed, or not permitted.
bool Stream::Impl::take_short_request(ConstBytes ulpdu) {
    const std::byte* const header = ulpdu.data();
    if (ulpdu.size() != kUntaggedOctets + kReadRequestOctets || irq.size() >= ird ||
        load_be32(header + offsetof(ddp_untagged, qn)) != DDP_QN_READ_REQUEST ||
        load_be32(header + offsetof(ddp_untagged, msn)) != expected_msn[DDP_QN_READ_REQUEST] ||
        load_be32(header + offsetof(ddp_untagged, mo)) != 0) {
        return false;
    }
    const InboundRead read{
        .request = parse_read_request(ulpdu.subspan<kUntaggedOctets, kReadRequestOctets>()),
        .msn = expected_msn[DDP_QN_READ_REQUEST]};
    const ReadRequest& request = read.request;
    if (request.size != 0 &&
        remote(request.source_stag, Right::remote_read, request.source_to, request.size)
                .stream_error != StreamError::none) {
        return false;
    }
    if (!irq.push(read)) return false;
    ++expected_msn[DDP_QN_READ_REQUEST];
    ++counters.rx_segments;
    counters.rx_payload_bytes += kReadRequestOctets;
    ++counters.rx_messages[RDMAP_READ_REQUEST];
    return true;
}

/// Answers in a row, each in one segment. False: the next is none, or its region has gone.
bool Stream::Impl::put_responses(BatchWriter& to) {
    if (irq.offset() != 0) return false;
    // Where our own messages wait the two take turns.
    const bool alone = tx.held || tx.next == config.sq->posted();
    std::size_t payload = 0;
    std::uint32_t n = 0;
    for (; irq.due() && (n == 0 || alone); ++n) {
        const InboundRead& read = irq.current();
        const ReadRequest& request = read.request;
        if (read.atomic || request.size > kMaxShort) break;
        const std::size_t size = kTaggedOctets + request.size;
        if (!to.takes(size)) break;
        std::byte* const at = to.at();
        if (request.size != 0) {
            // Looked up again: the region may have been revoked since the Request.
            const auto found =
                remote(request.source_stag, Right::remote_read, request.source_to, request.size);
            if (found.stream_error != StreamError::none) break;
            const fault::Touch touch(0, found.address, request.size);
            copy_short(at + kTaggedOctets, found.address, request.size);
        }
        encode(Segment{.opcode = RDMAP_READ_RESPONSE,
                       .tagged = true,
                       .stag = request.sink_stag,
                       .to = request.sink_to},
               at);
        to.advance(size);
        payload += request.size;
        irq.finish();
    }
    if (n == 0) return false;
    counters.tx_segments += n;
    counters.tx_payload_bytes += payload;
    counters.tx_messages[RDMAP_READ_RESPONSE] += n;
    tx.log.push(TxLog::Kind::response, true, n);
    tx.previous = TxState::Source::response;
    tx.probe = false;
    return true;
}

}  // namespace xsock::ddp
