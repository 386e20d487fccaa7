// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completions that wait for the peer (Stream::set_acknowledged): what is asked, by Reads or by
// messages, when, and what the answer, a Terminate or the end of the peer does to the entries that
// wait.
#include <gmock/gmock.h>

#include "ddp_user/acknowledge.hpp"
#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

class Acknowledged : public testing::Test {
  protected:
    World world;
    End end{world};
    ByteVector memory = pattern(3000);

    void SetUp() override {
        end->set_acknowledged();
        end->set_depths(4, 4);
        end.establish();
    }
    Sge piece(std::size_t n) { return {memory.data(), static_cast<std::uint32_t>(n), kLkeyNone}; }
    void post_write(std::uint64_t id) {
        end.post({.wr_id = id, .opcode = SendOpcode::write, .remote_stag = 5}, {piece(8)});
    }
    static bool is_ack_request(const ByteVector& ulpdu) {
        if (ulpdu.size() != kUntaggedOctets + kReadRequestOctets) return false;
        const auto request = parse_read_request(
            std::span<const std::byte>(ulpdu).subspan<kUntaggedOctets, kReadRequestOctets>());
        return request.size == 0;
    }
    void answer(const ByteVector& ulpdu, ConstBytes data = {}) {
        const auto request = parse_read_request(
            std::span<const std::byte>(ulpdu).subspan<kUntaggedOctets, kReadRequestOctets>());
        ASSERT_TRUE(feed(
            *end.stream,
            header({.opcode = RDMAP_READ_RESPONSE, .tagged = true, .stag = request.sink_stag}) +
                data));
    }
};

TEST_F(Acknowledged, one_request_for_all_that_was_sent) {
    for (std::uint64_t id = 1; id <= 3; ++id) post_write(id);
    const auto out = drain(*end.stream);
    ASSERT_THAT(out, SizeIs(4));
    EXPECT_TRUE(is_ack_request(out[3]));
    EXPECT_THAT(end.sent(), IsEmpty());
    EXPECT_FALSE(end->tx_wanted());
    EXPECT_FALSE(end->drained());
    answer(out[3]);
    EXPECT_THAT(end.sent(),
                ElementsAre(Completed(1, WcStatus::success), Completed(2, WcStatus::success),
                            Completed(3, WcStatus::success)));
    EXPECT_TRUE(end->drained());
}

TEST_F(Acknowledged, what_is_posted_after_the_request_waits_for_the_next) {
    post_write(1);
    const auto first = drain(*end.stream);
    post_write(2);
    const auto second = drain(*end.stream);
    ASSERT_THAT(first, SizeIs(2));
    ASSERT_THAT(second, SizeIs(2));
    answer(first[1]);
    EXPECT_THAT(end.sent(), ElementsAre(Completed(1, WcStatus::success)));
    answer(second[1]);
    EXPECT_THAT(end.sent(), ElementsAre(Completed(2, WcStatus::success)));
}

TEST_F(Acknowledged, a_read_that_was_posted_answers_for_what_came_before) {
    post_write(1);
    end.post({.wr_id = 2, .opcode = SendOpcode::read, .remote_stag = 5}, {piece(4)});
    const auto out = drain(*end.stream);
    ASSERT_THAT(out, SizeIs(2)) << "a request more than needed";
    answer(out[1], pattern(4));
    EXPECT_THAT(end.sent(),
                ElementsAre(Completed(1, WcStatus::success), Completed(2, WcStatus::success)));
}

TEST_F(Acknowledged, a_queue_that_never_runs_empty_is_asked_for_too) {
    for (std::uint64_t id = 1; id <= 40; ++id) post_write(id);
    const auto out = drain(*end.stream);
    EXPECT_EQ(std::count_if(out.begin(), out.end(), is_ack_request), 3);
    for (const ByteVector& ulpdu : out) {
        if (is_ack_request(ulpdu)) answer(ulpdu);
    }
    // In a batch they are asked at the same places.
    for (std::uint64_t id = 1; id <= 40; ++id) post_write(id);
    const auto batch = fill(*end.stream, 16384);
    ASSERT_EQ(batch.size(), out.size());
    for (std::size_t i = 0; i < out.size(); ++i)
        EXPECT_EQ(is_ack_request(batch[i]), is_ack_request(out[i]));
}

TEST_F(Acknowledged, requests_never_exceed_the_ord) {
    std::ptrdiff_t asked = 0;
    for (std::uint64_t id = 1; id <= 6; ++id) {
        post_write(id);
        const auto out = drain(*end.stream);
        asked += std::count_if(out.begin(), out.end(), is_ack_request);
    }
    EXPECT_EQ(asked, 4);
    EXPECT_FALSE(end->tx_wanted());
    post_write(7);
    const auto out = drain(*end.stream);
    EXPECT_THAT(out, SizeIs(1));
    EXPECT_FALSE(is_ack_request(out[0]));
}

TEST_F(Acknowledged, requests_are_for_what_is_signaled) {
    for (std::uint64_t id = 1; id <= 3; ++id)
        end.post({.wr_id = id, .opcode = SendOpcode::write, .flags = 0, .remote_stag = 5},
                 {piece(8)});
    EXPECT_THAT(drain(*end.stream), SizeIs(3));
    EXPECT_EQ(end.sq.retired(), 0u) << "the peer may refuse them yet";
    post_write(4);
    const auto out = drain(*end.stream);
    ASSERT_THAT(out, SizeIs(2));
    EXPECT_TRUE(is_ack_request(out[1]));
    answer(out[1]);
    EXPECT_THAT(end.sent(), ElementsAre(Completed(4, WcStatus::success)));
    EXPECT_EQ(end.sq.retired(), 4u);
}

TEST_F(Acknowledged, a_queue_half_full_is_asked_for) {
    for (std::uint64_t id = 1; id <= 32; ++id)
        end.post({.wr_id = id, .opcode = SendOpcode::write, .flags = 0, .remote_stag = 5},
                 {piece(8)});
    const auto out = drain(*end.stream);
    ASSERT_THAT(out, SizeIs(33));
    EXPECT_TRUE(is_ack_request(out[32]));
    answer(out[32]);
    EXPECT_EQ(end.sq.retired(), 32u);
}

TEST_F(Acknowledged, a_queue_half_full_of_what_sends_nothing_is_asked_for) {
    end.post({.wr_id = 1, .opcode = SendOpcode::write, .flags = 0, .remote_stag = 5}, {piece(8)});
    ByteVector other(8);
    for (std::uint64_t id = 2; id <= 32; ++id)
        end.post({.wr_id = id,
                  .opcode = SendOpcode::local_invalidate,
                  .flags = 0,
                  .invalidate_stag = world.add(other, kLocalWrite)});
    const auto out = drain(*end.stream);
    ASSERT_THAT(out, SizeIs(2)) << "nothing can be posted any more";
    EXPECT_TRUE(is_ack_request(out[1]));
    EXPECT_EQ(end.sq.retired(), 0u);
    answer(out[1]);
    EXPECT_EQ(end.sq.retired(), 32u);
}

TEST_F(Acknowledged, what_is_asked_for_by_nobody_is_done_when_no_more_can_be_posted) {
    end.post({.wr_id = 1, .opcode = SendOpcode::write, .flags = 0, .remote_stag = 5}, {piece(8)});
    drain(*end.stream);
    EXPECT_FALSE(end->drained());
    end->finish();
    EXPECT_TRUE(end->drained());
    EXPECT_THAT(end.sent(), IsEmpty());
}

TEST_F(Acknowledged, what_is_posted_behind_it_may_ask_though_no_more_can_be_posted) {
    ByteVector other(8);
    end.post({.wr_id = 1, .opcode = SendOpcode::write, .flags = 0, .remote_stag = 5}, {piece(8)});
    end.post({.wr_id = 2,
              .opcode = SendOpcode::local_invalidate,
              .invalidate_stag = world.add(other, kLocalWrite)});
    end->finish();
    const auto out = drain(*end.stream);
    ASSERT_THAT(out, SizeIs(2));
    EXPECT_TRUE(is_ack_request(out[1]));
    EXPECT_THAT(end.sent(), IsEmpty()) << "it tells of the Write, which the peer may refuse";
    answer(out[1]);
    EXPECT_THAT(end.sent(), ElementsAre(Completed(2, WcStatus::success)));
    EXPECT_TRUE(end->drained());
}

TEST_F(Acknowledged, local_invalidate_asks_no_peer) {
    ByteVector other(8);
    const std::uint32_t stag = world.add(other, kLocalWrite);
    end.post({.wr_id = 1, .opcode = SendOpcode::local_invalidate, .invalidate_stag = stag});
    EXPECT_THAT(drain(*end.stream), IsEmpty());
    EXPECT_THAT(end.sent(), ElementsAre(Completed(1, WcStatus::success)));
    EXPECT_TRUE(end->drained());
}

TEST_F(Acknowledged, inline_sends_of_the_short_way_are_asked_for) {
    end.post({.wr_id = 1, .flags = kSendSignaled | kSendInline}, {piece(8)});
    ASSERT_THAT(single_ulpdu(*end.stream), Not(IsEmpty()));
    end->tx_done(1);
    EXPECT_THAT(end.sent(), IsEmpty());
    EXPECT_TRUE(end->tx_wanted());
    const auto out = drain(*end.stream);
    ASSERT_THAT(out, SizeIs(1));
    EXPECT_TRUE(is_ack_request(out[0]));
    answer(out[0]);
    EXPECT_THAT(end.sent(), ElementsAre(Completed(1, WcStatus::success)));
}

TEST_F(Acknowledged, the_peers_end_fails_what_it_has_not_confirmed) {
    post_write(1);
    const auto out = drain(*end.stream);
    post_write(2);
    answer(out[1]);
    drain(*end.stream);
    end->peer_finished();
    EXPECT_THAT(end.sent(), ElementsAre(Completed(1, WcStatus::success),
                                        Completed(2, WcStatus::connection_lost)));
    post_write(3);
    drain(*end.stream);
    EXPECT_THAT(end.sent(), ElementsAre(Completed(3, WcStatus::connection_lost)));
}

TEST_F(Acknowledged, without_reads_completions_are_as_usual) {
    End other(world);
    other->set_acknowledged();
    other->set_depths(0, 0);
    other.establish();
    other.post({.wr_id = 1}, {piece(8)});
    EXPECT_THAT(drain(*other.stream), SizeIs(1));
    EXPECT_THAT(other.sent(), ElementsAre(Completed(1, WcStatus::success)));
}

/// The same with a peer that has Acknowledge messages.
class AcknowledgedByMessages : public testing::Test {
  protected:
    Pipe pipe;
    ByteVector memory = pattern(100);
    std::uint32_t stag = pipe.world.add(memory, kRemoteWrite | kRemoteRead | kLocalWrite);

    void SetUp() override {
        pipe.a->set_acknowledged();
        pipe.establish({.peer_is_xsock = true, .features = MPA_FEATURE_ACKNOWLEDGE});
    }
    Sge piece(std::size_t n) { return {memory.data(), static_cast<std::uint32_t>(n), kLkeyNone}; }
    void post(std::uint64_t id, unsigned flags = kSendSignaled) {
        pipe.a.post({.wr_id = id,
                     .opcode = SendOpcode::write,
                     .flags = static_cast<std::uint8_t>(flags),
                     .remote_stag = stag},
                    {piece(8)});
    }
    /// What `end` sends reaches the other.
    std::vector<ByteVector> carry(End& from, End& to) {
        auto out = drain(*from.stream);
        for (const ByteVector& ulpdu : out) EXPECT_TRUE(feed(*to.stream, ulpdu));
        return out;
    }
    static bool asks(const ByteVector& ulpdu) {
        return (ulpdu[1] & std::byte{RDMAP_ACK_REQUEST}) != std::byte{0};
    }
    static ByteVector acknowledge(std::uint32_t messages, std::uint32_t msn = 1) {
        return header(
            {.opcode = RDMAP_ACKNOWLEDGE, .stag = messages, .qn = DDP_QN_ACKNOWLEDGE, .msn = msn});
    }
};

TEST_F(AcknowledgedByMessages, a_signaled_message_asks_and_needs_no_other) {
    post(1, 0);
    post(2);
    post(3, 0);
    const auto out = carry(pipe.a, pipe.b);
    ASSERT_THAT(out, SizeIs(3));
    EXPECT_FALSE(asks(out[0]) || asks(out[2]));
    EXPECT_TRUE(asks(out[1]));
    EXPECT_THAT(pipe.a.sent(), IsEmpty());
    EXPECT_TRUE(pipe.b->owes_acknowledge());
    EXPECT_FALSE(pipe.b->tx_wanted()) << "it waits for company";
    pipe.b->acknowledge();
    EXPECT_EQ(carry(pipe.b, pipe.a), std::vector<ByteVector>{acknowledge(3)});
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Completed(2, WcStatus::success)));
    EXPECT_EQ(pipe.a.sq.retired(), 3u);
    EXPECT_FALSE(pipe.b->owes_acknowledge());
}

TEST_F(AcknowledgedByMessages, it_rides_with_what_goes_that_way) {
    post(1);
    carry(pipe.a, pipe.b);
    pipe.b.post({.wr_id = 9}, {piece(5)});
    pipe.a.post_recv(8, {piece(5)});
    const auto out = carry(pipe.b, pipe.a);
    ASSERT_THAT(out, SizeIs(2));
    EXPECT_EQ(out[0], acknowledge(1));
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Completed(1, WcStatus::success)));
    EXPECT_THAT(pipe.a.received(), ElementsAre(Completed(8, WcStatus::success)));
}

TEST_F(AcknowledgedByMessages, sixteen_messages_are_told_of_without_company) {
    post(1);
    for (std::uint64_t id = 2; id <= 15; ++id) post(id, 0);
    carry(pipe.a, pipe.b);
    EXPECT_FALSE(pipe.b->tx_wanted());
    post(16, 0);
    carry(pipe.a, pipe.b);
    EXPECT_EQ(carry(pipe.b, pipe.a), std::vector<ByteVector>{acknowledge(16)});
    for (std::uint64_t id = 17; id <= 32; ++id) post(id, 0);
    carry(pipe.a, pipe.b);
    EXPECT_FALSE(pipe.b->tx_wanted()) << "no question was sent";
}

TEST_F(AcknowledgedByMessages, half_a_queue_asks) {
    for (std::uint64_t id = 1; id <= 32; ++id) post(id, 0);
    const auto out = carry(pipe.a, pipe.b);
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(asks(out[i]), i == 31) << i;
    carry(pipe.b, pipe.a);
    EXPECT_EQ(pipe.a.sq.retired(), 32u);
}

TEST_F(AcknowledgedByMessages, what_cannot_ask_by_itself_asks_by_an_empty_write) {
    ByteVector other(8);
    const std::uint32_t gone = pipe.world.add(other, kLocalWrite);
    post(1, 0);
    pipe.a.post({.wr_id = 2, .opcode = SendOpcode::local_invalidate, .invalidate_stag = gone});
    const auto out = carry(pipe.a, pipe.b);
    ASSERT_THAT(out, SizeIs(2));
    EXPECT_EQ(out[1], header({.opcode = RDMAP_WRITE, .tagged = true, .asks = true, .stag = 1}));
    EXPECT_THAT(pipe.a.sent(), IsEmpty());
    post(3, 0);
    carry(pipe.a, pipe.b);
    pipe.b->acknowledge();
    EXPECT_EQ(carry(pipe.b, pipe.a), std::vector<ByteVector>{acknowledge(3)});
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Completed(2, WcStatus::success)));
    EXPECT_EQ(pipe.a.sq.retired(), 3u);
    EXPECT_EQ(pipe.a->stream_error(), StreamError::none);
}

TEST_F(AcknowledgedByMessages, a_message_asks_for_what_could_not) {
    ByteVector other(8);
    const std::uint32_t gone = pipe.world.add(other, kLocalWrite);
    post(1, 0);
    pipe.a.post({.wr_id = 2, .opcode = SendOpcode::local_invalidate, .invalidate_stag = gone});
    post(3, 0);
    UlpduOut first;
    ASSERT_TRUE(next_ulpdu(*pipe.a.stream, 1024, first));
    pipe.a->tx_done(1);
    const auto out = drain(*pipe.a.stream);
    ASSERT_THAT(out, SizeIs(1));
    EXPECT_TRUE(asks(out[0]));
    ASSERT_TRUE(feed(*pipe.a.stream, acknowledge(2)));
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Completed(2, WcStatus::success)));
}

TEST_F(AcknowledgedByMessages, each_kind_counts_as_it_is_sent) {
    alignas(8) std::uint64_t word = 5, former = 0;
    const std::uint32_t atomic = pipe.world.table
                                     .add({.address = reinterpret_cast<std::byte*>(&word),
                                           .length = 8,
                                           .access = kRemoteAtomic | kZeroBased,
                                           .pd = 1})
                                     .value();
    const Atomic add{.operand = 1};
    for (std::uint64_t id = 0; id < 4; ++id) pipe.b.post_recv(id, {piece(8)});
    pipe.a.post({.wr_id = 1}, {piece(8)});
    pipe.a.post({.wr_id = 2, .opcode = SendOpcode::write_immediate, .remote_stag = stag},
                {piece(8)});
    pipe.a.post({.wr_id = 3, .opcode = SendOpcode::read, .remote_stag = stag}, {piece(8)});
    pipe.a.post({.wr_id = 4, .opcode = SendOpcode::immediate});
    pipe.a.post(
        {.wr_id = 5, .opcode = SendOpcode::fetch_add, .remote_stag = atomic, .atomic = &add},
        {{reinterpret_cast<std::byte*>(&former), 8, kLkeyNone}});
    pipe.a.post({.wr_id = 6}, {piece(8)});
    carry(pipe.a, pipe.b);
    const auto back = carry(pipe.b, pipe.a);
    ASSERT_THAT(back, SizeIs(3));
    EXPECT_EQ(back[0], acknowledge(5)) << "Send, Write and Immediate Data, Immediate Data, Send";
    EXPECT_THAT(pipe.a.sent(), SizeIs(6));
}

TEST_F(AcknowledgedByMessages, a_part_of_a_write_with_immediate_is_not_all_of_it) {
    pipe.a.post({.wr_id = 1, .opcode = SendOpcode::write_immediate, .remote_stag = stag},
                {piece(8)});
    drain(*pipe.a.stream);
    ASSERT_TRUE(feed(*pipe.a.stream, acknowledge(1)));
    EXPECT_THAT(pipe.a.sent(), IsEmpty());
    ASSERT_TRUE(feed(*pipe.a.stream, acknowledge(2, 2)));
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Completed(1, WcStatus::success)));
}

TEST_F(AcknowledgedByMessages, the_answer_to_a_read_confirms_as_well) {
    post(1);
    pipe.a.post({.wr_id = 2, .opcode = SendOpcode::read, .remote_stag = stag}, {piece(8)});
    post(3);
    const auto out = drain(*pipe.a.stream);
    ASSERT_THAT(out, SizeIs(3));
    for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(feed(*pipe.b.stream, out[i]));
    const auto back = drain(*pipe.b.stream);
    ASSERT_THAT(back, SizeIs(2));
    ASSERT_TRUE(feed(*pipe.a.stream, back[1])) << "the Read Response";
    EXPECT_THAT(pipe.a.sent(),
                ElementsAre(Completed(1, WcStatus::success), Completed(2, WcStatus::success)));
    ASSERT_TRUE(feed(*pipe.a.stream, acknowledge(2)));
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Completed(3, WcStatus::success)));
    EXPECT_EQ(pipe.a->stream_error(), StreamError::none);
}

TEST_F(AcknowledgedByMessages, numbers_that_cannot_be_end_the_stream) {
    for (const auto& [first, second] :
         {std::pair{3u, 3u}, std::pair{2u, 1u}, std::pair{0x7fffffffu, 0u}, std::pair{2u, 3u}}) {
        Pipe p;
        p.a->set_acknowledged();
        p.establish({.peer_is_xsock = true, .features = MPA_FEATURE_ACKNOWLEDGE});
        for (std::uint64_t id = 1; id <= 2; ++id) p.a.post({.wr_id = id}, {piece(8)});
        drain(*p.a.stream);
        ASSERT_TRUE(feed(*p.a.stream, acknowledge(first)));
        if (first <= 2) {
            EXPECT_THAT(p.a.sent(), SizeIs(first));
            EXPECT_EQ(p.a->stream_error(), StreamError::none);
            ASSERT_TRUE(feed(*p.a.stream, acknowledge(second, 2)));
        }
        EXPECT_EQ(p.a->stream_error(), StreamError::acknowledge_range) << first << ' ' << second;
        EXPECT_THAT(p.a.sent(), IsEmpty());
    }
}

TEST_F(AcknowledgedByMessages, the_same_number_again_changes_nothing) {
    post(1);
    drain(*pipe.a.stream);
    for (std::uint32_t msn = 1; msn <= 3; ++msn) {
        ASSERT_TRUE(feed(*pipe.a.stream, acknowledge(1, msn)));
    }
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Completed(1, WcStatus::success)));
    EXPECT_EQ(pipe.a->stream_error(), StreamError::none);
}

TEST_F(AcknowledgedByMessages, an_acknowledge_that_nobody_waits_for_is_checked_too) {
    pipe.b.post({.wr_id = 1, .opcode = SendOpcode::write, .remote_stag = stag}, {piece(8)});
    drain(*pipe.b.stream);
    EXPECT_THAT(pipe.b.sent(), SizeIs(1)) << "it does not wait";
    ASSERT_TRUE(feed(*pipe.b.stream, acknowledge(1)));
    EXPECT_EQ(pipe.b->stream_error(), StreamError::none);
    ASSERT_TRUE(feed(*pipe.b.stream, acknowledge(2, 2)));
    EXPECT_EQ(pipe.b->stream_error(), StreamError::acknowledge_range);
}

TEST_F(AcknowledgedByMessages, reads_of_none_need_no_depth) {
    Pipe p;
    p.a->set_acknowledged();
    p.a->set_depths(0, 0);
    p.establish({.peer_is_xsock = true, .features = MPA_FEATURE_ACKNOWLEDGE});
    p.a.post({.wr_id = 1, .opcode = SendOpcode::write, .remote_stag = 1});
    drain(*p.a.stream);
    EXPECT_THAT(p.a.sent(), IsEmpty());
    ASSERT_TRUE(feed(*p.a.stream, acknowledge(1)));
    EXPECT_THAT(p.a.sent(), SizeIs(1));
}

TEST_F(AcknowledgedByMessages, inline_message_and_acknowledge_go_together) {
    post(1);
    carry(pipe.a, pipe.b);
    pipe.b.post({.wr_id = 2, .flags = kSendInline}, {piece(8)});
    ByteVector room(128);
    std::array<std::uint16_t, 2> sizes{};
    const UlpduBatch batch{.room = room, .align = 4, .small = 128, .sizes = sizes, .single = true};
    UlpduBatch little = batch;
    little.room = Bytes(room).first(44);
    EXPECT_EQ(pipe.b->tx_fill(little).small, 0u) << "both or none";
    ASSERT_EQ(pipe.b->tx_fill(batch).small, 2u);
    EXPECT_EQ(sizes, (std::array<std::uint16_t, 2>{kUntaggedOctets, kUntaggedOctets + 8}));
    EXPECT_TRUE(std::equal(room.begin(), room.begin() + kUntaggedOctets, acknowledge(1).begin()));
    pipe.b->tx_done(1);
    EXPECT_EQ(pipe.b.sq.retired(), 0u) << "the first is no entry";
    pipe.b->tx_done(1);
    EXPECT_EQ(pipe.b.sq.retired(), 1u);
}

TEST_F(AcknowledgedByMessages, one_that_is_due_may_go_by_itself_in_the_short_way) {
    post(1);
    carry(pipe.a, pipe.b);
    EXPECT_THAT(single_ulpdu(*pipe.b.stream), IsEmpty());
    pipe.b->acknowledge();
    EXPECT_EQ(single_ulpdu(*pipe.b.stream), acknowledge(1));
}

TEST_F(AcknowledgedByMessages, a_message_waits_for_its_receive_before_it_counts) {
    pipe.a.post({.wr_id = 1}, {piece(8)});
    const auto out = drain(*pipe.a.stream);
    Inbound in(out.at(0));
    EXPECT_FALSE(in.feed(*pipe.b.stream));
    EXPECT_FALSE(pipe.b->owes_acknowledge());
    pipe.b.post_recv(1, {piece(8)});
    EXPECT_TRUE(in.feed(*pipe.b.stream));
    EXPECT_TRUE(pipe.b->owes_acknowledge());
}

TEST_F(AcknowledgedByMessages, a_damaged_message_does_not_count) {
    post(1);
    const auto out = drain(*pipe.a.stream);
    ASSERT_TRUE(feed(*pipe.b.stream, out.at(0), /*intact=*/false));
    EXPECT_FALSE(pipe.b->owes_acknowledge());
}

TEST_F(AcknowledgedByMessages, nothing_is_told_behind_a_message_that_was_dropped) {
    pipe.a.post({.wr_id = 1}, {piece(8)});
    post(2);
    const auto out = drain(*pipe.a.stream);
    pipe.b.post_recv(1, {piece(8)});
    Inbound in(out.at(0));
    pipe.b->rx_begin(out[0].size());
    for (std::size_t at = 0; at < kUntaggedOctets;) {
        const Bytes target = pipe.b->rx_target();
        std::copy_n(out[0].begin() + static_cast<std::ptrdiff_t>(at), target.size(),
                    target.begin());
        at += target.size();
        pipe.b->rx_advance(target.size());
    }
    pipe.b->drop_receives();
    pipe.b->rx_advance(8);
    pipe.b->rx_end(true);
    ASSERT_TRUE(feed(*pipe.b.stream, out.at(1)));
    EXPECT_FALSE(pipe.b->owes_acknowledge());
}

TEST_F(AcknowledgedByMessages, the_rtr_message_does_not_count) {
    for (const Rtr kind : {Rtr::send, Rtr::write, Rtr::read}) {
        Pipe p;
        p.a->set_acknowledged();
        p.establish({.peer_is_xsock = true, .features = MPA_FEATURE_ACKNOWLEDGE, .rtr = kind});
        p.b.post_recv(1, {piece(8)});
        p.a.post({.wr_id = 1}, {piece(8)});
        p.run();
        p.b->acknowledge();
        p.run();
        EXPECT_THAT(p.a.sent(), ElementsAre(Completed(1, WcStatus::success)));
        EXPECT_EQ(p.a->stream_error(), StreamError::none);
        ASSERT_TRUE(feed(*p.a.stream, acknowledge(2, 2)));
        EXPECT_EQ(p.a->stream_error(), StreamError::acknowledge_range) << "there was one";
    }
}

TEST_F(AcknowledgedByMessages, numbers_and_msns_wrap) {
    constexpr Config kNear{.qp_num = 1, .pd = 1, .first_msn = 0xfffffffe};
    Pipe p(kNear, kNear);
    p.a->set_acknowledged();
    p.establish({.peer_is_xsock = true, .features = MPA_FEATURE_ACKNOWLEDGE});
    for (std::uint64_t id = 0; id < 5; ++id) {
        p.b.post_recv(id, {piece(8)});
        p.a.post({.wr_id = id}, {piece(8)});
        p.run();
        p.b->acknowledge();
        p.run();
        EXPECT_THAT(p.a.sent(), SizeIs(1));
    }
    AckRequests requests(0, 64);
    SendQueue sq(64);
    requests.set(AckRequests::By::messages);
    constexpr std::uint32_t kMany = 1u << 30;
    for (std::uint32_t i = 1; i <= 9; ++i) {
        requests.count(kMany);
        EXPECT_FALSE(requests.take((i * kMany + 1) & RDMAP_ACKNOWLEDGE_MASK, 0, sq));
        EXPECT_TRUE(requests.take((i * kMany) & RDMAP_ACKNOWLEDGE_MASK, 0, sq)) << i;
        EXPECT_FALSE(requests.take((i * kMany - 1) & RDMAP_ACKNOWLEDGE_MASK, 0, sq));
    }
}

TEST_F(AcknowledgedByMessages, what_the_peer_has_not_told_fails_with_its_end) {
    post(1);
    post(2);
    post(3, 0);
    drain(*pipe.a.stream);
    ASSERT_TRUE(feed(*pipe.a.stream, acknowledge(1)));
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Completed(1, WcStatus::success)));
    pipe.a->peer_finished();
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Completed(2, WcStatus::connection_lost)));
    EXPECT_EQ(pipe.a.sq.retired(), 3u) << "it was not asked for";
}

TEST_F(AcknowledgedByMessages, an_end_that_finishes_tells_at_once) {
    post(1);
    carry(pipe.a, pipe.b);
    pipe.b->finish();
    EXPECT_EQ(carry(pipe.b, pipe.a), std::vector<ByteVector>{acknowledge(1)});
    post(2);
    carry(pipe.a, pipe.b);
    EXPECT_EQ(carry(pipe.b, pipe.a), std::vector<ByteVector>{acknowledge(2, 2)});
}

TEST(AcknowledgedPipe, ends_without_the_feature_in_common_use_reads) {
    Pipe pipe;
    ByteVector memory = pattern(8);
    pipe.a->set_acknowledged();
    pipe.establish({.peer_is_xsock = true});
    pipe.b.post_recv(1, {sge(memory)});
    pipe.a.post({.wr_id = 1}, {sge(memory)});
    const auto out = drain(*pipe.a.stream);
    ASSERT_THAT(out, SizeIs(2));
    EXPECT_EQ(out[0][1], std::byte{RDMAP_VERSION | RDMAP_SEND}) << "no bit toward others";
    EXPECT_EQ(out[1][1], std::byte{RDMAP_VERSION | RDMAP_READ_REQUEST});
}

TEST(AcknowledgedPipe, the_peers_refusal_is_the_status_of_what_it_refused) {
    Pipe pipe;
    ByteVector from = pattern(64), small(16);
    pipe.a->set_acknowledged();
    pipe.establish();
    pipe.b.post_recv(1, {sge(from)});
    pipe.a.post({.wr_id = 1}, {sge(from)});
    pipe.run();
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Completed(1, WcStatus::success)));
    const std::uint32_t stag = pipe.world.add(small, kRemoteRead);
    pipe.a.post({.wr_id = 2, .opcode = SendOpcode::write, .remote_stag = stag}, {sge(from)});
    pipe.run();
    pipe.a->flush(WcStatus::flushed);
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Completed(2, WcStatus::remote_access_error)));
}

/// Sends and Writes of one batch, one of which the peer refuses.
class Refusal : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Refusal, is_told_of_the_request_that_was_refused) {
    const std::uint64_t wrong = GetParam();
    Pipe pipe;
    pipe.batch = 32;
    ByteVector from = pattern(64), to(64), small(16);
    pipe.a->set_acknowledged();
    pipe.establish({.peer_is_xsock = true, .features = MPA_FEATURE_SEND_IMMEDIATE});
    const std::uint32_t good = pipe.world.add(to, kRemoteWrite | kLocalWrite);
    const std::uint32_t bad = pipe.world.add(small, kRemoteRead);
    for (std::uint64_t id = 1; id <= 6; ++id) {
        if (id % 2 == 0) {
            pipe.b.post_recv(id, {id == wrong ? sge(small) : sge(to)});
            pipe.a.post(
                {.wr_id = id, .opcode = id == 4 ? SendOpcode::send_immediate : SendOpcode::send},
                {sge(from)});
        } else {
            pipe.a.post(
                {.wr_id = id, .opcode = SendOpcode::write, .remote_stag = id == wrong ? bad : good},
                {sge(from)});
        }
    }
    pipe.run();
    pipe.a->flush(WcStatus::flushed);
    const auto done = pipe.a.sent();
    ASSERT_THAT(done, SizeIs(6));
    for (std::uint64_t id = 1; id <= 6; ++id) {
        const WcStatus status = done[id - 1].status;
        if (id < wrong) {
            EXPECT_EQ(status, WcStatus::success) << id;
        } else if (id > wrong) {
            EXPECT_EQ(status, WcStatus::flushed) << id;
        } else {
            EXPECT_NE(status, WcStatus::success);
            EXPECT_NE(status, WcStatus::flushed);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Each, Refusal, testing::Range<std::uint64_t>(1, 7));

}  // namespace
}  // namespace xsock::ddp
