// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/gid_greeting.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace xsock::verbs {
namespace {

constexpr Greeting kAsked = {
    .kind = GreetingKind::rc, .from = 0x123456, .to = 0xfedcba, .attempt = 0x89abcdef};

std::vector<std::byte> octets_of(const Greeting& greeting) {
    const auto data = encode(greeting);
    return {data.begin(), data.end()};
}

TEST(GidGreeting, lies_on_the_wire_as_the_page_says) {
    const auto data = octets_of(kAsked);
    const std::vector<unsigned> expected = {'x', 's',  'o',  'c',  'k',  '-',  'Q',  'P',
                                            1,   1,    0,    0,    0,    0x12, 0x34, 0x56,
                                            0,   0xfe, 0xdc, 0xba, 0x89, 0xab, 0xcd, 0xef};
    ASSERT_EQ(data.size(), expected.size());
    for (std::size_t i = 0; i < data.size(); ++i) {
        EXPECT_EQ(std::to_integer<unsigned>(data[i]), expected[i]) << i;
    }
}

TEST(GidGreeting, is_read_as_it_was_written) {
    for (const Greeting& greeting :
         {kAsked, Greeting{.kind = GreetingKind::uc, .from = 1, .to = 2, .attempt = 3},
          Greeting{.kind = GreetingKind::datagrams, .from = 0xffffff},
          Greeting{.kind = GreetingKind::rejected, .refusal = GreetingRefusal::no_such_qp},
          Greeting{.kind = GreetingKind::rejected,
          .refusal = GreetingRefusal::already_connected}}) {
        const auto decoded = decode(octets_of(greeting));
        ASSERT_TRUE(decoded.has_value());
        EXPECT_EQ(decoded->refusal, GreetingRefusal::none);
        EXPECT_EQ(decoded->greeting, greeting);
    }
}

TEST(GidGreeting, of_datagrams_goes_both_ways_if_it_says_so) {
    Greeting both{.kind = GreetingKind::datagrams, .from = 1, .to = 2, .both_ways = true};
    auto data = octets_of(both);
    EXPECT_EQ(std::to_integer<unsigned>(data[11]), 1u);
    EXPECT_EQ(decode(data)->greeting, both);
    data[11] = std::byte{0xfe};  // flags that are not known
    EXPECT_FALSE(decode(data)->greeting.both_ways);
    both.kind = GreetingKind::rc;
    EXPECT_FALSE(decode(octets_of(both))->greeting.both_ways);
}

TEST(GidGreeting, cut_anywhere_or_longer_it_is_none) {
    auto data = octets_of(kAsked);
    for (std::size_t n = 0; n < data.size(); ++n) {
        EXPECT_FALSE(decode(ConstBytes(data).first(n)).has_value()) << n;
    }
    data.push_back(std::byte{0});
    EXPECT_FALSE(decode(data).has_value());
}

TEST(GidGreeting, of_another_magic_it_is_none) {
    for (std::size_t i = 0; i < 8; ++i) {
        auto data = octets_of(kAsked);
        data[i] ^= std::byte{0x20};
        EXPECT_FALSE(decode(data).has_value()) << i;
    }
}

TEST(GidGreeting, of_another_version_or_kind_it_is_refused_with_that_reason) {
    auto data = octets_of(kAsked);
    data[8] = std::byte{2};
    data.resize(40);  // a later version may be longer
    ASSERT_TRUE(decode(data).has_value());
    EXPECT_EQ(decode(data)->refusal, GreetingRefusal::other_version);
    data = octets_of(kAsked);
    data[9] = std::byte{4};
    ASSERT_TRUE(decode(data).has_value());
    EXPECT_EQ(decode(data)->refusal, GreetingRefusal::other_kind);
}

TEST(GidGreeting, what_does_not_go_together_is_none) {
    auto data = octets_of(kAsked);
    data[10] = std::byte{1};  // a reason, and no rejection
    EXPECT_FALSE(decode(data).has_value());
    data = octets_of({.kind = GreetingKind::rejected, .refusal = GreetingRefusal::no_such_qp});
    data[10] = std::byte{0};  // a rejection, and no reason
    EXPECT_FALSE(decode(data).has_value());
    data[10] = std::byte{8};  // none that is known
    EXPECT_FALSE(decode(data).has_value());
    data = octets_of(kAsked);
    data[12] = std::byte{1};  // QP numbers have 24 bits
    EXPECT_FALSE(decode(data).has_value());
}

}  // namespace
}  // namespace xsock::verbs
