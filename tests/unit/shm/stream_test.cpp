// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "shm/stream.hpp"

#include <gmock/gmock.h>
#include <sys/mman.h>

#include "base/fault.hpp"
#include "tests/support/silent_ulp.hpp"
#include "tests/unit/shm/link_pair.hpp"

namespace xsock::shm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ShmStream, tells_the_ulp_once_it_is_opened) {
    LinkPair p;
    p.connect(1);
    End& end = *p.a.ends[1];
    EXPECT_THAT(end.ulp.events, ElementsAre("established"));
    EXPECT_TRUE(end.ulp.negotiated.initiator);
    EXPECT_FALSE(end.ulp.negotiated.crc);
    EXPECT_EQ(end.stream.state(), Llp::State::operational);
    EXPECT_EQ(end.stream.status().next_timeout, kNever);
    EXPECT_TRUE(end.stream.status().tx_allowed);
}

TEST(ShmStream, sends_nothing_before_it_is_opened_and_attached) {
    LinkPair p;
    End& a = p.a.make(1);
    EXPECT_FALSE(a.stream.status().tx_allowed);
    a.open({.initiator = true});
    EXPECT_FALSE(a.stream.status().tx_allowed);
    ASSERT_TRUE(p.a.link.open(a.stream, 1));
    EXPECT_TRUE(a.stream.status().tx_allowed);
}

TEST(ShmStream, opened_before_or_behind_the_record_that_attaches_it) {
    for (const bool before : {true, false}) {
        LinkPair p;
        const auto [a, b] = p.begin(1);
        for (const std::size_t size : {50u, 1500u, 100u, 1000u}) a.ulp.queue(18, size);
        if (before) b.open();
        p.settle();
        if (!before) {
            EXPECT_THAT(b.ulp.delivered, IsEmpty());
            EXPECT_TRUE(b.stream.has_early());
            b.open();
        }
        p.settle();
        EXPECT_TRUE(b.ulp.delivered == a.ulp.queued());
    }
}

// a sends before b is open.
class EarlyShmStream : public testing::Test {
  protected:
    void SetUp() override { a.ulp.queue(18, 100); }
    void open_b() const { b.stream.open(Llp::Opening::first, {}, 0); }

    LinkPair p;
    std::pair<End&, End&> ends = p.begin(1);
    End &a = ends.first, &b = ends.second;
};

TEST_F(EarlyShmStream, sends_no_more_than_the_first_credit) {
    a.send();
    EXPECT_EQ(a.ulp.done, 1u);
    for (unsigned i = 0; i < 100; ++i) a.ulp.queue(18, 100);
    a.send();
    EXPECT_LT(a.ulp.done, a.ulp.outgoing.size());
    EXPECT_LE(a.stream.ring_bytes_sent(), CreditPool::kLeast);
    p.settle();
    EXPECT_FALSE(p.b.link.ended());
    b.open();
    p.settle();
    EXPECT_TRUE(b.ulp.delivered == a.ulp.queued());
}

TEST_F(EarlyShmStream, is_delivered_ahead_of_what_follows) {
    p.settle();
    open_b();
    EXPECT_TRUE(b.stream.has_early());
    a.ulp.queue(18, 200);
    p.settle();
    EXPECT_FALSE(b.stream.has_early());
    EXPECT_TRUE(b.ulp.delivered == a.ulp.queued());
}

TEST_F(EarlyShmStream, outlives_the_link) {
    a.send();
    a.stream.finish(/*abort=*/false);
    p.settle();
    EXPECT_EQ(b.fins, 1u);
    p.b.link.end(StreamError::none);
    EXPECT_FALSE(b.stream.attached());
    EXPECT_TRUE(b.stream.has_early());
}

TEST_F(EarlyShmStream, is_dropped_by_one_that_discards) {
    p.settle();
    open_b();
    b.stream.discard();
    EXPECT_FALSE(b.stream.has_early());
    for (unsigned i = 0; i < 200; ++i) a.ulp.queue(18, 1500);
    p.settle();
    EXPECT_EQ(a.ulp.done, a.ulp.outgoing.size());
    EXPECT_THAT(b.ulp.delivered, IsEmpty());
}

TEST(ShmStream, ulpdus_of_all_sizes_arrive_whole_and_in_order) {
    for (const bool writes : {true, false}) {
        LinkPair p({.ring_bytes = 1 << 20, .slots = 4});
        const auto [a, b] = p.connect(1);
        a.ulp.writes = writes;
        a.ulp.queue(80, 0);
        for (std::size_t n = 0; n < 2200; n = n < 1200 ? n + 7 : n + 97) {
            a.ulp.queue(n % 2 != 0 ? 14 : 18, n, 1 + n % 3);
        }
        p.settle();
        EXPECT_EQ(a.ulp.done, a.ulp.outgoing.size());
        EXPECT_TRUE(b.ulp.delivered == a.ulp.queued());
        EXPECT_EQ(writes, a.ulp.written > 100);
    }
}

TEST(ShmStream, large_ulpdus_arrive_whole) {
    for (const std::size_t header : {14u, 18u, 52u, 53u, 80u}) {
        for (const std::size_t n : {1023u, 1024u, 1025u, 4096u, 20'000u, 32'768u - 80u}) {
            LinkPair p({.ring_bytes = 1 << 20, .slots = 4});
            End& a = p.connect(1).first;
            if (header > kFirstLineBody && n >= 1024) continue;  // there is none
            a.ulp.queue(header, n, 3);
            p.settle();
            EXPECT_TRUE(p.b.ends[1]->ulp.delivered == a.ulp.queued()) << header << " " << n;
        }
    }
}

TEST(ShmStream, both_directions_and_many_laps) {
    LinkPair p;
    p.connect(1);
    for (unsigned round = 0; round < 300; ++round) {
        for (Host* const host : {&p.a, &p.b}) {
            for (unsigned i = 0; i < 10; ++i) {
                host->ends[1]->ulp.queue(18, (round * 31 + i * 211) % 1800);
            }
        }
        p.settle();
    }
    EXPECT_TRUE(p.b.ends[1]->ulp.delivered == p.a.ends[1]->ulp.queued());
    EXPECT_TRUE(p.a.ends[1]->ulp.delivered == p.b.ends[1]->ulp.queued());
}

TEST(ShmStream, what_was_published_is_done) {
    LinkPair p;
    End& a = p.connect(1).first;
    a.ulp.queue(18, 100);
    a.ulp.queue(18, 3000);
    a.send();
    EXPECT_EQ(a.ulp.done, 2u);
    EXPECT_THAT(p.b.ends[1]->ulp.delivered, IsEmpty());
}

TEST(ShmStream, the_budget_ends_a_call) {
    LinkPair p;
    End& a = p.connect(1).first;
    for (unsigned i = 0; i < 20; ++i) a.ulp.queue(18, 2000);
    a.send(5000);
    EXPECT_GE(a.ulp.done, 2u);
    EXPECT_LE(a.ulp.done, 4u);
    EXPECT_TRUE(a.stream.status().tx_allowed);
}

// ---- reception that stands still ------------------------------------------

TEST(ShmStream, what_waits_for_a_receive_leaves_the_ring) {
    for (const std::size_t payload : {40u, 900u, 30'000u}) {
        for (const std::size_t block : {std::size_t{0}, std::size_t{14}, std::size_t{18 + 20}}) {
            LinkPair p({.ring_bytes = 1 << 20, .slots = 4});
            const auto [a, b] = p.connect(1);
            b.ulp.block_at = block;
            a.ulp.queue(18, payload);
            a.ulp.queue(18, 10);
            p.settle();
            EXPECT_THAT(b.ulp.delivered, IsEmpty());
            EXPECT_FALSE(b.unconsumed.empty());
            const RingPlace ring = p.layout.ring_of(Side::creator);
            const Bytes memory = p.memory.shared.bytes().subspan(ring.at, ring.bytes);
            const ByteVector before(memory.begin(), memory.end());
            std::fill(memory.begin(), memory.end(), std::byte{0xdd});
            b.resume();
            std::copy(before.begin(), before.end(), memory.begin());
            EXPECT_TRUE(b.ulp.delivered == a.ulp.queued()) << payload << " " << block;
            EXPECT_TRUE(b.unconsumed.empty());
        }
    }
}

TEST(ShmStream, a_connection_that_waits_does_not_hold_up_another) {
    LinkPair p({.ring_bytes = 1 << 20, .slots = 8});
    p.connect(1);
    p.connect(2);
    p.b.ends[1]->ulp.block_at = 14;
    for (unsigned i = 0; i < 500; ++i) {
        p.a.ends[1]->ulp.queue(18, 1500);
        p.a.ends[2]->ulp.queue(18, 1500);
    }
    p.settle();
    EXPECT_TRUE(p.b.ends[2]->ulp.delivered == p.a.ends[2]->ulp.queued());
    EXPECT_THAT(p.b.ends[1]->ulp.delivered, IsEmpty());
    EXPECT_LE(p.b.ends[1]->unconsumed.size(), CreditPool::kFirst + 8192);
    EXPECT_LT(p.a.ends[1]->ulp.done, 50u);
    EXPECT_FALSE(p.a.ends[1]->stream.status().tx_allowed);
    p.b.ends[1]->resume();
    p.settle();
    EXPECT_GT(p.a.ends[1]->rooms, 0u);
    EXPECT_TRUE(p.b.ends[1]->ulp.delivered == p.a.ends[1]->ulp.queued());
}

TEST(ShmStream, the_first_ulpdu_of_a_peer_that_had_to_send_one_is_a_boundary) {
    LinkPair p;
    End& a = p.a.make(1);
    End& b = p.b.make(1);
    ASSERT_TRUE(p.a.link.open(a.stream, 1));
    a.open({.initiator = true, .rtr = Rtr::send});
    b.open({.rtr = Rtr::send});
    b.ulp.queue(18, 5);
    a.ulp.queue(18, 0);
    a.ulp.queue(18, 8);
    p.b.poll();
    b.send();
    EXPECT_EQ(b.ulp.done, 0u) << "before the RTR message";
    p.settle();
    EXPECT_EQ(b.boundaries, 1u);
    EXPECT_TRUE(b.ulp.delivered == a.ulp.queued());
    EXPECT_EQ(b.ulp.done, 1u);
}

// ---- credit ---------------------------------------------------------------

TEST(ShmStream, a_window_grows_while_the_reader_keeps_up) {
    LinkPair p({.ring_bytes = 1 << 20, .slots = 4});
    p.connect(1);
    const std::size_t before = p.b.pool.left();
    for (unsigned i = 0; i < 3000; ++i) p.a.ends[1]->ulp.queue(18, 1500);
    p.settle();
    EXPECT_EQ(before - p.b.pool.left(), CreditPool::kMost - CreditPool::kFirst);
    p.b.ends.clear();
    EXPECT_EQ(p.b.pool.left(), std::size_t{256} << 20);
}

TEST(ShmStream, a_window_shrinks_while_a_send_waits) {
    LinkPair p({.ring_bytes = 1 << 20, .slots = 4});
    p.connect(1);
    for (unsigned i = 0; i < 3000; ++i) p.a.ends[1]->ulp.queue(18, 1500);
    p.settle();
    const std::size_t before = p.b.pool.left();
    p.b.ends[1]->ulp.block_at = 14;
    for (unsigned i = 0; i < 400; ++i) p.a.ends[1]->ulp.queue(18, 1500);
    p.settle();
    p.b.ends[1]->resume();
    p.settle();
    EXPECT_GT(p.b.pool.left(), before);
    EXPECT_TRUE(p.b.ends[1]->ulp.delivered == p.a.ends[1]->ulp.queued());
    p.b.ends.clear();
    EXPECT_EQ(p.b.pool.left(), std::size_t{256} << 20);
}

TEST(ShmStream, the_least_window_is_enough_to_go_on) {
    LinkPair p;
    p.b.pool = CreditPool(CreditPool::kLeast);
    p.connect(1);
    EXPECT_FALSE(p.b.pool.has_room());
    for (unsigned i = 0; i < 300; ++i) p.a.ends[1]->ulp.queue(18, i * 6);
    p.settle();
    EXPECT_TRUE(p.b.ends[1]->ulp.delivered == p.a.ends[1]->ulp.queued());
}

TEST(ShmStream, ten_thousand_windows_fit_into_256_mib) {
    CreditPool pool(std::size_t{256} << 20);
    for (unsigned i = 0; i < 10'000; ++i) {
        ASSERT_TRUE(pool.has_room()) << i;
        const std::size_t first = pool.take_first();
        ASSERT_GE(first, CreditPool::kLeast);
        ASSERT_LE(first, CreditPool::kFirst);
    }
    while (pool.has_room()) pool.take_first();
    EXPECT_LT(pool.left(), CreditPool::kLeast);
    EXPECT_EQ(pool.grow(CreditPool::kLeast), 0u);
}

// ---- ends -----------------------------------------------------------------

TEST(ShmStream, fin_between_ulpdus_is_the_end_and_inside_one_a_fault) {
    for (const bool inside : {false, true}) {
        LinkPair p;
        End& b = p.connect(1).second;
        p.a.ends[1]->ulp.queue(18, 100);
        if (inside) b.ulp.block_at = 18 + 50;
        p.settle();
        b.stream.rx_eof(0);
        if (inside) {
            EXPECT_THAT(b.ulp.failures, ElementsAre(StreamError::mpa_connection_lost));
            EXPECT_EQ(b.stream.state(), Llp::State::failed);
            EXPECT_TRUE(b.stream.status().tx_allowed) << "for a Terminate";
        } else {
            EXPECT_THAT(b.ulp.events, ElementsAre("established", "finished"));
            EXPECT_EQ(b.stream.state(), Llp::State::operational);
        }
    }
}

TEST(ShmStream, lost_is_told_once) {
    LinkPair p;
    End& a = p.connect(1).first;
    a.stream.lost();
    a.stream.lost();
    EXPECT_THAT(a.ulp.events, ElementsAre("established", "reset"));
    EXPECT_EQ(a.stream.state(), Llp::State::closed);
    EXPECT_FALSE(a.stream.status().tx_allowed);
}

TEST(ShmStream, after_failure_everything_is_taken_and_the_peer_may_go_on) {
    LinkPair p({.ring_bytes = 1 << 20, .slots = 4});
    const auto [a, b] = p.connect(1);
    b.ulp.block_at = 14;
    a.ulp.queue(18, 100);
    p.settle();
    b.stream.rx_eof(0);
    ASSERT_EQ(b.stream.state(), Llp::State::failed);
    b.resume();
    for (unsigned i = 0; i < 200; ++i) a.ulp.queue(18, 1500);
    p.settle();
    EXPECT_EQ(a.ulp.done, a.ulp.outgoing.size());
    EXPECT_TRUE(b.unconsumed.empty());
    EXPECT_THAT(b.ulp.delivered, IsEmpty());
}

TEST(ShmStream, one_that_discards_lets_the_peer_send_on) {
    LinkPair p({.ring_bytes = 1 << 20, .slots = 4});
    const auto [a, b] = p.connect(1);
    b.ulp.block_at = 14;
    a.ulp.queue(18, 100);
    p.settle();
    b.unconsumed.clear();
    b.stream.discard();
    for (unsigned i = 0; i < 200; ++i) a.ulp.queue(18, 1500);
    p.settle();
    EXPECT_EQ(a.ulp.done, a.ulp.outgoing.size());
    EXPECT_THAT(b.ulp.delivered, IsEmpty());
}

TEST(ShmStream, an_abort_behind_a_fin_is_told_if_something_was_dropped) {
    for (const bool dropped : {false, true}) {
        LinkPair p({.ring_bytes = 1 << 20, .slots = 4});
        const auto [a, b] = p.connect(1);
        b.stream.finish(/*abort=*/false);
        if (dropped) b.ulp.block_at = 14;
        a.ulp.queue(18, 100);
        p.settle();
        b.unconsumed.clear();
        b.stream.discard();
        b.stream.finish(/*abort=*/true);
        p.settle();
        EXPECT_EQ(a.fins, 1u);
        EXPECT_EQ(a.aborts, dropped ? 1u : 0u);
        b.stream.reset();
        p.settle();
        EXPECT_EQ(a.aborts, 1u);
    }
}

TEST(ShmStream, one_that_leaves_gives_its_credit_back_and_its_slot_when_both_have_finished) {
    LinkPair p;
    const std::size_t credit = p.b.pool.left();
    End& b = p.connect(1).second;
    b.stream.finish(/*abort=*/false);
    b.stream.leave();
    EXPECT_FALSE(b.stream.attached());
    EXPECT_EQ(p.b.pool.left(), credit);
    EXPECT_EQ(p.b.link.connections(), 1u);
    p.a.ends[1]->stream.finish(/*abort=*/false);
    p.settle();
    EXPECT_EQ(p.b.link.connections(), 0u);
    EXPECT_EQ(p.a.ends[1]->fins, 1u);
}

TEST(ShmStream, one_that_has_finished_is_not_told_of_room) {
    LinkPair p;
    End& a = p.connect(1).first;
    p.b.ends[1]->ulp.block_at = 14;
    for (unsigned i = 0; i < 100; ++i) a.ulp.queue(18, 1500);
    p.settle();
    ASSERT_FALSE(a.stream.status().tx_allowed);
    const unsigned rooms = a.rooms;
    a.stream.finish(true);
    p.b.ends[1]->resume();
    p.settle();
    EXPECT_EQ(a.rooms, rooms);
}

TEST(ShmStream, nothing_is_sent_behind_fin) {
    LinkPair p;
    End& a = p.connect(1).first;
    a.stream.finish(false);
    EXPECT_FALSE(a.stream.status().tx_allowed);
    a.ulp.queue(18, 5);
    a.send();
    EXPECT_EQ(a.ulp.given, 0u);
}

TEST(ShmStream, fin_before_the_record_that_attaches_it_follows_that) {
    for (const bool abort : {false, true}) {
        LinkPair p;
        End& a = p.a.make(1);
        End& b = p.b.make(1);
        ASSERT_TRUE(p.a.link.open(a.stream, 1));
        a.open({.initiator = true});
        b.open();
        b.stream.finish(abort);
        a.ulp.queue(18, 10);
        p.settle();
        EXPECT_EQ(a.fins, abort ? 0u : 1u);
        EXPECT_EQ(a.aborts, abort ? 1u : 0u);
        EXPECT_TRUE(b.ulp.delivered == a.ulp.queued());
        a.stream.finish(false);
        p.settle();
        EXPECT_EQ(p.a.link.connections(), 0u);
        EXPECT_EQ(p.b.link.connections(), 0u);
    }
}

// ---- memory that is gone --------------------------------------------------

/// Describes a ULPDU whose payload cannot be read, behind a small one.
class GoneMemoryUlp final : public test::SilentUlp {
  public:
    explicit GoneMemoryUlp(ConstBytes gone) : gone_(gone) {}
    UlpdusGiven tx_fill(const UlpduBatch& batch) override {
        batch.sizes[0] = 40;
        std::fill_n(batch.room.begin() + static_cast<std::ptrdiff_t>(batch.before), 40,
                    std::byte{1});
        batch.described->header_size = 14;
        batch.described->payload[0] = gone_;
        batch.described->payload_count = 1;
        return {1, true, false};
    }
    void tx_done(std::uint32_t) override { ADD_FAILURE() << "nothing was sent"; }

  private:
    ConstBytes gone_;
};

TEST(ShmStream, nothing_of_an_abandoned_batch_is_published) {
    fault::install();
    constexpr std::size_t kBytes = 4096;
    void* const at = mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    LinkPair p;
    p.connect(1);
    End& owner = p.a.make(2);
    End& peer = p.b.make(2);
    GoneMemoryUlp ulp({static_cast<const std::byte*>(at), 2000});
    {
        Stream stream(ulp, owner, p.a.pool);
        ASSERT_TRUE(p.a.link.open(stream, 2));
        stream.open(Llp::Opening::first, {.initiator = true}, 0);
        peer.open();
        p.settle();
        EXPECT_FALSE(fault::guard([&] { stream.tx_prepare({}, SIZE_MAX, 0); }));
        p.a.ends[1]->ulp.queue(18, 100);
        p.settle();
        EXPECT_THAT(peer.ulp.delivered, IsEmpty());
        EXPECT_TRUE(p.b.ends[1]->ulp.delivered == p.a.ends[1]->ulp.queued());
    }
    p.settle();
    EXPECT_EQ(peer.aborts, 1u);
    EXPECT_FALSE(p.a.link.ended());
    munmap(at, kBytes);
}

}  // namespace
}  // namespace xsock::shm
