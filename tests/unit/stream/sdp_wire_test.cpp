// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Messages octet by octet, as docs/wire.md and the draft have them, and what is refused of each.
#include "stream/sdp_wire.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace xsock::stream {
namespace {

using Octets = std::vector<std::byte>;

Octets hex(const std::string& text) {
    Octets octets;
    for (std::size_t i = 0; i + 1 < text.size();) {
        if (text[i] == ' ') {
            ++i;
            continue;
        }
        octets.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
        i += 2;
    }
    return octets;
}

/// Flags 02, Bufs 0x0102, MSeq 0x11223344, MSeqAck 0x55667788.
Octets vector_of(const std::string& mid, const std::string& length, const std::string& rest = "") {
    return hex(mid + " 02 0102 " + length + " 11223344 55667788 " + rest);
}

struct Row {
    const char* name;
    Octets octets;
    SdpMessage message;  // without its base header but the MID
    std::size_t payload = 0;
};

std::vector<Row> rows() {
    const auto of = [](std::uint8_t mid) {
        SdpMessage message;
        message.header.mid = mid;
        return message;
    };
    std::vector<Row> all{
        {"DisConn", vector_of("02", "00000010"), of(SDP_DISCONN)},
        {"AbortConn", vector_of("03", "00000010"), of(SDP_ABORT_CONN)},
        {"SendSm", vector_of("04", "00000010"), of(SDP_SEND_SM)},
        {"RdmaWrCompl", vector_of("05", "00000014", "01020304"), of(SDP_RDMA_WR_COMPL)},
        {"RdmaRdCompl", vector_of("06", "00000014", "01020304"), of(SDP_RDMA_RD_COMPL)},
        {"ModeChange to Buffered", vector_of("07", "00000014", "00000000"), of(SDP_MODE_CHANGE)},
        {"ModeChange to Pipelined", vector_of("07", "00000014", "20000000"), of(SDP_MODE_CHANGE)},
        {"ModeChange by the sink", vector_of("07", "00000014", "90000000"), of(SDP_MODE_CHANGE)},
        {"SrcAvailCancel", vector_of("08", "00000010"), of(SDP_SRC_AVAIL_CANCEL)},
        {"SinkAvailCancel", vector_of("09", "00000010"), of(SDP_SINK_AVAIL_CANCEL)},
        {"SinkCancelAck", vector_of("0a", "00000010"), of(SDP_SINK_CANCEL_ACK)},
        {"ChRcvBuf", vector_of("0b", "00000014", "00010000"), of(SDP_CH_RCV_BUF)},
        {"ChRcvBufAck", vector_of("0c", "00000014", "00000025"), of(SDP_CH_RCV_BUF_ACK)},
        {"SuspComm", vector_of("0d", "00000018", "00000000 0001 1f90"), of(SDP_SUSP_COMM)},
        {"SuspCommAck", vector_of("0e", "00000010"), of(SDP_SUSP_COMM_ACK)},
        {"SinkAvail", vector_of("fd", "00000024", "00020000 a1b2c3d4 0102030405060708 0a0b0c0d"),
         of(SDP_SINK_AVAIL)},
        {"SinkAvail with payload",
         vector_of("fd", "00000026", "00020000 a1b2c3d4 0102030405060708 0a0b0c0d e0e1"),
         of(SDP_SINK_AVAIL), 2},
        {"SrcAvail", vector_of("fe", "00000021", "80000000 a1b2c3d4 0102030405060708 e0"),
         of(SDP_SRC_AVAIL), 1},
        {"Data", vector_of("ff", "00000013", "e0e1e2"), of(SDP_DATA), 3},
        {"Data without payload", vector_of("ff", "00000010"), of(SDP_DATA)},
    };
    all[3].message.octets = all[4].message.octets = 0x01020304;
    all[5].message.mode = SdpMode::buffered;
    all[6].message.mode = SdpMode::pipelined;
    all[7].message.mode = SdpMode::combined;
    all[7].message.send_half = true;
    all[11].message.octets = 0x10000;
    all[12].message.octets = 37;
    all[13].message.port = 8080;
    for (const std::size_t i : {15u, 16u, 17u}) {
        all[i].message.length = i == 17 ? 0x80000000u : 0x20000;
        all[i].message.stag = 0xa1b2c3d4;
        all[i].message.address = 0x0102030405060708;
        if (i != 17) all[i].message.non_discards = 0x0a0b0c0d;
    }
    for (Row& row : all) {
        Bsdh& header = row.message.header;
        header.flags = SDP_FLAG_OOB_PEND;
        header.bufs = 0x0102;
        header.length = static_cast<std::uint32_t>(row.octets.size());
        header.mseq = 0x11223344;
        header.mseq_ack = 0x55667788;
    }
    return all;
}

TEST(SdpWire, reads_each_message) {
    for (const Row& row : rows()) {
        SCOPED_TRACE(row.name);
        SdpMessage seen;
        ASSERT_EQ(decode(row.octets, seen), StreamError::none);
        EXPECT_EQ(seen.header, row.message.header);
        EXPECT_EQ(seen.octets, row.message.octets);
        EXPECT_EQ(seen.mode, row.message.mode);
        EXPECT_EQ(seen.send_half, row.message.send_half);
        EXPECT_EQ(seen.port, row.message.port);
        EXPECT_EQ(seen.length, row.message.length);
        EXPECT_EQ(seen.stag, row.message.stag);
        EXPECT_EQ(seen.address, row.message.address);
        EXPECT_EQ(seen.non_discards, row.message.non_discards);
        ASSERT_EQ(seen.payload.size(), row.payload);
        if (row.payload > 0) {
            EXPECT_EQ(seen.payload[0], std::byte{0xe0});
        }
    }
}

TEST(SdpWire, writes_each_message) {
    for (const Row& row : rows()) {
        SCOPED_TRACE(row.name);
        Octets out(row.octets.size() - row.payload);
        EXPECT_EQ(encode(row.message, row.payload, out), out.size());
        out.insert(out.end(), row.octets.end() - static_cast<std::ptrdiff_t>(row.payload),
                   row.octets.end());
        EXPECT_EQ(out, row.octets);
    }
}

TEST(SdpWire, refuses_every_other_length) {
    for (const Row& row : rows()) {
        SCOPED_TRACE(row.name);
        SdpMessage seen;
        for (std::size_t n = 0; n < row.octets.size(); ++n) {
            const Octets cut(row.octets.begin(), row.octets.begin() + static_cast<long>(n));
            EXPECT_EQ(decode(cut, seen), StreamError::sdp_length) << n;
        }
        Octets longer = row.octets;
        longer.push_back(std::byte{0});
        EXPECT_EQ(decode(longer, seen), StreamError::sdp_length);
        store_be32(longer.data() + 4, static_cast<std::uint32_t>(longer.size()));
        const bool payload_allowed = row.message.header.mid >= SDP_SINK_AVAIL;
        EXPECT_EQ(decode(longer, seen),
                  payload_allowed ? StreamError::none : StreamError::sdp_length);
    }
}

TEST(SdpWire, refuses_headers_that_say_less_than_they_are) {
    Octets octets = vector_of("fd", "00000023", "00020000 a1b2c3d4 0102030405060708 0a0b0c");
    SdpMessage seen;
    EXPECT_EQ(decode(octets, seen), StreamError::sdp_length);
    octets = vector_of("ff", "0000000f");
    EXPECT_EQ(decode(octets, seen), StreamError::sdp_length);
}

TEST(SdpWire, refuses_reserved_and_start_up_messages) {
    for (unsigned mid = 0; mid < 256; ++mid) {
        Octets octets = vector_of("ff", "00000010");
        octets[0] = static_cast<std::byte>(mid);
        SdpMessage seen;
        const StreamError error = decode(octets, seen);
        const bool known = (mid >= 2 && mid <= 0x0e) || mid >= 0xfd;
        EXPECT_EQ(error == StreamError::sdp_message, !known) << mid;
    }
}

StreamError error_of(Octets octets) {
    SdpMessage seen;
    return decode(octets, seen);
}

TEST(SdpWire, refuses_advertisements_that_cannot_be) {
    const auto source = [](const std::string& what, const std::string& payload = "e0") {
        return error_of(vector_of("fe", payload.empty() ? "00000020" : "00000021", what + payload));
    };
    const std::string stag = "a1b2c3d4";
    EXPECT_EQ(source("00000000" + stag + "0000000000000001"), StreamError::sdp_advertisement);
    EXPECT_EQ(source("80000001" + stag + "0000000000000001"), StreamError::sdp_advertisement);
    EXPECT_EQ(source("ffffffff" + stag + "0000000000000001"), StreamError::sdp_advertisement);
    EXPECT_EQ(source("00000010 00000000 0000000000000001"), StreamError::sdp_advertisement);
    EXPECT_EQ(source("00000010" + stag + "fffffffffffffff0"), StreamError::none);
    EXPECT_EQ(source("00000010" + stag + "fffffffffffffff1"), StreamError::sdp_advertisement);
    EXPECT_EQ(source("00000001" + stag + "0000000000000001"), StreamError::sdp_advertisement);
    EXPECT_EQ(source("00000001" + stag + "0000000000000001", ""), StreamError::none);
    EXPECT_EQ(source("00000002" + stag + "0000000000000001"), StreamError::none);
}

TEST(SdpWire, refuses_sizes_modes_and_marks_that_cannot_be) {
    for (const auto* size : {"00000000", "00000024", "80000001", "ffffffff"}) {
        EXPECT_EQ(error_of(vector_of("0b", "00000014", size)), StreamError::sdp_resize) << size;
        EXPECT_EQ(error_of(vector_of("0c", "00000014", size)), StreamError::sdp_resize) << size;
    }
    for (const auto* mode : {"30000000", "70000000", "b0000000", "f0000000"}) {
        EXPECT_EQ(error_of(vector_of("07", "00000014", mode)), StreamError::sdp_mode) << mode;
    }
    EXPECT_EQ(error_of(vector_of("0d", "00000018", "00000001 0001 0000")),
              StreamError::sdp_suspend);
    EXPECT_EQ(error_of(vector_of("0d", "00000018", "00000000 0002 0000")),
              StreamError::sdp_suspend);
    Octets urgent = vector_of("ff", "00000010");
    urgent[1] = std::byte{SDP_FLAG_OOB_PRES};
    EXPECT_EQ(error_of(urgent), StreamError::sdp_urgent);
    urgent = vector_of("02", "00000010");
    urgent[1] = std::byte{SDP_FLAG_OOB_PRES};
    EXPECT_EQ(error_of(urgent), StreamError::sdp_urgent);
}

TEST(SdpWire, does_not_check_reserved_flags) {
    Octets octets = vector_of("ff", "00000010");
    octets[1] = std::byte{0xf8};
    EXPECT_EQ(error_of(octets), StreamError::none);
}

// ---- Hello and HelloAck -------------------------------------------------------

const Octets kHello =
    hex("00 00 0040 00000020 00000000 00000000  11 00 0001 0000ffb0 00008000 00ff 0080");
const Octets kHelloAck =
    hex("01 00 0040 0000001c 00000000 00000000  11 00 0001 00008000 00ff 0080");

TEST(SdpWire, reads_and_writes_hello) {
    const SdpHello expected{.bufs = 64,
                            .max_adverts = 1,
                            .desired_remote_size = 0xffb0,
                            .local_size = 0x8000,
                            .ord = 255,
                            .ird = 128};
    const auto seen = decode_hello(kHello);
    ASSERT_TRUE(seen.has_value());
    EXPECT_EQ(*seen, expected);
    const auto octets = encode_hello(expected);
    EXPECT_EQ(Octets(octets.begin(), octets.end()), kHello);
    EXPECT_TRUE(looks_like_hello(kHello));
}

TEST(SdpWire, reads_and_writes_hello_ack) {
    const SdpHello expected{
        .bufs = 64, .max_adverts = 1, .local_size = 0x8000, .ord = 255, .ird = 128};
    const auto seen = decode_hello_ack(kHelloAck);
    ASSERT_TRUE(seen.has_value());
    EXPECT_EQ(*seen, expected);
    const auto octets = encode_hello_ack(expected);
    EXPECT_EQ(Octets(octets.begin(), octets.end()), kHelloAck);
    EXPECT_FALSE(looks_like_hello(kHelloAck));
}

TEST(SdpWire, takes_another_minor_version_and_ignores_reserved_octets) {
    Octets octets = kHello;
    octets[16] = std::byte{0x17};
    octets[17] = std::byte{0xff};
    EXPECT_TRUE(decode_hello(octets).has_value());
}

TEST(SdpWire, refuses_hellos_that_say_what_they_may_not) {
    const auto refused = [](std::size_t at, const std::string& value, bool ack) {
        Octets octets = ack ? kHelloAck : kHello;
        const Octets bytes = hex(value);
        std::copy(bytes.begin(), bytes.end(), octets.begin() + static_cast<std::ptrdiff_t>(at));
        return ack ? !decode_hello_ack(octets) : !decode_hello(octets);
    };
    for (const bool ack : {false, true}) {
        SCOPED_TRACE(ack);
        EXPECT_TRUE(refused(0, "ff", ack));        // MID
        EXPECT_TRUE(refused(2, "0002", ack));      // fewer than three buffers
        EXPECT_TRUE(refused(4, "00000021", ack));  // Len
        EXPECT_TRUE(refused(16, "21", ack));       // MajV
        EXPECT_TRUE(refused(18, "0000", ack));     // MaxAdverts
        const std::size_t size = ack ? 20 : 24;
        EXPECT_TRUE(refused(size, "00000024", ack));  // sizes
        EXPECT_TRUE(refused(size, "80000001", ack));
        EXPECT_FALSE(refused(size, "00000025", ack));
        EXPECT_TRUE(refused(size + 4, "0000", ack));  // ORD
        EXPECT_TRUE(refused(size + 6, "0000", ack));  // IRD
    }
    EXPECT_TRUE(refused(20, "00000000", false));  // DesRemRcvSz
    for (std::size_t n = 0; n < kHello.size(); ++n) {
        EXPECT_FALSE(decode_hello(ConstBytes(kHello).first(n)).has_value());
    }
    for (std::size_t n = 0; n < kHelloAck.size(); ++n) {
        EXPECT_FALSE(decode_hello_ack(ConstBytes(kHelloAck).first(n)).has_value());
    }
    EXPECT_FALSE(decode_hello(kHelloAck).has_value());
    EXPECT_FALSE(decode_hello_ack(kHello).has_value());
}

}  // namespace
}  // namespace xsock::stream
