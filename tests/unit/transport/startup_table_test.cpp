// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/startup_table.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <optional>

#include "tests/unit/resource_limit.hpp"

namespace xsock {
namespace {

class StartupTableTest : public ::testing::Test {
  protected:
    void add(int id, const char* peer, Time now = 0) {
        sockaddr_storage address{};
        auto& v4 = reinterpret_cast<sockaddr_in&>(address);
        auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
        if (inet_pton(AF_INET, peer, &v4.sin_addr) == 1) {
            address.ss_family = AF_INET;
        } else {
            ASSERT_EQ(inet_pton(AF_INET6, peer, &v6.sin6_addr), 1) << peer;
            address.ss_family = AF_INET6;
        }
        table.add(&ids[static_cast<std::size_t>(id)], reinterpret_cast<sockaddr&>(address), now);
    }
    bool remove(int id) { return table.remove(&ids[static_cast<std::size_t>(id)]); }
    // Which one gives way, and removes it; -1: none.
    int drop(Time now = 0, Time min_age = 0) {
        const auto id = table.make_room(now, min_age);
        if (id == nullptr) return -1;
        EXPECT_TRUE(table.remove(id));
        return static_cast<int>(static_cast<char*>(id) - ids.data());
    }

    std::array<char, 64> ids{};
    StartupTable table{4};
};

TEST_F(StartupTableTest, is_full_at_its_capacity) {
    EXPECT_TRUE(table.empty());
    for (int i = 0; i < 4; ++i) {
        EXPECT_FALSE(table.full());
        add(i, "192.0.2.1");
    }
    EXPECT_TRUE(table.full());
    EXPECT_TRUE(remove(2));
    EXPECT_FALSE(remove(2));
    EXPECT_FALSE(table.full());
    table.clear();
    EXPECT_TRUE(table.empty());
    EXPECT_EQ(drop(), -1);
}

TEST_F(StartupTableTest, takes_at_most_half_of_the_descriptors) {
    std::optional<test::ResourceLimit> few(std::in_place, RLIMIT_NOFILE, 64);
    StartupTable limited(4096);
    few.reset();
    std::array<char, 32> all{};
    sockaddr_in peer{};
    peer.sin_family = AF_INET;
    for (char& id : all) {
        EXPECT_FALSE(limited.full());
        limited.add(&id, reinterpret_cast<sockaddr&>(peer), 0);
    }
    EXPECT_TRUE(limited.full());
}

TEST_F(StartupTableTest, the_oldest_of_the_address_that_holds_most_gives_way) {
    add(0, "192.0.2.1");
    add(1, "192.0.2.2");
    add(2, "192.0.2.2");
    add(3, "192.0.2.3");
    EXPECT_EQ(drop(), 1);
    // All hold one: the oldest of all.
    EXPECT_EQ(drop(), 0);
    add(4, "192.0.2.3");
    EXPECT_TRUE(remove(3));
    EXPECT_EQ(drop(), 2);
    EXPECT_EQ(drop(), 4);
    EXPECT_TRUE(table.empty());
}

TEST_F(StartupTableTest, the_addresses_of_a_prefix_of_64_bits_count_as_one) {
    add(0, "2001:db8:0:2::1");
    add(1, "2001:db8:0:1::1");
    add(2, "2001:db8:0:1:ffff::2");
    EXPECT_EQ(drop(), 1);
    EXPECT_EQ(drop(), 0);
    EXPECT_EQ(drop(), 2);
}

TEST_F(StartupTableTest, mapped_addresses_are_those_of_ipv4) {
    add(0, "::ffff:192.0.2.9");
    add(1, "::ffff:192.0.2.1");
    add(2, "192.0.2.1");
    add(3, "::1");  // not in the prefix of the mapped ones
    EXPECT_EQ(drop(), 1);
    EXPECT_EQ(drop(), 0);
    EXPECT_EQ(drop(), 2);
    EXPECT_EQ(drop(), 3);
}

TEST_F(StartupTableTest, spares_those_younger_than_is_asked) {
    add(0, "192.0.2.1", 10 * kSecond);
    EXPECT_EQ(drop(10 * kSecond + 99, 100), -1);
    EXPECT_EQ(drop(10 * kSecond + 100, 100), 0);
}

TEST_F(StartupTableTest, waits_for_young_ones_of_one_address) {
    const Time begin = 10 * kSecond;
    for (int i = 0; i < 3; ++i) add(i, "192.0.2.1", begin);
    EXPECT_FALSE(table.should_wait(begin)) << "there is room";
    add(3, "192.0.2.1", begin + 1);
    EXPECT_TRUE(table.should_wait(begin + StartupTable::kMinAge - 1));
    EXPECT_FALSE(table.should_wait(begin + StartupTable::kMinAge));
    EXPECT_TRUE(remove(0));
    add(0, "192.0.2.2", begin);
    EXPECT_FALSE(table.should_wait(begin + 1)) << "one of another address must not be kept out";
    table.clear();
    EXPECT_FALSE(table.should_wait(begin));
}

TEST_F(StartupTableTest, waits_no_more_once_a_crowd_was_seen) {
    Time now = 10 * kSecond;
    const auto fill = [&] {
        table.clear();
        for (int i = 0; i < 4; ++i) add(i, "192.0.2.1", now);
    };
    fill();
    EXPECT_EQ(drop(now), 0);  // young: for another address, or for a descriptor
    add(0, "192.0.2.1", now);
    EXPECT_TRUE(table.should_wait(now));
    now += StartupTable::kMinAge;
    EXPECT_NE(drop(now), -1);
    fill();
    EXPECT_FALSE(table.should_wait(now));
    now += StartupTable::kCrowdTime - 1;
    fill();
    EXPECT_FALSE(table.should_wait(now));
    now += 1;
    fill();
    EXPECT_TRUE(table.should_wait(now));
}

TEST_F(StartupTableTest, waits_no_more_once_one_has_failed) {
    const Time now = 10 * kSecond;
    for (int i = 0; i < 4; ++i) add(i, "192.0.2.1", now);
    // To make room is no failure of its own.
    EXPECT_EQ(table.make_room(now), &ids[0]);
    EXPECT_TRUE(table.remove_failed(&ids[0], now));
    EXPECT_FALSE(table.remove_failed(&ids[0], now));
    EXPECT_TRUE(table.remove_failed(&ids[1], now));  // there was room
    add(0, "192.0.2.1", now);
    add(1, "192.0.2.1", now);
    EXPECT_TRUE(table.should_wait(now));
    EXPECT_TRUE(table.remove_failed(&ids[2], now));
    add(2, "192.0.2.1", now);
    EXPECT_FALSE(table.should_wait(now));
}

// 4096 clients of honest addresses beside a crowd of one: none of theirs is closed.
TEST_F(StartupTableTest, a_crowd_pushes_out_itself_alone) {
    StartupTable many(4096);
    std::vector<char> honest(100), crowd(20'000);
    sockaddr_in peer{};
    peer.sin_family = AF_INET;
    const auto enter = [&](char& id, std::uint32_t address) {
        if (many.full()) {
            const auto gone = many.make_room(0);
            ASSERT_NE(gone, nullptr);
            EXPECT_GE(static_cast<char*>(gone), crowd.data());
            EXPECT_LT(static_cast<char*>(gone), crowd.data() + crowd.size());
            EXPECT_TRUE(many.remove(gone));
        }
        peer.sin_addr.s_addr = htonl(address);
        many.add(&id, reinterpret_cast<sockaddr&>(peer), 0);
    };
    for (std::size_t i = 0; i < crowd.size(); ++i) {
        enter(crowd[i], 0xc0000201);
        if (i % 200 == 0) enter(honest[i / 200], 0xc6336400 + static_cast<std::uint32_t>(i / 200));
    }
    for (char& id : honest) EXPECT_TRUE(many.remove(&id));
}

// In a process of its own, whose log is not open yet.
void log_a_crowd() {
    setenv("XSOCK_LOG", "warn", 1);
    setenv("XSOCK_STAT", "off", 1);
    StartupTable table(2);
    std::array<char, 2> ids{};
    sockaddr_in peer{};
    peer.sin_family = AF_INET;
    peer.sin_addr.s_addr = htonl(0xc0000201);
    for (char& id : ids) table.add(&id, reinterpret_cast<const sockaddr&>(peer), 0);
    for (const Time now : {Time{0}, Time{1}, 59 * kSecond, 60 * kSecond, 61 * kSecond}) {
        if (table.make_room(now) == nullptr) _exit(1);
    }
    _exit(0);
}

TEST(StartupTableLog, has_one_line_for_each_address_and_minute) {
    ASSERT_EXIT(
        log_a_crowd(), ::testing::ExitedWithCode(0),
        "^xsock\\[[0-9]+\\] warn startup-crowded: 192.0.2.1: holds 2 of 2 [^\n]*\\(1 closed[^\n]*\n"
        "xsock\\[[0-9]+\\] warn startup-crowded: 192.0.2.1: [^\n]*\\(3 closed[^\n]*\n$");
}

}  // namespace
}  // namespace xsock
