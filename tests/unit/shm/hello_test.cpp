// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "shm/hello.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace xsock::shm {
namespace {

constexpr std::uint32_t kPage = 4096;

Hello some_hello() {
    Hello hello{.link = 0x1122334455667788, .page_bytes = kPage, .layout = {}};
    std::fill(hello.creator.begin(), hello.creator.end(), std::byte{0x5a});
    return hello;
}

TEST(ShmHello, comes_back_as_it_was) {
    const HelloResult result = decode_hello(encode(some_hello()), kPage);
    EXPECT_EQ(result.error, HelloError::none);
    EXPECT_EQ(result.hello, some_hello());
}

TEST(ShmHello, one_of_another_length_is_refused) {
    auto datagram = encode(some_hello());
    for (std::size_t n = 0; n < datagram.size(); ++n) {
        const std::vector<std::byte> cut(datagram.begin(), datagram.begin() + static_cast<long>(n));
        EXPECT_EQ(decode_hello(cut, kPage).error, HelloError::version) << n;
    }
    datagram.push_back(std::byte{0});
    EXPECT_EQ(decode_hello(datagram, kPage).error, HelloError::version);
}

TEST(ShmHello, each_octet_of_what_must_agree_is_checked) {
    const auto datagram = encode(some_hello());
    // Name and version; behind two that are ignored byte order, page, ring and slots.
    for (std::size_t i = 0; i < 24; ++i) {
        auto other = datagram;
        other[i] ^= std::byte{1};
        const bool ignored = i == 6 || i == 7;
        EXPECT_EQ(decode_hello(other, kPage).error,
                  ignored ? HelloError::none : HelloError::version)
            << i;
    }
    EXPECT_EQ(decode_hello(datagram, 2 * kPage).error, HelloError::version);
}

TEST(ShmHello, another_byte_order_is_refused) {
    auto datagram = encode(some_hello());
    std::reverse(datagram.begin() + 8, datagram.begin() + 12);
    EXPECT_EQ(decode_hello(datagram, kPage).error, HelloError::version);
}

TEST(ShmHello, answers_come_back_as_they_were) {
    for (const HelloError error :
         {HelloError::none, HelloError::version, HelloError::memory, HelloError::limits}) {
        EXPECT_EQ(decode_hello_answer(encode_answer(error)), error);
    }
}

TEST(ShmHello, what_is_no_answer_is_none) {
    auto answer = encode_answer(HelloError::none);
    for (std::size_t i = 0; i < answer.size(); ++i) {
        auto other = answer;
        other[i] ^= std::byte{0x40};
        EXPECT_FALSE(decode_hello_answer(other)) << i;
    }
    answer.pop_back();
    EXPECT_FALSE(decode_hello_answer(answer));
    EXPECT_FALSE(decode_hello_answer({}));
    EXPECT_FALSE(decode_hello_answer(encode(some_hello())));
}

}  // namespace
}  // namespace xsock::shm
