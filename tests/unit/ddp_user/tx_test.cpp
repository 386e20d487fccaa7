// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a Stream sends, octet by octet; order, fences and limits; completions of the send queue.
#include <gmock/gmock.h>

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

class Tx : public OneEnd {
  protected:
    Sge piece(std::size_t from, std::size_t n, std::uint32_t lkey = kLkeyNone) {
        return {memory.data() + from, static_cast<std::uint32_t>(n), lkey};
    }
    /// What a tagged message of `n` bytes of `memory` from `from` on looks like: two segments, by a
    /// MULPDU of 128.
    std::vector<ByteVector> two_tagged(std::uint8_t opcode, std::uint32_t stag, std::uint64_t to,
                                       std::size_t from, std::size_t n) const {
        const std::size_t first = 128 - kTaggedOctets;
        Segment segment{.opcode = opcode, .tagged = true, .last = false, .stag = stag, .to = to};
        const ByteVector begin = header(segment) + part(from, first);
        segment.last = true;
        segment.to += first;
        return {begin, header(segment) + part(from + first, n - first)};
    }
    /// The peer reads; the first segment of the answer is given to the layer.
    void give_response(std::uint32_t stag, std::uint32_t bytes, std::size_t mulpdu) {
        feed(*end.stream, header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1}) +
                              body({.sink_stag = 1, .size = bytes, .source_stag = stag}));
        UlpduOut out;
        ASSERT_TRUE(next_ulpdu(*end.stream, mulpdu, out));
    }
    /// The Read Request that the peer would see in `ulpdu`.
    static ReadRequest request_in(const ByteVector& ulpdu) {
        EXPECT_EQ(ulpdu.size(), 46u);
        return parse_read_request(
            std::span<const std::byte>(ulpdu).subspan<kUntaggedOctets, kReadRequestOctets>());
    }
    /// Answers the oldest Read whose Request was `ulpdu`.
    void answer(const ByteVector& ulpdu, const ByteVector& data) {
        const ReadRequest request = request_in(ulpdu);
        ASSERT_TRUE(feed(
            *end.stream,
            header({.opcode = RDMAP_READ_RESPONSE, .tagged = true, .stag = request.sink_stag}) +
                data));
    }
};

auto WrId(std::uint64_t id) { return Field(&Wc::wr_id, id); }

TEST_F(Tx, send_is_one_untagged_segment) {
    end.post({.wr_id = 5}, {piece(0, 64)});
    EXPECT_TRUE(end->tx_wanted());
    EXPECT_THAT(drain(*end.stream),
                ElementsAre(header({.opcode = RDMAP_SEND, .msn = 1}) + part(0, 64)));
    EXPECT_FALSE(end->tx_wanted());
    EXPECT_THAT(
        end.sent(),
        ElementsAre(Wc{.wr_id = 5, .qp_context = 0x77, .qp_num = 7, .opcode = WcOpcode::send}));
    EXPECT_TRUE(end->drained());
    EXPECT_EQ(end->counters().tx_messages[RDMAP_SEND], 1u);
    EXPECT_EQ(end->counters().tx_payload_bytes, 64u);
}

TEST_F(Tx, memory_that_may_change_is_said_to) {
    for (const bool all : {false, true}) {
        End e(world, {.snapshot = all});
        e.establish({.peer_is_xsock = true});
        for (const SendOpcode opcode :
             {SendOpcode::send, SendOpcode::write, SendOpcode::write_immediate}) {
            e.post({.opcode = opcode, .flags = kSendSnapshot}, {piece(0, 300)});
            e.post({.opcode = opcode}, {piece(0, 300)});
        }
        std::vector<bool> unstable;
        UlpduOut out;
        while (next_ulpdu(*e.stream, 128, out)) {
            if (out.payload_count != 0) unstable.push_back(out.unstable);
            e->tx_done(1);
        }
        // Three segments of each.
        std::vector<bool> want;
        for (int i = 0; i < 18; ++i) want.push_back(all || i / 3 % 2 == 0);
        EXPECT_EQ(unstable, want);
    }
}

TEST_F(Tx, every_kind_of_send_has_its_opcode) {
    end.post({.opcode = SendOpcode::send, .flags = kSendSolicited});
    end.post({.opcode = SendOpcode::send_invalidate, .invalidate_stag = 0x01020304});
    end.post(
        {.opcode = SendOpcode::send_invalidate, .flags = kSendSolicited, .invalidate_stag = 9});
    EXPECT_THAT(drain(*end.stream),
                ElementsAre(header({.opcode = RDMAP_SEND_SE, .msn = 1}),
                            header({.opcode = RDMAP_SEND_INVALIDATE, .stag = 0x01020304, .msn = 2}),
                            header({.opcode = RDMAP_SEND_SE_INVALIDATE, .stag = 9, .msn = 3})));
    EXPECT_THAT(end.sent(), SizeIs(1));  // the only one that was signaled
}

TEST_F(Tx, a_single_inline_message_is_the_same_by_either_way) {
    struct Case {
        const char* what;
        SendWr wr;
    };
    const Case cases[] = {
        {"Send", {.wr_id = 1, .flags = kSendInline | kSendSignaled}},
        {"Send with SE", {.wr_id = 2, .flags = kSendInline | kSendSolicited}},
        {"Write",
         {.wr_id = 3,
          .opcode = SendOpcode::write,
          .flags = kSendInline | kSendSignaled,
          .remote_stag = 0x0a0b0c0d,
          .remote_to = 0x1122334455667788}},
    };
    for (const Case& c : cases) {
        for (const std::uint32_t bytes : {0u, 1u, 64u, static_cast<std::uint32_t>(kMaxInline)}) {
            SCOPED_TRACE(std::string(c.what) + " of " + std::to_string(bytes));
            end.post(c.wr, {piece(0, bytes)});
            const std::vector<ByteVector> described = drain(*end.stream);
            ASSERT_THAT(described, SizeIs(1));
            const auto completions = end.sent();

            // The next one is written: its MSN counts on, its completion is alike.
            end.post(c.wr, {piece(0, bytes)});
            ByteVector expected = described[0];
            if (c.wr.opcode == SendOpcode::send) {
                std::byte* const msn = expected.data() + offsetof(ddp_untagged, msn);
                store_be32(msn, load_be32(msn) + 1);
            }
            EXPECT_EQ(single_ulpdu(*end.stream), expected);
            EXPECT_FALSE(end->drained());
            end->tx_done(1);
            EXPECT_EQ(end.sent(), completions);
            EXPECT_FALSE(end->tx_wanted());
            EXPECT_TRUE(end->drained());
        }
    }
}

TEST_F(Tx, only_a_message_that_is_alone_and_inline_goes_by_itself) {
    Stream& stream = *end.stream;
    EXPECT_THAT(single_ulpdu(stream), IsEmpty());  // nothing is posted
    end.post({.wr_id = 1}, {piece(0, 8)});
    EXPECT_THAT(single_ulpdu(stream), IsEmpty());  // in the program's memory
    drain(stream);
    end.post({.wr_id = 2, .flags = kSendInline | kSendSignaled}, {piece(0, 8)});
    EXPECT_THAT(single_ulpdu(stream, kUntaggedOctets + 7), IsEmpty());
    end.post({.wr_id = 3, .flags = kSendInline}, {piece(0, 8)});
    EXPECT_THAT(single_ulpdu(stream), IsEmpty());  // two
    UlpduOut out;
    ASSERT_TRUE(next_ulpdu(stream, 1000, out));
    end->tx_done(1);
    EXPECT_THAT(single_ulpdu(stream, kUntaggedOctets + 8), SizeIs(kUntaggedOctets + 8));
    end->tx_done(1);
    // What has no short form, even alone and inline.
    end.post({.opcode = SendOpcode::send_invalidate, .flags = kSendInline, .invalidate_stag = 9});
    EXPECT_THAT(single_ulpdu(stream), IsEmpty());
    drain(stream);
    // A fence holds back here as well.
    end.post({.wr_id = 4, .opcode = SendOpcode::read, .remote_stag = 1}, {piece(0, 8)});
    const std::vector<ByteVector> request = drain(stream);
    end.post({.wr_id = 5, .flags = kSendInline | kSendFence}, {piece(0, 8)});
    EXPECT_THAT(single_ulpdu(stream), IsEmpty());
    answer(request[0], part(0, 8));
    EXPECT_THAT(single_ulpdu(stream), SizeIs(kUntaggedOctets + 8));
    end->tx_done(1);
    // An answer is due as well: both go together.
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    ASSERT_TRUE(feed(stream, header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1}) +
                                 body({.sink_stag = 9, .size = 16, .source_stag = stag})));
    end.post({.wr_id = 6, .flags = kSendInline}, {piece(0, 8)});
    EXPECT_THAT(single_ulpdu(stream), IsEmpty());
    EXPECT_THAT(drain(stream), SizeIs(2));
}

TEST_F(Tx, a_batch_of_small_ulpdus_is_what_they_are_one_by_one) {
    const auto post_all = [&] {
        end.post({.wr_id = 1}, {piece(0, 64)});
        end.post({.wr_id = 2, .flags = kSendSolicited | kSendSignaled},
                 {piece(5, 3), piece(90, 1)});
        end.post({.wr_id = 3, .flags = kSendInline}, {piece(7, 20)});
        end.post(
            {.wr_id = 4, .opcode = SendOpcode::write, .remote_stag = 7, .remote_to = 1ull << 40},
            {piece(0, 100)});
        end.post({.wr_id = 5});
        end.post({.wr_id = 6, .opcode = SendOpcode::write, .remote_stag = 8}, {piece(3, 0)});
        // Not of the shortest form, but as small.
        end.post({.wr_id = 7, .opcode = SendOpcode::send_invalidate, .invalidate_stag = 9},
                 {piece(1, 30), piece(100, 30)});
        end.post({.wr_id = 8}, {piece(0, 64)});
    };
    post_all();
    std::vector<ByteVector> one_by_one = drain(*end.stream);
    const std::vector<Wc> completions = end.sent();
    post_all();
    std::vector<ByteVector> together = fill(*end.stream, 4096);
    EXPECT_EQ(end.sent(), completions);
    EXPECT_TRUE(end->drained());
    ASSERT_EQ(together.size(), one_by_one.size());
    for (std::size_t i = 0; i < together.size(); ++i) {
        const bool tagged = (together[i][0] & std::byte{0x80}) != std::byte{0};
        if (!tagged) {  // six Sends later
            std::byte* const msn = one_by_one[i].data() + offsetof(ddp_untagged, msn);
            store_be32(msn, load_be32(msn) + 6);
        }
        EXPECT_EQ(together[i], one_by_one[i]) << i;
    }
    const Counters& counters = end->counters();
    EXPECT_EQ(counters.tx_segments, 16u);
    EXPECT_EQ(counters.tx_messages[RDMAP_SEND], 8u);
    EXPECT_EQ(counters.tx_messages[RDMAP_SEND_SE], 2u);
    EXPECT_EQ(counters.tx_messages[RDMAP_SEND_INVALIDATE], 2u);
    EXPECT_EQ(counters.tx_messages[RDMAP_WRITE], 4u);
    EXPECT_EQ(counters.tx_payload_bytes, 2u * (64 + 4 + 20 + 100 + 60 + 64));
}

TEST_F(Tx, answers_and_requests_are_written_with_the_messages) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    for (std::uint32_t msn = 1; msn <= 2; ++msn) {
        ASSERT_TRUE(
            feed(*end.stream, header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = msn}) +
                                  body({.sink_stag = msn, .size = 16, .source_stag = stag})));
    }
    end.post({.wr_id = 1}, {piece(0, 8)});
    end.post({.wr_id = 2}, {piece(8, 8)});
    end.post({.wr_id = 3}, {piece(16, 8)});
    end.post({.wr_id = 4, .opcode = SendOpcode::read, .remote_stag = 1}, {piece(100, 8)});
    // In turns, as one by one.
    const auto response = [&](std::uint32_t sink) {
        return header({.opcode = RDMAP_READ_RESPONSE, .tagged = true, .stag = sink}) + part(0, 16);
    };
    const std::vector<ByteVector> out = fill(*end.stream, 4096);
    ASSERT_THAT(out, SizeIs(6));
    EXPECT_EQ(out[0], header({.opcode = RDMAP_SEND, .msn = 1}) + part(0, 8));
    EXPECT_EQ(out[1], response(1));
    EXPECT_EQ(out[2], header({.opcode = RDMAP_SEND, .msn = 2}) + part(8, 8));
    EXPECT_EQ(out[3], response(2));
    EXPECT_EQ(out[4], header({.opcode = RDMAP_SEND, .msn = 3}) + part(16, 8));
    EXPECT_EQ(out[5].size(), 46u);
    EXPECT_THAT(end.sent(), ElementsAre(WrId(1), WrId(2), WrId(3)));
    answer(out[5], part(0, 8));
    EXPECT_TRUE(end->drained());
}

TEST_F(Tx, what_is_not_small_or_finds_no_room_is_described_and_ends_the_batch) {
    EXPECT_THAT(fill(*end.stream, 4096), IsEmpty());  // nothing is posted
    const auto post = [&](int n) {
        for (int i = 0; i < n; ++i) end.post({.wr_id = 1}, {piece(0, 64)});
    };
    post(3);
    EXPECT_THAT(fill(*end.stream, 4096, kUntaggedOctets + 63), SizeIs(1));
    EXPECT_THAT(fill(*end.stream, 3 + 85 + 4), SizeIs(1));  // one needs 88 + 5
    EXPECT_THAT(fill(*end.stream, 3 + 85 + 5, 500, 2), SizeIs(1));
    post(5);
    EXPECT_THAT(fill(*end.stream, 3 + 85 + 5, 500, 2), SizeIs(2));  // one written, one described
    EXPECT_THAT(fill(*end.stream, 4096, 500, 2), SizeIs(2));        // no entry for another
    EXPECT_THAT(fill(*end.stream, 4096), SizeIs(1));
    EXPECT_EQ(end.sent().size(), 8u);
    end.post({.wr_id = 2}, {piece(0, 64)});
    end.post({.wr_id = 3}, {piece(0, 3000)});
    EXPECT_THAT(fill(*end.stream, 4096), SizeIs(2));  // of the large one the first segment
    EXPECT_THAT(fill(*end.stream, 4096), SizeIs(1));
    EXPECT_THAT(fill(*end.stream, 4096), SizeIs(1));
    EXPECT_EQ(end.sent().size(), 2u);
    // Behind a fence it goes no further.
    end.post({.wr_id = 4, .opcode = SendOpcode::read, .remote_stag = 1}, {piece(0, 8)});
    end.post({.wr_id = 5, .flags = kSendFence}, {piece(0, 8)});
    EXPECT_THAT(fill(*end.stream, 4096), SizeIs(1));
    EXPECT_THAT(fill(*end.stream, 4096), IsEmpty());
    EXPECT_FALSE(end->tx_wanted());
}

TEST_F(Tx, a_batch_ends_with_the_terminate_over_what_no_key_permits) {
    end.post({.wr_id = 1}, {piece(0, 8)});
    end.post({.wr_id = 2}, {Sge{piece(0, 8).address, 8, 0x12345678}});
    const std::vector<ByteVector> out = fill(*end.stream, 4096);
    ASSERT_THAT(out, SizeIs(2));
    EXPECT_EQ(out[1][1] & std::byte{15}, std::byte{RDMAP_TERMINATE});
    EXPECT_THAT(end.sent(), ElementsAre(WrId(1)));
    EXPECT_EQ(end->state(), Stream::State::ended);
}

TEST_F(Tx, held_sends_go_in_order_when_they_are_held_no_more) {
    end->hold_sends(true);
    end.post({.wr_id = 1, .flags = kSendInline | kSendSignaled}, {piece(0, 8)});
    end.post({.wr_id = 2, .flags = kSendInline | kSendSignaled}, {piece(8, 8)});
    EXPECT_FALSE(end->tx_wanted());
    EXPECT_THAT(single_ulpdu(*end.stream), IsEmpty());
    EXPECT_THAT(drain(*end.stream), IsEmpty());
    EXPECT_THAT(end.sent(), IsEmpty());
    end->hold_sends(false);
    EXPECT_TRUE(end->tx_wanted());
    EXPECT_THAT(drain(*end.stream),
                ElementsAre(header({.opcode = RDMAP_SEND, .msn = 1}) + part(0, 8),
                            header({.opcode = RDMAP_SEND, .msn = 2}) + part(8, 8)));
    EXPECT_THAT(end.sent(), ElementsAre(WrId(1), WrId(2)));
}

TEST_F(Tx, answers_to_reads_go_while_sends_are_held) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    end->hold_sends(true);
    end.post({.wr_id = 1}, {piece(0, 8)});
    ASSERT_TRUE(feed(*end.stream, header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1}) +
                                      body({.sink_stag = 9, .size = 16, .source_stag = stag})));
    EXPECT_THAT(drain(*end.stream),
                ElementsAre(header({.opcode = RDMAP_READ_RESPONSE, .tagged = true, .stag = 9}) +
                            part(0, 16)));
}

TEST_F(Tx, the_rtr_message_goes_while_sends_are_held) {
    End initiator(world);
    initiator->hold_sends(true);
    initiator.post({.wr_id = 1}, {piece(0, 8)});
    initiator.establish({.initiator = true, .rtr = Rtr::write});
    EXPECT_THAT(drain(*initiator.stream), SizeIs(1));
    EXPECT_THAT(initiator.sent(), IsEmpty());
}

TEST_F(Tx, inline_payload_needs_no_memory_of_the_program) {
    ByteVector gone = pattern(20, 9);
    const ByteVector copy = gone;
    end.post({.flags = kSendInline | kSendSignaled},
             {{gone.data(), 5, 0xbad}, {gone.data() + 5, 15, 0xbad}});
    std::ranges::fill(gone, std::byte{0});
    EXPECT_THAT(drain(*end.stream), ElementsAre(header({.opcode = RDMAP_SEND, .msn = 1}) + copy));
}

TEST_F(Tx, segments_fill_the_mulpdu_exactly) {
    const std::size_t mulpdu = 128, room = mulpdu - kUntaggedOctets;
    for (std::size_t n :
         {std::size_t{0}, std::size_t{1}, room - 1, room, room + 1, 2 * room, 2 * room + 1}) {
        World w;
        End e(w);
        e.establish();
        e.post({}, {piece(0, n)});
        const auto ulpdus = drain(*e.stream, mulpdu);
        ASSERT_EQ(ulpdus.size(), n == 0 ? 1 : (n + room - 1) / room) << n;
        for (std::size_t i = 0; i < ulpdus.size(); ++i) {
            const bool last = i + 1 == ulpdus.size();
            const auto mo = static_cast<std::uint32_t>(i * room);
            EXPECT_EQ(ulpdus[i], header({.opcode = RDMAP_SEND, .last = last, .msn = 1, .mo = mo}) +
                                     part(mo, last ? n - mo : room));
        }
        EXPECT_THAT(e.sent(), SizeIs(1));
    }
}

TEST_F(Tx, write_segments_count_up_the_tagged_offset) {
    end.post({.opcode = SendOpcode::write, .remote_stag = 0xabc, .remote_to = 0x100000000},
             {piece(0, 150)});
    EXPECT_EQ(drain(*end.stream, 128), two_tagged(RDMAP_WRITE, 0xabc, 0x100000000, 0, 150));
    EXPECT_THAT(end.sent(), ElementsAre(Field(&Wc::opcode, WcOpcode::write)));
}

TEST_F(Tx, segments_gather_from_all_sges) {
    end.post({}, {piece(0, 100), piece(0, 0), piece(100, 1), piece(101, 300), piece(401, 0)});
    const auto ulpdus = drain(*end.stream, 128);
    ByteVector together;
    for (const ByteVector& u : ulpdus) together = together + ConstBytes(u).subspan(kUntaggedOctets);
    EXPECT_EQ(together, part(0, 401));
}

TEST_F(Tx, mulpdu_may_change_between_segments) {
    end.post({}, {piece(0, 1000)});
    UlpduOut out;
    ByteVector together;
    for (std::size_t mulpdu : {128, 512, 130, 1024}) {
        ASSERT_TRUE(next_ulpdu(*end.stream, mulpdu, out));
        together = together + ConstBytes(flatten(out)).subspan(kUntaggedOctets);
    }
    EXPECT_EQ(together, part(0, 1000));
    EXPECT_THAT(end.sent(), IsEmpty());  // not before the LLP has them all
    for (int i = 0; i < 3; ++i) end->tx_done(1);
    EXPECT_THAT(end.sent(), IsEmpty());
    end->tx_done(1);
    EXPECT_THAT(end.sent(), SizeIs(1));
}

TEST_F(Tx, a_slot_is_free_before_its_completion_is_seen) {
    for (std::uint32_t i = 0; i < end.sq.depth(); ++i) end.post({.wr_id = i});
    EXPECT_FALSE(end.sq.post({}).ok());
    struct Seen {
        SendQueue& sq;
        bool free = false;
    } seen{end.sq};
    end.send_cq.set_sink(
        [](void* of, const Wc& wc) {
            Seen& to = *static_cast<Seen*>(of);
            EXPECT_EQ(wc.wr_id, 0u);
            to.free = to.sq.post({}).ok();
        },
        &seen);
    UlpduOut out;
    ASSERT_TRUE(next_ulpdu(*end.stream, 1024, out));
    end->tx_done(1);
    EXPECT_TRUE(seen.free);
}

TEST_F(Tx, read_request_names_a_sink_that_is_nobodys_memory) {
    end.post({.wr_id = 1, .opcode = SendOpcode::read, .remote_stag = 0x55, .remote_to = 0x66},
             {piece(0, 10), piece(500, 20)});
    const auto ulpdus = drain(*end.stream);
    ASSERT_THAT(ulpdus, SizeIs(1));
    const ReadRequest request = request_in(ulpdus[0]);
    EXPECT_EQ(ulpdus[0], header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1}) + body(request));
    EXPECT_EQ(request.size, 30u);
    EXPECT_EQ(request.sink_to, 0u);
    EXPECT_EQ(request.source_stag, 0x55u);
    EXPECT_EQ(request.source_to, 0x66u);
    EXPECT_FALSE(world.table.query(request.sink_stag).ok());
    EXPECT_THAT(end.sent(), IsEmpty());
    EXPECT_FALSE(end->drained());

    const ByteVector data = pattern(30, 3);
    answer(ulpdus[0], data);
    EXPECT_EQ(part(0, 10) + part(500, 20), data);
    EXPECT_THAT(end.sent(), ElementsAre(Wc{.wr_id = 1,
                                           .qp_context = 0x77,
                                           .qp_num = 7,
                                           .byte_len = 30,
                                           .opcode = WcOpcode::read}));
    EXPECT_TRUE(end->drained());
}

TEST_F(Tx, completions_wait_for_earlier_reads) {
    end.post({.wr_id = 1, .opcode = SendOpcode::read}, {piece(0, 8)});
    end.post({.wr_id = 2}, {piece(8, 8)});
    end.post({.wr_id = 3, .opcode = SendOpcode::write}, {piece(8, 8)});
    const auto ulpdus = drain(*end.stream);
    ASSERT_THAT(ulpdus, SizeIs(3));  // RFC 5040 §5.5: later messages may overtake the Response
    EXPECT_THAT(end.sent(), IsEmpty());
    answer(ulpdus[0], pattern(8));
    EXPECT_THAT(end.sent(), ElementsAre(WrId(1), WrId(2), WrId(3)));
}

TEST_F(Tx, a_read_completes_only_when_its_request_is_the_llps) {
    end.post({.wr_id = 1, .opcode = SendOpcode::read}, {piece(0, 8)});
    UlpduOut out;
    ASSERT_TRUE(next_ulpdu(*end.stream, 1024, out));
    answer(flatten(out), pattern(8));
    EXPECT_THAT(end.sent(), IsEmpty());
    end->tx_done(1);
    EXPECT_THAT(end.sent(), SizeIs(1));
}

TEST_F(Tx, fence_waits_for_earlier_reads) {
    end.post({.wr_id = 1, .opcode = SendOpcode::read}, {piece(0, 8)});
    end.post({.wr_id = 2, .flags = kSendFence | kSendSignaled}, {piece(0, 8)});
    const auto before = drain(*end.stream);
    ASSERT_THAT(before, SizeIs(1));
    EXPECT_FALSE(end->tx_wanted());
    const ByteVector data = pattern(8, 4);
    answer(before[0], data);
    EXPECT_TRUE(end->tx_wanted());
    EXPECT_THAT(drain(*end.stream), ElementsAre(header({.opcode = RDMAP_SEND, .msn = 1}) + data));
    EXPECT_THAT(end.sent(), ElementsAre(WrId(1), WrId(2)));
}

TEST_F(Tx, reads_wait_for_room_within_ord) {
    End e(world, {.pd = 1, .ord = 2});
    e.establish();
    for (std::uint64_t i = 0; i < 3; ++i) e.post({.wr_id = i, .opcode = SendOpcode::read});
    const auto first = drain(*e.stream);
    ASSERT_THAT(first, SizeIs(2));
    EXPECT_FALSE(e->tx_wanted());
    const auto stag = request_in(first[0]).sink_stag;
    feed(*e.stream, header({.opcode = RDMAP_READ_RESPONSE, .tagged = true, .stag = stag}));
    EXPECT_TRUE(e->tx_wanted());
    EXPECT_THAT(drain(*e.stream), SizeIs(1));
    EXPECT_THAT(e.sent(), ElementsAre(WrId(0)));
}

TEST_F(Tx, read_with_ord_zero_is_an_error_of_the_queue_pair) {
    End e(world);
    e.establish({.enhanced = true, .ird = 3, .ord = 0});
    EXPECT_EQ(e->ird(), 3);
    e.post({.wr_id = 1});
    e.post({.wr_id = 2, .opcode = SendOpcode::read});
    e.post({.wr_id = 3});
    const auto ulpdus = drain(*e.stream);
    ASSERT_THAT(ulpdus, SizeIs(2));
    EXPECT_EQ(ulpdus[1], from_hex("4147 00000000 00000002 00000001 00000000 00000000"));
    EXPECT_EQ(e->state(), Stream::State::ended);
    e->flush(WcStatus::flushed);
    EXPECT_THAT(e.sent(), ElementsAre(WrId(1), Field(&Wc::status, WcStatus::local_qp_error),
                                      Field(&Wc::status, WcStatus::flushed)));
}

TEST_F(Tx, local_invalidate_runs_in_order_once_nothing_is_read_through_the_region) {
    const std::uint32_t stag = world.add(memory, kLocalWrite);
    end.post({.wr_id = 1}, {piece(0, 8, stag)});
    end.post({.wr_id = 2, .opcode = SendOpcode::local_invalidate, .invalidate_stag = stag});
    end.post({.wr_id = 3}, {piece(0, 8)});
    UlpduOut out;
    ASSERT_TRUE(next_ulpdu(*end.stream, 1024, out));
    ASSERT_FALSE(next_ulpdu(*end.stream, 1024, out));
    EXPECT_TRUE(end->tx_intact());
    EXPECT_TRUE(world.table.check_local(stag, 1, 7, memory.data(), 8, false));
    end->tx_done(1);
    EXPECT_FALSE(world.table.check_local(stag, 1, 7, memory.data(), 8, false));
    EXPECT_THAT(end.sent(), ElementsAre(WrId(1), WrId(2)));
    EXPECT_THAT(drain(*end.stream), SizeIs(1));
    EXPECT_THAT(end.sent(), ElementsAre(WrId(3)));
}

TEST_F(Tx, fenced_local_invalidate_waits_for_reads) {
    const std::uint32_t stag = world.add(memory, kLocalWrite);
    end.post({.wr_id = 1, .opcode = SendOpcode::read}, {piece(0, 8, stag)});
    end.post({.wr_id = 2,
              .opcode = SendOpcode::local_invalidate,
              .flags = kSendFence | kSendSignaled,
              .invalidate_stag = stag});
    const auto ulpdus = drain(*end.stream);
    ASSERT_THAT(ulpdus, SizeIs(1));
    EXPECT_FALSE(end->tx_wanted());
    answer(ulpdus[0], pattern(8));
    EXPECT_THAT(end.sent(), ElementsAre(WrId(1), Field(&Wc::opcode, WcOpcode::local_invalidate)));
}

TEST_F(Tx, local_invalidate_of_nothing_fails) {
    end.post({.wr_id = 1, .opcode = SendOpcode::local_invalidate, .invalidate_stag = 0x1234});
    EXPECT_THAT(drain(*end.stream), SizeIs(1));  // the Terminate
    end->flush(WcStatus::flushed);
    EXPECT_THAT(end.sent(), ElementsAre(Field(&Wc::status, WcStatus::local_protection_error)));
}

TEST_F(Tx, local_invalidate_of_what_is_anothers_fails) {
    for (const bool other_pd : {true, false}) {
        World w;
        End e(w, {.qp_num = 7, .pd = 1});
        e.establish();
        const std::uint32_t stag =
            other_pd ? w.add(memory, kRemoteRead, 2) : w.add(memory, kRemoteRead, 1, 8);
        e.post({.wr_id = 1, .opcode = SendOpcode::local_invalidate, .invalidate_stag = stag});
        drain(*e.stream);
        e->flush(WcStatus::flushed);
        EXPECT_THAT(e.sent(), ElementsAre(Field(&Wc::status, WcStatus::local_protection_error)));
        EXPECT_TRUE(w.table.invalidate(stag));  // it was still valid
    }
}

TEST_F(Tx, keys_are_checked_for_each_segment) {
    const std::uint32_t stag = world.add(memory, 0);
    end.post({.wr_id = 1}, {piece(0, 50)});
    end.post({.wr_id = 2}, {piece(0, 300, stag)});
    end.post({.wr_id = 3});
    UlpduOut out;
    ASSERT_TRUE(next_ulpdu(*end.stream, 128, out));
    ASSERT_TRUE(next_ulpdu(*end.stream, 128, out));
    end->tx_done(1);
    end->tx_done(1);
    world.table.invalidate(stag);
    EXPECT_THAT(drain(*end.stream),
                ElementsAre(from_hex("4147 00000000 00000002 00000001 00000000 00000000")));
    end->flush(WcStatus::flushed);
    EXPECT_THAT(end.sent(),
                ElementsAre(WrId(1), Field(&Wc::status, WcStatus::local_protection_error),
                            Field(&Wc::status, WcStatus::flushed)));
}

TEST_F(Tx, keys_outside_their_region_fail) {
    ByteVector small = pattern(16);
    const std::uint32_t stag = world.add(small, kLocalWrite);
    for (auto opcode : {SendOpcode::send, SendOpcode::write, SendOpcode::read}) {
        End e(world);
        e.establish();
        e.post({.opcode = opcode}, {{small.data() + 1, 16, stag}});
        EXPECT_THAT(drain(*e.stream), SizeIs(1));
        e->flush(WcStatus::flushed);
        EXPECT_THAT(e.sent(), ElementsAre(Field(&Wc::status, WcStatus::local_protection_error)));
    }
}

TEST_F(Tx, read_sink_needs_the_right_to_write) {
    const std::uint32_t stag = world.add(memory, 0);
    end.post({.opcode = SendOpcode::read}, {piece(0, 16, stag)});
    drain(*end.stream);
    end->flush(WcStatus::flushed);
    EXPECT_THAT(end.sent(), ElementsAre(Field(&Wc::status, WcStatus::local_protection_error)));
}

TEST_F(Tx, queue_pairs_may_insist_on_keys) {
    End e(world, {.pd = 1, .require_lkeys = true});
    e.establish();
    e.post({.wr_id = 1});  // nothing to touch
    e.post({.wr_id = 2}, {piece(0, 1)});
    drain(*e.stream);
    e->flush(WcStatus::flushed);
    EXPECT_THAT(e.sent(), ElementsAre(Field(&Wc::status, WcStatus::success),
                                      Field(&Wc::status, WcStatus::local_protection_error)));
}

TEST_F(Tx, what_was_given_is_checked_again_until_done) {
    const std::uint32_t stag = world.add(memory, 0);
    end.post({.wr_id = 1}, {piece(0, 10)});
    end.post({.wr_id = 2}, {piece(0, 300, stag)});
    UlpduOut out;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(next_ulpdu(*end.stream, 128, out));
    EXPECT_TRUE(end->tx_intact());
    world.table.invalidate(stag);
    EXPECT_FALSE(end->tx_intact());
    EXPECT_EQ(end->state(), Stream::State::ended);
    EXPECT_FALSE(next_ulpdu(*end.stream, 128, out));
    end->flush(WcStatus::connection_lost);
    EXPECT_THAT(end.sent(), ElementsAre(Field(&Wc::status, WcStatus::connection_lost),
                                        Field(&Wc::status, WcStatus::local_protection_error)));
}

TEST_F(Tx, only_given_bytes_are_checked_again) {
    const std::uint32_t stag = world.add(memory, 0);
    end.post({}, {piece(0, 110), piece(110, 200, stag)});
    UlpduOut out;
    ASSERT_TRUE(next_ulpdu(*end.stream, 128, out));  // exactly the first SGE
    world.table.invalidate(stag);
    EXPECT_TRUE(end->tx_intact());
}

TEST_F(Tx, given_response_is_checked_again_until_done) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    give_response(stag, 100, 1024);
    EXPECT_TRUE(end->tx_intact());
    world.table.invalidate(stag);
    EXPECT_FALSE(end->tx_intact());
    EXPECT_EQ(end->stream_error(), StreamError::read_stag_invalid);
}

TEST_F(Tx, given_response_is_checked_again_though_the_stream_has_ended) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    give_response(stag, 100, 1024);
    end->llp_closed(CloseKind::reset);
    ASSERT_EQ(end->state(), Stream::State::ended);
    const StreamError first = end->stream_error();
    EXPECT_TRUE(end->tx_intact());
    world.table.invalidate(stag);
    EXPECT_FALSE(end->tx_intact());
    EXPECT_EQ(end->stream_error(), first);
}

TEST_F(Tx, given_response_is_of_the_memory_that_its_stag_meant) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    give_response(stag, 300, 128);
    ByteVector other = memory;
    world.replace(stag, other, kRemoteRead);
    EXPECT_FALSE(end->tx_intact());
    EXPECT_EQ(end->stream_error(), StreamError::read_stag_invalid);
}

TEST_F(Tx, a_response_is_of_one_memory) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    give_response(stag, 300, 128);
    ByteVector other = memory;
    world.replace(stag, other, kRemoteRead);
    UlpduOut terminate;
    EXPECT_TRUE(next_ulpdu(*end.stream, 128, terminate));
    EXPECT_EQ(end->stream_error(), StreamError::read_stag_invalid);
}

TEST_F(Tx, given_response_needs_the_right_until_done) {
    give_response(world.add(memory, kRemoteRead), 100, 1024);
    end->set_rights(kRemoteWrite);
    EXPECT_FALSE(end->tx_intact());
    EXPECT_EQ(end->stream_error(), StreamError::read_access);
}

TEST_F(Tx, responses_and_posted_messages_alternate) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    for (std::uint32_t i = 1; i <= 3; ++i) {
        end.post({.wr_id = i}, {piece(0, 200)});
        feed(*end.stream,
             header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = i}) +
                 body({.sink_stag = i, .sink_to = 9, .size = 200, .source_stag = stag}));
    }
    std::string order;
    for (const ByteVector& u : drain(*end.stream, 128)) {
        order += (u[1] & std::byte{15}) == std::byte{RDMAP_SEND} ? 's' : 'r';
        order += (u[0] & std::byte{DDP_FLAG_LAST}) == std::byte{0} ? '+' : '.';
    }
    EXPECT_EQ(order, "s+s.r+r.s+s.r+r.s+s.r+r.");
}

TEST_F(Tx, response_goes_where_the_request_said) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    feed(*end.stream,
         header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1}) + body({.sink_stag = 0xaa,
                                                                           .sink_to = 0xbb00,
                                                                           .size = 120,
                                                                           .source_stag = stag,
                                                                           .source_to = 30}));
    EXPECT_FALSE(end->drained());
    EXPECT_EQ(drain(*end.stream, 128), two_tagged(RDMAP_READ_RESPONSE, 0xaa, 0xbb00, 30, 120));
    EXPECT_TRUE(end->drained());
}

TEST_F(Tx, response_from_a_region_revoked_between_segments_stops) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    const ByteVector request_body = body({.sink_stag = 1, .size = 200, .source_stag = stag});
    const ByteVector request_header = header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1});
    feed(*end.stream, request_header + request_body);
    UlpduOut out;
    ASSERT_TRUE(next_ulpdu(*end.stream, 128, out));
    end->tx_done(1);
    world.table.invalidate(stag);
    EXPECT_THAT(drain(*end.stream),
                ElementsAre(from_hex("4147 00000000 00000002 00000001 00000000 0100e000 002e") +
                            request_header + request_body));
}

TEST_F(Tx, sends_and_reads_count_their_msns_apart) {
    end.post({});
    end.post({.opcode = SendOpcode::read});
    end.post({});
    end.post({.opcode = SendOpcode::read});
    std::vector<std::uint32_t> msns;
    for (const ByteVector& u : drain(*end.stream)) msns.push_back(load_be32(u.data() + 10));
    EXPECT_THAT(msns, ElementsAre(1, 1, 2, 2));
}

TEST_F(Tx, many_messages_may_be_given_before_the_first_is_done) {
    for (std::uint64_t i = 0; i < 60; ++i)
        end.post({.wr_id = i}, {piece(0, i % 3 == 0 ? 300 : 10)});
    UlpduOut out;
    std::size_t given = 0;
    while (next_ulpdu(*end.stream, 128, out)) ++given;
    EXPECT_GT(given, 15u);
    std::vector<Wc> wcs;
    while (given > 0) {
        end->tx_done(1);
        --given;
        while (next_ulpdu(*end.stream, 128, out)) ++given;
    }
    EXPECT_THAT(end.sent(), SizeIs(60));
    EXPECT_TRUE(end->drained());
}

TEST_F(Tx, probe_is_a_write_that_touches_nothing) {
    end->llp_probe();
    EXPECT_TRUE(end->tx_wanted());
    EXPECT_FALSE(end->drained());  // a FIN must not go before it
    EXPECT_THAT(drain(*end.stream), ElementsAre(from_hex("c140 00000001 0000000000000000")));
    EXPECT_THAT(end.sent(), IsEmpty());
    EXPECT_TRUE(end->drained());
}

TEST_F(Tx, probe_is_superfluous_when_something_waits) {
    end.post({});
    end->llp_probe();
    EXPECT_THAT(drain(*end.stream), ElementsAre(header({.opcode = RDMAP_SEND, .msn = 1})));
    end->llp_probe();
    end.post({});
    EXPECT_THAT(drain(*end.stream), ElementsAre(header({.opcode = RDMAP_SEND, .msn = 2})));
}

}  // namespace
}  // namespace xsock::ddp
