// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/decode/words.hpp"

#include <algorithm>

#include "base/stream_error.hpp"
#include "include/xsock/iwarp.h"
#include "tools/text.hpp"

namespace xsock::decode {
namespace {

std::string segment_words(const ddp::Segment& segment) {
    if (segment.tagged) {
        return fmt::format("STag 0x{:08x} TO 0x{:x}{}", segment.stag, segment.to,
                           segment.asks ? ", asks for an Acknowledge" : "");
    }
    std::string words = fmt::format("QN {} MSN {} MO {}", segment.qn, segment.msn, segment.mo);
    const ddp::OpcodeInfo* const info = ddp::opcode_info(segment.opcode);
    if (info != nullptr && info->invalidates) {
        words += fmt::format(", invalidates STag 0x{:08x}", segment.stag);
    }
    if (info != nullptr && info->immediate) {
        words += fmt::format(", immediate 0x{:08x}", segment.stag);
    }
    if (segment.opcode == RDMAP_ACKNOWLEDGE) {
        words += fmt::format(", {} messages taken", segment.stag & RDMAP_ACKNOWLEDGE_MASK);
        if ((segment.stag & RDMAP_ACKNOWLEDGE_RNR) != 0) words += ", the next has no receive";
    }
    if (segment.asks) words += ", asks for an Acknowledge";
    return words;
}

std::string read_words(const ddp::ReadRequest& r) {
    return fmt::format("{} bytes from STag 0x{:08x} TO 0x{:x} to STag 0x{:08x} TO 0x{:x}", r.size,
                       r.source_stag, r.source_to, r.sink_stag, r.sink_to);
}

TerminateReading reading(unsigned layer, unsigned etype, unsigned code) {
    return {
        layer, etype, code,
        xsock::terminate_text(static_cast<std::uint8_t>(layer), static_cast<std::uint8_t>(etype),
                              static_cast<std::uint8_t>(code))};
}

std::string reading_words(const TerminateReading& r) {
    return fmt::format("{} (layer {}, type {}, code 0x{:02x})", r.words, r.layer, r.etype, r.code);
}

std::string depth_words(unsigned field) {
    const unsigned depth = field & MPA_ENH_DEPTH_MASK;
    return depth == MPA_ENH_DEPTH_NONE ? "not negotiated" : std::to_string(depth);
}

}  // namespace

std::string hexadecimal(ConstBytes bytes) {
    std::string text;
    for (const std::byte byte : bytes)
        text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
    return text;
}

std::string opcode_name(unsigned opcode) {
    const ddp::OpcodeInfo* const info = ddp::opcode_info(static_cast<std::uint8_t>(opcode));
    return info != nullptr ? info->name : fmt::format("opcode {}", opcode);
}

const char* crc_name(Crc crc) noexcept {
    static constexpr const char* kNames[] = {"good", "bad", "off", "unchecked"};
    return kNames[static_cast<std::size_t>(crc)];
}

std::string startup_words(const StartupFrame& frame) {
    std::string words = frame.reply ? "MPA Reply" : "MPA Request";
    words += fmt::format(", revision {}", frame.revision);
    if ((frame.flags & MPA_FLAG_REJECT) != 0) words += frame.reply ? ", rejected" : ", R";
    words += (frame.flags & MPA_FLAG_CRC) != 0 ? ", CRC" : ", no CRC";
    if ((frame.flags & MPA_FLAG_MARKERS) != 0) words += ", asks for markers";
    if ((frame.flags & MPA_FLAG_XSOCK_REQUEST) != 0) words += ", xsock mark";
    if ((frame.flags & MPA_FLAG_XSOCK_REPLY) != 0) words += ", xsock mark of a Reply";
    if ((frame.flags & MPA_FLAG_SIW_GSO) != 0) words += ", siw's GSO bit";
    if ((frame.flags & MPA_FLAG_EXTENSIONS) != 0) words += ", extension frames";
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
        words += fmt::format(", private data {} bytes: ", frame.private_data.size());
        const std::size_t shown = std::min<std::size_t>(frame.private_data.size(), 32);
        words += hexadecimal(ConstBytes(frame.private_data).first(shown));
        if (shown < frame.private_data.size()) words += "...";
    }
    if (!frame.whole) words += ", INCOMPLETE";
    return words;
}

std::string extension_words(const ExtensionFrame& frame) {
    std::string words = "Extension frame";
    if (frame.implementation) {
        const Implementation& i = *frame.implementation;
        words += fmt::format(" of {} {}", i.name.data(), i.version.data());
        if (i.features != 0) words += fmt::format(", features {:#x}", i.features);
        if (i.delayed_ack_ms != 0) words += fmt::format(", delayed ACK {} ms", i.delayed_ack_ms);
    }
    for (const ExtensionFrame::Tlv& tlv : frame.tlvs) {
        if (tlv.type == MPA_TLV_IMPLEMENTATION && frame.implementation) continue;
        if (tlv.type == MPA_TLV_ALIGN && tlv.bytes == 0) {
            words += ", asks for FPDUs aligned to segments";
            continue;
        }
        words += fmt::format(", TLV {} of {} bytes", tlv.type, tlv.bytes);
    }
    if (!frame.whole) words += ", INCOMPLETE";
    if (frame.crc == Crc::good) words += ", CRC good";
    if (frame.crc == Crc::bad) words += ", CRC BAD";
    if (frame.error != mpa::ExtensionError::none) {
        words += fmt::format(", WRONG: {}", mpa::extension_error_text(frame.error));
    }
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
            fmt::format("FPDU of {} bytes of ULPDU, too short for a DDP header", fpdu.ulpdu_bytes);
        if (!fpdu.whole) words = fmt::format("FPDU of {} bytes of ULPDU", fpdu.ulpdu_bytes);
    } else {
        words = opcode_name(fpdu.segment.opcode);
        if (fpdu.segment.last) words += ", last";
        words += ", " + segment_words(fpdu.segment);
        words += fmt::format(", {} bytes", fpdu.payload_bytes);
    }
    if (fpdu.read_request) words += ": " + read_words(*fpdu.read_request);
    if (fpdu.terminate.size() >= sizeof(rdmap_terminate)) {
        const TerminateWords t = terminate_words(fpdu.terminate);
        const TerminateReading& meant = t.siw_is_meant ? t.siw : t.rfc;
        const TerminateReading& other = t.siw_is_meant ? t.rfc : t.siw;
        words += ": " + reading_words(meant);
        if (!t.about.empty()) words += " about " + t.about;
        if (meant.layer != meant.etype) {
            words +=
                fmt::format("; control word {}, read {}; the other reading would be: ", t.control,
                            t.siw_is_meant ? "as siw builds it" : "as RFC 5040 has it");
            words += reading_words(other);
        }
    }
    if (fpdu.stream_error != StreamError::none) {
        words += fmt::format(", WRONG: {}", stream_error_info(fpdu.stream_error).text);
    }
    if (fpdu.markers != 0) words += fmt::format(", {} markers", fpdu.markers);
    if (fpdu.bad_markers != 0) words += fmt::format(", {} markers WRONG", fpdu.bad_markers);
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
