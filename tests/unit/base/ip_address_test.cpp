// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/ip_address.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstring>

namespace xsock {
namespace {

IpAddress address(const char* text) {
    const auto parsed = parse_ip_address(text);
    EXPECT_TRUE(parsed) << text;
    return parsed.value_or(IpAddress{});
}

TEST(IpNetwork, contains_what_shares_its_first_bits) {
    struct Row {
        const char* network;
        unsigned length;
        const char* other;
        bool contained;
    };
    const Row rows[] = {
        {"10.0.0.0", 96 + 8, "10.255.0.1", true},
        {"10.0.0.0", 96 + 8, "11.0.0.0", false},
        {"10.0.0.5", 96 + 24, "10.0.0.200", true},  // the rule's own address is masked too
        {"10.0.0.128", 96 + 25, "10.0.0.127", false},
        {"10.0.0.5", 128, "10.0.0.5", true},
        {"10.0.0.5", 128, "10.0.0.4", false},
        {"0.0.0.0", 96, "255.255.255.255", true},
        {"0.0.0.0", 96, "0.0.0.0", true},
        {"10.0.0.0", 96 + 8, "::ffff:10.1.2.3", true},
        {"::ffff:10.0.0.0", 96 + 8, "10.1.2.3", true},
        {"2001:db8::", 32, "2001:db8:ffff::1", true},
        {"2001:db8::", 33, "2001:db8:8000::1", false},
        {"2001:db8::1", 127, "2001:db8::", true},
        // IPv4 and IPv6 are apart, however short the network.
        {"::", 0, "2001:db8::1", true},
        {"::", 0, "10.0.0.1", false},
        {"::", 0, "::ffff:10.0.0.1", false},
        {"::ffff:0:0", 90, "10.0.0.1", false},
        {"0.0.0.0", 96, "::", false},
        {"0.0.0.0", 96, "2001:db8::1", false},
    };
    for (const Row& row : rows) {
        EXPECT_EQ(make_network(address(row.network), row.length).contains(address(row.other)),
                  row.contained)
            << row.network << "/" << row.length << " " << row.other;
    }
}

TEST(ParseIpAddress, takes_both_families) {
    EXPECT_TRUE(address("10.0.0.5").is_ipv4());
    EXPECT_TRUE(address("::ffff:10.0.0.5").is_ipv4());
    EXPECT_EQ(address("10.0.0.5"), address("::ffff:10.0.0.5"));
    EXPECT_EQ(address("010.000.0.005"), address("10.0.0.5")) << "decimal, not octal";
    EXPECT_FALSE(address("::1").is_ipv4());
    EXPECT_FALSE(address("::10.0.0.5").is_ipv4());
    for (const char* wrong : {"",
                              ".",
                              "10",
                              "10.0.0",
                              "10.0.0.5.6",
                              "10.0.0.",
                              ".0.0.5",
                              "10..0.5",
                              "10.0.0.256",
                              "10.0.0.-1",
                              "10.0.0.5 ",
                              "0x10.0.0.5",
                              "99999999999999999999.0.0.1",
                              "*",
                              "host",
                              ":",
                              ":::",
                              "2001:db8",
                              "2001:db8::1::",
                              "12345::",
                              "fe80::1%lo",
                              "[::1]",
                              "1:2:3:4:5:6:7:8:9",
                              "2001:0db8:0000:0000:0000:0000:0000:0000:0000:0001"}) {
        EXPECT_FALSE(parse_ip_address(wrong)) << wrong;
    }
    EXPECT_FALSE(parse_ip_address(std::string_view("::1\0", 4)));
}

TEST(ParseDecimal, takes_digits_up_to_a_limit) {
    EXPECT_EQ(parse_decimal("0", 9), 0u);
    EXPECT_EQ(parse_decimal("00065535", 65535), 65535u);
    EXPECT_EQ(parse_decimal(std::string(10000, '0') + "7", 65535), 7u);
    for (const char* wrong : {"", "65536", "-1", "+1", " 1", "1 ", "1x", "0x1", "1.0",
                              "18446744073709551616", "18446744073709551617"}) {
        EXPECT_FALSE(parse_decimal(wrong, 65535)) << wrong;
    }
}

TEST(EndpointOf, reads_what_the_kernel_tells) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(80);
    in.sin_addr.s_addr = htonl(0x0a000005);
    const auto* const plain = reinterpret_cast<const sockaddr*>(&in);
    const auto ipv4 = endpoint_of(plain, sizeof in);
    ASSERT_TRUE(ipv4);
    EXPECT_EQ(text_of(*ipv4), "10.0.0.5:80");

    sockaddr_in6 in6{};
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(443);
    in6.sin6_scope_id = 7;
    inet_pton(AF_INET6, "fe80::1", &in6.sin6_addr);
    const auto* const wide = reinterpret_cast<const sockaddr*>(&in6);
    ASSERT_TRUE(endpoint_of(wide, sizeof in6));
    EXPECT_EQ(text_of(*endpoint_of(wide, sizeof in6)), "[fe80::1]:443");
    inet_pton(AF_INET6, "::ffff:10.0.0.5", &in6.sin6_addr);
    in6.sin6_port = htons(80);
    EXPECT_EQ(endpoint_of(wide, sizeof in6), ipv4) << "an IPv4 peer of an IPv6 socket";

    EXPECT_FALSE(endpoint_of(nullptr, 0));
    EXPECT_FALSE(endpoint_of(plain, 0));
    EXPECT_FALSE(endpoint_of(plain, sizeof in - 1));
    EXPECT_FALSE(endpoint_of(wide, sizeof in6 - 1));
    sockaddr_un local{};
    local.sun_family = AF_UNIX;
    EXPECT_FALSE(endpoint_of(reinterpret_cast<const sockaddr*>(&local), sizeof local));
}

TEST(TextOf, writes_what_a_rule_takes) {
    EXPECT_EQ(text_of(address("::ffff:10.0.0.5")), "10.0.0.5");
    EXPECT_EQ(text_of(address("2001:DB8:0:0::1")), "2001:db8::1");
    EXPECT_EQ(text_of(make_network(address("10.1.2.3"), 96 + 8)), "10.0.0.0/8");
    EXPECT_EQ(text_of(make_network(address("10.1.2.3"), 128)), "10.1.2.3");
    EXPECT_EQ(text_of(make_network(address("0.0.0.0"), 96)), "0.0.0.0/0");
    EXPECT_EQ(text_of(make_network(address("2001:db8::1"), 32)), "[2001:db8::]/32");
    EXPECT_EQ(text_of(make_network(address("::"), 0)), "[::]/0");
}

}  // namespace
}  // namespace xsock
