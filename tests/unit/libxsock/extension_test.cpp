// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Atomic operations and Immediate Data through the C interface, over TCP.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <memory>
#include <thread>

#include "tests/unit/libxsock/pair.hpp"
#include "tests/unit/libxsock/raw_peer.hpp"
#include "tests/unit/sanitizers.hpp"

namespace xsock::test {
namespace {

xsock_remote remote_of(const xsock_mr* mr, std::size_t length) {
    xsock_key key;
    xsock_remote remote{};
    EXPECT_EQ(xsock_mr_key(mr, 0, length, &key), 0);
    xsock_key_read(&key, &remote);
    return remote;
}

TEST(Extension, atomics_change_the_peers_memory) {
    Pair pair;
    alignas(8) std::array<std::uint64_t, 2> words{5, 6};
    xsock_mr* const mr =
        xsock_mr_register(nullptr, words.data(), sizeof words, XSOCK_REMOTE_ATOMIC, nullptr);
    ASSERT_NE(mr, nullptr);
    const xsock_remote remote = remote_of(mr, sizeof words);
    std::uint64_t former = 0;
    ASSERT_EQ(xsock_fetch_add(pair.client, 1, &former, &remote, 8, 10, 0), 0);
    xsock_wc wc = next(pair.client_cq);
    EXPECT_EQ(wc.status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(wc.op, XSOCK_OP_FETCH_ADD);
    EXPECT_EQ(wc.length, 8u);
    EXPECT_EQ(former, 6u);
    EXPECT_EQ(words[1], 16u);
    ASSERT_EQ(xsock_compare_swap(pair.client, 2, &former, &remote, 8, 16, 3, 0), 0);
    EXPECT_EQ(next(pair.client_cq).op, XSOCK_OP_COMPARE_SWAP);
    EXPECT_EQ(former, 16u);
    ASSERT_EQ(xsock_compare_swap(pair.client, 3, &former, &remote, 8, 16, 4, 0), 0);
    EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(former, 3u);
    EXPECT_EQ(words[1], 3u);

    // Masks: swap the low byte in any case; add to two halves at once.
    XSOCK_INIT(xsock_wr, wr);
    const xsock_sge sge{&former, 8, 0};
    wr.sge = &sge, wr.sge_count = 1, wr.remote = remote;
    wr.op = XSOCK_OP_COMPARE_SWAP, wr.flags = XSOCK_MASKED;
    wr.operand = 0xffff, wr.operand_mask = 0xff;
    ASSERT_EQ(xsock_post(pair.client, &wr), 0);
    EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(words[0], 0xffu);
    wr.op = XSOCK_OP_FETCH_ADD;
    wr.operand = 0x00000001ffffffff, wr.operand_mask = 1ull << 63 | 1ull << 31;
    ASSERT_EQ(xsock_post(pair.client, &wr), 0);
    EXPECT_EQ(next(pair.client_cq).status, XSOCK_WC_SUCCESS);
    EXPECT_EQ(words[0], 0x1000000feu);
    wr.op = XSOCK_OP_READ;
    EXPECT_EQ(xsock_post(pair.client, &wr), -1);  // masks of a Read
    EXPECT_EQ(errno, EINVAL);

    EXPECT_EQ(xsock_fetch_add(pair.client, 4, &former, &remote, 9, 1, 0), -1);
    EXPECT_EQ(errno, ERANGE);
    EXPECT_EQ(xsock_fetch_add(pair.client, 4, nullptr, &remote, 0, 1, 0), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(xsock_mr_deregister(mr), 0);
}

/// Several connections, and the program itself, count in one word.
TEST(Extension, atomics_of_many_connections_and_the_program_lose_nothing) {
    constexpr std::uint64_t kRounds = 400;
    constexpr std::size_t kPairs = 3;
    alignas(8) std::uint64_t word = 0;
    xsock_mr* const mr =
        xsock_mr_register(nullptr, &word, sizeof word, XSOCK_REMOTE_ATOMIC, nullptr);
    const xsock_remote remote = remote_of(mr, sizeof word);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kPairs; ++i) {
        threads.emplace_back([&remote] {
            Pair pair;
            std::uint64_t former = 0, last = 0;
            for (std::uint64_t n = 0; n < kRounds; ++n) {
                ASSERT_EQ(xsock_fetch_add(pair.client, n, &former, &remote, 0, 1, 0), 0);
                ASSERT_EQ(next(pair.client_cq).status, XSOCK_WC_SUCCESS);
                ASSERT_TRUE(n == 0 || former > last);
                last = former;
            }
        });
    }
    for (std::uint64_t n = 0; n < kRounds; ++n) {
        __atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
        if (n % 16 == 0) std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(word, (kPairs + 1) * kRounds);
    EXPECT_EQ(xsock_mr_deregister(mr), 0);
}

TEST(Extension, a_target_without_the_right_or_alignment_is_refused) {
    alignas(8) std::array<std::uint64_t, 2> words{5, 6};
    struct {
        unsigned access;
        std::uint64_t offset;
        int status;
    } const cases[] = {
        {XSOCK_REMOTE_READ | XSOCK_REMOTE_WRITE, 0, XSOCK_WC_REMOTE_ACCESS},
        {XSOCK_REMOTE_ATOMIC, 4, XSOCK_WC_REMOTE_INVALID},
    };
    for (const auto& c : cases) {
        Pair pair;
        xsock_mr* const mr =
            xsock_mr_register(nullptr, words.data(), sizeof words, c.access, nullptr);
        const xsock_remote remote = remote_of(mr, sizeof words);
        std::uint64_t former = 1;
        ASSERT_EQ(xsock_fetch_add(pair.client, 1, &former, &remote, c.offset, 1, 0), 0);
        EXPECT_EQ(next(pair.client_cq).status, c.status);
        EXPECT_EQ(former, 1u);
        EXPECT_EQ(words, (std::array<std::uint64_t, 2>{5, 6}));
        EXPECT_EQ(xsock_mr_deregister(mr), 0);
    }
}

TEST(Extension, a_target_that_was_unmapped_costs_the_connection_only) {
#if defined(XSOCK_TEST_TSAN)
    GTEST_SKIP() << "TSan carries an atomic out in a function of its own, under a lock of its own "
                    "that the fault would leave locked";
#endif
    Pair pair;
    void* const page =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    xsock_mr* const mr = xsock_mr_register(nullptr, page, 4096, XSOCK_REMOTE_ATOMIC, nullptr);
    const xsock_remote remote = remote_of(mr, 4096);
    // As good as unmapped; the address is not given to another mapping.
    ASSERT_EQ(mprotect(page, 4096, PROT_NONE), 0);
    std::uint64_t former = 0;
    ASSERT_EQ(xsock_fetch_add(pair.client, 1, &former, &remote, 0, 1, 0), 0);
    EXPECT_NE(next(pair.client_cq).status, XSOCK_WC_SUCCESS);
    const xsock_ep_info info = query(pair.server);
    EXPECT_EQ(info.error, EFAULT) << info.error_text;
    EXPECT_EQ(xsock_mr_deregister(mr), 0);
    munmap(page, 4096);
}

TEST(Extension, immediate_data_arrive_behind_the_write) {
    Pair pair;
    auto source = pattern(5000);
    std::vector<unsigned char> target(5000);
    xsock_mr* const mr =
        xsock_mr_register(nullptr, target.data(), target.size(), XSOCK_REMOTE_WRITE, nullptr);
    const xsock_remote remote = remote_of(mr, target.size());
    ASSERT_EQ(xsock_recv(pair.server, 7, nullptr, 0), 0);
    ASSERT_EQ(xsock_recv(pair.server, 8, nullptr, 0), 0);
    ASSERT_EQ(xsock_write_imm(pair.client, 1, source.data(), 5000, &remote, 0, 0x0102030405060708,
                              XSOCK_SOLICITED),
              0);
    xsock_wc wc = next(pair.server_cq);
    EXPECT_EQ(wc.wr_id, 7u);
    EXPECT_EQ(wc.op, XSOCK_OP_RECV);
    EXPECT_EQ(wc.flags, XSOCK_WC_IMM | XSOCK_WC_SOLICITED);
    EXPECT_EQ(wc.immediate, 0x0102030405060708u);
    EXPECT_EQ(wc.length, 5000u);
    EXPECT_EQ(target, source);
    EXPECT_EQ(next(pair.client_cq).op, XSOCK_OP_WRITE_IMM);
    XSOCK_INIT(xsock_wr, wr);
    wr.op = XSOCK_OP_IMM, wr.immediate = 9;
    ASSERT_EQ(xsock_post(pair.client, &wr), 0);
    EXPECT_EQ(next(pair.server_cq).immediate, 9u);
    EXPECT_EQ(next(pair.client_cq).op, XSOCK_OP_IMM);
    EXPECT_EQ(xsock_mr_deregister(mr), 0);
}

TEST(Extension, a_send_may_have_32_bits_beside_it) {
    Pair pair;
    auto source = pattern(100);
    std::vector<unsigned char> inbox(100);
    ASSERT_EQ(xsock_recv(pair.server, 7, inbox.data(), 100), 0);
    XSOCK_INIT(xsock_wr, wr);
    const xsock_sge sge{source.data(), 100, 0};
    wr.op = XSOCK_OP_SEND_IMM, wr.flags = XSOCK_SOLICITED, wr.immediate = 0xfedcba98;
    wr.sge = &sge, wr.sge_count = 1;
    ASSERT_EQ(xsock_post(pair.client, &wr), 0);
    const xsock_wc wc = next(pair.server_cq);
    EXPECT_EQ(wc.wr_id, 7u);
    EXPECT_EQ(wc.length, 100u);
    EXPECT_EQ(wc.flags, XSOCK_WC_SEND_IMM | XSOCK_WC_SOLICITED);
    EXPECT_EQ(wc.immediate, 0xfedcba98u);
    EXPECT_EQ(inbox, source);
    EXPECT_EQ(next(pair.client_cq).op, XSOCK_OP_SEND_IMM);
    wr.immediate = 0x100000000;
    EXPECT_EQ(xsock_post(pair.client, &wr), -1);
    EXPECT_EQ(errno, EINVAL);
}

/// An endpoint that initiates toward a peer which does not say that it is an xsock.
struct StandardPeer {
    xsock_cq* cq = xsock_cq_create(nullptr);
    xsock_ep* ep = nullptr;
    std::unique_ptr<RawPeer> peer;
    StandardPeer() {
        int client = -1, server = -1;
        tcp_pair(client, server);
        peer = std::make_unique<RawPeer>(RawPeer::Connected{server});
        XSOCK_INIT(xsock_ep_attr, attr);
        attr.send_cq = cq;
        attr.mpa_revision = 1;
        ep = xsock_ep_create(client, &attr);
    }
    ~StandardPeer() {
        xsock_ep_abort(ep);
        xsock_cq_destroy(cq);
    }
};

TEST(Extension, posting_toward_a_standard_peer_is_refused) {
    StandardPeer standard_peer;
    ASSERT_NE(standard_peer.ep, nullptr);
    ASSERT_TRUE(standard_peer.peer->answer());
    ASSERT_EQ(xsock_ep_wait(standard_peer.ep, kLimitMs), 0);
    const xsock_remote remote{0, 8, 1, 0};
    std::uint64_t former = 0;
    EXPECT_EQ(xsock_fetch_add(standard_peer.ep, 1, &former, &remote, 0, 1, 0), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(xsock_compare_swap(standard_peer.ep, 1, &former, &remote, 0, 1, 0, 0), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(xsock_write_imm(standard_peer.ep, 1, &former, 8, &remote, 0, 1, 0), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
    // And it goes on.
    EXPECT_EQ(xsock_write(standard_peer.ep, 1, &former, 8, &remote, 0, 0), 0);
    EXPECT_EQ(next(standard_peer.cq).status, XSOCK_WC_SUCCESS);
}

TEST(Extension, posted_before_the_peer_is_known_to_be_a_standard_peer_fails) {
    StandardPeer standard_peer;
    ASSERT_NE(standard_peer.ep, nullptr);
    const xsock_remote remote{0, 8, 1, 0};
    std::uint64_t former = 0;
    ASSERT_EQ(xsock_fetch_add(standard_peer.ep, 1, &former, &remote, 0, 1, 0), 0);
    ASSERT_TRUE(standard_peer.peer->answer());
    EXPECT_EQ(next(standard_peer.cq).status, XSOCK_WC_LOCAL);
}

}  // namespace
}  // namespace xsock::test
