// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/cm_greeting.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace xsock::verbs {
namespace {

std::vector<std::byte> greeting_with(std::uint32_t qp_num, std::size_t data) {
    const auto greeting = encode_cm_greeting(qp_num);
    std::vector<std::byte> octets(greeting.begin(), greeting.end());
    octets.resize(octets.size() + data, std::byte{0xd5});
    return octets;
}

TEST(CmGreeting, lies_on_the_wire_as_the_page_says) {
    const std::vector<unsigned> expected = {'x', 's', 'o', 'c', 'k', '-',  'C',  'M',
                                            1,   0,   0,   0,   0,   0x12, 0x34, 0x56};
    const auto octets = encode_cm_greeting(0x123456);
    ASSERT_EQ(octets.size(), expected.size());
    for (std::size_t i = 0; i < octets.size(); ++i) {
        EXPECT_EQ(std::to_integer<unsigned>(octets[i]), expected[i]) << i;
    }
}

TEST(CmGreeting, is_read_as_it_was_written) {
    for (const std::uint32_t num : {1u, 0x123456u, 0xffffffu}) {
        for (const std::size_t n : {0, 1, 56, 255}) {
            const auto octets = greeting_with(num, n);
            const auto decoded = decode_cm_greeting(octets);
            ASSERT_TRUE(decoded.has_value());
            EXPECT_EQ(decoded->qp_num, num);
            ASSERT_EQ(decoded->data.size(), n);
            EXPECT_EQ(decoded->data.data(), octets.data() + kCmGreetingBytes);
        }
    }
}

TEST(CmGreeting, other_private_data_are_the_programs) {
    EXPECT_FALSE(decode_cm_greeting({}).has_value());
    auto octets = greeting_with(1, 4);
    for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_FALSE(decode_cm_greeting(ConstBytes(octets).first(i)).has_value()) << i;
        octets[i] ^= std::byte{1};
        EXPECT_FALSE(decode_cm_greeting(octets).has_value()) << i;
        octets[i] ^= std::byte{1};
    }
}

TEST(CmGreeting, that_is_cut_or_otherwise_is_malformed) {
    auto octets = greeting_with(1, 0);
    for (std::size_t cut = 8; cut < octets.size(); ++cut) {
        const auto decoded = decode_cm_greeting(ConstBytes(octets).first(cut));
        ASSERT_TRUE(decoded.has_value()) << cut;
        EXPECT_EQ(decoded->qp_num, 0u) << cut;
    }
    for (std::size_t i = 8; i < 13; ++i) {  // another version, what is 0, and a number too large
        octets[i] ^= std::byte{0x10};
        const auto decoded = decode_cm_greeting(octets);
        ASSERT_TRUE(decoded.has_value()) << i;
        EXPECT_EQ(decoded->qp_num, 0u) << i;
        octets[i] ^= std::byte{0x10};
    }
    EXPECT_TRUE(decode_cm_greeting(greeting_with(0, 8)).has_value());
}

}  // namespace
}  // namespace xsock::verbs
