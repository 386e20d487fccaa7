// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/decode/capture.hpp"

#include <algorithm>
#include <utility>

#include "include/xsock/iwarp.h"

namespace xsock::decode {
namespace {

constexpr std::size_t kConnectionsMax = 16384;

}  // namespace

/// One TCP connection, and what its MPA came to so far.
class CaptureDecoder::Connection final : MpaListener {
  public:
    Connection(CaptureDecoder& owner, const TcpSegment& segment)
        : owner_(owner), mpa_(*this, owner.budget_) {
        summary_.first = segment.source;
        summary_.second = segment.destination;
    }

    void add(const TcpSegment& segment, std::uint64_t packet, std::uint64_t time_ns) {
        const End from = segment.source == ends_first() ? End::first : End::second;
        TcpDirection& tcp = mpa_.tcp(from);
        std::uint32_t sequence = segment.sequence;
        if (segment.syn) {
            if (!tcp.begun()) {
                tcp.begin(sequence);
                syn_sequence_[index(from)] = sequence;
            }
            ++sequence;
        }
        mpa_.segment(from, sequence, segment.payload, segment.payload_bytes, packet, time_ns);
        auto& direction = summary_.directions[side(from)];
        if (segment.fin) direction.fin = true;
        if (segment.reset) direction.reset = true;
    }
    /// A SYN with another sequence number: the ports are used again.
    [[nodiscard]] bool is_over_for(const TcpSegment& segment) {
        if (!segment.syn) return false;
        const End from = segment.source == ends_first() ? End::first : End::second;
        const TcpDirection& tcp = mpa_.tcp(from);
        if (!tcp.begun()) return false;
        return !tcp.from_the_start() || syn_sequence_[index(from)] != segment.sequence;
    }
    void finish() {
        mpa_.finish();
        for (const End end : {End::first, End::second}) {
            const TcpDirection& tcp = mpa_.tcp(end);
            auto& direction = summary_.directions[side(end)];
            direction.retransmitted = tcp.retransmitted();
            direction.early = tcp.early();
            direction.missing_bytes = tcp.missing();
        }
        if (summary_.number != 0) owner_.listener_.on_end(summary_);
    }

  private:
    static std::size_t index(End end) { return static_cast<std::size_t>(end); }
    /// `first` of the summary is the initiator; of MPA, else the sender of the first segment seen.
    [[nodiscard]] std::size_t side(End end) const { return index(end) ^ (swapped_ ? 1u : 0u); }
    [[nodiscard]] const Endpoint& ends_first() const {
        return swapped_ ? summary_.second : summary_.first;
    }
    [[nodiscard]] Place mode_changed(Place place) const {
        place.from = side(place.from) == 0 ? End::first : End::second;
        return place;
    }

    void introduce() {
        if (!summary_.initiator_known && mpa_.initiator().has_value()) {
            summary_.initiator_known = true;
            if (*mpa_.initiator() == (swapped_ ? End::first : End::second)) {
                swapped_ = !swapped_;
                std::swap(summary_.first, summary_.second);
                std::swap(summary_.directions[0], summary_.directions[1]);
            }
        }
        if (summary_.number != 0) return;
        summary_.number = ++owner_.totals_.mpa_connections;
        owner_.listener_.on_connection(summary_);
    }

    void on_startup(const Place& place, const StartupFrame& frame) override {
        introduce();
        (frame.reply ? summary_.reply : summary_.request) = true;
        summary_.revision = frame.revision;
        if (frame.reply && (frame.flags & MPA_FLAG_REJECT) != 0) summary_.rejected = true;
        owner_.listener_.on_startup(summary_, mode_changed(place), frame);
        if (const auto unit = sdp_.on_startup(place.from, frame)) on_sdp(place, *unit);
    }
    void on_extension_frame(const Place& place, const ExtensionFrame& frame) override {
        introduce();
        auto& direction = summary_.directions[side(place.from)];
        if (!frame.whole) ++direction.incomplete;
        if (frame.crc == Crc::bad) {
            ++direction.crc_bad;
        } else if (frame.error != mpa::ExtensionError::none) {
            ++direction.senseless;
        }
        owner_.listener_.on_extension_frame(summary_, mode_changed(place), frame);
    }
    void on_fpdu(const Place& place, const Fpdu& fpdu) override {
        introduce();
        auto& direction = summary_.directions[side(place.from)];
        ++direction.fpdus;
        if (fpdu.has_header) {
            if (fpdu.segment.last) ++direction.messages[fpdu.segment.opcode & 15];
            direction.payload_bytes += fpdu.payload_bytes;
            if (fpdu.segment.opcode == RDMAP_TERMINATE && fpdu.stream_error == StreamError::none) {
                summary_.terminated = true;
            }
        }
        if (fpdu.has_header && fpdu.stream_error != StreamError::none) ++direction.senseless;
        if (!fpdu.has_header && fpdu.whole) ++direction.senseless;
        if (!fpdu.whole) ++direction.incomplete;
        switch (fpdu.crc) {
            case Crc::good:
                ++direction.crc_good;
                break;
            case Crc::bad:
                ++direction.crc_bad;
                break;
            case Crc::off:
                break;
            case Crc::unchecked:
                ++direction.crc_unchecked;
                break;
        }
        direction.markers += fpdu.markers;
        direction.bad_markers += fpdu.bad_markers;
        owner_.listener_.on_fpdu(summary_, mode_changed(place), fpdu);
        if (const auto unit = sdp_.on_fpdu(place, fpdu)) on_sdp(place, *unit);
    }
    void on_lost(const Place& place, const char* why, std::uint64_t bytes) override {
        introduce();
        ++summary_.directions[side(place.from)].losses;
        owner_.listener_.on_lost(summary_, mode_changed(place), why, bytes);
        sdp_.on_lost(place.from);
    }
    void on_sdp(const Place& place, const SdpUnit& unit) {
        auto& direction = summary_.directions[side(place.from)];
        ++direction.sdp_messages;
        if (!unit.wrong.empty()) ++direction.sdp_wrong;
        owner_.listener_.on_sdp(summary_, mode_changed(place), unit);
    }

    CaptureDecoder& owner_;
    MpaConnection mpa_;
    SdpConnection sdp_;
    ConnectionSummary summary_;
    std::array<std::uint32_t, 2> syn_sequence_{};
    bool swapped_ = false;
};

CaptureDecoder::CaptureDecoder(CaptureListener& listener) : listener_(listener) {}
CaptureDecoder::~CaptureDecoder() = default;

void CaptureDecoder::add(const Packet& packet) {
    ++totals_.packets;
    if (!link_type_known(packet.link_type)) ++totals_.unknown_link;
    const auto segment = tcp_segment(packet);
    if (!segment) return;
    ++totals_.tcp_segments;
    Key key{segment->source, segment->destination};
    if (key.high < key.low) std::swap(key.low, key.high);
    auto at = connections_.find(key);
    if (at != connections_.end() && at->second->is_over_for(*segment)) {
        end(at);
        at = connections_.end();
    }
    if (at == connections_.end()) {
        if (connections_.size() == kConnectionsMax) {
            ++totals_.ignored_segments;
            return;
        }
        ++totals_.tcp_connections;
        at = connections_.emplace(key, std::make_unique<Connection>(*this, *segment)).first;
    }
    at->second->add(*segment, packet.number, packet.time_ns);
}

void CaptureDecoder::end(std::map<Key, std::unique_ptr<Connection>>::iterator at) {
    at->second->finish();
    connections_.erase(at);
}

void CaptureDecoder::finish() {
    // In the order of their numbers as far as they have one.
    while (!connections_.empty()) end(connections_.begin());
}

}  // namespace xsock::decode
