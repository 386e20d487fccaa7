// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tools/plain_connections.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>

#include <array>
#include <cstring>

namespace xsock::tools {
namespace {

/// An address as the kernel prints it: words, each as a number of this machine.
template <std::size_t n>
std::string words_of(const std::array<unsigned char, n>& octets) {
    std::string text;
    for (std::size_t i = 0; i < n; i += 4) {
        std::uint32_t word = 0;
        std::memcpy(&word, octets.data() + i, sizeof word);
        text += fmt::format("{:08X}", word);
    }
    return text;
}

std::string line_of(const std::string& local, const std::string& peer) {
    return fmt::format(
        "   3: {}:1F90 {}:C350 01 00000000:00000000 00:00000000 00000000  1000"
        "        0 4711 1 0000000000000000 20 4 30 10 -1\n",
        local, peer);
}

TEST(ParseTcpLine, reads_ipv4_as_the_statistics_write_it) {
    TcpLine line;
    ASSERT_TRUE(parse_tcp_line(
        line_of(words_of<4>({127, 0, 0, 1}), words_of<4>({10, 0, 0, 5})).c_str(), line));
    EXPECT_EQ(line.local, "127.0.0.1:8080");
    EXPECT_EQ(line.peer, "10.0.0.5:50000");
    EXPECT_EQ(line.state, unsigned{TCP_ESTABLISHED});
    EXPECT_EQ(line.inode, 4711u);
}

TEST(ParseTcpLine, reads_ipv6_and_ipv4_within_it) {
    const std::array<unsigned char, 16> v6{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    const std::array<unsigned char, 16> mapped{0, 0, 0,    0,    0,   0, 0, 0,
                                               0, 0, 0xff, 0xff, 127, 0, 0, 1};
    TcpLine line;
    ASSERT_TRUE(parse_tcp_line(line_of(words_of(v6), words_of(mapped)).c_str(), line));
    EXPECT_EQ(line.local, "[2001:db8::1]:8080");
    EXPECT_EQ(line.peer, "[::ffff:127.0.0.1]:50000");
}

TEST(ParseTcpLine, takes_nothing_else) {
    TcpLine line;
    for (const char* text :
         {"", "\n", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n",
          "   0: 0100007F:1F90 00000000:0000 0A", "   0: 0100007F1F90", "   0: 01:1F90 01:0000 01",
          "   0: 010000:1F90 010000:C350 01 0:0 0:0 0 0 0 4711\n",
          "   0: 0100007F:1F90 00000000000000000000000000000000:C350 01 0:0 0:0 0 0 0 4711\n"}) {
        EXPECT_FALSE(parse_tcp_line(text, line)) << text;
    }
}

}  // namespace
}  // namespace xsock::tools
