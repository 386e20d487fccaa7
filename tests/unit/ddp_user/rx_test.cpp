// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a Stream makes of well-formed ULPDUs, whole and in pieces. Malformed ones:
// stream_error_test.
#include <gmock/gmock.h>

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

class Rx : public OneEnd {
  protected:
    Rx() { memory.assign(memory.size(), std::byte{0}); }
    bool receive(const ByteVector& ulpdu, std::size_t step = ~std::size_t{0}) {
        return feed(*end.stream, ulpdu, true, step);
    }
};

TEST_F(Rx, send_fills_the_oldest_receive) {
    end.post_recv(1, {{memory.data(), 40}, {memory.data() + 100, 0}, {memory.data() + 200, 60}});
    const ByteVector data = pattern(64);
    EXPECT_TRUE(receive(header({.opcode = RDMAP_SEND, .msn = 1}) + data));
    EXPECT_EQ(part(0, 40) + part(200, 24), data);
    EXPECT_THAT(end.received(), ElementsAre(Wc{.wr_id = 1,
                                               .qp_context = 0x77,
                                               .qp_num = 7,
                                               .byte_len = 64,
                                               .opcode = WcOpcode::recv}));
    EXPECT_EQ(end->counters().rx_messages[RDMAP_SEND], 1u);
    EXPECT_EQ(end->counters().rx_payload_bytes, 64u);
}

TEST_F(Rx, send_of_several_segments_in_pieces_of_any_size) {
    const ByteVector data = pattern(300);
    for (std::size_t step : {1, 3, 17, 64, 1000}) {
        World w;
        End e(w);
        e.establish();
        ByteVector to(400);
        e.post_recv(1, {{to.data(), 150}, {to.data() + 150, 250}});
        const auto segment = [&](std::uint32_t from, std::uint32_t n, bool last) {
            return header({.opcode = RDMAP_SEND, .last = last, .msn = 1, .mo = from}) +
                   ConstBytes(data).subspan(from, n);
        };
        feed(*e.stream, segment(0, 120, false), true, step);
        feed(*e.stream, segment(120, 0, false), true, step);
        feed(*e.stream, segment(120, 100, false), true, step);
        EXPECT_THAT(e.received(), IsEmpty());
        feed(*e.stream, segment(220, 80, true), true, step);
        to.resize(300);
        EXPECT_EQ(to, data) << step;
        EXPECT_THAT(e.received(), ElementsAre(Field(&Wc::byte_len, 300u)));
    }
}

TEST_F(Rx, zero_length_send_takes_a_receive) {
    end.post_recv(1);
    end.post_recv(2, {sge(memory)});
    receive(header({.opcode = RDMAP_SEND, .msn = 1}));
    receive(header({.opcode = RDMAP_SEND_SE, .msn = 2}));
    EXPECT_THAT(end.received(),
                ElementsAre(Field(&Wc::byte_len, 0u), Field(&Wc::flags, kWcSolicited)));
}

TEST_F(Rx, send_waits_for_a_receive) {
    for (std::size_t payload : {0, 10}) {
        World w;
        End e(w);
        e.establish();
        Inbound ulpdu(header({.opcode = RDMAP_SEND, .msn = 1}) + pattern(payload));
        EXPECT_FALSE(ulpdu.feed(*e.stream));
        EXPECT_TRUE(e->rx_blocked());
        EXPECT_FALSE(ulpdu.feed(*e.stream));
        e.post_recv(5, {sge(memory)});
        EXPECT_TRUE(ulpdu.feed(*e.stream));
        EXPECT_FALSE(e->rx_blocked());
        EXPECT_THAT(e.received(), ElementsAre(Field(&Wc::wr_id, 5u)));
    }
}

TEST_F(Rx, overdue_is_ignored_when_nothing_waits) {
    end->receive_overdue();
    EXPECT_EQ(end->state(), Stream::State::established);
}

TEST_F(Rx, send_with_invalidate_revokes_the_stag) {
    const std::uint32_t stag = world.add(memory, kRemoteWrite, 1, 7);
    end.post_recv(1);
    receive(header({.opcode = RDMAP_SEND_SE_INVALIDATE, .stag = stag, .msn = 1}));
    EXPECT_THAT(end.received(), ElementsAre(Wc{.wr_id = 1,
                                               .qp_context = 0x77,
                                               .qp_num = 7,
                                               .invalidated_stag = stag,
                                               .opcode = WcOpcode::recv,
                                               .flags = kWcSolicited | kWcInvalidated}));
    EXPECT_EQ(world.table.check_remote(stag, 1, 7, Right::remote_write, 0, 1).stream_error,
              StreamError::tagged_stag_invalid);
}

TEST_F(Rx, nothing_of_a_corrupted_ulpdu_is_delivered) {
    end.post_recv(1, {sge(memory)});
    feed(*end.stream, header({.opcode = RDMAP_SEND, .msn = 1}) + pattern(10), false);
    EXPECT_THAT(end.received(), IsEmpty());
    end->llp_failed(StreamError::mpa_crc);
    EXPECT_THAT(drain(*end.stream),
                ElementsAre(from_hex("4147 00000000 00000002 00000001 00000000 20020000")));
    receive(header({.opcode = RDMAP_SEND, .msn = 1}) + pattern(10));
    EXPECT_THAT(end.received(), IsEmpty());
    end->flush(WcStatus::flushed);
    EXPECT_THAT(end.received(), ElementsAre(Field(&Wc::status, WcStatus::flushed)));
}

TEST_F(Rx, a_corrupted_header_is_a_crc_error_and_nothing_else) {
    feed(*end.stream, from_hex("ffff ffffffff ffffffffffffffff 1234"), false);
    EXPECT_EQ(end->stream_error(), StreamError::none);
    end->llp_failed(StreamError::mpa_crc);
    EXPECT_EQ(end->stream_error(), StreamError::mpa_crc);
}

TEST_F(Rx, write_is_placed_and_not_delivered) {
    const std::uint32_t stag = world.add(memory, kRemoteWrite);
    const ByteVector data = pattern(500);
    for (std::size_t step : {1, 7, 1000}) {
        std::ranges::fill(memory, std::byte{0});
        receive(
            header({.opcode = RDMAP_WRITE, .tagged = true, .last = false, .stag = stag, .to = 9}) +
                ConstBytes(data).first(200),
            step);
        receive(header({.opcode = RDMAP_WRITE, .tagged = true, .stag = stag, .to = 209}) +
                    ConstBytes(data).subspan(200),
                step);
        EXPECT_EQ(part(9, 500), data);
    }
    EXPECT_THAT(end.received(), IsEmpty());
    EXPECT_EQ(end->state(), Stream::State::established);
}

TEST_F(Rx, write_lands_in_the_region_itself) {
    const std::uint32_t stag = world.add(memory, kRemoteWrite);
    const ByteVector h = header({.opcode = RDMAP_WRITE, .tagged = true, .stag = stag, .to = 5});
    end->rx_begin(h.size() + 100);
    for (std::size_t at = 0; at < h.size();) {
        const Bytes target = end->rx_target();
        std::copy_n(h.begin() + static_cast<std::ptrdiff_t>(at), target.size(), target.begin());
        at += target.size();
        end->rx_advance(target.size());
    }
    EXPECT_EQ(end->rx_target().data(), memory.data() + 5);
    EXPECT_EQ(end->rx_target().size(), 100u);
    end->rx_advance(60);
    EXPECT_EQ(end->rx_target().data(), memory.data() + 65);
    EXPECT_EQ(end->rx_target().size(), 40u);
}

TEST_F(Rx, zero_length_writes_and_reads_are_not_checked) {
    receive(header({.opcode = RDMAP_WRITE, .tagged = true, .stag = 0xdead, .to = ~0ull}));
    receive(header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1}) +
            body({.sink_stag = 5, .sink_to = 6, .size = 0, .source_stag = 0xdead}));
    EXPECT_THAT(
        drain(*end.stream),
        ElementsAre(header({.opcode = RDMAP_READ_RESPONSE, .tagged = true, .stag = 5, .to = 6})));
}

TEST_F(Rx, writes_and_requests_may_come_between_segments_of_a_send) {
    const std::uint32_t stag = world.add(memory, kRemoteWrite | kRemoteRead);
    ByteVector to(20);
    end.post_recv(1, {sge(to)});
    receive(header({.opcode = RDMAP_SEND, .last = false, .msn = 1}) + pattern(10));
    receive(header({.opcode = RDMAP_WRITE, .tagged = true, .stag = stag}) + pattern(10));
    receive(header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1}) +
            body({.sink_stag = 5, .size = 10, .source_stag = stag}));
    receive(header({.opcode = RDMAP_SEND, .msn = 1, .mo = 10}) + pattern(10));
    EXPECT_THAT(end.received(), ElementsAre(Field(&Wc::byte_len, 20u)));
    EXPECT_EQ(part(0, 10), pattern(10));
    EXPECT_EQ(to, pattern(10) + pattern(10));
    EXPECT_THAT(drain(*end.stream), SizeIs(1)) << "the answer";
}

TEST_F(Rx, read_response_of_several_segments_scatters) {
    End e(world);
    e.establish();
    e.post({.opcode = SendOpcode::read, .remote_stag = 1},
           {{memory.data(), 5}, {memory.data() + 50, 0}, {memory.data() + 100, 295}});
    const auto request = drain(*e.stream);
    const std::uint32_t stag = load_be32(request.at(0).data() + kUntaggedOctets);
    const ByteVector data = pattern(300);
    for (std::uint32_t at = 0; at < 300; at += 100) {
        EXPECT_THAT(e.sent(), IsEmpty());
        feed(*e.stream,
             header({.opcode = RDMAP_READ_RESPONSE,
                     .tagged = true,
                     .last = at == 200,
                     .stag = stag,
                     .to = at}) +
                 ConstBytes(data).subspan(at, 100),
             true, 33);
    }
    EXPECT_EQ(part(0, 5) + part(100, 295), data);
    EXPECT_THAT(e.sent(), ElementsAre(Field(&Wc::byte_len, 300u)));
}

TEST_F(Rx, places_and_answers_nothing_once_receiving_stopped) {
    const std::uint32_t stag =
        world.add(memory, kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic);
    const ByteVector before = memory;
    end.post_recv(1, {sge(memory)});
    end->flush_receives();
    EXPECT_THAT(end.received(), SizeIs(1));
    end->stop_receiving();
    for (const std::size_t step : {std::size_t{1}, ~std::size_t{0}}) {
        receive(header({.opcode = RDMAP_WRITE, .tagged = true, .stag = stag}) + pattern(64), step);
        receive(header({.opcode = RDMAP_WRITE, .tagged = true, .stag = stag ^ 1}) + pattern(1),
                step);
        receive(header({.opcode = RDMAP_SEND, .msn = 1}) + pattern(8), step);
        receive(header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1}) +
                    body(ReadRequest{.size = 8, .source_stag = stag}),
                step);
        receive(pattern(3), step);
    }
    EXPECT_EQ(memory, before);
    EXPECT_EQ(end->state(), Stream::State::established);
    EXPECT_FALSE(end->tx_wanted());
    EXPECT_THAT(end.received(), IsEmpty());
    receive(header({.opcode = RDMAP_TERMINATE, .qn = 2, .msn = 1}) + from_hex("20020000"));
    EXPECT_EQ(end->state(), Stream::State::ended);
    EXPECT_NE(end->terminate_received(), nullptr);
}

// ---- drop_receives() amid a ULPDU ----

/// `ulpdu` comes in, and the receives are dropped when `before` octets of it are there.
void drop_receives_amid(Stream& stream, const ByteVector& ulpdu, std::size_t before) {
    stream.rx_begin(ulpdu.size());
    for (std::size_t at = 0; at < ulpdu.size();) {
        if (at == before) stream.drop_receives();
        const std::size_t most = at < before ? before - at : ulpdu.size() - at;
        const Bytes target = stream.rx_target();
        ASSERT_FALSE(target.empty());
        const std::size_t n = std::min(target.size(), most);
        std::copy_n(ulpdu.begin() + static_cast<std::ptrdiff_t>(at), n, target.begin());
        stream.rx_advance(n);
        at += n;
    }
    stream.rx_end(true);
}

TEST_F(Rx, a_read_goes_on_when_receives_are_dropped) {
    const std::size_t whole = kTaggedOctets + 50;
    for (const std::size_t before : {std::size_t{3}, kTaggedOctets + 0, kTaggedOctets + 20}) {
        End e(world);
        e.establish();
        e.post_recv(1, {sge(memory)});
        e.post({.opcode = SendOpcode::read, .remote_stag = 1}, {{memory.data(), 100}});
        const auto request = drain(*e.stream);
        const std::uint32_t stag = load_be32(request.at(0).data() + kUntaggedOctets);
        const ByteVector data = pattern(100);
        const auto segment = [&](std::uint32_t from, bool last) {
            return header({.opcode = RDMAP_READ_RESPONSE,
                           .tagged = true,
                           .last = last,
                           .stag = stag,
                           .to = from}) +
                   ConstBytes(data).subspan(from, 50);
        };
        ASSERT_EQ(segment(0, false).size(), whole);
        drop_receives_amid(*e.stream, segment(0, false), before);
        EXPECT_THAT(e.received(), ElementsAre(Completed(1, WcStatus::flushed)));
        feed(*e.stream, segment(50, true));
        EXPECT_EQ(e->state(), Stream::State::established) << before;
        EXPECT_THAT(e.sent(), ElementsAre(Field(&Wc::byte_len, 100u)));
        EXPECT_EQ(part(0, 100), data);
    }
}

TEST_F(Rx, a_read_request_is_answered_when_receives_are_dropped) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    const ByteVector request = header({.opcode = RDMAP_READ_REQUEST, .qn = 1, .msn = 1}) +
                               body(ReadRequest{.sink_stag = 5, .size = 8, .source_stag = stag});
    for (const std::size_t before : {std::size_t{3}, kTaggedOctets + 1, kUntaggedOctets + 4}) {
        End e(world);
        e.establish();
        drop_receives_amid(*e.stream, request, before);
        EXPECT_EQ(drain(*e.stream).size(), 1u) << before;
        EXPECT_EQ(e->state(), Stream::State::established);
    }
}

TEST_F(Rx, a_send_that_waits_for_a_receive_goes_on_waiting_when_receives_are_dropped) {
    Inbound ulpdu(header({.opcode = RDMAP_SEND, .msn = 1}) + pattern(10));
    EXPECT_FALSE(ulpdu.feed(*end.stream));
    end->drop_receives();
    EXPECT_TRUE(end->rx_blocked());
    EXPECT_FALSE(ulpdu.feed(*end.stream));
    EXPECT_EQ(end->state(), Stream::State::established);
}

TEST_F(Rx, the_message_after_a_dropped_one_is_in_order) {
    for (const std::uint8_t opcode :
         std::initializer_list<std::uint8_t>{RDMAP_SEND, RDMAP_IMMEDIATE}) {
        const ByteVector first = header({.opcode = opcode, .msn = 1}) + pattern(8);
        // Of the first 14 octets none belong to a receive yet.
        for (const std::size_t before : {kTaggedOctets + 1, kUntaggedOctets + 4}) {
            End e(world);
            e.establish();
            e.post_recv(1, {sge(memory)});
            drop_receives_amid(*e.stream, first, before);
            EXPECT_THAT(e.received(), ElementsAre(Completed(1, WcStatus::flushed)));
            Inbound second(header({.opcode = RDMAP_SEND, .msn = 2}) + pattern(8));
            EXPECT_FALSE(second.feed(*e.stream));
            EXPECT_TRUE(e->rx_blocked()) << before;
            EXPECT_EQ(e->state(), Stream::State::established) << before;
        }
    }
}

TEST_F(Rx, the_rest_of_a_dropped_message_waits_for_a_receive) {
    end.post_recv(1, {sge(memory)});
    drop_receives_amid(*end.stream,
                       header({.opcode = RDMAP_SEND, .last = false, .msn = 1}) + pattern(10),
                       kUntaggedOctets + 4);
    Inbound rest(header({.opcode = RDMAP_SEND, .msn = 1, .mo = 10}) + pattern(10));
    EXPECT_FALSE(rest.feed(*end.stream));
    EXPECT_TRUE(end->rx_blocked());
    EXPECT_EQ(end->state(), Stream::State::established);
}

TEST_F(Rx, the_rest_of_a_write_is_discarded) {
    const std::uint32_t stag = world.add(memory, kLocalWrite | kRemoteWrite);
    const ByteVector write =
        header({.opcode = RDMAP_WRITE, .tagged = true, .stag = stag}) + pattern(64);
    end->rx_begin(write.size());
    std::copy_n(write.begin(), kTaggedOctets, end->rx_target().begin());
    end->rx_advance(kTaggedOctets);
    EXPECT_EQ(end->rx_target().data(), memory.data());
    end->stop_receiving();
    EXPECT_NE(end->rx_target().data(), memory.data());
}

TEST_F(Rx, terminate_ends_the_stream_without_an_answer) {
    end.post({.wr_id = 1});
    end.post({.wr_id = 2, .opcode = SendOpcode::read});
    end.post({.wr_id = 3});
    end.post_recv(9);
    drain(*end.stream);
    EXPECT_THAT(end.sent(), SizeIs(1));
    receive(header({.opcode = RDMAP_TERMINATE, .qn = 2, .msn = 1}) + from_hex("20020000"));
    EXPECT_EQ(end->state(), Stream::State::ended);
    EXPECT_THAT(drain(*end.stream), IsEmpty());
    ASSERT_NE(end->terminate_received(), nullptr);
    EXPECT_EQ(end->terminate_received()->layer, 2);
    EXPECT_EQ(end->terminate_sent(), nullptr);
    end->flush(WcStatus::flushed);
    EXPECT_THAT(end.sent(), ElementsAre(Field(&Wc::status, WcStatus::remote_operation_error),
                                        Field(&Wc::status, WcStatus::flushed)));
    EXPECT_THAT(end.received(), ElementsAre(Field(&Wc::status, WcStatus::flushed)));
}

TEST_F(Rx, terminate_names_the_read_that_failed) {
    for (std::uint64_t i = 0; i < 3; ++i) end.post({.wr_id = i, .opcode = SendOpcode::read});
    const auto requests = drain(*end.stream);
    receive(header({.opcode = RDMAP_TERMINATE, .qn = 2, .msn = 1}) + from_hex("0100e000 002e") +
            requests.at(1));
    EXPECT_TRUE(end->terminate_received()->has_rdmap_header);
    end->flush(WcStatus::flushed);
    EXPECT_THAT(end.sent(), ElementsAre(Field(&Wc::status, WcStatus::flushed),
                                        Field(&Wc::status, WcStatus::remote_access_error),
                                        Field(&Wc::status, WcStatus::flushed)));
}

TEST_F(Rx, siw_terminate_about_our_response_fails_no_work_request) {
    end.post({.wr_id = 1, .opcode = SendOpcode::read});
    drain(*end.stream);
    receive(
        from_hex("4147000000000000000200000001000000001101030005948142"
                 "05dbf900000055a88e34b550"));
    EXPECT_TRUE(end->terminate_received()->swapped);
    end->flush(WcStatus::flushed);
    EXPECT_THAT(end.sent(), ElementsAre(Field(&Wc::status, WcStatus::flushed)));
}

TEST_F(Rx, malformed_terminates_are_tolerated) {
    for (std::size_t n : {0, 1, 3, 4, 5, 30, 53, 200, 1400}) {
        World w;
        End e(w);
        e.establish();
        feed(*e.stream,
             header({.opcode = RDMAP_TERMINATE, .last = n % 2 == 0, .qn = 2, .msn = 77}) +
                 ByteVector(n, std::byte{0xff}));
        EXPECT_EQ(e->state(), Stream::State::ended) << n;
        EXPECT_EQ(e->stream_error() == StreamError::terminate_malformed, n < 4) << n;
        EXPECT_THAT(drain(*e.stream), IsEmpty());
        EXPECT_NE(e->terminate_received(), nullptr);
    }
}

}  // namespace
}  // namespace xsock::ddp
