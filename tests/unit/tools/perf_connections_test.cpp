// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The data connections of `xsock perf`, both ends in one process.
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "tests/unit/loopback.hpp"
#include "tools/perf/connections.hpp"
#include "tools/text.hpp"

namespace xsock::tools::perf {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kSize = 65536, kDepth = 4;
constexpr int kStallLimitMs = 1000;

/// Both ends, connected. The server's time limit is short.
struct Ends {
    Ends() {
        const test::LoopbackPair pair = test::loopback_pair();
        auto accepted = std::async(std::launch::async, [&] { server.accept(pair.server, 1); });
        client.connect(pair.client, 1, 0);
        accepted.get();
    }
    DdpConnections client{kSize, kDepth, true};
    DdpConnections server{kSize, kDepth, true, kStallLimitMs};
};

Sample writes(bool client, std::uint64_t count) {
    Sample sample;
    sample.test = Test::stream;
    sample.op = Op::write;
    sample.size = kSize;
    sample.depth = kDepth;
    sample.count = count;
    sample.client = client;
    return sample;
}

TEST(PerfConnections, a_sample_of_writes_may_last_longer_than_a_stall) {
    Ends ends;
    for (std::uint64_t count = 1000;;) {  // as many as take three times the limit
        ends.client.prepare(writes(true, count));
        ends.server.prepare(writes(false, count));
        auto served =
            std::async(std::launch::async, [&] { return ends.server.run(writes(false, count)); });
        const double ms = ends.client.run(writes(true, count)) / 1e6;
        served.get();
        if (ms > 3 * kStallLimitMs) break;
        count = static_cast<std::uint64_t>(static_cast<double>(count) * 4 * kStallLimitMs / ms) + 1;
    }
}

TEST(PerfConnections, an_end_whose_peer_does_nothing_is_given_up) {
    Ends ends;
    ends.server.prepare(writes(false, 1));
    const auto begin = std::chrono::steady_clock::now();
    try {
        (void)ends.server.run(writes(false, 1));
        ADD_FAILURE() << "it ended";
    } catch (const Failure& failure) {
        EXPECT_NE(std::string(failure.what()).find("nothing moved for 1 s"), std::string::npos)
            << failure.what();
    }
    EXPECT_GE(std::chrono::steady_clock::now() - begin, kStallLimitMs * 1ms);
}

}  // namespace
}  // namespace xsock::tools::perf
