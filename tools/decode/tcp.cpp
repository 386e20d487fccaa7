// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/decode/tcp.hpp"

#include <algorithm>

namespace xsock::decode {
namespace {

constexpr std::size_t kWaitingSegmentsMax = 1024;
constexpr std::size_t kWaitingBytesMax = std::size_t{4} * 1024 * 1024;
// No window is larger (RFC 7323): farther away is another connection, or no TCP at all.
constexpr std::int64_t kWindowMax = std::int64_t{1} << 30;

}  // namespace

void TcpDirection::add(std::uint32_t sequence, ConstBytes captured, std::size_t bytes_on_wire,
                       std::uint64_t packet, StreamSink& sink) {
    if (!known_) {
        known_ = true;
        next_ = sequence;
    }
    if (bytes_on_wire == 0) return;
    const std::int64_t ahead = static_cast<std::int32_t>(sequence - next_);
    if (ahead > kWindowMax || ahead < -kWindowMax) return;
    if (ahead <= 0) {
        const auto behind = static_cast<std::size_t>(-ahead);
        if (behind != 0) ++retransmitted_;
        if (behind >= bytes_on_wire) return;
        give(captured.subspan(std::min(behind, captured.size())), bytes_on_wire - behind, packet,
             behind == 0, sink);
        take_waiting(sink, false);
        return;
    }
    ++early_;
    const std::uint64_t at = offset_ + static_cast<std::uint64_t>(ahead);
    Waiting& place = waiting_[at];
    if (place.bytes_on_wire >= bytes_on_wire) return;  // it is there already
    if (captured.size() > place.captured.size()) {
        const std::size_t more = captured.size() - place.captured.size();
        waiting_bytes_ += more;
        budget_->bytes_left -= static_cast<std::int64_t>(more);
        place.captured.assign(captured.begin(), captured.end());
    }
    place.bytes_on_wire = bytes_on_wire;
    place.packet = packet;
    while (waiting_.size() > kWaitingSegmentsMax || waiting_bytes_ > kWaitingBytesMax ||
           (budget_->bytes_left <= 0 && !waiting_.empty())) {
        take_waiting(sink, true);
    }
}

void TcpDirection::finish(StreamSink& sink) {
    while (!waiting_.empty()) take_waiting(sink, true);
}

void TcpDirection::give(ConstBytes captured, std::size_t bytes_on_wire, std::uint64_t packet,
                        bool start, StreamSink& sink) {
    next_ += static_cast<std::uint32_t>(bytes_on_wire);
    offset_ += bytes_on_wire;
    if (!captured.empty()) sink.stream_bytes(captured, packet, start);
    const std::size_t cut = bytes_on_wire - captured.size();
    if (cut != 0) sink.stream_gap(cut, packet);
}

/// Gives what is in order now; with `over_gaps` also the first that is not.
void TcpDirection::take_waiting(StreamSink& sink, bool over_gaps) {
    while (!waiting_.empty()) {
        const auto first = waiting_.begin();
        if (first->first > offset_) {
            if (!over_gaps) return;
            over_gaps = false;
            const std::uint64_t gap = first->first - offset_;
            missing_ += gap;
            offset_ += gap;
            next_ += static_cast<std::uint32_t>(gap);
            sink.stream_gap(gap, first->second.packet);
        }
        const std::uint64_t behind = offset_ - first->first;
        const Waiting segment = std::move(first->second);
        waiting_.erase(first);
        waiting_bytes_ -= segment.captured.size();
        budget_->bytes_left += static_cast<std::int64_t>(segment.captured.size());
        if (behind >= segment.bytes_on_wire) continue;
        const auto skip = static_cast<std::size_t>(behind);
        give(ConstBytes(segment.captured).subspan(std::min(skip, segment.captured.size())),
             segment.bytes_on_wire - skip, segment.packet, skip == 0, sink);
    }
}

}  // namespace xsock::decode
