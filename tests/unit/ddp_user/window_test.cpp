// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory windows in a send queue: when a binding takes effect, what fails with it, and what is left
// of one that did not complete.
#include <gmock/gmock.h>

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

/// `b` has memory with a window, `a` would write into it.
class Windows : public testing::Test {
  protected:
    Pipe pipe;
    ByteVector memory = ByteVector(100), data = pattern(20), message = ByteVector(4);
    std::uint32_t region = pipe.world.add(memory, kLocalWrite | kWindows);
    std::uint32_t window = pipe.world.table.reserve_window().value();

    void SetUp() override { pipe.establish(); }
    /// A binding to octets [10, 30) for QP `qp`.
    void prepare(std::uint32_t stag, QpNum qp = 2) {
        ASSERT_TRUE(pipe.world.table
                        .prepare_window(stag,
                                        {.address = memory.data() + 10,
                                         .length = 20,
                                         .access = kRemoteWrite | kZeroBased,
                                         .pd = 1,
                                         .only_qp = qp},
                                        region)
                        .ok());
    }
    void bind(std::uint64_t id, std::uint32_t stag) {
        pipe.b.post({.wr_id = id, .opcode = SendOpcode::bind_window, .remote_stag = stag});
    }
    /// `a` sends a message that invalidates the window.
    void send_invalidate() {
        pipe.b.post_recv(3, {sge(message)});
        pipe.a.post({.wr_id = 4, .opcode = SendOpcode::send_invalidate, .invalidate_stag = window},
                    {sge(message)});
    }
    void write(std::uint64_t id, std::uint32_t stag) {
        pipe.a.post({.wr_id = id, .opcode = SendOpcode::write, .remote_stag = stag}, {sge(data)});
    }
    /// Has what `a` wrote arrived?
    bool written() const { return std::equal(data.begin(), data.end(), memory.begin() + 10); }
};

TEST_F(Windows, serve_from_their_binding_until_the_peer_invalidates_them) {
    prepare(window);
    bind(1, window);
    pipe.run();
    EXPECT_THAT(pipe.b.sent(), ElementsAre(Completed(1, WcStatus::success)));
    write(2, window);
    send_invalidate();
    pipe.run();
    EXPECT_TRUE(written());
    EXPECT_THAT(pipe.b.received(), ElementsAre(AllOf(Field(&Wc::invalidated_stag, window),
                                                     Field(&Wc::status, WcStatus::success))));
    EXPECT_TRUE(pipe.world.table.revoked(window));
    write(5, window);
    pipe.run();
    EXPECT_EQ(pipe.b->stream_error(), StreamError::tagged_stag_invalid);
}

TEST_F(Windows, of_another_queue_pair_are_closed_to_this_one) {
    prepare(window, 7);
    bind(1, window);
    write(2, window);
    pipe.run();
    EXPECT_EQ(pipe.b->stream_error(), StreamError::tagged_stag_not_associated);
    EXPECT_FALSE(written());
}

TEST_F(Windows, cannot_be_invalidated_by_a_peer_when_all_queue_pairs_may_use_them) {
    prepare(window, 0);
    bind(1, window);
    send_invalidate();
    pipe.run();
    EXPECT_EQ(pipe.b->stream_error(), StreamError::invalidate_not_permitted);
    EXPECT_FALSE(pipe.world.table.revoked(window));
}

TEST_F(Windows, keep_their_region_from_being_invalidated) {
    prepare(window);
    bind(1, window);
    pipe.b.post({.wr_id = 2, .opcode = SendOpcode::local_invalidate, .invalidate_stag = region});
    pipe.run();
    EXPECT_THAT(pipe.b.sent(), ElementsAre(Completed(1, WcStatus::success)));
    pipe.b->flush(WcStatus::flushed);
    EXPECT_THAT(pipe.b.sent(), ElementsAre(Completed(2, WcStatus::local_protection_error)));
    EXPECT_FALSE(pipe.world.table.revoked(region));
}

TEST_F(Windows, that_no_queue_pair_will_bind_any_more_give_their_keys_back) {
    ByteVector answer(8);
    prepare(window);
    prepare(window ^ 1);
    prepare(window ^ 2);
    // Bound, but behind a Read without an answer: it is flushed, and so it is not in force.
    pipe.b.post({.wr_id = 1, .opcode = SendOpcode::read, .remote_stag = 5}, {sge(answer)});
    bind(2, window);
    drain(*pipe.b.stream);
    bind(3, window ^ 1);
    pipe.world.table.unbind(window);
    bind(4, window ^ 2);
    pipe.b.sq.close();
    pipe.b->flush(WcStatus::flushed);
    EXPECT_THAT(pipe.b.sent(), SizeIs(4));
    for (const std::uint32_t stag : {window, window ^ 1, window ^ 2}) {
        EXPECT_TRUE(pipe.world.table.revoked(stag));
        pipe.world.remove(stag);
    }
    pipe.world.remove(region);
    EXPECT_THAT(pipe.b.received(), IsEmpty());
}

TEST_F(Windows, that_cannot_be_bound_end_the_connection) {
    prepare(window);
    pipe.world.remove(region);
    bind(1, window);
    pipe.run();
    EXPECT_EQ(pipe.b->stream_error(), StreamError::local_catastrophic);
    pipe.b->flush(WcStatus::flushed);
    EXPECT_THAT(pipe.b.sent(), ElementsAre(Completed(1, WcStatus::local_protection_error)));
    EXPECT_TRUE(pipe.world.table.revoked(window));
}

// -- rights of a queue pair --

struct Withheld {
    std::uint32_t right;
    SendOpcode opcode;
    StreamError stream_error;
};
class Rights : public testing::TestWithParam<Withheld> {};

TEST_P(Rights, are_asked_for_besides_the_regions) {
    const Withheld& withheld = GetParam();
    Pipe pipe({.qp_num = 1, .pd = 1},
              {.qp_num = 2, .pd = 1, .rights = kRemoteAccess & ~withheld.right});
    alignas(8) std::byte target[8] = {};
    ByteVector own(8);
    const std::uint32_t stag = pipe.world.table
                                   .add({.address = target,
                                         .length = sizeof target,
                                         .access = kLocalWrite | kRemoteAccess | kZeroBased,
                                         .pd = 1})
                                   .value();
    Negotiated negotiated;
    negotiated.peer_is_xsock = true;
    pipe.establish(negotiated);
    const Atomic atomic{.operand = 1};
    for (const SendOpcode opcode : {SendOpcode::write, SendOpcode::read, SendOpcode::fetch_add}) {
        if (opcode == withheld.opcode) continue;
        pipe.a.post({.wr_id = 1, .opcode = opcode, .remote_stag = stag, .atomic = &atomic},
                    {sge(own)});
        pipe.run();
        EXPECT_EQ(pipe.b->stream_error(), StreamError::none) << "only the one is withheld";
    }
    const auto before = std::to_integer<int>(target[0]);
    pipe.a.post({.wr_id = 2, .opcode = withheld.opcode, .remote_stag = stag, .atomic = &atomic},
                {sge(own)});
    pipe.run();
    EXPECT_EQ(pipe.b->stream_error(), withheld.stream_error);
    EXPECT_EQ(std::to_integer<int>(target[0]), before);
}

INSTANTIATE_TEST_SUITE_P(
    Each, Rights,
    testing::Values(Withheld{kRemoteWrite, SendOpcode::write, StreamError::write_access},
                    Withheld{kRemoteRead, SendOpcode::read, StreamError::read_access},
                    Withheld{kRemoteAtomic, SendOpcode::fetch_add, StreamError::read_access}));

}  // namespace
}  // namespace xsock::ddp
