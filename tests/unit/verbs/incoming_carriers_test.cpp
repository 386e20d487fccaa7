// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/incoming_carriers.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "tests/unit/verbs/fake_polled_qp.hpp"

namespace xsock::verbs {
namespace {

constexpr std::size_t kLimit = 8;

struct IncomingCarriersTest : testing::Test {
    struct One {
        std::shared_ptr<PolledQp> connection = std::make_shared<FakePolledQp>(PolledQpAttr{});
        std::atomic<std::uint64_t> used{0};
        /// Nothing looks at what it points to.
        std::shared_ptr<DatagramCarrier> ends() {
            return {connection, reinterpret_cast<DatagramCarrier*>(this)};
        }
    };
    static GidOctets ipv4(std::uint8_t last) {
        return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last};
    }
    static GidOctets ipv6(std::uint8_t prefix, std::uint8_t last) {
        return {0xfd, 0, 0, 0, 0, 0, 0, prefix, 0, 0, 0, 0, 0, 0, 0, last};
    }
    /// The carrier's number.
    std::size_t add(const GidOctets& peer, std::uint16_t from, std::uint16_t to = 1,
                    std::uint32_t name = 0) {
        One& one = all.emplace_back();
        one.used = table.clock();
        IncomingCarriers::Carrier carrier;
        carrier.key = {.peer = peer, .from = from, .to = to};
        carrier.connection = one.connection;
        carrier.used = &one.used;
        carrier.name = name;
        carrier.ends = one.ends();
        replaced = table.add(&one, std::move(carrier), kLimit);
        return all.size() - 1;
    }
    [[nodiscard]] std::shared_ptr<DatagramCarrier> find(const GidOctets& peer, std::uint16_t from,
                                                        std::uint32_t named) const {
        return table.find({.peer = peer, .from = from, .to = 1}, named);
    }
    void use(std::size_t number) { all[number].used = table.clock(); }

    std::deque<One> all;
    IncomingCarriers table;
    IncomingCarriers::Replaced replaced;
};

TEST_F(IncomingCarriersTest, replaces_one_of_the_same_process) {
    const auto first = add(ipv4(1), 7);
    add(ipv4(1), 8);
    add(ipv4(2), 7);
    add(ipv4(1), 7, 2);
    EXPECT_EQ(replaced.same, nullptr);
    add(ipv4(1), 7);
    EXPECT_EQ(replaced.same, all[first].connection);
    EXPECT_EQ(replaced.crowding, nullptr);
    EXPECT_EQ(table.size(), 4u);
    EXPECT_EQ(table.remove(&all[first]), nullptr);
}

TEST_F(IncomingCarriersTest, the_address_that_holds_most_makes_room) {
    const auto other = add(ipv4(2), 1);
    for (std::uint16_t from = 1; from < kLimit; ++from) add(ipv4(1), from);
    for (std::uint16_t from = 100; from < 200; ++from) {
        add(ipv4(1), from);
        EXPECT_NE(replaced.crowding, nullptr);
        EXPECT_NE(replaced.crowding, all[other].connection);
        EXPECT_EQ(table.size(), kLimit);
    }
    add(ipv4(3), 1);
    EXPECT_NE(replaced.crowding, nullptr);
    EXPECT_NE(table.remove(&all[other]), nullptr);
}

TEST_F(IncomingCarriersTest, the_one_that_was_not_used_for_longest_goes) {
    for (std::uint16_t from = 0; from < kLimit; ++from) add(ipv4(1), from);
    use(0);
    use(2);
    add(ipv4(1), 100);
    EXPECT_EQ(replaced.crowding, all[1].connection);
    add(ipv4(1), 101);
    EXPECT_EQ(replaced.crowding, all[3].connection);
}

TEST_F(IncomingCarriersTest, addresses_of_one_network_count_as_one_in_ipv6) {
    const auto other = add(ipv6(2, 1), 1);
    const auto another = add(ipv6(3, 1), 1);
    const auto first = add(ipv6(1, 0), 1);
    for (std::uint8_t last = 1; last < 6; ++last) add(ipv6(1, last), 1);
    add(ipv6(4, 1), 1);
    EXPECT_EQ(replaced.crowding, all[first].connection);
    EXPECT_NE(table.remove(&all[other]), nullptr);
    EXPECT_NE(table.remove(&all[another]), nullptr);
}

TEST_F(IncomingCarriersTest, finds_one_by_its_key_and_name) {
    const auto first = add(ipv4(1), 7, 1, 100);
    add(ipv4(2), 7, 1, 100);
    EXPECT_EQ(find(ipv4(1), 7, 100), all[first].ends());
    EXPECT_EQ(find(ipv4(1), 7, 101), nullptr);
    EXPECT_EQ(find(ipv4(1), 8, 100), nullptr);
    EXPECT_EQ(find(ipv4(3), 7, 100), nullptr);
    const auto newer = add(ipv4(1), 7, 1, 101);
    EXPECT_EQ(find(ipv4(1), 7, 100), nullptr);
    EXPECT_EQ(find(ipv4(1), 7, 101), all[newer].ends());
    EXPECT_NE(table.remove(&all[newer]), nullptr);
    EXPECT_EQ(find(ipv4(1), 7, 101), nullptr);
}

// The newcomer is the one that was idle for longest.
TEST_F(IncomingCarriersTest, a_newcomer_never_makes_room_for_itself) {
    for (std::uint16_t host = 0; host < kLimit; ++host) {
        add(ipv4(static_cast<std::uint8_t>(host)), 1);
    }
    for (One& one : all) one.used = table.clock() + 1;
    const auto last = add(ipv4(100), 1);
    EXPECT_NE(replaced.crowding, nullptr);
    EXPECT_NE(replaced.crowding, all[last].connection);
    EXPECT_EQ(table.remove(&all[last]), all[last].connection);
}

}  // namespace
}  // namespace xsock::verbs
