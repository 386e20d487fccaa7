// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `xsock decode` on captures that TCP, the network or tcpdump treated badly. What it says of sound
// ones is compared with tshark by tests/system/wireshark_test.sh.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/crc32c.hpp"
#include "include/xsock/iwarp.h"
#include "mpa/fpdu.hpp"
#include "mpa/marker.hpp"
#include "tools/decode/capture.hpp"
#include "tools/decode/sdp_words.hpp"
#include "tools/decode/stream.hpp"
#include "tools/decode/words.hpp"

namespace xsock::decode {
namespace {

using ByteVector = std::vector<std::byte>;

void append(ByteVector& to, ConstBytes what) { to.insert(to.end(), what.begin(), what.end()); }

ByteVector startup(bool reply, unsigned flags = MPA_FLAG_CRC) {
    ByteVector out(sizeof(mpa_frame));
    std::memcpy(out.data(), reply ? MPA_KEY_REPLY : MPA_KEY_REQUEST, MPA_KEY_OCTETS);
    out[16] = static_cast<std::byte>(flags);
    out[17] = std::byte{1};
    return out;
}

/// A Send of one segment.
ByteVector send_fpdu(std::uint32_t msn, std::size_t payload) {
    ByteVector out(mpa::fpdu_octets(ddp::kUntaggedOctets + payload), std::byte{9});
    const std::size_t length = ddp::kUntaggedOctets + payload;
    store_be16(out.data(), static_cast<std::uint16_t>(length));
    ddp::encode(ddp::Segment{.opcode = RDMAP_SEND, .msn = msn}, out.data() + 2);
    const std::size_t covered = out.size() - MPA_CRC_OCTETS;
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(2 + length),
              out.begin() + static_cast<std::ptrdiff_t>(covered), std::byte{0});
    store_le32(out.data() + covered, crc32c_finish(crc32c(kCrc32cInit, {out.data(), covered})));
    return out;
}

class Listener final : public CaptureListener {
  public:
    void on_connection(const ConnectionSummary& c) override {
        text += "connection " + c.first.text() + "\n";
    }
    void on_startup(const ConnectionSummary&, const Place& p, const StartupFrame& f) override {
        text += side(p) + (f.reply ? " reply" : " request") + (f.whole ? "\n" : " cut\n");
    }
    void on_extension_frame(const ConnectionSummary&, const Place& p,
                            const ExtensionFrame& f) override {
        text += side(p) + " " + extension_words(f) + "\n";
    }
    void on_fpdu(const ConnectionSummary&, const Place& p, const Fpdu& f) override {
        text += side(p) + " " + opcode_name(f.segment.opcode) + " " +
                std::to_string(f.segment.msn) + " " + crc_name(f.crc) +
                (f.resynchronised ? " again" : "") + (f.whole ? "\n" : " cut\n");
        places.push_back(std::to_string(p.first_packet) + "-" + std::to_string(p.packet) + " at " +
                         std::to_string(p.time_ns));
    }
    void on_sdp(const ConnectionSummary&, const Place& p, const SdpUnit& unit) override {
        text += side(p) + " " + sdp_words(unit) + "\n";
    }
    void on_lost(const ConnectionSummary&, const Place& p, const char*, std::uint64_t n) override {
        text += side(p) + " lost " + std::to_string(n) + "\n";
    }
    void on_end(const ConnectionSummary& c) override { summary = c; }

    std::string text;
    std::vector<std::string> places;  // of FPDUs
    ConnectionSummary summary;

  private:
    static std::string side(const Place& p) { return p.from == End::first ? ">" : "<"; }
};

/// Makes packets of raw IPv4 and hands them to a decoder.
class Decode : public ::testing::Test {
  protected:
    void packet(bool from_client, std::uint32_t sequence, unsigned flags, ConstBytes payload,
                std::size_t kept = SIZE_MAX) {
        ByteVector ip(40);
        ip[0] = std::byte{0x45};
        store_be16(ip.data() + 2, static_cast<std::uint16_t>(40 + payload.size()));
        ip[9] = std::byte{6};
        ip[12] = ip[16] = std::byte{10};
        ip[15] = static_cast<std::byte>(from_client ? 1 : 2);
        ip[19] = static_cast<std::byte>(from_client ? 2 : 1);
        store_be16(ip.data() + 20, from_client ? 1000 : 7471);
        store_be16(ip.data() + 22, from_client ? 7471 : 1000);
        store_be32(ip.data() + 24, sequence);
        ip[32] = std::byte{0x50};
        ip[33] = static_cast<std::byte>(flags);
        append(ip, payload);
        const ConstBytes captured = ConstBytes(ip).first(std::min(kept, ip.size()));
        decoder.add({.number = ++number,
                     .time_ns = number,
                     .link_type = 101,
                     .bytes = captured,
                     .original_bytes = static_cast<std::uint32_t>(ip.size())});
    }
    /// SYNs, then both start-up frames. The client's stream goes on at 1020, the server's at 5020.
    void begin(unsigned reply_flags = MPA_FLAG_CRC, unsigned request_flags = MPA_FLAG_CRC) {
        packet(true, 999, 2, {});
        packet(false, 4999, 0x12, {});
        packet(true, 1000, 0x18, startup(false, request_flags));
        packet(false, 5000, 0x18, startup(true, reply_flags));
    }
    std::string end() {
        decoder.finish();
        const std::string start = "connection 10.0.0.1:1000\n> request\n< reply\n";
        if (listener.text.rfind(start, 0) == 0) return listener.text.substr(start.size());
        return "[no start] " + listener.text;
    }

    Listener listener;
    CaptureDecoder decoder{listener};
    std::uint64_t number = 0;
};

TEST_F(Decode, segments_that_come_late_twice_and_overlapping_are_one_stream) {
    begin();
    ByteVector stream;
    for (std::uint32_t msn = 1; msn <= 3; ++msn) append(stream, send_fpdu(msn, 100));
    const auto part = [&](std::size_t at, std::size_t n) {
        packet(true, 1020 + static_cast<std::uint32_t>(at), 0x18,
               ConstBytes(stream).subspan(at, n));
    };
    part(200, 60);  // early
    part(0, 50);
    part(0, 50);   // again
    part(40, 60);  // overlaps
    part(250, stream.size() - 250);
    part(100, 120);  // fills the gap and overlaps what waits
    EXPECT_EQ(end(), "> Send 1 good\n> Send 2 good\n> Send 3 good\n");
    EXPECT_EQ(listener.summary.directions[0].missing_bytes, 0u);
    EXPECT_EQ(listener.summary.directions[0].retransmitted, 2u);
    // Packet 10 fills the gap; the second FPDU goes on in 5, the third from 5 to 9.
    const std::vector<std::string> expected{"6-10 at 10", "10-10 at 10", "5-9 at 10"};
    EXPECT_EQ(listener.places, expected);
}

TEST_F(Decode, bytes_before_the_syns_sequence_wrap_around) {
    packet(true, 0xfffffff0u, 2, {});
    packet(false, 4999, 0x12, {});
    packet(true, 0xfffffff1u, 0x18, startup(false));
    packet(false, 5000, 0x18, startup(true));
    packet(true, 0xfffffff1u + 20, 0x18, send_fpdu(1, 10));
    EXPECT_EQ(end(), "> Send 1 good\n");
}

TEST_F(Decode, finds_its_step_again_behind_lost_segments) {
    begin();
    const ByteVector one = send_fpdu(1, 100), two = send_fpdu(2, 100), three = send_fpdu(3, 100);
    const auto size = static_cast<std::uint32_t>(one.size());
    packet(true, 1020, 0x18, ConstBytes(one).first(30));
    // The rest of the first and the front of the second are missing.
    packet(true, 1020 + size + 40, 0x18, ConstBytes(two).subspan(40));
    packet(true, 1020 + 2 * size, 0x18, three);
    EXPECT_EQ(end(), "> Send 1 unchecked cut\n> lost " + std::to_string(size - 30 + 40) +
                         "\n> Send 3 good again\n");
    EXPECT_EQ(listener.summary.directions[0].losses, 1u);
}

TEST_F(Decode, a_snap_length_costs_payload_but_not_step) {
    begin();
    const ByteVector one = send_fpdu(1, 500), two = send_fpdu(2, 0);
    packet(true, 1020, 0x18, one, 100);
    packet(true, 1020 + static_cast<std::uint32_t>(one.size()), 0x18, two);
    EXPECT_EQ(end(), "> Send 1 unchecked cut\n> Send 2 good\n");
}

TEST_F(Decode, joins_a_connection_in_its_middle) {
    packet(true, 77, 0x18, ConstBytes(send_fpdu(8, 100)).subspan(20));
    packet(true, 77 + 104, 0x18, send_fpdu(9, 100));
    EXPECT_EQ(end(), "[no start] connection 10.0.0.1:1000\n> Send 9 good\n");
    EXPECT_FALSE(listener.summary.initiator_known);
}

TEST_F(Decode, leaves_other_protocols_alone_until_mpa_begins) {
    packet(true, 999, 2, {});
    packet(false, 4999, 0x12, {});
    const ByteVector http(300, std::byte{'x'});
    packet(true, 1000, 0x18, http);
    EXPECT_EQ(listener.text, "");
    packet(true, 1300, 0x18, startup(false));
    packet(false, 5000, 0x18, startup(true));
    packet(true, 1320, 0x18, send_fpdu(1, 4));
    EXPECT_EQ(end(), "> Send 1 good\n");
}

TEST_F(Decode, tells_a_wrong_crc) {
    begin();
    ByteVector bad = send_fpdu(1, 64);
    bad[30] ^= std::byte{1};
    packet(true, 1020, 0x18, bad);
    packet(true, 1020 + static_cast<std::uint32_t>(bad.size()), 0x18, send_fpdu(2, 3));
    EXPECT_EQ(end(), "> Send 1 bad\n> Send 2 good\n");
    EXPECT_EQ(listener.summary.directions[0].crc_bad, 1u);
}

TEST_F(Decode, follows_markers) {
    begin(MPA_FLAG_CRC | MPA_FLAG_MARKERS);  // the client shall send them
    ByteVector plain = send_fpdu(1, 600);
    ByteVector stream(4);  // the first marker: between FPDUs
    append(stream, ConstBytes(plain).first(508));
    append(stream, mpa::marker_octets(508));
    append(stream, ConstBytes(plain).subspan(508));
    const std::size_t covered = stream.size() - 4;
    store_le32(stream.data() + covered,
               crc32c_finish(crc32c(kCrc32cInit, {stream.data(), covered})));
    packet(true, 1020, 0x18, stream);
    EXPECT_EQ(end(), "> Send 1 good\n");
    EXPECT_EQ(listener.summary.directions[0].markers, 2u);
    EXPECT_EQ(listener.summary.directions[0].bad_markers, 0u);
}

constexpr unsigned kRequest = MPA_FLAG_CRC | MPA_FLAG_XSOCK_REQUEST | MPA_FLAG_EXTENSIONS;
constexpr unsigned kReply = MPA_FLAG_CRC | MPA_FLAG_XSOCK_REPLY | MPA_FLAG_EXTENSIONS;

ByteVector extension_frame() {
    ByteVector out, tlvs;
    mpa::append_tlv(tlvs, {.features = MPA_FEATURE_HAND_OVER,
                           .name = Implementation::text("somebody"),
                           .version = Implementation::text("7")});
    mpa::append_tlv(tlvs, MPA_TLV_ALIGN, {});
    mpa::append_tlv(tlvs, 9, ByteVector(5));
    mpa::append_extension_frame(out, tlvs);
    return out;
}

TEST_F(Decode, extension_frames_precede_fpdus_and_their_markers) {
    begin(kReply | MPA_FLAG_MARKERS, kRequest);
    ByteVector stream = extension_frame();
    append(stream, ByteVector(4));  // the first marker
    append(stream, send_fpdu(1, 64));
    const std::size_t covered = stream.size() - 4;
    store_le32(stream.data() + covered,
               crc32c_finish(crc32c(kCrc32cInit, ConstBytes(stream).first(covered).subspan(
                                                     extension_frame().size()))));
    for (std::size_t at = 0; at < stream.size(); ++at) {
        packet(true, 1020 + static_cast<std::uint32_t>(at), 0x18,
               ConstBytes(stream).subspan(at, 1));
    }
    packet(false, 5020, 0x18, extension_frame());
    const std::string words =
        "Extension frame of somebody 7, features 0x8, asks for FPDUs aligned to segments, "
        "TLV 9 of 5 bytes, CRC good\n";
    EXPECT_EQ(end(), "> " + words + "> Send 1 good\n< " + words);
    const auto& d = listener.summary.directions[0];
    EXPECT_EQ(d.fpdus, 1u);
    EXPECT_EQ(d.markers, 1u);
    EXPECT_EQ(d.bad_markers + d.crc_bad + d.senseless + d.incomplete, 0u);
}

TEST_F(Decode, an_older_xsock_sends_no_extension_frame) {
    begin(MPA_FLAG_CRC | MPA_FLAG_XSOCK_REPLY, kRequest);
    packet(true, 1020, 0x18, ConstBytes(send_fpdu(1, 4)).first(3));
    packet(true, 1023, 0x18, ConstBytes(send_fpdu(1, 4)).subspan(3));
    EXPECT_EQ(end(), "> Send 1 good\n");
}

TEST_F(Decode, says_what_is_wrong_with_an_extension_frame) {
    begin(kReply, kRequest);
    ByteVector bad = extension_frame(), twice, tlvs;
    bad.back() ^= std::byte{1};
    packet(true, 1020, 0x18, bad);
    mpa::append_tlv(tlvs, 9, {});
    append(tlvs, ByteVector(tlvs));
    mpa::append_extension_frame(twice, tlvs);
    packet(false, 5020, 0x18, twice);
    EXPECT_EQ(end(),
              "> Extension frame, TLV 1 of 21 bytes, asks for FPDUs aligned to segments, "
              "TLV 9 of 5 bytes, CRC BAD, WRONG: "
              "The CRC of the frame is wrong.\n"
              "< Extension frame, TLV 9 of 0 bytes, CRC good, WRONG: "
              "The types of the TLVs do not ascend.\n");
    EXPECT_EQ(listener.summary.directions[0].crc_bad, 1u);
    EXPECT_EQ(listener.summary.directions[1].senseless, 1u);
}

TEST_F(Decode, an_extension_frame_may_be_cut) {
    begin(kReply, kRequest);
    packet(true, 1020, 0x18, ConstBytes(extension_frame()).first(30));
    EXPECT_EQ(end(), "> Extension frame, INCOMPLETE\n");
    EXPECT_EQ(listener.summary.directions[0].incomplete, 1u);
}

TEST_F(Decode, finds_a_marker_that_points_elsewhere) {
    begin(MPA_FLAG_CRC | MPA_FLAG_MARKERS);
    ByteVector stream(4);
    append(stream, send_fpdu(1, 64));
    stream[3] = std::byte{8};  // it lies between FPDUs: 0
    packet(true, 1020, 0x18, stream);
    EXPECT_EQ(end(), "> Send 1 bad\n");
    EXPECT_EQ(listener.summary.directions[0].bad_markers, 1u);
}

TEST_F(Decode, ports_that_are_used_again_are_another_connection) {
    begin();
    packet(true, 1020, 0x11, {});
    packet(true, 70000, 2, {});
    packet(false, 90000, 0x12, {});
    packet(true, 70001, 0x18, startup(false));
    packet(false, 90001, 0x18, startup(true));
    packet(true, 70021, 0x18, send_fpdu(1, 1));
    EXPECT_EQ(end(), "connection 10.0.0.1:1000\n> request\n< reply\n> Send 1 good\n");
    EXPECT_EQ(decoder.totals().mpa_connections, 2u);
}

TEST(DecodeWords, a_terminate_is_read_both_ways) {
    // siw's CRC error: layer in the low nibble.
    const ByteVector siw{std::byte{0x02}, std::byte{0x02}, std::byte{0}, std::byte{0}};
    const TerminateWords words = terminate_words(siw);
    EXPECT_TRUE(words.siw_is_meant);
    EXPECT_EQ(words.siw.layer, 2u);
    EXPECT_EQ(words.siw.etype, 0u);
    EXPECT_EQ(words.rfc.layer, 0u);
    EXPECT_EQ(words.rfc.etype, 2u);
    EXPECT_NE(words.siw.words, words.rfc.words);

    const ByteVector rfc{std::byte{0x20}, std::byte{0x02}, std::byte{0}, std::byte{0}};
    EXPECT_FALSE(terminate_words(rfc).siw_is_meant);
}

// Memory for incomplete FPDUs is shared by all connections, and others may have used it up.
TEST(DecodeBudget, one_that_is_used_up_costs_bytes_and_no_more) {
    class Frames final : public MpaListener {
      public:
        void on_startup(const Place&, const StartupFrame& f) override {
            text += f.whole ? "frame " : "cut-frame ";
        }
        void on_extension_frame(const Place&, const ExtensionFrame&) override {}
        void on_fpdu(const Place&, const Fpdu& f) override {
            text += std::to_string(f.bytes) + (f.whole ? " " : "-cut ");
        }
        void on_lost(const Place&, const char*, std::uint64_t) override { text += "lost "; }
        std::string text;
    };
    for (const std::int64_t left : {0, 1, 10, 19, 20, 21, 200}) {
        Frames frames;
        ReassemblyBudget budget;
        budget.unit_bytes_left = left;
        budget.bytes_left = 0;
        MpaConnection connection(frames, budget);
        connection.tcp(End::first).begin(999);
        ByteVector stream = startup(false);
        append(stream, send_fpdu(1, 100));
        append(stream, send_fpdu(2, 100));
        std::uint32_t sequence = 1000;
        for (std::size_t at = 0; at < stream.size(); at += 7, sequence += 7) {
            const ConstBytes piece =
                ConstBytes(stream).subspan(at, std::min(stream.size() - at, std::size_t{7}));
            connection.segment(End::first, sequence, piece, piece.size(), 1, 0);
        }
        // One that comes early finds no room either, and is taken at once.
        const ByteVector early = send_fpdu(4, 10);
        connection.segment(End::first, sequence + 40, early, early.size(), 2, 0);
        EXPECT_EQ(budget.bytes_left, 0) << "nothing is kept";
        connection.finish();
        EXPECT_EQ(frames.text.substr(0, 6), "frame ") << left;
        EXPECT_EQ(frames.text.find("-cut") == std::string::npos, left == 200) << frames.text;
        EXPECT_EQ(budget.unit_bytes_left, left);
        EXPECT_EQ(budget.bytes_left, 0);
    }
}

}  // namespace
}  // namespace xsock::decode
