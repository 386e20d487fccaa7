// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "verbs/files/local_gids.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

namespace xsock::verbs {
namespace {

using testing::ElementsAre;

LocalAddress address(const char* text, unsigned interface, const char* name) {
    LocalAddress made;
    auto& v4 = reinterpret_cast<sockaddr_in&>(made.address);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(made.address);
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
        made.address.ss_family = AF_INET;
    } else {
        EXPECT_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
        made.address.ss_family = AF_INET6;
    }
    made.interface = interface;
    std::strcpy(made.name.data(), name);
    made.loopback = std::strcmp(name, "lo") == 0;
    return made;
}

std::vector<std::string> names(const GidList& gids) {
    std::vector<std::string> all;
    for (const GidEntry& entry : gids) all.push_back(entry.interface + " " + gid_text(entry.gid));
    return all;
}

const std::vector<LocalAddress> kMachine = {
    address("127.0.0.1", 1, "lo"),     address("10.0.0.1", 2, "eth0"),
    address("192.0.2.7", 3, "eth1"),   address("::1", 1, "lo"),
    address("2001:db8::1", 2, "eth0"), address("2001:db8::7", 3, "eth1"),
};
constexpr const char* kEth0V4 = "eth0 0000:0000:0000:0000:0000:ffff:0a00:0001";
constexpr const char* kEth0V6 = "eth0 2001:0db8:0000:0000:0000:0000:0000:0001";
constexpr const char* kEth1V4 = "eth1 0000:0000:0000:0000:0000:ffff:c000:0207";
constexpr const char* kEth1V6 = "eth1 2001:0db8:0000:0000:0000:0000:0000:0007";

TEST(LocalGids, the_default_routes_interface_is_first_and_loopback_is_left_out) {
    EXPECT_THAT(names(ordered_gids(kMachine, {}, "eth1")),
                ElementsAre(kEth1V4, kEth1V6, kEth0V4, kEth0V6));
}

TEST(LocalGids, without_a_default_route_they_come_as_they_are) {
    EXPECT_THAT(names(ordered_gids(kMachine, {}, "")),
                ElementsAre(kEth0V4, kEth0V6, kEth1V4, kEth1V6));
}

TEST(LocalGids, loopback_is_there_when_nothing_else_is) {
    EXPECT_THAT(names(ordered_gids({kMachine[3], kMachine[0]}, {}, "")),
                ElementsAre("lo 0000:0000:0000:0000:0000:ffff:7f00:0001",
                            "lo 0000:0000:0000:0000:0000:0000:0000:0001"));
}

TEST(LocalGids, those_that_are_wanted_come_in_that_order) {
    EXPECT_THAT(names(ordered_gids(kMachine, {"lo", "eth0"}, "eth1")),
                ElementsAre("lo 0000:0000:0000:0000:0000:ffff:7f00:0001",
                            "lo 0000:0000:0000:0000:0000:0000:0000:0001", kEth0V4, kEth0V6));
    EXPECT_TRUE(ordered_gids(kMachine, {"eth9"}, "eth1").empty());
}

TEST(LocalGids, an_address_of_two_interfaces_is_one_gid) {
    EXPECT_THAT(names(ordered_gids({address("10.0.0.1", 2, "eth0"), address("10.0.0.1", 3, "br0")},
                                   {}, "")),
                ElementsAre(kEth0V4));
}

TEST(LocalGids, there_are_no_more_than_the_limit) {
    std::vector<LocalAddress> many;
    for (unsigned i = 0; i < 2 * kMaxGids; ++i) {
        const std::string text = "10.1." + std::to_string(i / 256) + "." + std::to_string(i % 256);
        many.push_back(address(text.c_str(), 2, "eth0"));
    }
    EXPECT_EQ(ordered_gids(many, {}, "").size(), kMaxGids);
}

TEST(LocalGids, the_default_route_with_the_lowest_metric_counts) {
    EXPECT_EQ(default_interface_v4("Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
                                   "wlan0\t00000000\t0102A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n"
                                   "eth0\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
                                   "eth1\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\n"
                                   "eth3\t00000000\t0102A8C0\t0003\t0\t0\t700\t00000000\t0\n"),
              "eth1");
    EXPECT_EQ(default_interface_v4(""), "");
    EXPECT_EQ(default_interface_v4("eth0\t00000000"), "");
    const std::string zero(32, '0');
    EXPECT_EQ(default_interface_v6(zero + " 00 " + zero + " 00 " + zero +
                                   " ffffffff 00000001 00000000 00200200       lo\n" + zero +
                                   " 00 " + zero + " 00 fe800000000000000000000000000001 " +
                                   "00000400 00000001 00000000 00000003     eth2\n" + zero +
                                   " 00 " + zero + " 00 fe800000000000000000000000000001 " +
                                   "00000800 00000001 00000000 00000003     eth5\n"),
              "eth2");
}

TEST(LocalGids, names_of_interfaces_are_checked) {
    EXPECT_THAT(parse_interfaces("eth0,br-1"), ElementsAre("eth0", "br-1"));
    for (const char* const wrong : {"", ",", "eth0,", "a/b", "far-too-long-a-name", "a b"}) {
        EXPECT_TRUE(parse_interfaces(wrong).empty()) << wrong;
    }
}

TEST(LocalGids, a_gid_is_read_as_it_is_written) {
    const auto gid = ordered_gids(kMachine, {}, "eth0")[1].gid;
    EXPECT_EQ(parse_gid(gid_text(gid)), gid);
    for (const char* const wrong :
         {"", "::1", "0000:0000:0000:0000:0000:ffff:0a00:000",
          "0000:0000:0000:0000:0000:ffff:0a00:00010", "0000:0000:0000:0000:0000:ffff:0a00-0001",
          "0000:0000:0000:0000:0000:fffg:0a00:0001", "0000:0000:0000:0000:0000:ffff:0a00:+001"}) {
        EXPECT_FALSE(parse_gid(wrong).has_value()) << wrong;
    }
}

}  // namespace
}  // namespace xsock::verbs
