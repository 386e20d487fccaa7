// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two Streams, ULPDU by ULPDU: every operation end to end, start-up, half-close, and the promise
// that whatever was posted completes exactly once and in order, wherever the connection is cut.
#include <gmock/gmock.h>

#include <map>
#include <random>

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

TEST(Stream, carries_writes_reads_and_sends_at_every_size) {
    const std::size_t mulpdu = 200, u = mulpdu - kUntaggedOctets, t = mulpdu - kTaggedOctets;
    for (std::size_t n :
         {std::size_t{0}, std::size_t{1}, u - 1, u, u + 1, t, t + 1, 3 * u, 5000ul}) {
        for (std::size_t step : {~std::size_t{0}, std::size_t{5}}) {
            Pipe pipe;
            pipe.mulpdu = mulpdu;
            pipe.step = step;
            pipe.establish();
            ByteVector source = pattern(n), sent(n), written(n), was_read(n),
                       remote = pattern(n, 8);
            const std::uint32_t sink = pipe.world.add(written, kRemoteWrite);
            const std::uint32_t from = pipe.world.add(remote, kRemoteRead);
            const auto third = static_cast<std::uint32_t>(n / 3);
            const auto rest = static_cast<std::uint32_t>(n) - third;
            pipe.b.post_recv(1, {{sent.data(), rest}, {sent.data() + rest, third}});
            pipe.a.post({.wr_id = 1, .opcode = SendOpcode::write, .remote_stag = sink},
                        {{source.data(), third}, {source.data() + third, rest}});
            pipe.a.post({.wr_id = 2, .opcode = SendOpcode::read, .remote_stag = from},
                        {{was_read.data(), rest}, {was_read.data() + rest, third}});
            pipe.a.post({.wr_id = 3}, {{source.data(), third}, {source.data() + third, rest}});
            pipe.run();
            EXPECT_EQ(sent, source);
            EXPECT_EQ(written, source);
            EXPECT_EQ(was_read, remote);
            EXPECT_THAT(pipe.a.sent(), ElementsAre(Field(&Wc::opcode, WcOpcode::write),
                                                   Field(&Wc::opcode, WcOpcode::read),
                                                   Field(&Wc::opcode, WcOpcode::send)));
            EXPECT_THAT(pipe.b.received(), ElementsAre(Field(&Wc::byte_len, n)));
            EXPECT_TRUE(pipe.a->drained() && pipe.b->drained());
        }
    }
}

TEST(Stream, both_ends_may_read_and_send_at_once) {
    Pipe pipe({.qp_num = 1, .pd = 1, .ird = 2, .ord = 2},
              {.qp_num = 2, .pd = 1, .ird = 2, .ord = 2});
    pipe.mulpdu = 128;
    pipe.establish();
    ByteVector shared = pattern(1000), to_a(1000), to_b(1000), inbox_a(1000), inbox_b(1000);
    const std::uint32_t stag = pipe.world.add(shared, kRemoteRead);
    for (std::uint64_t i = 0; i < 10; ++i) {
        pipe.a.post({.wr_id = i, .opcode = SendOpcode::read, .remote_stag = stag}, {sge(to_a)});
        pipe.b.post({.wr_id = i, .opcode = SendOpcode::read, .remote_stag = stag}, {sge(to_b)});
        pipe.a.post({.wr_id = i}, {sge(shared)});
        pipe.b.post({.wr_id = i}, {sge(shared)});
        pipe.a.post_recv(i, {sge(inbox_a)});
        pipe.b.post_recv(i, {sge(inbox_b)});
    }
    pipe.run();
    EXPECT_THAT(pipe.a.sent(), SizeIs(20));
    EXPECT_THAT(pipe.b.sent(), SizeIs(20));
    EXPECT_THAT(pipe.a.received(), SizeIs(10));
    EXPECT_THAT(pipe.b.received(), SizeIs(10));
    for (const ByteVector* const came : {&to_a, &to_b, &inbox_a, &inbox_b}) {
        EXPECT_EQ(*came, shared);
    }
}

TEST(Stream, negotiated_depths_replace_the_configured_ones) {
    Pipe pipe;
    pipe.a.establish({.enhanced = true, .ird = 3, .ord = 1});
    EXPECT_EQ(pipe.a->ird(), 3);
    EXPECT_EQ(pipe.a->ord(), 1);
    pipe.b.establish({.enhanced = false, .ird = 9, .ord = 9});
    EXPECT_EQ(pipe.b->ird(), 16);
}

TEST(Stream, sends_nothing_before_it_is_established) {
    Pipe pipe;
    pipe.a.post({.wr_id = 1});
    EXPECT_FALSE(pipe.a->tx_wanted());
    EXPECT_THAT(drain(*pipe.a.stream), IsEmpty());
    pipe.a.establish();
    EXPECT_THAT(drain(*pipe.a.stream), SizeIs(1));
}

TEST(Stream, peer_to_peer_responder_waits_for_the_rtr_message) {
    for (Rtr rtr : {Rtr::send, Rtr::write, Rtr::read}) {
        Pipe pipe;
        pipe.establish({.enhanced = true, .ird = 0, .ord = 0, .rtr = rtr});
        EXPECT_EQ(pipe.a->state(), Stream::State::established);
        EXPECT_EQ(pipe.b->state(), Stream::State::idle);
        pipe.b.post({.wr_id = 1});
        EXPECT_FALSE(pipe.b->tx_wanted());
        pipe.b.post_recv(2);
        pipe.a.post_recv(3);
        pipe.run();
        EXPECT_EQ(pipe.b->state(), Stream::State::established);
        EXPECT_THAT(pipe.b.received(), IsEmpty());  // the RTR message is no message
        EXPECT_THAT(pipe.b.sent(), SizeIs(1));
        EXPECT_THAT(pipe.a.received(), SizeIs(1));
        EXPECT_THAT(pipe.a.sent(), IsEmpty());
        EXPECT_TRUE(pipe.a->drained() && pipe.b->drained());
        pipe.a.post({.wr_id = 4});
        pipe.run();
        EXPECT_THAT(pipe.b.received(), ElementsAre(Field(&Wc::wr_id, 2u)));
    }
}

TEST(Stream, rtr_messages_look_as_peers_expect) {
    World world;
    for (const auto& [rtr, bytes] :
         {std::pair{Rtr::write, "c140 00000001 0000000000000000"},
          std::pair{Rtr::send, "4143 00000000 00000000 00000001 00000000"}}) {
        End end(world);
        end.post({.wr_id = 1});
        end.establish({.initiator = true, .rtr = rtr});
        const auto ulpdus = drain(*end.stream);
        ASSERT_THAT(ulpdus, SizeIs(2));
        EXPECT_EQ(ulpdus[0], from_hex(bytes));
        EXPECT_EQ(load_be32(ulpdus[1].data() + 10), rtr == Rtr::send ? 2u : 1u);
    }
    End end(world);
    end.establish({.initiator = true, .rtr = Rtr::read});
    const auto ulpdus = drain(*end.stream);
    ASSERT_THAT(ulpdus, SizeIs(1));
    // iw_cxgb4 takes no STag of 0.
    EXPECT_EQ(ulpdus[0], header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1}) +
                             body({.sink_stag = load_be32(ulpdus[0].data() + kUntaggedOctets),
                                   .source_stag = 1}));
}

TEST(Stream, rtr_send_needs_no_receive) {
    World world;
    End end(world);
    end.establish({.rtr = Rtr::send});
    EXPECT_TRUE(feed(*end.stream, header({.opcode = RDMAP_SEND, .msn = 1})));
    EXPECT_EQ(end->state(), Stream::State::established);
    end.post_recv(1);
    EXPECT_TRUE(feed(*end.stream, header({.opcode = RDMAP_SEND, .msn = 2})));
    EXPECT_THAT(end.received(), SizeIs(1));
}

TEST(Stream, half_close_leaves_the_other_half) {
    Pipe pipe;
    ByteVector memory(10);
    pipe.establish();
    pipe.a.post({.wr_id = 1, .opcode = SendOpcode::read}, {sge(memory)});
    pipe.a.post({.wr_id = 2});
    pipe.a.post_recv(3);
    drain(*pipe.a.stream);
    pipe.a.post({.wr_id = 4, .opcode = SendOpcode::read});
    pipe.a.post({.wr_id = 5, .flags = kSendFence | kSendSignaled});
    pipe.a->llp_closed(CloseKind::peer_finished);
    pipe.a->flush_receives();
    EXPECT_THAT(pipe.a.received(), ElementsAre(Status(WcStatus::flushed)));
    EXPECT_FALSE(pipe.a.rq.post({}).ok());
    EXPECT_THAT(drain(*pipe.a.stream), SizeIs(1));  // wr 5
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Status(WcStatus::flushed), Status(WcStatus::success),
                                           Status(WcStatus::flushed), Status(WcStatus::success)));
    EXPECT_TRUE(pipe.a->drained());
    pipe.a->flush(WcStatus::flushed);
    EXPECT_THAT(pipe.a.received(), IsEmpty());
}

TEST(Stream, half_close_in_the_middle_of_a_send) {
    World world;
    End end(world);
    ByteVector memory(10);
    end.establish();
    end.post_recv(1, {sge(memory)});
    feed(*end.stream, header({.opcode = RDMAP_SEND, .last = false, .msn = 1}) + pattern(5));
    end->rx_begin(100);
    end->flush_receives();
    EXPECT_THAT(end.received(), ElementsAre(Status(WcStatus::flushed)));
    end->rx_end(true);
    EXPECT_EQ(end->state(), Stream::State::established);
}

TEST(Stream, flush_is_idempotent_and_closes_for_posting) {
    World world;
    End end(world);
    end.post({.wr_id = 1, .flags = 0});
    end.post_recv(2);
    end->flush(WcStatus::connection_lost);
    EXPECT_THAT(end.sent(), ElementsAre(Status(WcStatus::connection_lost)));
    EXPECT_THAT(end.received(), ElementsAre(Status(WcStatus::connection_lost)));
    EXPECT_FALSE(end.sq.post({}).ok());
    EXPECT_FALSE(end.rq.post({}).ok());
    end->flush(WcStatus::flushed);
    EXPECT_THAT(end.sent(), IsEmpty());
    EXPECT_EQ(end->state(), Stream::State::ended);
}

TEST(Stream, a_failure_that_was_not_asked_for_says_so) {
    World world;
    End end(world);
    end.post({.wr_id = 1, .flags = 0});
    end.post({.wr_id = 2});
    end->flush(WcStatus::flushed);
    const auto sent = end.sent();
    ASSERT_THAT(sent, SizeIs(2));
    EXPECT_FALSE(is_signaled_send(sent[0]));
    EXPECT_TRUE(is_signaled_send(sent[1]));
}

TEST(Stream, what_was_given_may_be_done_after_the_end) {
    World world;
    End end(world);
    end.establish();
    end.post({.wr_id = 1});
    UlpduOut out;
    ASSERT_TRUE(next_ulpdu(*end.stream, 1024, out));
    end->llp_closed(CloseKind::reset);
    EXPECT_EQ(end->stream_error(), StreamError::mpa_connection_lost);
    end->flush(WcStatus::connection_lost);
    end->tx_done(1);
    EXPECT_THAT(end.sent(), ElementsAre(Status(WcStatus::connection_lost)));
}

// -- exactly once, in order, whatever happens --

struct Posted {
    std::vector<std::uint64_t> sends, receives;
};

void expect_exactly_once(const std::vector<std::uint64_t>& posted, const std::vector<Wc>& wcs,
                         const std::map<std::uint64_t, bool>& silent, bool half_closed = false) {
    // Completions are those posted, in order, but for unsignaled ones that succeeded. After the
    // first failure nothing succeeds, unless it was a Read that half-close made impossible.
    std::size_t at = 0;
    bool failed = false;
    for (const Wc& wc : wcs) {
        while (at < posted.size() && posted[at] != wc.wr_id) {
            ASSERT_TRUE(silent.contains(posted[at])) << "lost or out of order: " << posted[at];
            ASSERT_TRUE(!failed || half_closed) << "failures are always told: " << posted[at];
            ++at;
        }
        ASSERT_LT(at, posted.size()) << "not posted: " << wc.wr_id;
        if (wc.status != WcStatus::success) failed = true;
        ++at;
    }
    for (; at < posted.size(); ++at) {
        ASSERT_TRUE(silent.contains(posted[at]) && (!failed || half_closed))
            << "lost: " << posted[at];
    }
}

void random_life(std::uint32_t seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    Pipe pipe({.qp_num = 1, .pd = 1, .ird = 3, .ord = 3},
              {.qp_num = 2, .pd = 1, .ird = 3, .ord = 3});
    pipe.mulpdu = 128 + below(400);
    pipe.step = 1 + below(300);
    pipe.batch = 1 + below(20);
    ByteVector memory = pattern(600), sinks(600);
    const std::uint32_t stag = pipe.world.add(memory, kRemoteRead | kRemoteWrite | kLocalWrite);
    pipe.establish({.rtr = static_cast<Rtr>(below(4))});

    std::uint64_t next_id = 1;
    std::map<std::uint64_t, bool> silent;
    Posted a, b;
    auto post = [&](End& end, Posted& posted) {
        Sge at[2] = {{sinks.data(), below(300), kLkeyNone}, {memory.data(), below(300), stag}};
        SendWr wr{.wr_id = next_id++, .remote_stag = stag, .sges = std::span(at).first(below(3))};
        const std::uint32_t kind = below(20);
        wr.opcode = kind < 9 ? SendOpcode::send : kind < 13 ? SendOpcode::write : SendOpcode::read;
        if (kind == 19) {
            wr = {.wr_id = wr.wr_id, .opcode = SendOpcode::local_invalidate, .invalidate_stag = 1};
            if (below(4) == 0) return;
            // A region of its own, so that the operation succeeds.
            wr.invalidate_stag = pipe.world.add(sinks, 0);
        }
        wr.flags = static_cast<std::uint8_t>((below(3) != 0 ? kSendSignaled : 0) |
                                             (below(4) == 0 ? kSendFence : 0));
        if (!end.sq.post(wr).ok()) return;
        posted.sends.push_back(wr.wr_id);
        if ((wr.flags & kSendSignaled) == 0) silent[wr.wr_id] = true;
    };
    auto post_recv = [&](End& end, Posted& posted) {
        const Sge to{sinks.data(), 600, kLkeyNone};
        if (end.rq.post({.wr_id = next_id, .sges = {&to, 1}}).ok()) {
            posted.receives.push_back(next_id++);
        }
    };

    const std::uint32_t rounds = 20 + below(200);
    for (std::uint32_t i = 0; i < rounds; ++i) {
        switch (below(6)) {
            case 0:
                post(pipe.a, a);
                break;
            case 1:
                post(pipe.b, b);
                break;
            case 2:
                post_recv(pipe.a, a);
                break;
            case 3:
                post_recv(pipe.b, b);
                break;
            case 4:
                pipe.send(pipe.a, pipe.to_b);
                pipe.receive(pipe.a, pipe.to_a);
                break;
            case 5:
                pipe.send(pipe.b, pipe.to_a);
                pipe.receive(pipe.b, pipe.to_b);
                break;
        }
    }
    bool half_closed = false;
    switch (below(7)) {  // how it ends
        case 0:
            pipe.a->llp_closed(CloseKind::reset);
            break;
        case 1:
            pipe.a->llp_failed(StreamError::mpa_crc);
            break;
        case 2:
            half_closed = true;
            pipe.a->llp_closed(CloseKind::peer_finished);
            pipe.a->flush_receives();
            break;
        case 3:
            pipe.world.table.invalidate(stag);
            break;
        case 4:
            if (!pipe.to_a.empty()) pipe.to_a.front() = Inbound(pattern(below(99), seed));
            break;
        case 5:
            pipe.a->receive_overdue();
            break;
        default:
            break;
    }
    if (below(2) == 0) pipe.run();
    pipe.a->flush(WcStatus::flushed);
    pipe.b->flush(WcStatus::flushed);
    expect_exactly_once(a.sends, pipe.a.sent(), silent, half_closed);
    expect_exactly_once(b.sends, pipe.b.sent(), silent);
    expect_exactly_once(a.receives, pipe.a.received(), {});
    expect_exactly_once(b.receives, pipe.b.received(), {});
}

TEST(Stream, completes_everything_exactly_once_wherever_it_is_cut) {
    for (std::uint32_t seed = 0; seed < 2000; ++seed) {
        random_life(seed);
        if (testing::Test::HasFatalFailure()) return;
    }
}

// Octets that no peer in its right mind would send.
TEST(Stream, survives_nonsense) {
    std::mt19937 random(1);
    for (int i = 0; i < 3000; ++i) {
        World world;
        End end(world);
        ByteVector memory(200);
        const std::uint32_t stag = world.add(memory, kRemoteRead | kRemoteWrite);
        end.establish();
        end.post({.opcode = SendOpcode::read}, {sge(memory)});
        end.post_recv(1, {sge(memory)});
        end.post_recv(2, {sge(memory)});
        drain(*end.stream);
        for (int k = 0; k < 6; ++k) {
            ByteVector ulpdu = pattern(random() % 90, static_cast<unsigned>(random()));
            if (ulpdu.size() > 18 && random() % 8 != 0) {
                // Plausible in most places.
                const auto opcode = static_cast<std::uint8_t>(random() % 8);
                const OpcodeInfo& row = *opcode_info(opcode);
                Segment s{.opcode = opcode,
                          .tagged = row.tagged,
                          .last = random() % 2 == 0,
                          .stag = stag,
                          .to = random() % 300};
                if (!row.tagged) {
                    s.qn = row.qn;
                    s.msn = 1 + static_cast<std::uint32_t>(random() % 2);
                    s.mo = random() % 4 == 0 ? static_cast<std::uint32_t>(random() % 90) : 0;
                }
                const ByteVector h = header(s);
                std::ranges::copy(h, ulpdu.begin());
            }
            if (!feed(*end.stream, ulpdu, random() % 16 != 0, 1 + random() % 40)) break;
        }
        drain(*end.stream);
        end->flush(WcStatus::flushed);
        EXPECT_EQ(end.received().size(), 2u);
        EXPECT_EQ(end.sent().size(), 1u);
    }
}

}  // namespace
}  // namespace xsock::ddp
