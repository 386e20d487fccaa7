// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/decode/sdp_words.hpp"

#include "tools/text.hpp"

namespace xsock::decode {
namespace {

using stream::SdpMessage;
using stream::SdpMode;

const char* mode_name(SdpMode mode) {
    switch (mode) {
        case SdpMode::buffered:
            return "Buffered";
        case SdpMode::combined:
            return "Combined";
        case SdpMode::pipelined:
            return "Pipelined";
    }
    return "";
}

std::string hello_words(const SdpUnit& unit, const stream::SdpHello& hello) {
    std::string words = fmt::format(", version {}.{}, Bufs {}, MaxAdverts {}, buffers of {} bytes",
                                    hello.version >> 4, hello.version & 15, hello.bufs,
                                    hello.max_adverts, hello.local_size);
    if (unit.message.header.mid == SDP_HELLO) {
        words += fmt::format(", wants {}", hello.desired_remote_size);
    }
    return words + fmt::format(", ORD {}, IRD {}", hello.ord, hello.ird);
}

/// The fields that only messages of its kind have.
std::string field_words(const SdpMessage& m) {
    switch (m.header.mid) {
        case SDP_RDMA_WR_COMPL:
            return fmt::format(", {} bytes written", m.octets);
        case SDP_RDMA_RD_COMPL:
            return fmt::format(", {} bytes read", m.octets);
        case SDP_MODE_CHANGE:
            return fmt::format(", to {}, {} half of the receiver", mode_name(m.mode),
                               m.send_half ? "send" : "receive");
        case SDP_CH_RCV_BUF:
        case SDP_CH_RCV_BUF_ACK:
            return fmt::format(", buffers of {} bytes", m.octets);
        case SDP_SUSP_COMM:
            return fmt::format(", port {}", m.port);
        case SDP_SINK_AVAIL:
        case SDP_SRC_AVAIL: {
            std::string words = fmt::format(", {} bytes at STag 0x{:08x} address 0x{:x}", m.length,
                                            m.stag, m.address);
            if (m.header.mid == SDP_SINK_AVAIL) {
                words += fmt::format(", NonDiscards {}", m.non_discards);
            }
            return words;
        }
        default:
            return {};
    }
}

}  // namespace

std::string sdp_name(unsigned mid) {
    static constexpr const char* kControl[] = {
        "Hello",         "HelloAck",    "DisConn",     "AbortConn",      "SendSm",
        "RdmaWrCompl",   "RdmaRdCompl", "ModeChange",  "SrcAvailCancel", "SinkAvailCancel",
        "SinkCancelAck", "ChRcvBuf",    "ChRcvBufAck", "SuspComm",       "SuspCommAck"};
    if (mid < std::size(kControl)) return kControl[mid];
    if (mid == SDP_SINK_AVAIL) return "SinkAvail";
    if (mid == SDP_SRC_AVAIL) return "SrcAvail";
    return mid == SDP_DATA ? "Data" : fmt::format("MID 0x{:02x}", mid);
}

std::string sdp_words(const SdpUnit& unit) {
    const stream::Bsdh& header = unit.message.header;
    std::string words = "SDP";
    if (!unit.has_bsdh) {
        words += fmt::format(" message of {} bytes", unit.bytes);
    } else if (header.mid == SDP_HELLO || header.mid == SDP_HELLO_ACK) {
        words += " " + sdp_name(header.mid);
        if (unit.hello) words += hello_words(unit, *unit.hello);
    } else {
        words += fmt::format(" {}, MSeq {}, MSeqAck {}, Bufs {}, Len {}", sdp_name(header.mid),
                             header.mseq, header.mseq_ack, header.bufs, header.length);
        if (unit.has_fields) words += field_words(unit.message);
        if (unit.payload_bytes != 0) words += fmt::format(", payload {} bytes", unit.payload_bytes);
        if ((header.flags & SDP_FLAG_OOB_PEND) != 0) words += ", OOB_PEND";
        if ((header.flags & SDP_FLAG_OOB_PRES) != 0) words += ", OOB_PRES";
        if ((header.flags & SDP_FLAG_REQ_PIPE) != 0) words += ", REQ_PIPE";
    }
    for (const char* const wrong : unit.wrong) words += fmt::format(", WRONG: {}", wrong);
    if (!unit.whole) words += ", INCOMPLETE";
    return words;
}

}  // namespace xsock::decode
