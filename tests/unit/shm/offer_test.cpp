// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "shm/offer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "include/xsock/iwarp.h"

namespace xsock::shm {
namespace {

IpEndpoint endpoint(const char* address, std::uint16_t port) {
    return {*parse_ip_address(address), port};
}

Offer some_offer() {
    Offer offer{.token = 0x0123456789abcdef,
                .local = endpoint("127.0.0.1", 7000),
                .peer = endpoint("2001:db8::1", 50'000)};
    for (std::size_t i = 0; i < offer.key.size(); ++i) {
        offer.key[i] = static_cast<std::byte>(0xf0 + i);
    }
    return offer;
}

constexpr Answer kAnswer{.shared_memory = true,
                         .reason = Reason::none,
                         .link = 0xfedcba9876543210,
                         .slot = 0x1234,
                         .generation = 0x89abcdef};

TEST(ShmOffer, comes_back_as_it_was) {
    const auto value = encode(some_offer());
    EXPECT_EQ(value.size(), sizeof(mpa_tlv_shm_offer));
    EXPECT_EQ(decode_offer(value), some_offer());
}

TEST(ShmOffer, lies_in_the_frame_as_documented) {
    const auto value = encode(some_offer());
    EXPECT_EQ(value[0], std::byte{1});
    EXPECT_EQ(value[1], std::byte{0});
    EXPECT_EQ(value[2], std::byte{0xf0});
    EXPECT_EQ(load_be64(value.data() + 18), 0x0123456789abcdefu);
    EXPECT_EQ(load_be32(value.data() + 26 + 12), 0x7f000001u);
    EXPECT_EQ(load_be16(value.data() + 26 + 10), 0xffff);
    EXPECT_EQ(load_be16(value.data() + 42), 7000);
    EXPECT_EQ(load_be32(value.data() + 44), 0x20010db8u);
    EXPECT_EQ(load_be16(value.data() + 60), 50'000);
}

TEST(ShmOffer, one_that_is_short_or_of_another_version_is_none) {
    auto value = encode(some_offer());
    for (std::size_t n = 0; n < value.size(); ++n) {
        const std::vector<std::byte> cut(value.begin(), value.begin() + static_cast<long>(n));
        EXPECT_FALSE(decode_offer(cut)) << n;
    }
    value.push_back(std::byte{9});
    EXPECT_TRUE(decode_offer(value)) << "what follows is ignored";
    value[0] = std::byte{2};
    EXPECT_FALSE(decode_offer(value));
}

TEST(ShmOffer, matches_the_same_connection_from_the_other_end) {
    const Offer offer = some_offer();
    EXPECT_TRUE(offer.matches(offer.peer, offer.local));
    EXPECT_FALSE(offer.matches(offer.local, offer.peer));
    EXPECT_FALSE(offer.matches(offer.peer, endpoint("127.0.0.1", 7001)));
    EXPECT_FALSE(offer.matches(endpoint("2001:db8::2", 50'000), offer.local));
}

TEST(ShmAnswer, comes_back_as_it_was) {
    const auto value = encode(kAnswer);
    EXPECT_EQ(value.size(), sizeof(mpa_tlv_shm_answer));
    EXPECT_EQ(decode_answer(value), kAnswer);
    const Answer refusal{.reason = Reason::extensions_off};
    EXPECT_EQ(decode_answer(encode(refusal)), refusal);
    EXPECT_EQ(encode(refusal)[1], std::byte{12});
}

TEST(ShmAnswer, one_that_is_short_or_of_another_result_is_none) {
    auto value = encode(kAnswer);
    for (std::size_t n = 0; n < value.size(); ++n) {
        const std::vector<std::byte> cut(value.begin(), value.begin() + static_cast<long>(n));
        EXPECT_FALSE(decode_answer(cut)) << n;
    }
    value[0] = std::byte{2};
    EXPECT_FALSE(decode_answer(value));
}

TEST(ShmReason, each_has_a_name_and_others_are_unknown) {
    std::set<std::string> names;
    for (unsigned i = 0; i < static_cast<unsigned>(Reason::kCount); ++i) {
        names.insert(name_of(static_cast<Reason>(i)));
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(Reason::kCount));
    EXPECT_STREQ(name_of(Reason::extensions_off), "extensions-off");
    EXPECT_STREQ(name_of(Reason::user), "user");
    EXPECT_STREQ(name_of(static_cast<Reason>(200)), "unknown");
}

TEST(ShmKey, is_written_in_hexadecimal) {
    EXPECT_STREQ(text_of(some_offer().key).data(), "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
    EXPECT_STREQ(text_of(Key{}).data(), "00000000000000000000000000000000");
}

}  // namespace
}  // namespace xsock::shm
