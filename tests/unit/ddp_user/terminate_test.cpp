// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "ddp_user/terminate.hpp"

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

ByteVector bytes_of(const TerminateMessage& message) {
    return {message.bytes.begin(), message.bytes.begin() + message.size};
}

ByteVector payload_of(const ByteVector& ulpdu) {
    return {ulpdu.begin() + kUntaggedOctets, ulpdu.end()};
}

const ByteVector kWrite = from_hex("c140 0a0b0c0d 0000000000001000");
const ByteVector kRequestHeader = from_hex("4141 00000000 00000001 00000005 00000000");
const ByteVector kRequest =
    from_hex("11111111 2222222222222222 00000040 33333333 4444444444444444");

TEST(Terminate, carries_no_headers_for_the_llp) {
    EXPECT_EQ(bytes_of(build_terminate(StreamError::mpa_crc, {})),
              from_hex("4147 00000000 00000002 00000001 00000000"
                       "20020000"));
}

TEST(Terminate, quotes_a_tagged_header) {
    const auto message =
        build_terminate(StreamError::tagged_bounds, {.ddp_header = kWrite, .segment_bytes = 114});
    EXPECT_EQ(bytes_of(message), from_hex("4147 00000000 00000002 00000001 00000000"
                                          "1101c000 0072 c140 0a0b0c0d 0000000000001000"));
    EXPECT_EQ(message.info.ddp_segment_length, 114);
    EXPECT_TRUE(message.info.has_ddp_header);
    EXPECT_FALSE(message.info.has_rdmap_header);
}

TEST(Terminate, quotes_a_read_request) {
    const auto message = build_terminate(
        StreamError::read_bounds,
        {.ddp_header = kRequestHeader, .rdmap_header = kRequest, .segment_bytes = 46});
    EXPECT_EQ(bytes_of(message),
              from_hex("4147 00000000 00000002 00000001 00000000"
                       "0101e000 002e 4141 00000000 00000001 00000005 00000000"
                       "11111111 2222222222222222 00000040 33333333 4444444444444444"));
    EXPECT_LE(message.size, kMaxUlpduHeader);
}

TEST(Terminate, is_understood_by_ourselves_for_every_row) {
    for (const StreamErrorInfo& row : stream_error_table()) {
        if (row.layer == TermLayer::none) continue;
        const auto message = build_terminate(
            row.stream_error,
            {.ddp_header = kRequestHeader, .rdmap_header = kRequest, .segment_bytes = 46});
        TerminateInfo info;
        Terminated about;
        ASSERT_TRUE(parse_terminate(payload_of(bytes_of(message)), info, about, true)) << row.name;
        EXPECT_FALSE(info.swapped) << row.name;
        EXPECT_EQ(info.layer, static_cast<std::uint8_t>(row.layer)) << row.name;
        EXPECT_EQ(info.etype, row.etype) << row.name;
        EXPECT_EQ(info.code, row.code) << row.name;
        EXPECT_EQ(info.has_ddp_header, row.ddp_header) << row.name;
        EXPECT_EQ(info.has_rdmap_header, row.ddp_header && row.rdmap_header) << row.name;
        EXPECT_EQ(info.has_rdmap_header, body(about.read_request) == kRequest) << row.name;
    }
}

TEST(Terminate, of_siw_base_bounds_capture_is_read_as_swapped) {
    // captures/siw-siw-terminate-base-bounds, frame 13, without MPA.
    const ByteVector ulpdu = from_hex(
        "4147000000000000000200000001000000001101030005948142"
        "05dbf900000055a88e34b550");
    TerminateInfo info;
    Terminated about;
    ASSERT_TRUE(parse_terminate(payload_of(ulpdu), info, about, true));
    EXPECT_TRUE(info.swapped);
    EXPECT_EQ(info.layer, 1);
    EXPECT_EQ(info.etype, 1);
    EXPECT_EQ(info.code, 1);
    EXPECT_TRUE(info.has_ddp_header);
    EXPECT_FALSE(info.has_rdmap_header);
    EXPECT_EQ(info.ddp_segment_length, 1428);  // siw: without the DDP header
    ASSERT_TRUE(about.known);
    EXPECT_EQ(about.segment, (Segment{.opcode = RDMAP_READ_RESPONSE,
                                      .tagged = true,
                                      .last = false,
                                      .stag = 0x05dbf900,
                                      .to = 0x55a88e34b550}));
    EXPECT_EQ(status_of(info), WcStatus::remote_access_error);
}

TEST(Terminate, without_headers_is_read_the_way_that_makes_sense) {
    struct {
        const char* bytes;
        bool swapped;
        int layer, etype, code;
    } const cases[] = {
        {"20020000", false, 2, 0, 2},  // MPA CRC, RFC
        {"02020000", true, 2, 0, 2},   // MPA CRC, siw
        {"02030000", true, 2, 0, 3},   // MPA marker, siw
        {"20090000", true, 0, 2, 9},   // Remote Operation, cannot invalidate: siw attaches nothing
        {"ff770000", false, 15, 15, 0x77},  // nonsense stays as it came
        {"30ee0000", false, 3, 0, 0xee},
    };
    for (const auto& c : cases) {
        TerminateInfo info;
        Terminated about;
        ASSERT_TRUE(parse_terminate(from_hex(c.bytes), info, about, true));
        EXPECT_EQ(info.swapped, c.swapped) << c.bytes;
        EXPECT_EQ(info.layer, c.layer) << c.bytes;
        EXPECT_EQ(info.etype, c.etype) << c.bytes;
        EXPECT_EQ(info.code, c.code) << c.bytes;
        EXPECT_EQ(info.first, std::stoi(std::string(c.bytes, 2), nullptr, 16));
    }
}

TEST(Terminate, mpa_errors_of_start_up_are_not_believed_later) {
    struct {
        const char* bytes;
        int layer, etype;  // once start-up is over
    } const cases[] = {
        {"20050000", 0, 2}, {"20060000", 0, 2}, {"20070000", 0, 2}, {"20020000", 2, 0}};
    for (const auto& c : cases) {
        TerminateInfo info;
        Terminated about;
        ASSERT_TRUE(parse_terminate(from_hex(c.bytes), info, about, true));
        EXPECT_EQ(info.layer, 2) << c.bytes;
        ASSERT_TRUE(parse_terminate(from_hex(c.bytes), info, about, false));
        EXPECT_EQ(info.layer, c.layer) << c.bytes;
        EXPECT_EQ(info.etype, c.etype) << c.bytes;
    }
}

TEST(Terminate, cut_anywhere_is_tolerated) {
    const auto message = build_terminate(
        StreamError::read_bounds,
        {.ddp_header = kRequestHeader, .rdmap_header = kRequest, .segment_bytes = 46});
    const ByteVector payload = payload_of(bytes_of(message));
    for (std::size_t n = 0; n <= payload.size(); ++n) {
        const ByteVector cut(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(n));
        TerminateInfo info;
        Terminated about;
        EXPECT_EQ(parse_terminate(cut, info, about, true), n >= 4) << n;
        EXPECT_EQ(info.has_ddp_header, n >= 24) << n;
        EXPECT_EQ(info.has_rdmap_header, n == payload.size()) << n;
    }
}

TEST(Terminate, maps_to_the_status_of_the_work_request) {
    auto status = [](std::uint8_t layer, std::uint8_t etype, std::uint8_t code) {
        return status_of({.layer = layer, .etype = etype, .code = code});
    };
    EXPECT_EQ(status(0, 0, 0), WcStatus::remote_operation_error);
    EXPECT_EQ(status(0, 1, 1), WcStatus::remote_access_error);
    EXPECT_EQ(status(0, 2, 5), WcStatus::remote_invalid_request);
    EXPECT_EQ(status(0, 2, 6), WcStatus::remote_invalid_request);
    EXPECT_EQ(status(0, 2, 7), WcStatus::remote_operation_error);
    EXPECT_EQ(status(1, 1, 0), WcStatus::remote_access_error);
    EXPECT_EQ(status(1, 1, 4), WcStatus::remote_invalid_request);
    EXPECT_EQ(status(1, 2, 5), WcStatus::remote_invalid_request);
    EXPECT_EQ(status(2, 0, 2), WcStatus::remote_operation_error);
    EXPECT_EQ(status(9, 9, 9), WcStatus::remote_operation_error);
}

}  // namespace
}  // namespace xsock::ddp
