// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Completions that wait for the peer (Stream::set_acknowledged): what is asked, when, and what the
// answer, a Terminate or the end of the peer does to the entries that wait.
#include <gmock/gmock.h>

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
    for (std::uint64_t id = 1; id <= 6; ++id) {
        post_write(id);
        drain(*end.stream);
    }
    EXPECT_FALSE(end->tx_wanted());
    post_write(7);
    const auto out = drain(*end.stream);
    EXPECT_THAT(out, SizeIs(1));
    EXPECT_FALSE(is_ack_request(out[0]));
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
    pipe.establish();
    const std::uint32_t good = pipe.world.add(to, kRemoteWrite | kLocalWrite);
    const std::uint32_t bad = pipe.world.add(small, kRemoteRead);
    for (std::uint64_t id = 1; id <= 6; ++id) {
        if (id % 2 == 0) {
            pipe.b.post_recv(id, {id == wrong ? sge(small) : sge(to)});
            pipe.a.post({.wr_id = id}, {sge(from)});
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
