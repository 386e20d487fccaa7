// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/segment.hpp"

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

StreamError parse(ByteVector bytes, Segment& out, std::uint64_t features = kAllFeatures) {
    const OpcodeInfo* info = nullptr;
    bytes.resize(std::max(bytes.size(), kUntaggedOctets));
    const std::span<const std::byte> all(bytes);
    const StreamError v = parse_start(all.first<kTaggedOctets>(), out, info, features);
    EXPECT_TRUE(v != StreamError::none || info != nullptr);
    if (!out.tagged) parse_untagged_rest(all.first<kUntaggedOctets>(), out);
    return v;
}

/// As of a peer that is no xsock.
StreamError parse(const char* hex, std::uint64_t features = 0) {
    Segment out;
    return parse(from_hex(hex), out, features);
}

TEST(Segment, encodes_control_words_as_peers_expect) {
    EXPECT_EQ(header({.opcode = RDMAP_SEND, .msn = 1}),
              from_hex("4143 00000000 00000000 00000001 00000000"));
    EXPECT_EQ(header({.opcode = RDMAP_SEND, .last = false, .msn = 1})[0], std::byte{0x01});
    EXPECT_EQ(header({.opcode = RDMAP_WRITE, .tagged = true, .stag = 1}),
              from_hex("c140 00000001 0000000000000000"));
    EXPECT_EQ(header({.opcode = RDMAP_READ_RESPONSE,
                      .tagged = true,
                      .last = false,
                      .stag = 0x11223344,
                      .to = 0x0102030405060708}),
              from_hex("8142 11223344 0102030405060708"));
    EXPECT_EQ(header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 7}),
              from_hex("4141 00000000 00000001 00000007 00000000"));
}

TEST(Segment, parses_what_it_encodes) {
    for (std::uint8_t opcode = 0; opcode_info(opcode) != nullptr; ++opcode) {
        const OpcodeInfo& row = *opcode_info(opcode);
        Segment in{.opcode = row.opcode, .tagged = row.tagged, .last = (row.opcode & 1) != 0};
        if (row.tagged) {
            in.stag = 0xa1b2c3d4;
            in.to = 0xfedcba9876543210;
        } else {
            in.stag = row.invalidates ? 0x01020304 : 0;
            in.qn = row.qn;
            in.msn = 0xffffffff;
            in.mo = 0x80000001;
        }
        Segment out;
        EXPECT_EQ(parse(header(in), out), StreamError::none) << row.name;
        EXPECT_EQ(out, in) << row.name;
    }
}

TEST(Segment, reserved_bits_are_not_checked) {
    EXPECT_EQ(parse("7d73 00000000 00000000 00000001 00000000"), StreamError::none);
}

TEST(Segment, a_question_is_one_between_ends_that_know_it) {
    for (const char* const hex :
         {"4153 00000000 00000000 00000001 00000000", "c150 00000001 0000000000000000"}) {
        Segment out;
        EXPECT_EQ(parse(from_hex(hex), out, MPA_FEATURE_ACKNOWLEDGE), StreamError::none);
        EXPECT_TRUE(out.asks);
        EXPECT_EQ(header(out), from_hex(hex));
        EXPECT_EQ(parse(from_hex(hex), out, MPA_FEATURE_SEND_IMMEDIATE), StreamError::none);
        EXPECT_FALSE(out.asks);
    }
}

TEST(Segment, opcodes_and_queues_of_xsocks_are_unknown_to_others) {
    constexpr const char* kAcknowledge = "414e 00000007 00000004 00000001 00000000";
    constexpr const char* kImmediate = "414c 00000007 00000000 00000001 00000000";
    EXPECT_EQ(parse(kAcknowledge), StreamError::untagged_qn);
    EXPECT_EQ(parse(kAcknowledge, MPA_FEATURE_ACKNOWLEDGE), StreamError::none);
    EXPECT_EQ(parse(kImmediate), StreamError::rdmap_opcode);
    EXPECT_EQ(parse(kImmediate, MPA_FEATURE_SEND_IMMEDIATE), StreamError::none);
    EXPECT_EQ(parse("414e 00000007 00000000 00000001 00000000", kAllFeatures),
              StreamError::rdmap_opcode);
}

TEST(Segment, refuses_versions_queues_and_opcodes) {
    EXPECT_EQ(parse("c040 00000001 0000000000000000"), StreamError::tagged_version);
    EXPECT_EQ(parse("4243 00000000 00000000 00000001 00000000"), StreamError::untagged_version);
    EXPECT_EQ(parse("4143 00000000 00000004 00000001 00000000"), StreamError::untagged_qn);
    EXPECT_EQ(parse("4143 00000000 00000003 00000001 00000000"), StreamError::rdmap_opcode);
    EXPECT_EQ(parse("4103 00000000 00000000 00000001 00000000"), StreamError::rdmap_version);
    EXPECT_EQ(parse("c180 00000001 0000000000000000"), StreamError::rdmap_version);
    EXPECT_EQ(parse("414c 00000000 00000000 00000001 00000000"), StreamError::rdmap_opcode);
    EXPECT_EQ(parse("414f 00000000 00000000 00000001 00000000"), StreamError::rdmap_opcode);
    EXPECT_EQ(parse("c143 00000001 0000000000000000"), StreamError::rdmap_opcode);  // tagged Send
    EXPECT_EQ(parse("4140 00000000 00000000 00000001 00000000"), StreamError::rdmap_opcode);
    EXPECT_EQ(parse("4143 00000000 00000001 00000001 00000000"), StreamError::rdmap_opcode);
}

TEST(Segment, ddp_errors_come_before_rdmap_errors) {
    EXPECT_EQ(parse("400f 00000000 00000009 00000001 00000000"), StreamError::untagged_version);
    EXPECT_EQ(parse("410f 00000000 00000009 00000001 00000000"), StreamError::untagged_qn);
}

TEST(ReadRequest, parses_what_siw_sent) {
    // The Read Request of a siw capture, behind its DDP header.
    const ByteVector bytes =
        from_hex("05dbf900 000055a88e34b550 00000fa0 7ec28100 00005636056a5470");
    const ReadRequest request =
        parse_read_request(std::span<const std::byte>(bytes).first<kReadRequestOctets>());
    EXPECT_EQ(request, (ReadRequest{.sink_stag = 0x05dbf900,
                                    .sink_to = 0x55a88e34b550,
                                    .size = 4000,
                                    .source_stag = 0x7ec28100,
                                    .source_to = 0x5636056a5470}));
    EXPECT_EQ(body(request), bytes);
}

}  // namespace
}  // namespace xsock::ddp
