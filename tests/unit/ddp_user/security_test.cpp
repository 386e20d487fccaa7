// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RFC 5040 §8.1: what an RNIC must guarantee, one test for each item, through the stack.
#include <gmock/gmock.h>

#include <set>

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

class Security : public testing::Test {
  protected:
    World world;
    ByteVector memory = pattern(4096);
    const ByteVector original = memory;

    ByteVector write(std::uint32_t stag, std::uint64_t to, std::size_t n) {
        return header({.opcode = RDMAP_WRITE, .tagged = true, .stag = stag, .to = to}) +
               ByteVector(n, std::byte{0xee});
    }
    ByteVector read(std::uint32_t stag, std::uint64_t to, std::uint32_t n) {
        return header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1}) +
               body({.sink_stag = 1, .size = n, .source_stag = stag, .source_to = to});
    }
    /// A fresh stream of `qp` in `pd` gets `ulpdu`; what does it find wrong? Nothing may have been
    /// written, nothing may be answered.
    StreamError refused(const ByteVector& ulpdu, QpNum qp = 1, PdId pd = 1) {
        End end(world, {.qp_num = qp, .pd = pd});
        end.establish();
        feed(*end.stream, ulpdu);
        EXPECT_EQ(memory, original);
        for (const ByteVector& out : drain(*end.stream)) {
            EXPECT_NE(out[1] & std::byte{RDMAP_OPCODE_MASK}, std::byte{RDMAP_READ_RESPONSE});
        }
        return end->stream_error();
    }
    bool accepted(const ByteVector& ulpdu, QpNum qp = 1, PdId pd = 1) {
        End end(world, {.qp_num = qp, .pd = pd});
        end.establish();
        feed(*end.stream, ulpdu);
        return end->stream_error() == StreamError::none;
    }
};

TEST_F(Security, item_1_an_stag_serves_its_protection_domain_only) {
    const std::uint32_t stag = world.add(memory, kRemoteRead | kRemoteWrite, 1);
    EXPECT_EQ(refused(write(stag, 0, 8), 1, 2), StreamError::tagged_stag_not_associated);
    EXPECT_EQ(refused(read(stag, 0, 8), 1, 2), StreamError::read_stag_not_associated);
    EXPECT_TRUE(accepted(read(stag, 0, 8), 1, 1));
}

TEST_F(Security, item_2_a_stream_scoped_stag_serves_its_stream_only) {
    const std::uint32_t stag = world.add(memory, kRemoteRead | kRemoteWrite, 1, 5);
    EXPECT_EQ(refused(write(stag, 0, 8), 6), StreamError::tagged_stag_not_associated);
    EXPECT_EQ(refused(read(stag, 0, 8), 6), StreamError::read_stag_not_associated);
    EXPECT_TRUE(accepted(read(stag, 0, 8), 5));
}

TEST_F(Security, item_3_nothing_outside_the_range_is_reached) {
    ByteVector inner = pattern(4096);
    const std::uint32_t stag = world.table
                                   .add({.address = memory.data() + 1024,
                                         .length = 1024,
                                         .access = kRemoteRead | kRemoteWrite,
                                         .pd = 1})
                                   .value();
    const auto base = reinterpret_cast<std::uintptr_t>(memory.data()) + 1024;
    for (std::uint64_t to : {base - 1, base + 1024, base + 1023, std::uintptr_t{0}}) {
        EXPECT_EQ(refused(write(stag, to, 2)), StreamError::tagged_bounds) << to - base;
        EXPECT_EQ(refused(read(stag, to, 2)), StreamError::read_bounds) << to - base;
    }
    EXPECT_EQ(refused(write(stag, base, 1025)), StreamError::tagged_bounds);
    EXPECT_EQ(refused(read(stag, ~0ull, 2)), StreamError::read_to_wrap);
    EXPECT_EQ(refused(write(stag, ~0ull - 7, 20)), StreamError::tagged_to_wrap);
    EXPECT_TRUE(accepted(read(stag, base, 1024)));
    EXPECT_TRUE(accepted(read(stag, base + 1024, 0)));
}

TEST_F(Security, item_4_rights_to_read_and_to_write_are_separate) {
    const std::uint32_t readable = world.add(memory, kRemoteRead);
    const std::uint32_t writable = world.add(memory, kRemoteWrite);
    EXPECT_EQ(refused(write(readable, 0, 8)), StreamError::write_access);
    EXPECT_EQ(refused(read(writable, 0, 8)), StreamError::read_access);
    EXPECT_TRUE(accepted(read(readable, 0, 8)));
}

TEST_F(Security, a_queue_pair_may_allow_less_than_the_region) {
    ByteVector words(64);
    const std::uint32_t stag = world.add(memory, kRemoteRead | kRemoteWrite);
    const std::uint32_t atomic = world.add(words, kRemoteAtomic);
    const auto fetch_add = [&] {
        AtomicRequest request{.opcode = RDMAP_ATOMIC_FETCH_ADD, .remote_stag = atomic};
        ByteVector out(kAtomicRequestOctets);
        encode(request, out.data());
        return header({.opcode = RDMAP_ATOMIC_REQUEST, .qn = DDP_QN_READ_REQUEST, .msn = 1}) + out;
    };
    const auto found = [&](const ByteVector& ulpdu, std::uint32_t rights) {
        End end(world, {.pd = 1});
        end.establish();
        end->set_rights(rights);
        feed(*end.stream, ulpdu);
        return end->stream_error();
    };
    EXPECT_EQ(found(write(stag, 0, 8), kRemoteRead | kRemoteAtomic), StreamError::write_access);
    EXPECT_EQ(found(read(stag, 0, 8), kRemoteWrite | kRemoteAtomic), StreamError::read_access);
    EXPECT_EQ(found(fetch_add(), kRemoteWrite | kRemoteRead), StreamError::read_access);
    EXPECT_EQ(memory, original);
    EXPECT_EQ(found(write(stag, 0, 0), 0), StreamError::none);
    EXPECT_EQ(found(read(stag, 0, 0), 0), StreamError::none);
    EXPECT_EQ(found(write(stag, 0, 8), kRemoteWrite), StreamError::none);
    EXPECT_EQ(found(read(stag, 0, 8), kRemoteRead), StreamError::none);
    EXPECT_EQ(found(fetch_add(), kRemoteAtomic), StreamError::none);
}

TEST_F(Security, item_5_revoking_one_stag_leaves_others_of_the_buffer) {
    const std::uint32_t one = world.add(memory, kRemoteRead | kRemoteWrite);
    const std::uint32_t two = world.add(memory, kRemoteRead);
    world.table.invalidate(one);
    EXPECT_EQ(refused(write(one, 0, 8)), StreamError::tagged_stag_invalid);
    EXPECT_EQ(refused(read(one, 0, 8)), StreamError::read_stag_invalid);
    EXPECT_TRUE(accepted(read(two, 0, 8)));
}

TEST_F(Security, item_6_nothing_is_modified_after_revocation) {
    const std::uint32_t stag = world.add(memory, kRemoteWrite);
    End end(world);
    end.establish();
    const ByteVector ulpdu = write(stag, 0, 1000);
    end->rx_begin(ulpdu.size());
    for (std::size_t at = 0; at < ulpdu.size();) {
        const Bytes target = end->rx_target();
        const std::size_t n = std::min<std::size_t>(target.size(), 100);
        std::copy_n(ulpdu.begin() + static_cast<std::ptrdiff_t>(at), n, target.begin());
        end->rx_advance(n);
        at += n;
        if (at == 14 + 300) world.remove(stag);  // between two poll cycles of the poller
    }
    end->rx_end(true);
    EXPECT_EQ(memory[299], std::byte{0xee});
    EXPECT_TRUE(std::equal(memory.begin() + 300, memory.end(), original.begin() + 300));
    EXPECT_EQ(end->stream_error(), StreamError::tagged_stag_invalid);
}

TEST_F(Security, item_7_a_shared_stag_cannot_be_invalidated_by_a_peer) {
    const std::uint32_t shared = world.add(memory, kRemoteRead);
    const std::uint32_t others = world.add(memory, kRemoteRead, 1, 9);
    for (const std::uint32_t stag : {shared, others}) {
        End end(world);
        end.establish();
        end.post_recv(1);
        feed(*end.stream, header({.opcode = RDMAP_SEND_INVALIDATE, .stag = stag, .msn = 1}));
        EXPECT_EQ(end->stream_error(), StreamError::invalidate_not_permitted);
        EXPECT_THAT(end.received(), IsEmpty());
        EXPECT_TRUE(world.table.check_local(stag, 1, 9, memory.data(), 8, false));
        end->flush(WcStatus::flushed);
        EXPECT_THAT(end.received(), ElementsAre(Field(&Wc::status, WcStatus::flushed)));
    }
}

TEST_F(Security, item_8_the_first_sink_stag_is_unpredictable_and_each_is_used_once) {
    std::set<std::uint32_t> stags, high;
    std::uint32_t previous = 0;
    for (int i = 0; i < 64; ++i) {
        End end(world);
        end.establish();
        end.post({.opcode = SendOpcode::read}, {sge(memory)});
        end.post({.opcode = SendOpcode::read}, {sge(memory)});
        const auto requests = drain(*end.stream);
        const std::uint32_t stag = load_be32(requests.at(0).data() + kUntaggedOctets);
        stags.insert(load_be32(requests.at(1).data() + kUntaggedOctets));
        EXPECT_NE(stag, previous + 1);
        previous = stag;
        stags.insert(stag);
        high.insert(stag >> 28);
        // Nor can the peer write through it.
        EXPECT_EQ(refused(write(stag, 0, 8)), StreamError::tagged_stag_invalid);
    }
    EXPECT_EQ(stags.size(), 128u);
    EXPECT_GT(high.size(), 8u);
}

TEST_F(Security, items_9_and_10_a_failing_stream_costs_its_own_queues_only) {
    // Completions of one stream name it, and its end leaves a neighbour untouched.
    End one(world, {.qp_num = 1, .pd = 1}), two(world, {.qp_num = 2, .pd = 1});
    one.establish();
    two.establish();
    two.post_recv(7, {sge(memory)});
    feed(*one.stream, from_hex("ff"));
    one->flush(WcStatus::flushed);
    feed(*two.stream, header({.opcode = RDMAP_SEND, .msn = 1}) + pattern(5));
    EXPECT_THAT(two.received(), ElementsAre(Field(&Wc::qp_num, 2u)));
}

TEST_F(Security, item_11_reads_outstanding_are_capped) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    End end(world, {.pd = 1, .ird = 4});
    end.establish();
    for (std::uint32_t i = 1; i <= 5; ++i) {
        feed(*end.stream, header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = i}) +
                              body({.sink_stag = i, .size = i % 2, .source_stag = stag}));
    }
    EXPECT_EQ(end->stream_error(), StreamError::read_queue_overflow);
}

TEST_F(Security, ird_zero_answers_no_reads) {
    End end(world);
    end.establish({.enhanced = true, .ird = 0, .ord = 5});
    feed(*end.stream, read(1, 0, 0));
    EXPECT_EQ(end->stream_error(), StreamError::read_queue_overflow);
}

TEST_F(Security, item_12_a_shared_receive_queue_survives_the_streams_that_use_it) {
    RecvQueue shared(8);
    ASSERT_TRUE(shared.post({.wr_id = 1}).ok());
    ASSERT_TRUE(shared.post({.wr_id = 2}).ok());
    CompletionQueue cq(8);
    SendQueue sq(4);
    Stream greedy({.pd = 1,
                   .rq_shared = true,
                   .memory = &world.table,
                   .sq = &sq,
                   .rq = &shared,
                   .send_cq = &cq,
                   .recv_cq = &cq});
    greedy.llp_established({});
    feed(greedy, header({.opcode = RDMAP_SEND, .last = false, .msn = 1}));  // takes one, keeps it
    greedy.flush(WcStatus::flushed);
    EXPECT_THAT(End::take(cq),
                ElementsAre(AllOf(Field(&Wc::wr_id, 1u), Field(&Wc::status, WcStatus::flushed))));
    EXPECT_EQ(shared.size(), 1u);
    EXPECT_TRUE(shared.post({}).ok());
}

}  // namespace
}  // namespace xsock::ddp
