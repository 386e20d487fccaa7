// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/datagram_frame.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace xsock::verbs {
namespace {

const DatagramHeader kHeader = {
    .immediate = true,
    .solicited = true,
    .pkey = 0xffff,
    .to = 0x123456,
    .from = 0xfedcba,
    .qkey = 0x11223344,
    .data = {std::byte{0xa1}, std::byte{0xa2}, std::byte{0xa3}, std::byte{0xa4}},
    .traffic_class = 0x5b,
    .flow_label = 0xc0de7};

std::vector<std::byte> frame_of(const DatagramHeader& header, std::size_t payload) {
    const auto octets = encode(header);
    std::vector<std::byte> frame(octets.begin(), octets.end());
    frame.resize(frame.size() + payload, std::byte{0x77});
    return frame;
}

template <typename Octets>
void expect_octets(const Octets& octets, const std::vector<unsigned>& expected) {
    ASSERT_EQ(octets.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(std::to_integer<unsigned>(octets[i]), expected[i]) << i;
    }
}

TEST(DatagramFrame, lies_on_the_wire_as_the_page_says) {
    expect_octets(encode(kHeader),
                  {1,    3,    0xff, 0xff, 0,    0x12, 0x34, 0x56, 0,    0xfe, 0xdc, 0xba,
                   0x11, 0x22, 0x33, 0x44, 0xa1, 0xa2, 0xa3, 0xa4, 0x05, 0xbc, 0x0d, 0xe7});
}

TEST(DatagramFrame, is_read_as_it_was_written) {
    for (const DatagramHeader& header :
         {kHeader, DatagramHeader{}, DatagramHeader{.solicited = true, .to = 0xffffff}}) {
        for (const std::size_t payload : {std::size_t{0}, std::size_t{1}, kDatagramPayload}) {
            const auto frame = frame_of(header, payload);
            const auto decoded = decode_datagram(frame);
            ASSERT_TRUE(decoded.has_value());
            EXPECT_EQ(decoded->header, header);
            EXPECT_EQ(decoded->payload.size(), payload);
            EXPECT_EQ(decoded->payload.data(), frame.data() + kDatagramHeader);
        }
    }
}

TEST(DatagramFrame, cut_in_its_header_it_is_none) {
    const auto frame = frame_of(kHeader, 0);
    for (std::size_t n = 0; n < frame.size(); ++n) {
        EXPECT_FALSE(decode_datagram(ConstBytes(frame).first(n)).has_value()) << n;
    }
}

TEST(DatagramFrame, with_too_much_payload_it_is_none) {
    EXPECT_FALSE(decode_datagram(frame_of(kHeader, kDatagramPayload + 1)).has_value());
}

TEST(DatagramFrame, of_another_version_it_is_none) {
    auto frame = frame_of(kHeader, 8);
    frame[0] = std::byte{2};
    EXPECT_FALSE(decode_datagram(frame).has_value());
}

TEST(DatagramFrame, with_a_flag_that_is_not_known_it_is_none) {
    for (unsigned bit = 2; bit < 8; ++bit) {
        auto frame = frame_of(kHeader, 8);
        frame[1] |= std::byte{1} << bit;
        EXPECT_FALSE(decode_datagram(frame).has_value()) << bit;
    }
}

TEST(DatagramFrame, with_a_number_that_is_too_wide_it_is_none) {
    for (const std::size_t at : {4, 8}) {
        auto frame = frame_of(kHeader, 8);
        frame[at] = std::byte{1};
        EXPECT_FALSE(decode_datagram(frame).has_value()) << at;
    }
    auto frame = frame_of(kHeader, 8);
    frame[20] |= std::byte{0x10};
    EXPECT_FALSE(decode_datagram(frame).has_value());
}

TEST(DatagramFrame, with_an_immediate_that_is_none_it_is_none) {
    auto frame = frame_of({}, 8);
    frame[19] = std::byte{1};
    EXPECT_FALSE(decode_datagram(frame).has_value());
}

TEST(DatagramFrame, an_immediate_without_its_flag_is_not_sent) {
    const auto octets = encode({.data = {std::byte{1}}});
    EXPECT_EQ(octets[16], std::byte{0});
}

TEST(Grh, is_an_ipv6_header) {
    GidOctets from{}, to{};
    from[10] = from[11] = to[10] = to[11] = 0xff;
    from[15] = 1;
    to[15] = 2;
    expect_octets(
        make_grh(kHeader, from, to, 4096),
        {0x65, 0xbc, 0x0d, 0xe7, 0x10, 0, 17, 64, 0, 0, 0, 0, 0, 0, 0,    0,    0, 0, 0xff, 0xff,
         0,    0,    0,    1,    0,    0, 0,  0,  0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0,    2});
}

}  // namespace
}  // namespace xsock::verbs
