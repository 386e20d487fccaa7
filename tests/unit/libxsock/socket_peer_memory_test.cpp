// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a process remembers of listeners that the registry has named: how long, for whom, and that
// what was wrong stays so until another socket listens there.
#include <gtest/gtest.h>

#include "libxsock/socket/peer_memory.hpp"

namespace xsock::sockets {
namespace {

constexpr Time kStart = 5 * kSecond;
constexpr PeerMemory::Place kHere{7, 1000, 0};

IpEndpoint peer(unsigned port) {
    return {*parse_ip_address("10.0.0.5"), static_cast<std::uint16_t>(port)};
}

TEST(PeerMemory, an_answer_holds_for_ten_milliseconds) {
    PeerMemory memory;
    EXPECT_FALSE(memory.holds(peer(80), kHere, kStart));
    EXPECT_TRUE(memory.found(peer(80), 1, kHere, kStart));
    const Time last = kStart + 10 * kMillisecond - 1;
    EXPECT_TRUE(memory.holds(peer(80), kHere, last));
    EXPECT_FALSE(memory.holds(peer(81), kHere, last));
    EXPECT_FALSE(memory.holds(peer(80), kHere, last + 1));
    EXPECT_TRUE(memory.found(peer(80), 1, kHere, last + 1));
    EXPECT_TRUE(memory.holds(peer(80), kHere, last + 2));
}

TEST(PeerMemory, that_there_is_none_holds_for_a_millisecond) {
    PeerMemory memory;
    EXPECT_FALSE(memory.has_none(peer(80), kHere, kStart));
    memory.found_none(peer(80), kHere, kStart);
    const Time last = kStart + kMillisecond - 1;
    EXPECT_TRUE(memory.has_none(peer(80), kHere, last));
    EXPECT_FALSE(memory.has_none(peer(80), kHere, last + 1));
    EXPECT_FALSE(memory.has_none(peer(81), kHere, last));
    EXPECT_FALSE(memory.has_none(peer(80), {8, 1000, 0}, last));
    EXPECT_FALSE(memory.holds(peer(80), kHere, last));
    memory.found_none(peer(80), {0, 1000, 0}, kStart);
    EXPECT_FALSE(memory.has_none(peer(80), {0, 1000, 0}, kStart)) << "no network is known";
}

TEST(PeerMemory, an_answer_holds_for_the_same_network_user_and_scope) {
    PeerMemory memory;
    EXPECT_TRUE(memory.found(peer(80), 1, kHere, kStart));
    EXPECT_TRUE(memory.holds(peer(80), kHere, kStart));
    EXPECT_FALSE(memory.holds(peer(80), {8, 1000, 0}, kStart));
    EXPECT_FALSE(memory.holds(peer(80), {7, 1001, 0}, kStart));
    EXPECT_FALSE(memory.holds(peer(80), {7, 1000, 2}, kStart));
}

TEST(PeerMemory, without_a_known_network_no_answer_holds) {
    PeerMemory memory;
    EXPECT_TRUE(memory.found(peer(80), 1, {0, 1000, 0}, kStart));
    EXPECT_FALSE(memory.holds(peer(80), {0, 1000, 0}, kStart));
}

TEST(PeerMemory, what_was_wrong_stays_so_until_another_socket_listens_there) {
    PeerMemory memory;
    EXPECT_FALSE(memory.mark_wrong(peer(80))) << "nothing was found there";
    EXPECT_TRUE(memory.found(peer(80), 1, kHere, kStart));
    EXPECT_TRUE(memory.mark_wrong(peer(80)));
    EXPECT_FALSE(memory.mark_wrong(peer(80))) << "known";
    EXPECT_FALSE(memory.holds(peer(80), kHere, kStart));
    EXPECT_FALSE(memory.found(peer(80), 1, kHere, kStart + kSecond));
    EXPECT_FALSE(memory.holds(peer(80), kHere, kStart + kSecond));
    EXPECT_TRUE(memory.found(peer(80), 2, kHere, kStart + 2 * kSecond));
    EXPECT_TRUE(memory.holds(peer(80), kHere, kStart + 2 * kSecond));
}

TEST(PeerMemory, the_oldest_of_256_goes) {
    PeerMemory memory;
    for (unsigned port = 1; port <= 257; ++port) {
        EXPECT_TRUE(memory.found(peer(port), port, kHere, kStart));
    }
    EXPECT_FALSE(memory.holds(peer(1), kHere, kStart));
    for (unsigned port = 2; port <= 257; ++port) {
        EXPECT_TRUE(memory.holds(peer(port), kHere, kStart)) << port;
    }
}

}  // namespace
}  // namespace xsock::sockets
