// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/decode_words.hpp"

#include <algorithm>

#include "base/violation.hpp"
#include "include/xsock/iwarp.h"
#include "tools/text.hpp"

namespace xsock::decode {
namespace {

using tools::format;

std::string segment_words(const ddp::Segment& segment) {
    if (segment.tagged) {
        return format("STag 0x%08x TO 0x%llx", segment.stag,
                      static_cast<unsigned long long>(segment.to));
    }
    std::string words = format("QN %u MSN %u MO %u", segment.qn, segment.msn, segment.mo);
    const ddp::OpcodeInfo* const info = ddp::opcode_info(segment.opcode);
    if (info != nullptr && info->invalidates) {
        words += format(", invalidates STag 0x%08x", segment.stag);
    }
    return words;
}

std::string read_words(const ddp::ReadRequest& r) {
    return format("%u octets from STag 0x%08x TO 0x%llx to STag 0x%08x TO 0x%llx", r.size,
                  r.source_stag, static_cast<unsigned long long>(r.source_to), r.sink_stag,
                  static_cast<unsigned long long>(r.sink_to));
}

TerminateReading reading(unsigned layer, unsigned etype, unsigned code) {
    return {
        layer, etype, code,
        xsock::terminate_text(static_cast<std::uint8_t>(layer), static_cast<std::uint8_t>(etype),
                              static_cast<std::uint8_t>(code))};
}

std::string reading_words(const TerminateReading& r) {
    return format("%s (layer %u, type %u, code 0x%02x)", r.words.c_str(), r.layer, r.etype, r.code);
}

std::string depth_words(unsigned field) {
    const unsigned depth = field & MPA_ENH_DEPTH_MASK;
    return depth == MPA_ENH_DEPTH_NONE ? "not negotiated" : std::to_string(depth);
}

}  // namespace

std::string hexadecimal(ConstBytes octets) {
    std::string text;
    for (const std::byte octet : octets) text += format("%02x", std::to_integer<unsigned>(octet));
    return text;
}

std::string opcode_name(unsigned opcode) {
    const ddp::OpcodeInfo* const info = ddp::opcode_info(static_cast<std::uint8_t>(opcode));
    return info != nullptr ? info->name : format("opcode %u", opcode);
}

const char* crc_name(Crc crc) noexcept {
    switch (crc) {
        case Crc::good:
            return "good";
        case Crc::bad:
            return "bad";
        case Crc::off:
            return "off";
        case Crc::unchecked:
            return "unchecked";
    }
    return "?";
}

std::string startup_words(const StartupFrame& frame) {
    std::string words = frame.reply ? "MPA Reply" : "MPA Request";
    words += format(", revision %u", frame.revision);
    if ((frame.flags & MPA_FLAG_REJECT) != 0) words += frame.reply ? ", rejected" : ", R";
    words += (frame.flags & MPA_FLAG_CRC) != 0 ? ", CRC" : ", no CRC";
    if ((frame.flags & MPA_FLAG_MARKERS) != 0) words += ", asks for markers";
    if ((frame.flags & MPA_FLAG_XSOCK_REQUEST) != 0) words += ", xsock mark";
    if ((frame.flags & MPA_FLAG_XSOCK_REPLY) != 0) words += ", xsock mark of a Reply";
    if ((frame.flags & MPA_FLAG_SIW_GSO) != 0) words += ", siw's GSO bit";
    if ((frame.flags & 0x01) != 0) words += ", reserved bit 0x01";
    if (frame.enhanced) {
        words += ", IRD " + depth_words(frame.ird) + ", ORD " + depth_words(frame.ord);
        if ((frame.ird & MPA_ENH_P2P) != 0) {
            words += ", peer-to-peer, RTR by";
            const std::size_t before = words.size();
            if ((frame.ird & MPA_ENH_RTR_SEND) != 0) words += " Send";
            if ((frame.ord & MPA_ENH_RTR_WRITE) != 0) words += " Write";
            if ((frame.ord & MPA_ENH_RTR_READ) != 0) words += " Read";
            if (words.size() == before) words += " nothing";
        }
    } else if ((frame.flags & MPA_FLAG_ENHANCED) != 0) {
        words += ", S without enhanced data";
    }
    if (!frame.private_data.empty()) {
        words += format(", private data %zu octets: ", frame.private_data.size());
        const std::size_t shown = std::min<std::size_t>(frame.private_data.size(), 32);
        words += hexadecimal(ConstBytes(frame.private_data).first(shown));
        if (shown < frame.private_data.size()) words += "...";
    }
    if (!frame.whole) words += ", INCOMPLETE";
    return words;
}

TerminateWords terminate_words(ConstBytes payload) {
    TerminateWords words;
    const ConstBytes control = payload.first(sizeof(rdmap_terminate));
    words.control = hexadecimal(control);
    const auto first = std::to_integer<unsigned>(control[0]);
    const auto code = std::to_integer<unsigned>(control[1]);
    words.rfc = reading(first >> 4, first & 15, code);
    words.siw = reading(first & 15, first >> 4, code);
    ddp::TerminateInfo info;
    ddp::Terminated about;
    if (ddp::parse_terminate(payload, info, about)) {
        words.siw_is_meant = info.swapped;
        if (about.known) {
            words.about = opcode_name(about.segment.opcode) + " " + segment_words(about.segment);
            if (about.has_read_request) words.about += ", " + read_words(about.read_request);
        }
    }
    return words;
}

std::string fpdu_words(const Fpdu& fpdu) {
    std::string words;
    if (!fpdu.has_header) {
        words =
            format("FPDU of %zu octets of ULPDU, too short for a DDP header", fpdu.ulpdu_octets);
        if (!fpdu.whole) words = format("FPDU of %zu octets of ULPDU", fpdu.ulpdu_octets);
    } else {
        words = opcode_name(fpdu.segment.opcode);
        if (fpdu.segment.last) words += ", last";
        words += ", " + segment_words(fpdu.segment);
        words += format(", %zu octets", fpdu.payload_octets);
    }
    if (fpdu.read_request) words += ": " + read_words(*fpdu.read_request);
    if (fpdu.terminate.size() >= sizeof(rdmap_terminate)) {
        const TerminateWords t = terminate_words(fpdu.terminate);
        const TerminateReading& meant = t.siw_is_meant ? t.siw : t.rfc;
        const TerminateReading& other = t.siw_is_meant ? t.rfc : t.siw;
        words += ": " + reading_words(meant);
        if (!t.about.empty()) words += " about " + t.about;
        if (meant.layer != meant.etype) {
            words += format(
                "; control word %s, read %s; the other reading would be: ", t.control.c_str(),
                t.siw_is_meant ? "as siw builds it" : "as RFC 5040 has it");
            words += reading_words(other);
        }
    }
    if (fpdu.violation != Violation::none) {
        words += format(", WRONG: %s", violation_info(fpdu.violation).text);
    }
    if (fpdu.markers != 0) words += format(", %u markers", fpdu.markers);
    if (fpdu.bad_markers != 0) words += format(", %u markers WRONG", fpdu.bad_markers);
    if (!fpdu.whole) words += ", INCOMPLETE";
    switch (fpdu.crc) {
        case Crc::good:
            words += ", CRC good";
            break;
        case Crc::bad:
            words += ", CRC BAD";
            break;
        case Crc::off:
        case Crc::unchecked:
            break;
    }
    if (fpdu.resynchronised) words += ", in step again";
    return words;
}

}  // namespace xsock::decode
