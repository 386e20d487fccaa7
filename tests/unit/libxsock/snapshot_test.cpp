// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is sent from memory that another thread changes meanwhile: XSOCK_SNAPSHOT of a request, of
// an endpoint and of a process.
#include <tuple>

#include "tests/support/changing_memory.h"
#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/pair.hpp"

namespace xsock::test {
namespace {

constexpr int kWrites = 1000;
constexpr int kAtOnce = 8;
constexpr int kSmallBuffer = 64 * 1024;  // TCP's: always full, while writes wait

struct Plan {
    std::uint32_t bytes = 64 * 1024;
    int send_buffer = 0;  // 0: the kernel's choice, which takes some writes at once
    std::uint32_t endpoint_flags = 0;
    std::uint32_t request_flags = 0;
};

bool failed() { return ::testing::Test::HasFailure(); }

// All complete, and so does the Send behind them: the peer has found no wrong CRC.
void write_while_it_changes(const Plan& plan) {
    const std::uint32_t both = plan.endpoint_flags & XSOCK_EP_NO_CRC;
    Pair pair({.adjust =
                   [&](xsock_ep_attr& client, xsock_ep_attr& server) {
                       client.flags = plan.endpoint_flags;
                       server.flags = both;
                   },
               .send_buffer = plan.send_buffer});
    ASSERT_EQ(query(pair.server).crc, both == 0 ? 1u : 0u);
    std::vector<unsigned char> from(plan.bytes);
    std::vector<unsigned char> into(plan.bytes);
    const Region to(into.data(), into.size(), XSOCK_REMOTE_WRITE);
    char last = 0;
    ASSERT_EQ(xsock_recv(pair.server, 0, &last, 1), 0);

    changing_memory memory;
    ASSERT_EQ(begin_changing(&memory, from.data(), from.size()), 0);
    int done = 0;
    for (int posted = 0; done < kWrites && !failed(); ++done) {
        for (; posted < kWrites && posted < done + kAtOnce; ++posted) {
            EXPECT_EQ(xsock_write(pair.client, static_cast<std::uint64_t>(posted), from.data(),
                                  plan.bytes, &to.remote, 0, plan.request_flags),
                      0);
        }
        EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_SUCCESS) << "write " << done;
    }
    end_changing(&memory);
    if (!failed()) {
        ASSERT_EQ(xsock_send(pair.client, 0, "!", 1, 0), 0);
        EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_SUCCESS);
        EXPECT_EQ(last, '!');
    }
    EXPECT_STREQ(query(pair.server).error_text, "");
}

class Snapshot : public ::testing::TestWithParam<std::tuple<std::uint32_t, int>> {};

TEST_P(Snapshot, is_sent_though_memory_changes) {
    const auto [bytes, send_buffer] = GetParam();
    write_while_it_changes(
        {.bytes = bytes, .send_buffer = send_buffer, .request_flags = XSOCK_SNAPSHOT});
}
INSTANTIATE_TEST_SUITE_P(Sizes, Snapshot,
                         ::testing::Combine(::testing::Values(4096u, 64u << 10, 1u << 20),
                                            ::testing::Values(0, kSmallBuffer)));

TEST(SnapshotOf, every_request_of_an_endpoint) {
    write_while_it_changes({.endpoint_flags = XSOCK_EP_SNAPSHOT});
}

TEST(SnapshotOf, every_request_of_a_process) {
    with_environment("XSOCK_SNAPSHOT", "1", [] { write_while_it_changes({}); });
}

// Where it lies, for no CRC has to fit: TCP takes some of it now, and some later.
TEST(SnapshotOf, requests_without_crc_complete_though_memory_changes) {
    write_while_it_changes({.bytes = 1u << 20,
                            .send_buffer = kSmallBuffer,
                            .endpoint_flags = XSOCK_EP_SNAPSHOT | XSOCK_EP_NO_CRC});
}

TEST(SnapshotOf, sends_and_writes_with_immediate_data_too) {
    Pair pair;
    std::vector<unsigned char> from(256 * 1024);
    std::vector<unsigned char> into(from.size());
    const Region to(into.data(), into.size(), XSOCK_REMOTE_WRITE);
    const auto length = static_cast<std::uint32_t>(from.size());
    changing_memory memory;
    ASSERT_EQ(begin_changing(&memory, from.data(), from.size()), 0);
    for (int i = 0; i < 200 && !failed(); ++i) {
        EXPECT_EQ(xsock_recv(pair.server, 1, into.data(), length), 0);
        EXPECT_EQ(xsock_recv(pair.server, 2, nullptr, 0), 0);
        EXPECT_EQ(xsock_send(pair.client, 1, from.data(), length, XSOCK_SNAPSHOT), 0);
        EXPECT_EQ(
            xsock_write_imm(pair.client, 2, from.data(), length, &to.remote, 0, 7, XSOCK_SNAPSHOT),
            0);
        for (int k = 0; k < 2; ++k) {
            EXPECT_EQ(next(pair.server_cq).status, XSOCK_WC_SUCCESS) << i;
            EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_SUCCESS) << i;
        }
    }
    end_changing(&memory);
}

}  // namespace
}  // namespace xsock::test
