// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/decode/stream.hpp"

#include <algorithm>
#include <utility>

#include "base/crc32c.hpp"
#include "include/xsock/iwarp.h"
#include "mpa/fpdu.hpp"
#include "mpa/marker.hpp"

namespace xsock::decode {
namespace {

constexpr std::size_t kFrameBytes = sizeof(mpa_frame);
// Of a header, to tell an FPDU from anything else: length, control bytes and queue number.
constexpr std::size_t kPlausibleBytes = MPA_LENGTH_OCTETS + 10;

/// Does the front of these bytes begin as a start-up frame does?
bool begins_startup(ConstBytes bytes) {
    const std::size_t n = std::min<std::size_t>(bytes.size(), MPA_KEY_OCTETS);
    return std::memcmp(bytes.data(), MPA_KEY_REQUEST, n) == 0 ||
           std::memcmp(bytes.data(), MPA_KEY_REPLY, n) == 0;
}

/// Could an FPDU begin here? Nothing that a DDP receiver would refuse.
bool plausible_fpdu(ConstBytes bytes) {
    if (bytes.size() < kPlausibleBytes) return false;
    const std::size_t length = load_be16(bytes.data());
    const auto control = std::to_integer<unsigned>(bytes[2]);
    const auto rdmap = std::to_integer<unsigned>(bytes[3]);
    const bool tagged = (control & DDP_FLAG_TAGGED) != 0;
    if ((control & 0x3f) != DDP_VERSION || (rdmap & 0xf0) != RDMAP_VERSION) return false;
    if (length < (tagged ? ddp::kTaggedOctets : ddp::kUntaggedOctets)) return false;
    const ddp::OpcodeInfo* const info =
        ddp::opcode_info(static_cast<std::uint8_t>(rdmap & RDMAP_OPCODE_MASK));
    if (info == nullptr || info->tagged != tagged) return false;
    return tagged || load_be32(bytes.data() + MPA_LENGTH_OCTETS + 6) == info->qn;
}

/// Where markers fall, for a unit that begins `offset` bytes into full operation.
mpa::MarkerGrid grid_at(bool markers, std::uint64_t offset) {
    mpa::MarkerGrid grid(markers);
    const auto position = static_cast<std::size_t>(offset % MPA_MARKER_SPACING);
    if (!markers || position == 0) return grid;
    grid.pass_marker();
    // Units begin at multiples of four bytes; a capture may claim otherwise.
    if (position > MPA_MARKER_OCTETS) grid.advance(position - MPA_MARKER_OCTETS);
    return grid;
}

/// An FPDU without its markers.
struct Clean {
    std::vector<std::byte> bytes;  // from ULPDU_Length on, as far as there are some
    unsigned markers = 0, bad_markers = 0;
};

Clean without_markers(ConstBytes unit, std::uint64_t offset, bool markers) {
    Clean clean;
    if (!markers) {
        clean.bytes.assign(unit.begin(), unit.end());
        return clean;
    }
    mpa::MarkerGrid grid = grid_at(true, offset);
    std::size_t at = 0, begin = 0;
    bool begun = false;
    while (at < unit.size()) {
        if (grid.until_next() == 0) {
            if (unit.size() - at < MPA_MARKER_OCTETS) break;
            const std::size_t expected = begun ? (at - begin) & 0xfffcu : 0;
            ++clean.markers;
            if (mpa::marker_fpduptr(unit.data() + at) != expected ||
                load_be16(unit.data() + at) != 0) {
                ++clean.bad_markers;
            }
            grid.pass_marker();
            at += MPA_MARKER_OCTETS;
            continue;
        }
        if (!begun) begin = at;
        begun = true;
        const std::size_t n = std::min(grid.until_next(), unit.size() - at);
        clean.bytes.insert(clean.bytes.end(), unit.begin() + static_cast<std::ptrdiff_t>(at),
                           unit.begin() + static_cast<std::ptrdiff_t>(at + n));
        grid.advance(n);
        at += n;
    }
    return clean;
}

void parse_header(ConstBytes ulpdu, Fpdu& fpdu) {
    if (ulpdu.size() < ddp::kTaggedOctets) return;
    const ddp::OpcodeInfo* info = nullptr;
    fpdu.stream_error = ddp::parse_start(ulpdu.first<ddp::kTaggedOctets>(), fpdu.segment, info);
    std::size_t header = ddp::kTaggedOctets;
    if (!fpdu.segment.tagged) {
        if (ulpdu.size() < ddp::kUntaggedOctets) return;
        ddp::parse_untagged_rest(ulpdu.first<ddp::kUntaggedOctets>(), fpdu.segment);
        header = ddp::kUntaggedOctets;
    }
    if (fpdu.ulpdu_bytes < header) return;
    fpdu.has_header = true;
    fpdu.payload_bytes = fpdu.ulpdu_bytes - header;
    const ConstBytes payload = ulpdu.subspan(header);
    fpdu.payload = payload;
    if (fpdu.stream_error != StreamError::none) return;
    if (fpdu.segment.opcode == RDMAP_READ_REQUEST && fpdu.segment.mo == 0 &&
        payload.size() >= ddp::kReadRequestOctets) {
        fpdu.read_request = ddp::parse_read_request(payload.first<ddp::kReadRequestOctets>());
    }
    if (fpdu.segment.opcode == RDMAP_TERMINATE) {
        const ConstBytes kept =
            payload.first(std::min<std::size_t>(payload.size(), ddp::kTerminateOctets));
        fpdu.terminate.assign(kept.begin(), kept.end());
    }
}

}  // namespace

// ---- both directions --------------------------------------------------------

void MpaConnection::segment(End from, std::uint32_t sequence, ConstBytes captured,
                            std::size_t bytes_on_wire, std::uint64_t packet,
                            std::uint64_t time_ns) {
    time_ns_ = time_ns;
    Direction& d = direction(from);
    d.tcp.add(sequence, captured, bytes_on_wire, packet, d);
}

void MpaConnection::finish() {
    for (Direction& d : directions_) {
        d.tcp.finish(d);
        d.end_early();
    }
}

// ---- one direction ----------------------------------------------------------

bool MpaConnection::Direction::markers() const {
    return connection.directions_[end == End::first ? 1 : 0].asks_for_markers;
}

Place MpaConnection::Direction::place(std::uint64_t packet) const {
    return {.packet = unit_bytes != 0 ? std::max(unit_latest, packet) : packet,
            .first_packet = unit_bytes != 0 ? unit_packet : packet,
            .time_ns = connection.time_ns_,
            .from = end};
}

void MpaConnection::Direction::begin_unit() {
    budget.unit_bytes_left += static_cast<std::int64_t>(unit.size());
    unit.clear();
    unit_bytes = unit_total = 0;
    holed = false;
}

/// Bytes of the unit that are needed for the next decision.
std::size_t MpaConnection::Direction::unit_needs() const {
    if (unit_total != 0) return unit_total;
    if (phase == Phase::startup) return kFrameBytes;
    if (phase == Phase::extension) return mpa::kExtensionPeekBytes;
    const bool marker = markers() && offset % MPA_MARKER_SPACING == 0;
    return (marker ? MPA_MARKER_OCTETS : 0) + MPA_LENGTH_OCTETS;
}

void MpaConnection::Direction::stream_bytes(ConstBytes bytes, std::uint64_t packet,
                                            bool starts_segment) {
    if (starts_segment && unit_bytes == 0 && phase != Phase::startup) try_segment(bytes);
    while (!bytes.empty()) {
        if (phase == Phase::lost || phase == Phase::other) {
            lost_bytes += bytes.size();
            offset += bytes.size();
            return;
        }
        if (unit_bytes == 0) unit_packet = unit_latest = packet;
        unit_latest = std::max(unit_latest, packet);  // what came early is given late
        const std::size_t n = std::min(bytes.size(), unit_needs() - unit_bytes);
        take(bytes.first(n));
        bytes = bytes.subspan(n);
        grew(packet);
    }
}

void MpaConnection::Direction::stream_gap(std::uint64_t bytes, std::uint64_t packet) {
    if (phase == Phase::lost || phase == Phase::other) {
        lost_bytes += bytes;
        offset += bytes;
        return;
    }
    if (unit_total != 0 && bytes <= unit_total - unit_bytes) {
        holed = true;
        unit_bytes += static_cast<std::size_t>(bytes);
        grew(packet);
        return;
    }
    end_early();
    lose("bytes are missing from the capture", bytes, packet);
}

/// The first bytes of a segment, between units or out of step: what may begin here?
void MpaConnection::Direction::try_segment(ConstBytes bytes) {
    if (bytes.size() >= MPA_KEY_OCTETS && begins_startup(bytes) &&
        (phase == Phase::other || phase == Phase::lost)) {
        phase = Phase::startup;
        begin_unit();
        return;
    }
    if (phase != Phase::lost) return;
    const bool marker = markers() && offset_known && offset % MPA_MARKER_SPACING == 0;
    if (markers() && !offset_known) return;
    const std::size_t skip = marker ? MPA_MARKER_OCTETS : 0;
    if (bytes.size() <= skip || !plausible_fpdu(bytes.subspan(skip))) return;
    phase = Phase::fpdus;
    tentative = true;
    begin_unit();
}

void MpaConnection::Direction::take(ConstBytes bytes) {
    unit_bytes += bytes.size();
    if (holed) return;
    // The first few are needed in any case: the length is among them.
    if (unit_total != 0 && static_cast<std::int64_t>(bytes.size()) > budget.unit_bytes_left) {
        holed = true;
        return;
    }
    budget.unit_bytes_left -= static_cast<std::int64_t>(bytes.size());
    unit.insert(unit.end(), bytes.begin(), bytes.end());
}

/// The unit has more bytes: what is known now?
void MpaConnection::Direction::grew(std::uint64_t packet) {
    if (phase == Phase::startup && unit_total == 0 && !begins_startup(unit)) {
        // From the beginning of a connection: another protocol. From its middle: MPA perhaps.
        const bool from_the_start = tcp.from_the_start();
        const std::size_t bytes = unit_bytes;
        begin_unit();
        phase = from_the_start ? Phase::other : Phase::lost;
        lost_bytes += bytes;
        offset += bytes;
        return;
    }
    if (unit_bytes < unit_needs()) return;
    if (phase == Phase::extension && unit_total == 0) {
        if (mpa::looks_like_extension_frame(unit.data())) {
            unit_total = mpa::extension_frame_bytes(unit.data());
            return;
        }
        phase = Phase::fpdus;  // the other end did not agree
        if (unit_bytes < unit_needs()) return;
    }
    if (unit_total == 0) {
        if (phase == Phase::startup) {
            const std::size_t private_data =
                load_be16(unit.data() + offsetof(mpa_frame, pd_length));
            if (private_data > MPA_PD_MAX) {
                lose("a start-up frame with more private data than MPA allows", 0, packet);
                phase = Phase::other;
                return;
            }
            unit_total = kFrameBytes + private_data;
        } else {
            const std::size_t before = unit_needs() - MPA_LENGTH_OCTETS;
            const std::size_t bytes = mpa::fpdu_octets(load_be16(unit.data() + before));
            unit_total = bytes + MPA_MARKER_OCTETS * grid_at(markers(), offset).count_within(bytes);
        }
        if (unit_bytes < unit_total) return;
    }
    if (phase == Phase::startup) {
        end_startup(packet);
    } else if (phase == Phase::extension) {
        end_extension(packet);
    } else {
        end_fpdu(packet);
    }
}

void MpaConnection::Direction::end_startup(std::uint64_t packet) {
    StartupFrame frame;
    const std::byte* const p = unit.data();
    frame.reply = std::memcmp(p, MPA_KEY_REPLY, MPA_KEY_OCTETS) == 0;
    frame.flags = std::to_integer<unsigned>(p[offsetof(mpa_frame, flags)]);
    frame.revision = std::to_integer<unsigned>(p[offsetof(mpa_frame, revision)]);
    frame.pd_length = load_be16(p + offsetof(mpa_frame, pd_length));
    frame.whole = !holed && unit_bytes == unit_total;
    ConstBytes data = ConstBytes(unit).subspan(kFrameBytes);
    if ((frame.flags & MPA_FLAG_ENHANCED) != 0 && frame.revision >= MPA_REVISION_2 &&
        data.size() >= sizeof(mpa_enhanced)) {
        frame.enhanced = true;
        frame.ird = load_be16(data.data());
        frame.ord = load_be16(data.data() + 2);
        data = data.subspan(sizeof(mpa_enhanced));
    }
    frame.private_data.assign(data.begin(), data.end());
    connection.is_mpa_ = true;
    connection.initiator_ = frame.reply ? (end == End::first ? End::second : End::first) : end;
    const bool crc = (frame.flags & MPA_FLAG_CRC) != 0;
    connection.crc_ = crc || connection.crc_.value_or(false);
    asks_for_markers = (frame.flags & MPA_FLAG_MARKERS) != 0;
    connection.listener_.on_startup(place(packet), frame);

    begin_unit();
    offset = 0;
    offset_known = true;
    tentative = resynchronised = false;
    phase = (frame.flags & MPA_FLAG_EXTENSIONS) != 0 ? Phase::extension : Phase::fpdus;
    if (frame.reply && (frame.flags & MPA_FLAG_REJECT) != 0) {
        for (Direction& d : connection.directions_) {
            d.phase = Phase::other;
            d.begin_unit();
        }
    }
}

/// Full operation, and with it the grid of the markers, begins behind it.
void MpaConnection::Direction::end_extension(std::uint64_t packet) {
    ExtensionFrame frame;
    frame.ulpdu_bytes = load_be16(unit.data());
    frame.bytes = unit_total;
    frame.whole = !holed && unit_bytes == unit_total;
    if (frame.whole) {
        const bool good = mpa::extension_crc_holds(unit);
        frame.crc = good ? Crc::good : Crc::bad;
        mpa::ExtensionFrame known;
        frame.error = mpa::decode(unit, known);
        frame.implementation = known.implementation;
        const bool has_tlvs = mpa::check_extension_header(unit.data()) == mpa::ExtensionError::none;
        mpa::TlvReader tlvs(has_tlvs ? mpa::extension_tlvs(unit) : ConstBytes{});
        for (mpa::Tlv tlv; tlvs.next(tlv);) frame.tlvs.push_back({tlv.type, tlv.value.size()});
    }
    connection.listener_.on_extension_frame(place(packet), frame);
    begin_unit();
    phase = Phase::fpdus;
}

void MpaConnection::Direction::end_fpdu(std::uint64_t packet) {
    Fpdu fpdu;
    fpdu.stream_byte = offset;
    fpdu.bytes = unit_total;
    fpdu.whole = !holed && unit_bytes == unit_total;
    const Clean clean = without_markers(unit, offset, markers());
    fpdu.markers = clean.markers;
    fpdu.bad_markers = clean.bad_markers;
    const ConstBytes bytes = clean.bytes;
    if (bytes.size() < MPA_LENGTH_OCTETS) return lose("an FPDU without a length", 0, packet);
    fpdu.ulpdu_bytes = load_be16(bytes.data());
    parse_header(bytes.subspan(MPA_LENGTH_OCTETS,
                               std::min(fpdu.ulpdu_bytes, bytes.size() - MPA_LENGTH_OCTETS)),
                 fpdu);

    bool field_is_zero = false;
    if (fpdu.whole) {
        // A marker never lies inside the field, and one behind it belongs to the next FPDU.
        const ConstBytes covered = ConstBytes(unit).first(unit_total - MPA_CRC_OCTETS);
        const std::uint32_t field = load_le32(unit.data() + covered.size());
        field_is_zero = field == 0;
        const bool good = crc32c_finish(crc32c(kCrc32cInit, covered)) == field;
        if (connection.crc_.has_value()) {
            fpdu.crc = !*connection.crc_ ? Crc::off : good ? Crc::good : Crc::bad;
        } else {
            fpdu.crc = good ? Crc::good : field_is_zero ? Crc::off : Crc::bad;
        }
    }
    if (tentative) {
        // Proof: a CRC that holds, or where there are none a field that says so.
        const bool proven = fpdu.whole && (fpdu.crc == Crc::good || field_is_zero) &&
                            fpdu.stream_error == StreamError::none && fpdu.has_header;
        if (!proven) {
            lost_bytes += unit_bytes;
            offset += unit_bytes;
            begin_unit();
            tentative = false;
            phase = Phase::lost;
            return;
        }
        tentative = false;
        resynchronised = connection.is_mpa_;
        connection.is_mpa_ = true;
    }
    fpdu.resynchronised = std::exchange(resynchronised, false);
    lost_bytes = 0;
    connection.is_mpa_ = true;
    const bool senseless = !fpdu.has_header || fpdu.stream_error != StreamError::none;
    connection.listener_.on_fpdu(place(packet), fpdu);
    if (senseless && fpdu.crc != Crc::good && fpdu.whole && ++senseless_run == 2) {
        return lose("FPDUs that make no sense: out of step", 0, packet);
    }
    if (!senseless || fpdu.crc == Crc::good) senseless_run = 0;
    offset += unit_bytes;
    begin_unit();
}

/// No more bytes of the unit will come: what there is of it is told.
void MpaConnection::Direction::end_early() {
    if (unit_bytes == 0 || tentative || unit_total == 0) return;
    holed = true;
    const std::uint64_t packet = unit_packet;
    if (phase == Phase::startup) {
        end_startup(packet);
    } else if (phase == Phase::extension) {
        end_extension(packet);
        offset_known = false;  // nor is it known where the markers begin
    } else if (phase == Phase::fpdus) {
        end_fpdu(packet);
    }
}

void MpaConnection::Direction::lose(const char* why, std::uint64_t bytes, std::uint64_t packet) {
    if (connection.is_mpa_ && !tentative) connection.listener_.on_lost(place(packet), why, bytes);
    lost_bytes += unit_bytes + bytes;
    offset += unit_bytes + bytes;
    begin_unit();
    tentative = false;
    senseless_run = 0;
    phase = Phase::lost;
}

}  // namespace xsock::decode
