// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "shm/link.hpp"

#include <gmock/gmock.h>

#include "tests/unit/shm/link_pair.hpp"

namespace xsock::shm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
constexpr std::size_t kLine = SharedMemory::kLine;

// ---- slots ----------------------------------------------------------------

TEST(ShmLink, a_slot_is_free_once_both_ends_have_finished) {
    LinkPair p;
    p.connect(1);
    EXPECT_EQ(p.a.ends[1]->stream.slot(), 0);
    EXPECT_EQ(p.a.ends[1]->stream.generation(), 1u);
    EXPECT_EQ(p.b.ends[1]->stream.slot(), 0);
    p.a.ends[1]->stream.finish(false);
    p.settle();
    EXPECT_EQ(p.b.ends[1]->fins, 1u);
    EXPECT_EQ(p.a.link.connections(), 1u);
    p.b.ends[1]->stream.finish(false);
    EXPECT_EQ(p.b.link.connections(), 0u);
    EXPECT_FALSE(p.b.ends[1]->stream.attached());
    p.settle();
    EXPECT_EQ(p.a.ends[1]->fins, 1u);
    EXPECT_EQ(p.a.link.connections(), 0u);
    EXPECT_FALSE(p.a.ends[1]->stream.attached());
}

TEST(ShmLink, a_slot_that_is_used_again_has_another_generation) {
    LinkPair p;
    for (std::uint64_t token = 1; token <= 40; ++token) {
        p.connect(token);
        End& a = *p.a.ends[token];
        End& b = *p.b.ends[token];
        EXPECT_EQ(a.stream.slot(), 0);
        EXPECT_EQ(a.stream.generation(), token);
        for (unsigned i = 0; i < 60; ++i) a.ulp.queue(18, 1000), b.ulp.queue(18, 10);
        p.settle();
        EXPECT_TRUE(b.ulp.delivered == a.ulp.queued());
        EXPECT_TRUE(a.ulp.delivered == b.ulp.queued());
        (token % 2 != 0 ? a : b).stream.finish(false);
        if (token % 3 == 0) p.settle();
        (token % 2 != 0 ? b : a).stream.finish(false);
        p.settle();
        EXPECT_EQ(p.a.link.connections(), 0u);
        EXPECT_EQ(p.b.link.connections(), 0u);
    }
}

TEST(ShmLink, both_ends_open_slots_at_once) {
    LinkPair p;
    for (std::uint64_t token = 1; token <= 8; ++token) {
        Host& from = token % 2 != 0 ? p.a : p.b;
        End& a = p.a.make(token);
        End& b = p.b.make(token);
        ASSERT_TRUE(from.link.open((token % 2 != 0 ? a : b).stream, token));
        a.open();
        b.open();
        a.ulp.queue(18, token * 50);
        b.ulp.queue(18, token * 70);
    }
    p.settle();
    for (std::uint64_t token = 1; token <= 8; ++token) {
        EXPECT_EQ(p.a.ends[token]->stream.slot(), p.b.ends[token]->stream.slot());
        EXPECT_EQ(p.a.ends[token]->stream.slot() % 2, token % 2 != 0 ? 0 : 1);
        EXPECT_TRUE(p.b.ends[token]->ulp.delivered == p.a.ends[token]->ulp.queued());
        EXPECT_TRUE(p.a.ends[token]->ulp.delivered == p.b.ends[token]->ulp.queued());
    }
}

TEST(ShmLink, all_slots_of_a_side_may_be_taken) {
    LinkPair p;
    for (std::uint64_t token = 1; token <= 8; ++token) p.connect(token);
    End& one_more = p.a.make(9);
    EXPECT_FALSE(p.a.link.open(one_more.stream, 9));
    EXPECT_FALSE(one_more.stream.attached());
    End& of_b = p.b.make(9);
    EXPECT_TRUE(p.b.link.open(of_b.stream, 9));
    EXPECT_EQ(of_b.stream.slot(), 1);
    for (Host* host : {&p.a, &p.b}) host->ends[4]->stream.finish(false);
    p.settle();
    EXPECT_TRUE(p.a.link.open(p.a.make(10).stream, 10));
    EXPECT_EQ(p.a.ends[10]->stream.generation(), 2u);
}

TEST(ShmLink, no_slot_is_taken_while_the_ring_is_full) {
    LinkPair p;
    p.connect(1);
    while (p.a.link.writer().begin(kLine, RingWriter::Use::control) != 0) {
        p.a.link.writer().add({.kind = RecordKind::data, .slot = 0, .generation = 1}, 20);
        p.a.link.writer().publish();
    }
    EXPECT_FALSE(p.a.link.open(p.a.make(2).stream, 2));
    EXPECT_EQ(p.a.link.connections(), 1u);
}

TEST(ShmLink, a_token_that_is_not_known_is_answered_by_an_abort) {
    LinkPair p;
    End& a = p.a.make(1);
    ASSERT_TRUE(p.a.link.open(a.stream, 1));
    a.open({.initiator = true});
    p.settle();
    EXPECT_EQ(a.aborts, 1u);
    a.stream.finish(true);
    p.settle();
    EXPECT_EQ(p.a.link.connections(), 0u);
    EXPECT_EQ(p.b.link.connections(), 0u);
}

// ---- ends of connections --------------------------------------------------

TEST(ShmLink, fin_comes_behind_what_was_published) {
    LinkPair p;
    End& a = p.connect(1).first;
    for (unsigned i = 0; i < 5; ++i) a.ulp.queue(18, 100);
    a.ulp.queue(18, 3000);
    a.send();
    a.stream.finish(false);
    p.b.link.poll(p.b.scratch, 300);  // a part of it
    EXPECT_EQ(p.b.ends[1]->fins, 0u);
    EXPECT_FALSE(p.b.ends[1]->ulp.delivered.empty());
    p.settle();
    EXPECT_EQ(p.b.ends[1]->fins, 1u);
    EXPECT_TRUE(p.b.ends[1]->ulp.delivered == a.ulp.queued());
}

TEST(ShmLink, the_other_direction_goes_on_behind_a_fin) {
    LinkPair p;
    p.connect(1);
    p.a.ends[1]->stream.finish(false);
    p.settle();
    for (unsigned i = 0; i < 100; ++i) p.b.ends[1]->ulp.queue(18, 1500);
    p.settle();
    EXPECT_TRUE(p.a.ends[1]->ulp.delivered == p.b.ends[1]->ulp.queued());
}

TEST(ShmLink, a_stream_that_goes_aborts_and_what_still_comes_is_dropped) {
    LinkPair p;
    End& b = p.connect(1).second;
    b.ulp.queue(18, 100);
    b.ulp.queue(18, 2000);
    b.send();
    p.a.ends.erase(1);
    EXPECT_EQ(p.a.link.connections(), 1u);
    p.settle();
    EXPECT_EQ(b.aborts, 1u);
    b.ulp.queue(18, 5);
    p.settle();
    b.stream.finish(true);
    p.settle();
    EXPECT_EQ(p.a.link.connections(), 0u);
    EXPECT_FALSE(p.a.link.ended());
    EXPECT_FALSE(p.b.link.ended());
}

TEST(ShmLink, a_stream_that_goes_is_told_of_by_the_next_cycle) {
    LinkPair p;
    p.connect(1);
    ASSERT_TRUE(p.a.link.begin_sleep());
    p.a.link.end_sleep();
    p.a.ends.erase(1);
    EXPECT_FALSE(p.a.link.begin_sleep());
    p.a.poll();
    EXPECT_TRUE(p.a.link.begin_sleep());
    p.a.link.end_sleep();
    p.b.poll();
    EXPECT_EQ(p.b.ends[1]->aborts, 1u);
}

TEST(ShmLink, fin_waits_for_room) {
    LinkPair p;
    p.connect(1);
    p.connect(2);
    RingWriter& writer = p.a.link.writer();
    while (writer.begin(kLine, RingWriter::Use::control) != 0) {
        // Records of the kind that is dropped where it comes.
        writer.add({.kind = RecordKind::data, .slot = 2, .generation = 1}, 20);
        writer.publish();
        if (p.b.ends.count(2) != 0) {
            p.b.ends.erase(2);
            p.b.poll();
        }
    }
    p.a.ends[1]->stream.finish(false);
    EXPECT_EQ(p.b.ends[1]->fins, 0u);
    p.settle();
    EXPECT_EQ(p.b.ends[1]->fins, 1u);
    EXPECT_FALSE(p.b.link.ended());
}

TEST(ShmLink, streams_that_are_gone_are_told_nothing) {
    LinkPair p({.ring_bytes = 64 << 10, .slots = 64});
    for (std::uint64_t token = 1; token <= 32; ++token) {
        p.connect(token);
        p.b.ends[token]->ulp.block_at = 14;
        for (unsigned i = 0; i < 60; ++i) p.a.ends[token]->ulp.queue(18, 1500);
    }
    p.settle();
    for (std::uint64_t token = 1; token <= 32; token += 2) p.a.ends.erase(token);
    for (std::uint64_t token = 2; token <= 32; token += 2) p.b.ends[token]->resume();
    p.settle();
    for (std::uint64_t token = 1; token <= 32; ++token) {
        EXPECT_EQ(p.b.ends[token]->aborts, token % 2);
        if (token % 2 != 0) continue;
        EXPECT_TRUE(p.b.ends[token]->ulp.delivered == p.a.ends[token]->ulp.queued());
    }
}

// ---- room -----------------------------------------------------------------

TEST(ShmLink, many_connections_share_a_small_ring) {
    LinkPair p({.ring_bytes = 16 << 10, .slots = 512});
    for (std::uint64_t token = 1; token <= 200; ++token) p.connect(token);
    for (std::uint64_t token = 1; token <= 200; ++token) {
        for (unsigned i = 0; i < 20; ++i) {
            p.a.ends[token]->ulp.queue(18, 10 * i + token);
            p.b.ends[token]->ulp.queue(14, 50 * i);
        }
    }
    p.settle();
    for (std::uint64_t token = 1; token <= 200; ++token) {
        EXPECT_TRUE(p.b.ends[token]->ulp.delivered == p.a.ends[token]->ulp.queued());
        EXPECT_TRUE(p.a.ends[token]->ulp.delivered == p.b.ends[token]->ulp.queued());
    }
}

TEST(ShmLink, a_budget_ends_a_poll) {
    LinkPair p;
    p.connect(1);
    for (unsigned i = 0; i < 20; ++i) p.a.ends[1]->ulp.queue(18, 600);
    p.a.ends[1]->send();
    EXPECT_TRUE(p.b.link.poll(p.b.scratch, 2000));
    EXPECT_GE(p.b.ends[1]->ulp.delivered.size(), 3u);
    EXPECT_LE(p.b.ends[1]->ulp.delivered.size(), 4u);
}

// ---- sleeping -------------------------------------------------------------

TEST(ShmLink, a_peer_that_polls_is_not_woken) {
    LinkPair p;
    p.connect(1);
    p.a.ends[1]->ulp.queue(18, 10);
    p.a.ends[1]->send();
    EXPECT_FALSE(p.a.link.end_cycle(true));
}

TEST(ShmLink, a_peer_that_sleeps_is_woken_once) {
    LinkPair p;
    p.connect(1);
    ASSERT_TRUE(p.b.link.begin_sleep());
    EXPECT_FALSE(p.a.link.end_cycle(true)) << "nothing has come about";
    for (unsigned i = 0; i < 2; ++i) {
        p.a.ends[1]->ulp.queue(18, 10);
        p.a.ends[1]->send();
        EXPECT_EQ(p.a.link.end_cycle(true), i == 0);
    }
}

TEST(ShmLink, no_end_sleeps_beside_records) {
    LinkPair p;
    p.connect(1);
    p.a.ends[1]->ulp.queue(18, 10);
    p.a.ends[1]->send();
    EXPECT_FALSE(p.b.link.begin_sleep());
    EXPECT_FALSE(p.a.link.end_cycle(true));
    p.b.poll();
    EXPECT_TRUE(p.b.link.begin_sleep());
}

TEST(ShmLink, credit_wakes_a_sender_that_waits) {
    LinkPair p;
    p.connect(1);
    p.b.ends[1]->ulp.block_at = 14;
    for (unsigned i = 0; i < 100; ++i) p.a.ends[1]->ulp.queue(18, 1500);
    p.settle();
    ASSERT_FALSE(p.a.ends[1]->stream.status().tx_allowed);
    ASSERT_TRUE(p.a.link.begin_sleep());
    p.b.ends[1]->resume();
    EXPECT_TRUE(p.b.link.end_cycle(true));
    EXPECT_FALSE(p.a.link.begin_sleep());
    p.a.poll();
    EXPECT_TRUE(p.a.ends[1]->stream.status().tx_allowed);
}

TEST(ShmLink, what_is_waited_for_while_asleep_is_announced_anew) {
    LinkPair p;
    p.connect(1);
    p.b.ends[1]->ulp.block_at = 14;
    p.settle();
    ASSERT_TRUE(p.a.link.begin_sleep());
    EXPECT_FALSE(p.a.link.must_sleep_anew());
    for (unsigned i = 0; i < 100; ++i) p.a.ends[1]->ulp.queue(18, 1500);
    p.a.ends[1]->send();
    p.b.poll();
    p.a.poll();
    p.a.ends[1]->send();
    ASSERT_FALSE(p.a.ends[1]->stream.status().tx_allowed);
    EXPECT_TRUE(p.a.link.must_sleep_anew());
    p.a.poll();
    p.b.poll();
    p.a.poll();
    ASSERT_TRUE(p.a.link.begin_sleep());
    EXPECT_FALSE(p.a.link.must_sleep_anew());
    p.b.ends[1]->resume();
    EXPECT_TRUE(p.b.link.end_cycle(true));
}

TEST(ShmLink, room_wakes_a_sender_that_waits_and_no_other) {
    LinkPair p;
    p.connect(1);
    p.connect(2);
    p.settle();
    ASSERT_TRUE(p.a.link.begin_sleep());
    p.b.ends[1]->ulp.queue(18, 10);
    p.b.ends[1]->send();
    EXPECT_TRUE(p.b.link.end_cycle(true));
    p.a.link.end_sleep();
    p.a.poll();
    ASSERT_TRUE(p.b.link.begin_sleep());
    EXPECT_FALSE(p.a.link.end_cycle(true)) << "a tail is nothing to one that does not wait";
    p.b.link.end_sleep();

    for (const unsigned token : {1u, 2u}) {
        for (unsigned i = 0; i < 60; ++i) p.b.ends[token]->ulp.queue(18, 1000);
        p.b.ends[token]->send();
    }
    p.b.poll();
    for (const unsigned token : {1u, 2u}) {
        p.b.ends[token]->send();
        ASSERT_FALSE(p.b.ends[token]->stream.status().tx_allowed);
    }
    ASSERT_TRUE(p.b.link.begin_sleep());
    p.a.link.poll(p.a.scratch, SIZE_MAX);
    EXPECT_TRUE(p.a.link.end_cycle(true));
}

// ---- the end of a link ----------------------------------------------------

TEST(ShmLink, the_end_is_told_to_all) {
    LinkPair p;
    p.connect(1);
    p.connect(2);
    p.a.ends[1]->ulp.queue(18, 10);
    p.a.ends[1]->send();
    p.b.poll();
    p.b.link.end(StreamError::none);
    for (const unsigned token : {1u, 2u}) {
        EXPECT_THAT(p.b.ends[token]->link_ends, ElementsAre(StreamError::none));
        EXPECT_FALSE(p.b.ends[token]->stream.attached());
        EXPECT_FALSE(p.b.ends[token]->stream.status().tx_allowed);
    }
    EXPECT_EQ(p.b.ends[1]->ulp.delivered.size(), 1u);
    EXPECT_FALSE(p.b.link.open(p.b.make(3).stream, 3));
    EXPECT_FALSE(p.b.poll());
    EXPECT_TRUE(p.b.link.begin_sleep());
    p.b.ends.clear();
    p.b.link.end(StreamError::shm_garbage);
}

TEST(ShmLink, memory_is_not_written_behind_the_end) {
    LinkPair p;
    p.connect(1);
    ASSERT_TRUE(p.b.link.begin_sleep());
    p.b.link.end(StreamError::none);
    const Bytes memory = p.memory.shared.bytes();
    const ByteVector before(memory.begin(), memory.end());
    p.b.link.end_sleep();
    p.b.ends[1]->stream.finish(false);
    p.b.ends[1]->ulp.queue(18, 10);
    p.b.ends[1]->send();
    p.b.ends[1]->resume();
    p.b.poll();
    p.b.ends.clear();
    EXPECT_TRUE(std::equal(before.begin(), before.end(), memory.begin()));
}

TEST(ShmLink, streams_may_outlive_their_link) {
    Memory memory(kSmallLayout);
    CreditPool pool(1 << 20);
    End end(pool);
    struct Unused final : Link::Owner {
        Stream* on_open(std::uint64_t) override { return nullptr; }
    } owner;
    {
        Link link(memory.shared, kSmallLayout, Side::creator, owner);
        ASSERT_TRUE(link.open(end.stream, 1));
    }
    EXPECT_FALSE(end.stream.attached());
    EXPECT_THAT(end.link_ends, IsEmpty());
}

// ---- a hostile peer -------------------------------------------------------

struct HostileRecord {
    const char* name;
    RecordHeader header;
    std::size_t body;
};

TEST(ShmLink, records_that_make_no_sense_end_the_link) {
    const auto data = RecordKind::data, open = RecordKind::open, fin = RecordKind::fin;
    const HostileRecord records[] = {
        {"data for a slot that was never open", {.kind = data, .slot = 2, .generation = 1}, 20},
        {"data for a slot out of range", {.kind = data, .slot = 16, .generation = 1}, 20},
        {"data for the last slot of all", {.kind = data, .slot = 65535, .generation = 1}, 20},
        {"data of another generation", {.kind = data, .slot = 0, .generation = 2}, 20},
        {"data of generation 0", {.kind = data, .slot = 0, .generation = 0}, 20},
        {"fin for a slot that was never open", {.kind = fin, .slot = 2, .generation = 1}, 1},
        {"fin of another generation", {.kind = fin, .slot = 0, .generation = 7}, 1},
        {"fin without a body", {.kind = fin, .slot = 0, .generation = 1}, 0},
        {"fin with a long body", {.kind = fin, .slot = 0, .generation = 1}, 2},
        {"open of a slot that is taken", {.kind = open, .slot = 0, .generation = 2}, 8},
        {"open of a slot of ours", {.kind = open, .slot = 1, .generation = 1}, 8},
        {"open of a slot out of range", {.kind = open, .slot = 16, .generation = 1}, 8},
        {"open of generation 0", {.kind = open, .slot = 2, .generation = 0}, 8},
        {"open without a token", {.kind = open, .slot = 2, .generation = 1}, 7},
        {"open with a long token", {.kind = open, .slot = 2, .generation = 1}, 9},
        {"open that is split", {.kind = open, .split = 4, .slot = 2, .generation = 1}, 8},
        {"a ULPDU that is too long", {.kind = data, .slot = 0, .generation = 1}, kMulpdu + 1},
    };
    for (const HostileRecord& c : records) {
        RawPeer peer;
        End& end = peer.connect();
        ASSERT_FALSE(peer.host.link.ended());
        peer.put(c.header, ByteVector(c.body));
        peer.host.poll();
        EXPECT_TRUE(peer.host.link.ended()) << c.name;
        EXPECT_THAT(end.link_ends, ElementsAre(StreamError::shm_garbage)) << c.name;
        EXPECT_EQ(end.stream.status().stream_error, StreamError::shm_garbage) << c.name;
        EXPECT_THAT(end.ulp.delivered, IsEmpty()) << c.name;
    }
}

TEST(ShmLink, nothing_may_follow_a_fin) {
    for (const RecordKind kind : {RecordKind::data, RecordKind::fin, RecordKind::open}) {
        RawPeer peer;
        End& end = peer.connect();
        peer.put({.kind = RecordKind::fin, .slot = 0, .generation = 1}, ByteVector(1));
        peer.host.poll();
        EXPECT_EQ(end.fins, 1u);
        ASSERT_FALSE(peer.host.link.ended());
        peer.put({.kind = kind, .slot = 0, .generation = kind == RecordKind::open ? 2u : 1u},
                 ByteVector(kind == RecordKind::data  ? 20
                            : kind == RecordKind::fin ? 1
                                                      : 8));
        peer.host.poll();
        EXPECT_TRUE(peer.host.link.ended());
    }
}

/// A connection whose end in b has finished and left. @return the end in a
End& connect_and_leave(LinkPair& p) {
    End& b = p.connect(1).second;
    b.stream.finish(false);
    b.stream.leave();
    return *p.a.ends[1];
}

TEST(ShmLink, data_for_a_stream_that_has_left_behind_its_fin_are_answered_by_an_abort) {
    LinkPair p;
    End& a = connect_and_leave(p);
    p.settle();
    EXPECT_EQ(a.fins, 1u);
    for (int i = 0; i < 3; ++i) a.ulp.queue(18, 100);
    p.settle();
    EXPECT_EQ(a.aborts, 1u) << "once";
    EXPECT_THAT(a.link_ends, IsEmpty());
    a.stream.finish(false);
    p.settle();
    EXPECT_EQ(p.a.link.connections(), 0u);
    EXPECT_EQ(p.b.link.connections(), 0u);
}

TEST(ShmLink, an_abort_behind_a_fin_may_meet_a_slot_that_is_free_or_used_again) {
    for (const bool again : {false, true}) {
        LinkPair p;
        End& a = connect_and_leave(p);
        p.b.poll();
        a.ulp.queue(18, 100);
        a.send();
        a.stream.finish(false);
        p.a.poll();  // reads FIN: the slot is free here
        ASSERT_EQ(p.a.link.connections(), 0u);
        End& next = p.a.make(2);
        p.b.make(2);
        if (again) {
            ASSERT_TRUE(p.a.link.open(next.stream, 2));
            ASSERT_EQ(next.stream.slot(), 0u) << "the same slot";
        }
        p.settle();  // b reads data, and answers
        EXPECT_FALSE(p.a.link.ended());
        EXPECT_FALSE(p.b.link.ended());
        EXPECT_EQ(next.aborts, 0u);
        EXPECT_EQ(p.a.link.connections(), again ? 1u : 0u);
    }
}

TEST(ShmLink, a_second_abort_ends_the_link) {
    for (const bool first_aborts : {false, true}) {
        RawPeer peer;
        End& end = peer.connect();
        const auto fin = [&](bool aborts) {
            peer.put({.kind = RecordKind::fin, .slot = 0, .generation = 1},
                     ByteVector(1, std::byte{aborts}));
            peer.host.poll();
        };
        fin(first_aborts);
        fin(true);
        EXPECT_EQ(peer.host.link.ended(), first_aborts);
        EXPECT_EQ(end.aborts, 1u);
        fin(true);
        EXPECT_TRUE(peer.host.link.ended());
        EXPECT_EQ(end.aborts, 1u);
    }
}

TEST(ShmLink, a_generation_is_not_used_twice) {
    RawPeer peer;
    End& end = peer.connect();
    peer.put({.kind = RecordKind::fin, .slot = 0, .generation = 1}, ByteVector(1));
    end.stream.finish(false);
    peer.host.poll();
    ASSERT_EQ(peer.host.link.connections(), 0u);
    peer.open(0, 1, 7);
    peer.host.poll();
    EXPECT_TRUE(peer.host.link.ended());
}

TEST(ShmLink, what_came_before_the_garbage_is_delivered) {
    RawPeer peer;
    End& end = peer.connect();
    peer.put({.slot = 0, .generation = 1}, pattern(30));
    peer.put({.slot = 0, .generation = 5}, pattern(30));
    peer.host.poll();
    EXPECT_TRUE(peer.host.link.ended());
    EXPECT_EQ(end.ulp.delivered.size(), 1u);
}

TEST(ShmLink, more_than_was_permitted_ends_the_link) {
    RawPeer peer({.ring_bytes = 1 << 20, .slots = 4});
    End& end = peer.connect();
    peer.writer.allow(1 << 20);
    end.ulp.block_at = 14;  // so that nothing more is permitted
    for (std::size_t sent = 0; sent < CreditPool::kFirst; sent += 2048) {
        peer.put({.slot = 0, .generation = 1}, ByteVector(2048 - kRecordHeader));
    }
    peer.host.poll();
    EXPECT_FALSE(peer.host.link.ended());
    peer.put({.slot = 0, .generation = 1}, ByteVector(1));
    peer.host.poll();
    EXPECT_TRUE(peer.host.link.ended());
    EXPECT_LE(end.unconsumed.size(), CreditPool::kFirst + 1024);
}

TEST(ShmLink, more_than_the_first_credit_before_it_is_opened_ends_the_link) {
    RawPeer peer;
    End& end = peer.host.make(7);
    peer.open(0, 1, 7);
    for (std::size_t sent = 0; sent < CreditPool::kLeast; sent += 1024) {
        peer.put({.slot = 0, .generation = 1}, ByteVector(1024 - kRecordHeader));
    }
    peer.host.poll();
    EXPECT_FALSE(peer.host.link.ended());
    peer.put({.slot = 0, .generation = 1}, ByteVector(1));
    peer.host.poll();
    EXPECT_TRUE(peer.host.link.ended());
    EXPECT_THAT(end.link_ends, ElementsAre(StreamError::shm_garbage));
    EXPECT_LE(end.stream.take_early().size(), CreditPool::kLeast);
}

TEST(ShmLink, credit_that_makes_no_sense_ends_the_link) {
    constexpr std::uint32_t kMost = CreditPool::kMost / kLine;
    const auto ends_after = [](std::uint32_t first, std::uint32_t second) {
        RawPeer peer;
        End& end = peer.connect();
        peer.permit(0, 1, first);
        for (unsigned i = 0; i < 10; ++i) end.ulp.queue(18, 1000);
        end.send();
        peer.host.poll();
        EXPECT_FALSE(peer.host.link.ended());
        peer.permit(0, 1, second);
        end.send();
        peer.host.poll();
        end.send();
        peer.host.poll();
        return peer.host.link.ended();
    };
    EXPECT_FALSE(ends_after(100, 100));
    EXPECT_FALSE(ends_after(100, 1000));
    EXPECT_TRUE(ends_after(100, 99)) << "it shrinks";
    EXPECT_TRUE(ends_after(100, 0));
    EXPECT_FALSE(ends_after(100, kMost));
    EXPECT_TRUE(ends_after(100, 2 * kMost));
    EXPECT_TRUE(ends_after(100, ~0u));
}

TEST(ShmLink, credit_of_another_generation_is_none) {
    RawPeer peer;
    End& end = peer.connect();
    end.ulp.queue(18, 100);
    end.send();
    ASSERT_EQ(end.ulp.given, 1u) << "within the first credit";
    end.ulp.queue(18, 100);
    for (const std::uint32_t generation : {0u, 2u, ~0u}) {
        peer.permit(0, generation, 1000);
        end.send();
        peer.host.poll();
        EXPECT_EQ(end.ulp.given, 1u);
        EXPECT_FALSE(peer.host.link.ended());
    }
    peer.permit(0, 1, 1000);
    peer.host.poll();
    end.send();
    EXPECT_EQ(end.ulp.given, 2u);
}

TEST(ShmLink, a_tail_that_makes_no_sense_ends_the_link) {
    RawPeer peer;
    End& end = peer.connect();
    peer.permit(0, 1, 1000);
    peer.memory.shared.publish64(peer.layout.tail_at(Side::creator), 1 << 30);
    while (!peer.host.link.ended()) {
        end.ulp.queue(18, 1000);
        end.send();
        peer.host.poll();
        ASSERT_LT(end.ulp.given, 100u);
    }
    EXPECT_THAT(end.link_ends, ElementsAre(StreamError::shm_garbage));
}

}  // namespace
}  // namespace xsock::shm
