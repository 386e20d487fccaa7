// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/stream_error.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

namespace xsock {
namespace {

using V = StreamError;

// The codes once more, written down from the RFCs and not from the table.
struct Expected {
    StreamError stream_error;
    int layer;  // -1: closes without a Terminate
    int etype, code;
    const char* headers;
};
constexpr Expected kExpected[] = {
    {V::none, -1, 0, 0, ""},
    {V::local_catastrophic, 0, 0, 0x00, ""},
    {V::read_stag_invalid, 0, 1, 0x00, "DR"},
    {V::read_bounds, 0, 1, 0x01, "DR"},
    {V::read_access, 0, 1, 0x02, "DR"},
    {V::read_stag_not_associated, 0, 1, 0x03, "DR"},
    {V::read_to_wrap, 0, 1, 0x04, "DR"},
    {V::write_access, 0, 1, 0x02, "D"},
    {V::response_access, 0, 1, 0x02, "D"},
    {V::invalidate_stag_invalid, 0, 1, 0x00, "D"},
    {V::invalidate_not_permitted, 0, 1, 0x09, "D"},
    {V::rdmap_version, 0, 2, 0x05, "D"},
    {V::rdmap_opcode, 0, 2, 0x06, "D"},
    {V::read_queue_overflow, 1, 2, 0x02, "D"},
    {V::response_unexpected, 0, 2, 0x06, "D"},
    {V::terminate_malformed, 0, 2, 0xff, "D"},
    {V::read_request_malformed, 0, 2, 0xff, "D"},
    {V::atomic_malformed, 0, 2, 0xff, "D"},
    {V::atomic_opcode, 0, 2, 0x06, "D"},
    {V::atomic_unaligned, 0, 2, 0x07, "D"},
    {V::immediate_malformed, 0, 2, 0xff, "D"},
    {V::acknowledge_malformed, 0, 2, 0xff, "D"},
    {V::acknowledge_range, 0, 2, 0xff, "D"},
    {V::remote_operation_unspecified, 0, 2, 0xff, "D"},
    {V::ddp_catastrophic, 1, 0, 0x00, "D"},
    {V::tagged_stag_invalid, 1, 1, 0x00, "D"},
    {V::tagged_bounds, 1, 1, 0x01, "D"},
    {V::tagged_stag_not_associated, 1, 1, 0x02, "D"},
    {V::tagged_to_wrap, 1, 1, 0x03, "D"},
    {V::tagged_version, 1, 1, 0x04, "D"},
    {V::untagged_qn, 1, 2, 0x01, "D"},
    {V::untagged_no_buffer, 1, 2, 0x02, "D"},
    {V::untagged_msn_range, 1, 2, 0x03, "D"},
    {V::untagged_mo, 1, 2, 0x04, "D"},
    {V::untagged_too_long, 1, 2, 0x05, "D"},
    {V::untagged_version, 1, 2, 0x06, "D"},
    {V::segment_truncated, 2, 0, 0x03, ""},
    {V::mpa_connection_lost, -1, 0, 0x01, ""},
    {V::mpa_crc, 2, 0, 0x02, ""},
    {V::mpa_marker, 2, 0, 0x03, ""},
    {V::mpa_startup_frame, -1, 0, 0x04, ""},
    {V::mpa_local_catastrophic, 2, 0, 0x05, ""},
    {V::mpa_insufficient_ird, 2, 0, 0x06, ""},
    {V::mpa_no_rtr, 2, 0, 0x07, ""},
    {V::startup_timeout, -1, 0, 0, ""},
    {V::startup_rejected, -1, 0, 0, ""},
    {V::startup_both_initiators, -1, 0, 0, ""},
    {V::startup_not_mpa, -1, 0, 0, ""},
    {V::peer_silent, -1, 0, 0, ""},
    {V::rnr_retries_exceeded, -1, 0, 0, ""},
    {V::local_fault, -1, 0, 0, ""},
    {V::mpa_extension_frame, -1, 0, 0, ""},
    {V::shm_garbage, -1, 0, 0, ""},
    {V::sdp_hello, -1, 0, 0, ""},
    {V::sdp_length, -1, 0, 0, ""},
    {V::sdp_message, -1, 0, 0, ""},
    {V::sdp_sequence, -1, 0, 0, ""},
    {V::sdp_credit, -1, 0, 0, ""},
    {V::sdp_advertisement, -1, 0, 0, ""},
    {V::sdp_completion, -1, 0, 0, ""},
    {V::sdp_mode, -1, 0, 0, ""},
    {V::sdp_resize, -1, 0, 0, ""},
    {V::sdp_closing, -1, 0, 0, ""},
    {V::sdp_urgent, -1, 0, 0, ""},
    {V::sdp_suspend, -1, 0, 0, ""},
    {V::stream_truncated, -1, 0, 0, ""},
    {V::stream_aborted, -1, 0, 0, ""},
};

TEST(StreamError, table_is_in_enum_order) {
    ASSERT_EQ(stream_error_table().size(), static_cast<std::size_t>(V::kCount));
    for (std::size_t i = 0; i < stream_error_table().size(); ++i) {
        const auto v = static_cast<StreamError>(i);
        EXPECT_EQ(stream_error_table()[i].stream_error, v);
        EXPECT_EQ(&stream_error_info(v), &stream_error_table()[i]);
    }
}

TEST(StreamError, codes_are_those_of_the_rfcs) {
    ASSERT_EQ(std::size(kExpected), stream_error_table().size());
    for (const Expected& e : kExpected) {
        const StreamErrorInfo& info = stream_error_info(e.stream_error);
        SCOPED_TRACE(info.name);
        EXPECT_EQ(info.layer, e.layer < 0 ? TermLayer::none : static_cast<TermLayer>(e.layer));
        EXPECT_EQ(info.etype, e.etype);
        EXPECT_EQ(info.code, e.code);
        EXPECT_EQ(info.ddp_header, std::strchr(e.headers, 'D') != nullptr);
        EXPECT_EQ(info.rdmap_header, std::strchr(e.headers, 'R') != nullptr);
    }
}

TEST(StreamError, names_are_unique_and_texts_are_sentences) {
    std::set<std::string_view> names, texts;
    for (const StreamErrorInfo& info : stream_error_table()) {
        SCOPED_TRACE(info.name);
        EXPECT_TRUE(names.insert(info.name).second);
        EXPECT_TRUE(texts.insert(info.text).second);
        const std::string_view name = info.name, text = info.text;
        ASSERT_FALSE(name.empty());
        for (const char c : name) EXPECT_TRUE(c == '-' || (c >= 'a' && c <= 'z')) << c;
        ASSERT_GT(text.size(), 10u);
        EXPECT_TRUE(std::isupper(static_cast<unsigned char>(text.front())));
        EXPECT_EQ(text.back(), '.');
        ASSERT_NE(info.rfc, nullptr);
        if (info.layer == TermLayer::none) continue;
        EXPECT_EQ(std::string_view(info.rfc).substr(0, 4), "RFC ");
    }
}

TEST(StreamError, only_read_requests_have_their_rdmap_header_shown) {
    for (const StreamErrorInfo& info : stream_error_table()) {
        if (!info.rdmap_header) continue;
        EXPECT_TRUE(info.ddp_header) << info.name;
        EXPECT_EQ(info.layer, TermLayer::rdmap) << info.name;
        EXPECT_EQ(info.etype, 1) << info.name;
    }
}

TEST(StreamErrorDeathTest, what_is_not_in_the_enum_is_our_bug) {
    EXPECT_DEATH((void)stream_error_info(V::kCount), "");
}

TEST(StreamError, every_terminate_that_can_arrive_has_words) {
    for (unsigned layer = 0; layer < 16; ++layer) {
        for (unsigned etype = 0; etype < 16; ++etype) {
            for (unsigned code = 0; code < 256; ++code) {
                const char* const text = terminate_text(static_cast<std::uint8_t>(layer),
                                                        static_cast<std::uint8_t>(etype),
                                                        static_cast<std::uint8_t>(code));
                ASSERT_NE(text, nullptr);
                ASSERT_NE(*text, '\0');
            }
        }
    }
}

TEST(StreamError, what_we_send_is_known_by_name) {
    for (const StreamErrorInfo& info : stream_error_table()) {
        if (info.layer == TermLayer::none) continue;
        const std::string text =
            terminate_text(static_cast<std::uint8_t>(info.layer), info.etype, info.code);
        EXPECT_EQ(text.find("unknown"), std::string::npos) << info.name;
    }
    EXPECT_STREQ(terminate_text(2, 0, 2), "MPA error: CRC");
    EXPECT_NE(terminate_text(0, 1, 0), terminate_text(1, 1, 0));
}

}  // namespace
}  // namespace xsock
