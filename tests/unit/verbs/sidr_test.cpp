// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/sidr.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace xsock::verbs {
namespace {

std::vector<std::byte> data_of(std::size_t n) {
    std::vector<std::byte> data(n);
    for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<std::byte>(i + 1);
    return data;
}

std::vector<std::byte> request_frame(std::size_t private_data) {
    const auto data = data_of(private_data);
    const auto octets = encode(SidrRequest{0xa1a2a3a4, data});
    return {octets.begin(), octets.end()};
}

std::vector<std::byte> answer_frame(std::uint32_t status, std::size_t private_data) {
    const auto data = data_of(private_data);
    const bool accepted = status == sidr_status::kAccepted;
    const auto encoded = encode(SidrAnswer{.number = 0xa1a2a3a4,
                                           .status = status,
                                           .qp_num = accepted ? 0x123456u : 0,
                                           .qkey = accepted ? 0x01234567u : 0,
                                           .data = data});
    return {encoded.octets().begin(), encoded.octets().end()};
}

void expect_first(const std::vector<std::byte>& octets, const std::vector<unsigned>& expected) {
    ASSERT_GE(octets.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(std::to_integer<unsigned>(octets[i]), expected[i]) << i;
    }
}

TEST(SidrRequest, lies_on_the_wire_as_the_page_says) {
    const auto frame = request_frame(2);
    expect_first(frame, {'x', 's', 'o', 'c', 'k', '-', 'U', 'D', 1, 1, 0, 2, 0xa1, 0xa2, 0xa3, 0xa4,
                         0,   0,   0,   0,   0,   0,   0,   0,   0, 0, 0, 0, 1,    2,    0});
    EXPECT_EQ(frame.size(), 208u);
}

TEST(SidrRequest, is_read_as_it_was_written) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, kSidrRequestData}) {
        const auto frame = request_frame(n);
        const auto decoded = decode_sidr_request(frame);
        ASSERT_TRUE(decoded.has_value());
        EXPECT_EQ(decoded->number, 0xa1a2a3a4u);
        EXPECT_EQ(decoded->data.data(), frame.data() + kSidrHeader);
        EXPECT_EQ(decoded->data.size(), n);
        EXPECT_TRUE(std::equal(decoded->data.begin(), decoded->data.end(), data_of(n).begin()));
    }
}

TEST(SidrRequest, cut_or_longer_it_is_none) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{7}, kSidrRequestData}) {
        auto frame = request_frame(n);
        for (std::size_t cut = 0; cut < frame.size(); ++cut) {
            EXPECT_FALSE(decode_sidr_request(ConstBytes(frame).first(cut)).has_value()) << cut;
        }
        frame.push_back(std::byte{});
        EXPECT_FALSE(decode_sidr_request(frame).has_value());
    }
}

TEST(SidrRequest, changed_elsewhere_than_in_number_length_and_data_it_is_none) {
    const auto frame = request_frame(3);
    for (std::size_t at = 0; at < frame.size(); ++at) {
        const bool free = (at >= 11 && at < 16) || (at >= kSidrHeader && at < kSidrHeader + 3);
        auto changed = frame;
        changed[at] ^= std::byte{0x40};
        EXPECT_EQ(decode_sidr_request(changed).has_value(), free) << at;
    }
}

TEST(SidrRequest, whose_data_are_longer_than_it_is_none) {
    auto frame = request_frame(kSidrRequestData);
    store_be16(frame.data() + 10, kSidrRequestData + 1);
    EXPECT_FALSE(decode_sidr_request(frame).has_value());
    store_be16(frame.data() + 10, 0xffff);
    EXPECT_FALSE(decode_sidr_request(frame).has_value());
}

TEST(SidrAnswer, lies_on_the_wire_as_the_page_says) {
    const auto frame = answer_frame(sidr_status::kAccepted, 1);
    expect_first(frame,
                 {'x',  's', 'o',  'c',  'k',  '-',  'U',  'D',  1,    2, 0, 1, 0xa1, 0xa2, 0xa3,
                  0xa4, 0,   0x12, 0x34, 0x56, 0x01, 0x23, 0x45, 0x67, 0, 0, 0, 0,    1});
    EXPECT_EQ(frame.size(), 29u);
}

TEST(SidrAnswer, is_read_as_it_was_written) {
    for (const std::uint32_t status :
         {sidr_status::kAccepted, sidr_status::kRejected, 0xffffffffu}) {
        for (const std::size_t n : {std::size_t{0}, std::size_t{1}, kSidrAnswerData}) {
            const auto frame = answer_frame(status, n);
            const auto decoded = decode_sidr_answer(frame);
            ASSERT_TRUE(decoded.has_value());
            EXPECT_EQ(decoded->number, 0xa1a2a3a4u);
            EXPECT_EQ(decoded->status, status);
            EXPECT_EQ(decoded->qp_num, status == 0 ? 0x123456u : 0);
            EXPECT_EQ(decoded->qkey, status == 0 ? 0x01234567u : 0);
            EXPECT_EQ(decoded->data.size(), n);
        }
    }
}

TEST(SidrAnswer, is_never_longer_than_a_request) {
    EXPECT_LT(answer_frame(0, kSidrAnswerData).size(), request_frame(0).size());
}

TEST(SidrAnswer, cut_or_longer_it_is_none) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{7}, kSidrAnswerData}) {
        auto frame = answer_frame(sidr_status::kAccepted, n);
        for (std::size_t cut = 0; cut < frame.size(); ++cut) {
            EXPECT_FALSE(decode_sidr_answer(ConstBytes(frame).first(cut)).has_value()) << cut;
        }
        frame.push_back(std::byte{});
        EXPECT_FALSE(decode_sidr_answer(frame).has_value());
    }
}

TEST(SidrAnswer, names_a_queue_pair_if_and_only_if_it_accepts) {
    auto frame = answer_frame(sidr_status::kAccepted, 0);
    store_be32(frame.data() + 16, 0);
    EXPECT_FALSE(decode_sidr_answer(frame).has_value());
    store_be32(frame.data() + 16, 0x1000000);
    EXPECT_FALSE(decode_sidr_answer(frame).has_value());
    frame = answer_frame(sidr_status::kRejected, 0);
    store_be32(frame.data() + 16, 1);
    EXPECT_FALSE(decode_sidr_answer(frame).has_value());
    frame = answer_frame(sidr_status::kRejected, 0);
    store_be32(frame.data() + 20, 1);
    EXPECT_FALSE(decode_sidr_answer(frame).has_value());
}

TEST(Sidr, one_type_is_not_taken_for_the_other) {
    EXPECT_FALSE(decode_sidr_answer(request_frame(0)).has_value());
    auto request = request_frame(0);
    request[9] = std::byte{2};
    EXPECT_FALSE(decode_sidr_request(request).has_value());
    EXPECT_FALSE(decode_sidr_request(answer_frame(0, 0)).has_value());
    auto answer = answer_frame(sidr_status::kAccepted, 0);
    answer[9] = std::byte{1};
    EXPECT_FALSE(decode_sidr_answer(answer).has_value());
}

TEST(SidrRepeat, doubles_up_to_a_second_until_its_limit) {
    const Time start = 7 * kSecond;
    SidrRepeat repeat(start, 4 * kSecond);
    std::vector<Time> sent;
    Time now = start;
    while (!repeat.is_over(now = repeat.due())) {
        sent.push_back((now - start) / kMillisecond);
        repeat.sent(now);
    }
    EXPECT_EQ(sent, (std::vector<Time>{50, 150, 350, 750, 1550, 2550, 3550}));
    EXPECT_EQ(now, start + 4 * kSecond);
}

SidrKey key_number(std::uint32_t number) { return {.port = 1, .number = number}; }
EncodedSidrAnswer answer_number(std::uint32_t number) {
    return encode(SidrAnswer{.number = number, .qp_num = 1, .data = {}});
}

TEST(SidrAnswers, finds_what_was_sent_to_just_that_request) {
    SidrAnswers answers;
    answers.add(key_number(1), answer_number(1), 0);
    const auto* const found = answers.find(key_number(1), 1);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(decode_sidr_answer(found->octets())->number, 1u);
    EXPECT_EQ(answers.find(key_number(2), 1), nullptr);
    auto other = key_number(1);
    other.port = 2;
    EXPECT_EQ(answers.find(other, 1), nullptr);
    other = key_number(1);
    other.address[15] = 1;
    EXPECT_EQ(answers.find(other, 1), nullptr);
}

TEST(SidrAnswers, forgets_what_is_old) {
    SidrAnswers answers;
    answers.add(key_number(1), answer_number(1), 0);
    answers.add(key_number(2), answer_number(2), kSecond);
    EXPECT_NE(answers.find(key_number(1), SidrAnswers::kKept - 1), nullptr);
    EXPECT_EQ(answers.find(key_number(1), SidrAnswers::kKept), nullptr);
    EXPECT_NE(answers.find(key_number(2), SidrAnswers::kKept), nullptr);
    EXPECT_EQ(answers.size(), 1u);
}

TEST(SidrAnswers, keeps_only_so_many) {
    SidrAnswers answers;
    for (std::uint32_t i = 0; i < SidrAnswers::kMost + 10; ++i) {
        answers.add(key_number(i), answer_number(i), i);
    }
    EXPECT_EQ(answers.size(), SidrAnswers::kMost);
    EXPECT_EQ(answers.find(key_number(9), 0), nullptr);
    EXPECT_NE(answers.find(key_number(10), 0), nullptr);
}

}  // namespace
}  // namespace xsock::verbs
