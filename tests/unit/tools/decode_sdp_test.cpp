// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// SDP as `xsock decode` shows it: a capture of a carried connection, and messages made by hand of
// the kinds that xsock never sends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "include/xsock/iwarp.h"
#include "tools/decode/capture.hpp"
#include "tools/decode/sdp.hpp"
#include "tools/decode/sdp_words.hpp"

namespace xsock::decode {
namespace {

using stream::SdpMessage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ByteVector = std::vector<std::byte>;

class FileSource final : public ByteSource {
  public:
    explicit FileSource(const std::string& path) : in_(path, std::ios::binary) {}
    std::size_t read(Bytes into) override {
        in_.read(reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size()));
        return static_cast<std::size_t>(in_.gcount());
    }

  private:
    std::ifstream in_;
};

class SdpLines final : public CaptureListener {
  public:
    void on_connection(const ConnectionSummary&) override {}
    void on_startup(const ConnectionSummary&, const Place&, const StartupFrame&) override {}
    void on_extension_frame(const ConnectionSummary&, const Place&,
                            const ExtensionFrame&) override {}
    void on_fpdu(const ConnectionSummary&, const Place&, const Fpdu&) override {}
    void on_sdp(const ConnectionSummary&, const Place& place, const SdpUnit& unit) override {
        lines.push_back((place.from == End::first ? "> " : "< ") + sdp_words(unit));
    }
    void on_lost(const ConnectionSummary&, const Place&, const char*, std::uint64_t) override {}
    void on_end(const ConnectionSummary& c) override { summary = c; }

    std::vector<std::string> lines;
    ConnectionSummary summary;
};

TEST(DecodeSdp, shows_the_capture_of_a_carried_connection) {
    // A Python client: send("abc"), send("X", MSG_OOB), send("def"), shutdown(); "answer".
    FileSource source(XSOCK_VECTORS "/xsock-xsock-sdp.pcapng");
    CaptureFile file(source);
    SdpLines found;
    CaptureDecoder decoder(found);
    for (Packet packet; file.next(packet);) decoder.add(packet);
    decoder.finish();
    EXPECT_THAT(
        found.lines,
        ElementsAre("> SDP Hello, version 1.1, Bufs 66, MaxAdverts 1, buffers of 65456 bytes, "
                    "wants 65456, ORD 255, IRD 255",
                    "< SDP HelloAck, version 1.1, Bufs 66, MaxAdverts 1, buffers of 65456 bytes, "
                    "ORD 255, IRD 255",
                    "> SDP Data, MSeq 1, MSeqAck 0, Bufs 66, Len 20, payload 4 bytes, OOB_PEND, "
                    "OOB_PRES",
                    "> SDP Data, MSeq 2, MSeqAck 0, Bufs 66, Len 19, payload 3 bytes",
                    "> SDP DisConn, MSeq 3, MSeqAck 0, Bufs 66, Len 16",
                    "< SDP Data, MSeq 1, MSeqAck 3, Bufs 66, Len 22, payload 6 bytes",
                    "< SDP DisConn, MSeq 2, MSeqAck 3, Bufs 66, Len 16"));
    EXPECT_EQ(found.summary.directions[0].sdp_messages, 4u);
    EXPECT_EQ(found.summary.directions[0].sdp_wrong, 0u);
}

/// A connection whose start-up said SDP: 10 buffers of 1,000 bytes at each end, MaxAdverts 2.
class Sdp : public ::testing::Test {
  protected:
    Sdp() {
        const stream::SdpHello hello{
            .bufs = 10, .max_adverts = 2, .desired_remote_size = 1000, .local_size = 1000};
        StartupFrame request, reply;
        const auto first = stream::encode_hello(hello);
        const auto second = stream::encode_hello_ack(hello);
        request.private_data.assign(first.begin(), first.end());
        reply.reply = true;
        reply.private_data.assign(second.begin(), second.end());
        EXPECT_TRUE(connection.on_startup(End::first, request).has_value());
        EXPECT_TRUE(connection.on_startup(End::second, reply).has_value());
    }

    /// One segment of a Send; what it completes, in words.
    std::string segment(End from, ConstBytes payload, std::uint32_t mo, bool last) {
        const auto side = static_cast<std::size_t>(from);
        Fpdu fpdu;
        fpdu.has_header = true;
        fpdu.segment = {.opcode = RDMAP_SEND, .last = last, .msn = msn[side], .mo = mo};
        fpdu.payload = payload;
        fpdu.payload_bytes = payload.size();
        if (last) ++msn[side];
        const auto unit = connection.on_fpdu({.packet = 1, .from = from}, fpdu);
        return unit ? sdp_words(*unit) : "";
    }
    /// A whole message with the next number, an acknowledgement of all, and 10 buffers.
    std::string send(End from, SdpMessage message, std::size_t payload = 0) {
        return segment(from, octets(from, message, payload), 0, true);
    }
    ByteVector octets(End from, SdpMessage message, std::size_t payload = 0) {
        const auto side = static_cast<std::size_t>(from);
        message.header.mseq = ++mseq[side];
        message.header.mseq_ack = mseq[1 - side];
        message.header.bufs = 10;
        ByteVector out(stream::header_octets(message.header.mid) + payload);
        stream::encode(message, payload, out);
        return out;
    }
    static SdpMessage of(std::uint8_t mid) {
        SdpMessage message;
        message.header.mid = mid;
        return message;
    }
    static SdpMessage advertisement(std::uint8_t mid, std::uint32_t length) {
        SdpMessage message = of(mid);
        message.length = length;
        message.stag = 0x1234;
        message.address = 0xabcdef;
        return message;
    }
    static SdpMessage count(std::uint8_t mid, std::uint32_t octets) {
        SdpMessage message = of(mid);
        message.octets = octets;
        return message;
    }
    static SdpMessage mode(stream::SdpMode to, bool send_half = false) {
        SdpMessage message = of(SDP_MODE_CHANGE);
        message.mode = to;
        message.send_half = send_half;
        return message;
    }

    SdpConnection connection;
    std::array<std::uint32_t, 2> mseq{}, msn{1, 1};
};

constexpr End kFirst = End::first, kSecond = End::second;

TEST_F(Sdp, puts_a_message_together_from_its_segments) {
    const ByteVector message = octets(kFirst, of(SDP_DATA), 100);
    const ConstBytes all(message);
    EXPECT_EQ(segment(kFirst, all.first(5), 0, false), "");
    EXPECT_EQ(segment(kFirst, all.subspan(5, 40), 5, false), "");
    EXPECT_EQ(segment(kFirst, all.subspan(45), 45, true),
              "SDP Data, MSeq 1, MSeqAck 0, Bufs 10, Len 116, payload 100 bytes");
}

TEST_F(Sdp, a_lost_segment_leaves_a_message_incomplete) {
    const ByteVector message = octets(kFirst, of(SDP_DATA), 100);
    EXPECT_EQ(segment(kFirst, ConstBytes(message).first(20), 0, false), "");
    EXPECT_THAT(segment(kFirst, ConstBytes(message).subspan(60), 60, true),
                HasSubstr("INCOMPLETE"));
}

TEST_F(Sdp, shows_zero_copy_by_reads) {
    EXPECT_EQ(send(kFirst, advertisement(SDP_SRC_AVAIL, 5000), 10),
              "SDP SrcAvail, MSeq 1, MSeqAck 0, Bufs 10, Len 42, 5000 bytes at STag 0x00001234 "
              "address 0xabcdef, payload 10 bytes");
    EXPECT_EQ(send(kSecond, count(SDP_RDMA_RD_COMPL, 4990)),
              "SDP RdmaRdCompl, MSeq 1, MSeqAck 1, Bufs 10, Len 20, 4990 bytes read");
    EXPECT_THAT(send(kSecond, count(SDP_RDMA_RD_COMPL, 1)),
                HasSubstr("WRONG: completes what was not advertised"));
    EXPECT_THAT(send(kSecond, of(SDP_SEND_SM)),
                HasSubstr("WRONG: declines what was not advertised"));
}

TEST_F(Sdp, shows_zero_copy_by_writes) {
    EXPECT_THAT(send(kSecond, advertisement(SDP_SINK_AVAIL, 5000)),
                HasSubstr("WRONG: SinkAvail outside Pipelined"));
    EXPECT_EQ(send(kFirst, mode(stream::SdpMode::pipelined)),
              "SDP ModeChange, MSeq 1, MSeqAck 1, Bufs 10, Len 20, to Pipelined, receive half of "
              "the receiver");
    EXPECT_EQ(send(kSecond, advertisement(SDP_SINK_AVAIL, 5000), 3),
              "SDP SinkAvail, MSeq 2, MSeqAck 1, Bufs 10, Len 39, 5000 bytes at STag 0x00001234 "
              "address 0xabcdef, NonDiscards 0, payload 3 bytes");
    EXPECT_EQ(send(kFirst, count(SDP_RDMA_WR_COMPL, 5000)),
              "SDP RdmaWrCompl, MSeq 2, MSeqAck 2, Bufs 10, Len 20, 5000 bytes written");
}

TEST_F(Sdp, shows_cancels) {
    send(kFirst, advertisement(SDP_SRC_AVAIL, 5000), 10);
    EXPECT_EQ(send(kFirst, of(SDP_SRC_AVAIL_CANCEL)),
              "SDP SrcAvailCancel, MSeq 2, MSeqAck 0, Bufs 10, Len 16");
    EXPECT_EQ(send(kSecond, of(SDP_SEND_SM)), "SDP SendSm, MSeq 1, MSeqAck 2, Bufs 10, Len 16");
    EXPECT_EQ(send(kSecond, of(SDP_SINK_AVAIL_CANCEL)),
              "SDP SinkAvailCancel, MSeq 2, MSeqAck 2, Bufs 10, Len 16");
    EXPECT_EQ(send(kFirst, of(SDP_SINK_CANCEL_ACK)),
              "SDP SinkCancelAck, MSeq 3, MSeqAck 2, Bufs 10, Len 16");
    EXPECT_THAT(send(kFirst, of(SDP_SINK_CANCEL_ACK)),
                HasSubstr("WRONG: answers no SinkAvailCancel"));
}

TEST_F(Sdp, shows_changes_of_buffers) {
    EXPECT_EQ(send(kFirst, count(SDP_CH_RCV_BUF, 2000)),
              "SDP ChRcvBuf, MSeq 1, MSeqAck 0, Bufs 10, Len 20, buffers of 2000 bytes");
    EXPECT_THAT(send(kFirst, count(SDP_CH_RCV_BUF, 2000)), HasSubstr("WRONG: a second ChRcvBuf"));
    EXPECT_EQ(send(kSecond, count(SDP_CH_RCV_BUF_ACK, 2000)),
              "SDP ChRcvBufAck, MSeq 1, MSeqAck 2, Bufs 10, Len 20, buffers of 2000 bytes");
    EXPECT_EQ(send(kFirst, of(SDP_DATA), 1984),
              "SDP Data, MSeq 3, MSeqAck 1, Bufs 10, Len 2000, payload 1984 bytes");
    EXPECT_THAT(send(kSecond, of(SDP_DATA), 985),
                HasSubstr("WRONG: longer than the buffers of its receiver"));
    EXPECT_THAT(send(kSecond, count(SDP_CH_RCV_BUF_ACK, 2000)),
                HasSubstr("WRONG: answers no ChRcvBuf"));
}

TEST_F(Sdp, shows_the_hand_over_to_another_process) {
    SdpMessage message = of(SDP_SUSP_COMM);
    message.port = 7471;
    EXPECT_EQ(send(kFirst, message), "SDP SuspComm, MSeq 1, MSeqAck 0, Bufs 10, Len 24, port 7471");
    EXPECT_EQ(send(kSecond, of(SDP_SUSP_COMM_ACK)),
              "SDP SuspCommAck, MSeq 1, MSeqAck 1, Bufs 10, Len 16");
    EXPECT_THAT(send(kSecond, of(SDP_SUSP_COMM_ACK)), HasSubstr("WRONG: answers no SuspComm"));
}

TEST_F(Sdp, finds_modes_that_the_present_one_does_not_permit) {
    EXPECT_THAT(send(kFirst, mode(stream::SdpMode::combined)), HasSubstr("WRONG: a ModeChange"));
    EXPECT_THAT(send(kFirst, mode(stream::SdpMode::buffered)), Not(HasSubstr("WRONG")));
    EXPECT_THAT(send(kFirst, advertisement(SDP_SRC_AVAIL, 50), 10),
                HasSubstr("WRONG: SrcAvail in Buffered"));
    EXPECT_THAT(send(kSecond, mode(stream::SdpMode::combined, true)), Not(HasSubstr("WRONG")));
}

TEST_F(Sdp, finds_what_breaks_the_closing) {
    EXPECT_THAT(send(kFirst, of(SDP_ABORT_CONN)), HasSubstr("WRONG: AbortConn ahead of DisConn"));
    EXPECT_THAT(send(kFirst, of(SDP_DISCONN)), Not(HasSubstr("WRONG")));
    EXPECT_THAT(send(kFirst, of(SDP_DISCONN)), HasSubstr("WRONG: a second DisConn"));
    EXPECT_THAT(send(kFirst, of(SDP_DATA)), Not(HasSubstr("WRONG")));
    EXPECT_THAT(send(kFirst, of(SDP_DATA), 1), HasSubstr("WRONG: data behind DisConn"));
    EXPECT_THAT(send(kFirst, of(SDP_ABORT_CONN)), Not(HasSubstr("WRONG")));
}

TEST_F(Sdp, finds_messages_without_credit) {
    for (int i = 0; i < 8; ++i) {
        EXPECT_THAT(send(kFirst, of(SDP_DATA), 1), Not(HasSubstr("WRONG")));
    }
    EXPECT_THAT(send(kFirst, of(SDP_DATA), 1), HasSubstr("WRONG: data without credit for them"));
    EXPECT_THAT(send(kFirst, of(SDP_DATA)), Not(HasSubstr("WRONG")));
    EXPECT_THAT(send(kFirst, of(SDP_DATA)), HasSubstr("WRONG: came without credit"));
}

TEST_F(Sdp, finds_wrong_numbers) {
    mseq[0] = 5;
    EXPECT_THAT(send(kFirst, of(SDP_DATA)), HasSubstr("WRONG: its number does not follow"));
    mseq[0] = 50;
    EXPECT_THAT(send(kSecond, of(SDP_DATA)), HasSubstr("WRONG: acknowledges what cannot be"));
}

TEST_F(Sdp, finds_a_wrong_length_and_what_is_no_message) {
    ByteVector message = octets(kFirst, of(SDP_DATA), 8);
    store_be32(message.data() + offsetof(sdp_bsdh, length), 23);
    EXPECT_THAT(segment(kFirst, message, 0, true), HasSubstr("Len 23, payload 8 bytes, WRONG"));
    message = octets(kFirst, of(SDP_DATA));
    message[0] = std::byte{0x40};
    EXPECT_THAT(segment(kFirst, message, 0, true),
                HasSubstr("SDP MID 0x40, MSeq 2, MSeqAck 0, Bufs 10, Len 16, WRONG"));
    EXPECT_EQ(segment(kFirst, ConstBytes(message).first(15), 0, true),
              "SDP message of 15 bytes, WRONG: shorter than a header");
}

TEST_F(Sdp, says_nothing_of_order_behind_what_was_missed) {
    connection.on_lost(kFirst);
    mseq[0] = 70;
    EXPECT_EQ(send(kFirst, of(SDP_DATA), 1),
              "SDP Data, MSeq 71, MSeqAck 0, Bufs 10, Len 17, payload 1 bytes");
}

TEST(DecodeSdpStart, is_not_seen_where_the_responder_speaks_something_else) {
    const auto hello = stream::encode_hello(
        {.bufs = 3, .max_adverts = 1, .desired_remote_size = 100, .local_size = 100});
    StartupFrame request, reply;
    request.private_data.assign(hello.begin(), hello.end());
    reply.reply = true;
    SdpConnection connection;
    EXPECT_TRUE(connection.on_startup(kFirst, request).has_value());
    EXPECT_FALSE(connection.on_startup(kSecond, reply).has_value());
    Fpdu fpdu;
    fpdu.has_header = true;
    fpdu.segment = {.opcode = RDMAP_SEND, .last = true, .msn = 1};
    EXPECT_FALSE(connection.on_fpdu({.packet = 1, .from = kFirst}, fpdu).has_value());
}

TEST(DecodeSdpStart, finds_a_hello_that_says_what_none_may_say) {
    const auto hello = stream::encode_hello(
        {.bufs = 3, .max_adverts = 0, .desired_remote_size = 100, .local_size = 100});
    StartupFrame request;
    request.private_data.assign(hello.begin(), hello.end());
    const auto unit = SdpConnection().on_startup(kFirst, request);
    ASSERT_TRUE(unit.has_value());
    EXPECT_EQ(sdp_words(*unit), "SDP Hello, WRONG: it says what none may say");
}

}  // namespace
}  // namespace xsock::decode
