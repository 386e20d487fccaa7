// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/qp_numbers.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>

namespace xsock::verbs {
namespace {

TEST(QpIndices, each_is_given_once) {
    QpIndices indices(true);
    std::set<unsigned> seen;
    for (unsigned i = 0; i < QpIndices::kIndices; ++i) seen.insert(*indices.take(i * 7919));
    EXPECT_EQ(seen.size(), QpIndices::kIndices);
    EXPECT_FALSE(indices.take(0).has_value());
}

TEST(QpIndices, the_number_with_all_bits_set_is_none) {
    QpIndices indices(false);
    for (unsigned i = 0; i < QpIndices::kIndices - 1; ++i) EXPECT_NE(*indices.take(i), 255);
    EXPECT_TRUE(indices.empty());
}

TEST(QpIndices, one_that_was_given_back_rests) {
    QpIndices indices(true);
    for (unsigned i = 0; i < 1000; ++i) {
        const std::uint8_t index = *indices.take(i);
        indices.give(index);
        for (std::size_t k = 0; k < QpIndices::kIndices - QpIndices::kDrawn; ++k) {
            const std::uint8_t next = *indices.take(i + static_cast<unsigned>(k) * 31);
            EXPECT_NE(next, index);
            indices.give(next);
        }
    }
}

TEST(QpIndices, among_those_that_rested_longest_one_is_drawn) {
    std::set<unsigned> first;
    QpIndices indices(true);
    for (unsigned i = 0; i < QpIndices::kDrawn; ++i) {
        QpIndices same = indices;
        first.insert(*same.take(i));
    }
    EXPECT_EQ(first.size(), QpIndices::kDrawn);
}

TEST(QpNumbers, without_ports_they_are_counted) {
    QpNumbers numbers;
    const std::uint32_t first = *numbers.take();
    EXPECT_GE(first, 2u);
    EXPECT_EQ(*numbers.take([&](std::uint32_t n) { return n == first + 1; }), first + 2);
    EXPECT_TRUE(numbers.ports().empty());
}

TEST(QpNumbers, have_the_port_of_a_bound_socket_that_does_not_listen) {
    QpNumbers numbers;
    numbers.use_ports({});
    auto number = numbers.take();
    ASSERT_TRUE(number);
    ASSERT_EQ(numbers.ports().size(), 1u);
    EXPECT_EQ(port_in(*number), numbers.ports()[0].port);
    EXPECT_TRUE(numbers.has_port(port_in(*number)));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_in(*number));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), -1);
    EXPECT_EQ(errno, ECONNREFUSED);
    close(fd);
}

TEST(QpNumbers, take_a_port_for_every_256) {
    QpNumbers numbers;
    numbers.use_ports({});
    std::set<std::uint32_t> seen;
    for (unsigned i = 0; i < 600; ++i) seen.insert(*numbers.take());
    EXPECT_EQ(seen.size(), 600u);
    EXPECT_EQ(numbers.ports().size(), 3u);
    EXPECT_LT(*seen.rbegin(), 0xffffffu);
    for (const std::uint32_t number : seen) numbers.give(number);
    for (unsigned i = 0; i < 600; ++i) ASSERT_TRUE(numbers.take());
    EXPECT_EQ(numbers.ports().size(), 3u);
}

TEST(QpNumbers, keep_to_the_range) {
    QpNumbers one;
    one.use_ports({});
    const std::uint16_t port = port_in(*one.take());
    QpNumbers numbers;
    numbers.use_ports({port, port});
    EXPECT_EQ(numbers.take().error().code, EADDRINUSE);
    one.close_all();
    auto number = numbers.take();
    ASSERT_TRUE(number);
    EXPECT_EQ(port_in(*number), port);
}

}  // namespace
}  // namespace xsock::verbs
