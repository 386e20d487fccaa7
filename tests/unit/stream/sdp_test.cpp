// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a peer may say and when: credits, modes, advertisements, closing, urgent data. The peer is
// written by hand, message by message.
#include "stream/sdp.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace xsock::stream {
namespace {

using Octets = std::vector<std::byte>;

constexpr std::uint32_t kBuffer = 1000;
constexpr std::uint32_t kBuffers = 2 + 8;  // announced: two, and 8,000 bytes of room

/// An Sdp whose peer has said Hello, and that peer.
struct Connection {
    explicit Connection(std::uint16_t max_adverts = 1, std::uint16_t peer_bufs = 100)
        : sdp({.buffer_bytes = kBuffer,
               .receive_bytes = 8 * kBuffer,
               .message_bytes = 4000,
               .max_adverts = max_adverts}) {
        const auto hello =
            encode_hello({.bufs = peer_bufs, .desired_remote_size = kBuffer, .local_size = 2000});
        EXPECT_EQ(sdp.take_hello(hello), StreamError::none);
        limit = peer_bufs;
    }

    Sdp sdp;
    std::uint32_t mseq = 0, ack = 0, limit = 0;  // the peer's

    /// The next message of the peer; `change` says what is wrong with it.
    Octets message(std::uint8_t mid, std::size_t payload = 0, const SdpMessage& with = {}) {
        SdpMessage m = with;
        m.header.mid = mid;
        m.header.mseq = ++mseq;
        m.header.mseq_ack = ack;
        m.header.bufs = static_cast<std::uint16_t>(limit - ack);
        Octets octets(header_octets(mid) + payload, std::byte{'d'});
        encode(m, payload, octets);
        return octets;
    }
    Arrival give(std::uint8_t mid, std::size_t payload = 0, const SdpMessage& with = {}) {
        keep = message(mid, payload, with);
        return sdp.rx(keep);
    }
    StreamError error(std::uint8_t mid, std::size_t payload = 0, const SdpMessage& with = {}) {
        return give(mid, payload, with).error;
    }
    /// What ours says next besides data; MID 0 for nothing. The peer has seen it.
    SdpMessage next(Wishes wishes = {}) {
        Control out;
        SdpMessage seen;
        seen.header.mid = 0;
        if (!sdp.put_control(wishes, out)) return seen;
        kind = out.kind;
        EXPECT_EQ(decode(out.bytes(), seen), StreamError::none);
        ack = seen.header.mseq;
        return seen;
    }
    SdpMessage send(std::size_t bytes, UrgentMarks marks = {}) {
        Octets octets(kBsdhOctets + bytes);
        kind = sdp.put_data(bytes, marks, Bytes(octets).first(kBsdhOctets));
        SdpMessage seen;
        EXPECT_EQ(decode(octets, seen), StreamError::none);
        seen.payload = {};
        return seen;
    }
    SendKind kind = SendKind::plain;
    Octets keep;
};

SdpMessage source(std::uint32_t length = 5000) {
    SdpMessage m;
    m.length = length;
    m.stag = 77;
    m.address = 4096;
    return m;
}
SdpMessage sink(std::uint32_t non_discards) {
    SdpMessage m = source();
    m.non_discards = non_discards;
    return m;
}
SdpMessage mode(SdpMode to, bool send_half = false) {
    SdpMessage m;
    m.mode = to;
    m.send_half = send_half;
    return m;
}
SdpMessage flagged(std::uint8_t flags) {
    SdpMessage m;
    m.header.flags = flags;
    return m;
}
SdpMessage sized(std::uint32_t octets) {
    SdpMessage m;
    m.octets = octets;
    return m;
}

// ---- start-up -------------------------------------------------------------------

TEST(Sdp, hello_announces_buffers_and_limits) {
    Sdp initiator({.buffer_bytes = kBuffer, .receive_bytes = 8 * kBuffer, .max_adverts = 3});
    const auto hello = decode_hello(initiator.hello());
    ASSERT_TRUE(hello.has_value());
    EXPECT_EQ(hello->bufs, kBuffers);
    EXPECT_EQ(hello->local_size, kBuffer);
    EXPECT_EQ(hello->max_adverts, 3);
    Sdp responder({.buffer_bytes = 500, .receive_bytes = 1000});
    EXPECT_EQ(responder.take_hello(initiator.hello()), StreamError::none);
    EXPECT_EQ(initiator.take_hello_ack(responder.hello_ack()), StreamError::none);
    EXPECT_EQ(initiator.credit(), 4u);
    EXPECT_EQ(initiator.payload_limit(), 500u - 16);
    EXPECT_EQ(responder.credit(), kBuffers);
    EXPECT_EQ(responder.payload_limit(), kBuffer - 16);
}

TEST(Sdp, hello_where_none_may_be_is_refused) {
    Sdp sdp({});
    const auto hello = sdp.hello();
    const auto answer = sdp.hello_ack();
    EXPECT_EQ(sdp.take_hello(answer), StreamError::sdp_hello);
    EXPECT_EQ(sdp.take_hello_ack(hello), StreamError::sdp_hello);
    EXPECT_EQ(sdp.take_hello({}), StreamError::sdp_hello);
    Connection c;  // and on an open connection
    EXPECT_EQ(c.sdp.rx(hello).error, StreamError::sdp_message);
    EXPECT_EQ(Connection().sdp.rx(answer).error, StreamError::sdp_message);
}

// ---- numbers and credits ----------------------------------------------------------

TEST(Sdp, data_bring_their_payload) {
    Connection c;
    const Arrival arrival = c.give(SDP_DATA, 10);
    EXPECT_EQ(arrival.error, StreamError::none);
    EXPECT_EQ(arrival.payload.size(), 10u);
    EXPECT_EQ(c.give(SDP_DATA, kBuffer - 16).payload.size(), kBuffer - 16);
}

TEST(Sdp, a_message_beyond_the_buffer_is_refused) {
    Connection c;
    EXPECT_EQ(c.error(SDP_DATA, kBuffer - 15), StreamError::sdp_length);
}

TEST(Sdp, a_number_that_is_skipped_or_repeated_is_refused) {
    Connection c;
    c.mseq = 1;
    EXPECT_EQ(c.error(SDP_DATA, 1), StreamError::sdp_sequence);
    Connection d;
    EXPECT_EQ(d.error(SDP_DATA, 1), StreamError::none);
    d.mseq = 0;
    EXPECT_EQ(d.error(SDP_DATA, 1), StreamError::sdp_sequence);
}

TEST(Sdp, acknowledgements_of_what_was_not_sent_or_going_back_are_refused) {
    Connection c;
    c.ack = 1;
    EXPECT_EQ(c.error(SDP_DATA), StreamError::sdp_sequence);
    Connection d;
    d.send(1);
    d.send(1);
    d.ack = 2;
    EXPECT_EQ(d.error(SDP_DATA), StreamError::none);
    d.ack = 1;
    EXPECT_EQ(d.error(SDP_DATA), StreamError::sdp_sequence);
}

TEST(Sdp, credit_that_is_taken_back_is_refused) {
    Connection c;
    c.limit = 99;
    EXPECT_EQ(c.error(SDP_DATA), StreamError::sdp_credit);
    Connection d;
    d.send(1);  // Bufs may shrink by what was sent
    d.ack = 1;
    EXPECT_EQ(d.error(SDP_DATA), StreamError::none);
    d.limit = 101;
    EXPECT_EQ(d.error(SDP_DATA), StreamError::none);
    EXPECT_EQ(d.sdp.credit(), 100u);
}

TEST(Sdp, messages_without_credit_are_refused) {
    Connection c;
    c.sdp.set_room(0);  // nothing more is announced
    for (std::uint32_t i = 0; i < kBuffers - 2; ++i)
        ASSERT_EQ(c.error(SDP_DATA, 1), StreamError::none);
    Connection other = c;
    EXPECT_EQ(other.error(SDP_DATA, 1), StreamError::sdp_credit);  // data leave two to the others
    EXPECT_EQ(c.error(SDP_DATA), StreamError::none);
    EXPECT_EQ(c.error(SDP_CH_RCV_BUF, 0, sized(500)), StreamError::none);
    EXPECT_EQ(c.error(SDP_DATA), StreamError::sdp_credit);
}

TEST(Sdp, urgent_data_may_take_what_is_kept_back) {
    Connection c;
    c.sdp.set_room(0);
    for (std::uint32_t i = 0; i < kBuffers - 2; ++i)
        ASSERT_EQ(c.error(SDP_DATA, 1), StreamError::none);
    EXPECT_EQ(c.error(SDP_DATA, 1, flagged(SDP_FLAG_OOB_PEND | SDP_FLAG_OOB_PRES)),
              StreamError::none);
}

TEST(Sdp, sends_data_down_to_three_credits) {
    Connection c(1, 5);
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(c.sdp.may_send_data());
        c.send(1);
    }
    EXPECT_FALSE(c.sdp.may_send_data());
    EXPECT_EQ(c.next({.finish = true}).header.mid, SDP_DISCONN);
    EXPECT_EQ(c.sdp.credit(), 1u);
}

TEST(Sdp, the_last_credit_is_for_news_of_room) {
    Connection c(1, 5);
    for (int i = 0; i < 3; ++i) c.send(1);
    EXPECT_EQ(c.next({.urgent_pending = true}).header.mid, SDP_DATA);
    EXPECT_EQ(c.next({.finish = true}).header.mid, 0);  // nothing to give
    c.ack = 0;
    for (std::uint32_t i = 0; i < kBuffers - 2; ++i)
        ASSERT_EQ(c.error(SDP_DATA, 1), StreamError::none);
    EXPECT_EQ(c.next({.finish = true}).header.mid, SDP_DISCONN);  // which it gives, too
    EXPECT_EQ(c.sdp.credit(), 0u);
    EXPECT_EQ(c.next().header.mid, 0);
}

TEST(Sdp, tells_of_room_once_half_of_it_is_new) {
    Connection c;
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(c.error(SDP_DATA, 1), StreamError::none);
        EXPECT_EQ(c.next().header.mid, 0);
    }
    EXPECT_EQ(c.error(SDP_DATA, 1), StreamError::none);
    const SdpMessage update = c.next();
    EXPECT_EQ(update.header.mid, SDP_DATA);
    EXPECT_EQ(update.header.bufs, kBuffers);
    EXPECT_EQ(update.header.mseq_ack, 4u);
    EXPECT_TRUE(update.payload.empty());
    EXPECT_EQ(c.next().header.mid, 0);
}

TEST(Sdp, tells_of_room_at_once_when_the_peer_may_not_send_data) {
    Connection c;
    c.sdp.set_room(0);
    for (std::uint32_t i = 0; i < kBuffers - 2; ++i)
        EXPECT_EQ(c.error(SDP_DATA, 1), StreamError::none);
    EXPECT_EQ(c.next().header.mid, 0);
    c.sdp.set_room(kBuffer - 1);
    EXPECT_EQ(c.next().header.mid, 0);
    c.sdp.set_room(kBuffer);
    EXPECT_EQ(c.next().header.bufs, 3);
}

TEST(Sdp, news_of_room_goes_with_data_that_follow) {
    Connection c;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(c.error(SDP_DATA, 1), StreamError::none);
    EXPECT_EQ(c.next({.data_follows = true}).header.mid, 0);
    EXPECT_EQ(c.send(1).header.bufs, kBuffers);
    EXPECT_EQ(c.next().header.mid, 0);
}

TEST(Sdp, updates_of_two_full_ends_do_not_answer_each_other) {
    Sdp a({.buffer_bytes = 100, .receive_bytes = 200}),
        b({.buffer_bytes = 100, .receive_bytes = 200});
    ASSERT_EQ(b.take_hello(a.hello()), StreamError::none);
    ASSERT_EQ(a.take_hello_ack(b.hello_ack()), StreamError::none);
    a.set_room(0);
    b.set_room(0);
    std::vector<std::byte> data(kBsdhOctets + 1);
    for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
        while (from->may_send_data()) {
            from->put_data(1, {}, Bytes(data).first(kBsdhOctets));
            ASSERT_EQ(to->rx(data).error, StreamError::none);
        }
    }
    // A says something that is no data; each answers while it has something to say.
    Control out;
    ASSERT_TRUE(a.change_send_mode(SdpMode::buffered));
    Wishes none;
    ASSERT_TRUE(a.put_control(none, out));
    ASSERT_EQ(b.rx(out.bytes()).error, StreamError::none);
    int messages = 0;
    for (bool again = true; again && messages < 100;) {
        again = false;
        if (b.put_control(none, out)) {
            ASSERT_EQ(a.rx(out.bytes()).error, StreamError::none);
            again = true;
            ++messages;
        }
        if (a.put_control(none, out)) {
            ASSERT_EQ(b.rx(out.bytes()).error, StreamError::none);
            again = true;
            ++messages;
        }
    }
    EXPECT_GE(messages, 1);
    EXPECT_LE(messages, 4);
}

TEST(Sdp, numbers_wrap) {
    // Reached message by message it would take hours: a Hello says where nothing is checked, and
    // numbers are compared by their difference alone, so a long run of them stands for all.
    Sdp a({.buffer_bytes = 100, .receive_bytes = 6'000'000}),
        b({.buffer_bytes = 100, .receive_bytes = 6'000'000});
    ASSERT_EQ(b.take_hello(a.hello()), StreamError::none);
    ASSERT_EQ(a.take_hello_ack(b.hello_ack()), StreamError::none);
    a.start_numbers_at(0xffff'fff0u);
    b.start_numbers_at(0xffff'fff0u);
    std::vector<std::byte> octets(kBsdhOctets + 1);
    for (int i = 0; i < 100'000; ++i) {
        ASSERT_TRUE(a.may_send_data()) << i;
        a.put_data(1, {}, Bytes(octets).first(kBsdhOctets));
        ASSERT_EQ(b.rx(octets).error, StreamError::none) << i;
        Wishes none;
        Control out;
        if (b.put_control(none, out)) {
            ASSERT_EQ(a.rx(out.bytes()).error, StreamError::none) << i;
        }
    }
}

// ---- sources of the peer (draft §9.1) ---------------------------------------------

TEST(Sdp, a_source_is_declined_and_its_payload_taken) {
    Connection c;
    EXPECT_EQ(c.give(SDP_SRC_AVAIL, 7, source()).payload.size(), 7u);
    EXPECT_EQ(c.next().header.mid, SDP_SEND_SM);
    EXPECT_EQ(c.kind, SendKind::solicited);
    EXPECT_EQ(c.error(SDP_DATA, 900), StreamError::none);
    EXPECT_EQ(c.error(SDP_SRC_AVAIL, 1, source()), StreamError::none);
}

TEST(Sdp, sources_that_the_mode_does_not_permit_are_refused) {
    EXPECT_EQ(Connection().error(SDP_SRC_AVAIL, 0, source()), StreamError::sdp_advertisement);
    Connection two;
    EXPECT_EQ(two.error(SDP_SRC_AVAIL, 1, source()), StreamError::none);
    EXPECT_EQ(two.error(SDP_SRC_AVAIL, 1, source()), StreamError::sdp_advertisement);
    Connection buffered;
    EXPECT_EQ(buffered.error(SDP_MODE_CHANGE, 0, mode(SdpMode::buffered)), StreamError::none);
    EXPECT_EQ(buffered.error(SDP_SRC_AVAIL, 1, source()), StreamError::sdp_advertisement);
    Connection pipelined;
    EXPECT_EQ(pipelined.error(SDP_MODE_CHANGE, 0, mode(SdpMode::pipelined)), StreamError::none);
    EXPECT_EQ(pipelined.error(SDP_SRC_AVAIL, 1, source()), StreamError::sdp_advertisement);
}

TEST(Sdp, data_behind_a_source_that_is_not_answered_are_refused) {
    Connection c;
    EXPECT_EQ(c.error(SDP_SRC_AVAIL, 1, source()), StreamError::none);
    EXPECT_EQ(c.error(SDP_DATA), StreamError::none);  // no stream octets
    EXPECT_EQ(c.error(SDP_DATA, 1), StreamError::sdp_advertisement);
    Connection d;
    EXPECT_EQ(d.error(SDP_SRC_AVAIL, 1, source()), StreamError::none);
    EXPECT_EQ(d.next().header.mid, SDP_SEND_SM);
    d.ack = 0;  // has not seen it
    EXPECT_EQ(d.error(SDP_DATA, 1), StreamError::sdp_advertisement);
}

TEST(Sdp, pipelined_sources_are_declined_one_by_one) {
    Connection c(3);
    EXPECT_EQ(c.error(SDP_MODE_CHANGE, 0, mode(SdpMode::pipelined)), StreamError::none);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(c.error(SDP_SRC_AVAIL, 0, source()), StreamError::none);
    Connection other = c;
    EXPECT_EQ(other.error(SDP_SRC_AVAIL, 0, source()), StreamError::sdp_advertisement);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(c.next().header.mid, SDP_SEND_SM);
    EXPECT_EQ(c.error(SDP_DATA, 10), StreamError::none);
    EXPECT_EQ(c.error(SDP_SRC_AVAIL, 0, source()), StreamError::none);
}

TEST(Sdp, a_cancel_is_answered_by_exactly_one_send_sm) {
    Connection c(3);
    EXPECT_EQ(c.error(SDP_MODE_CHANGE, 0, mode(SdpMode::pipelined)), StreamError::none);
    EXPECT_EQ(c.error(SDP_SRC_AVAIL, 0, source()), StreamError::none);
    EXPECT_EQ(c.error(SDP_SRC_AVAIL, 0, source()), StreamError::none);
    EXPECT_EQ(c.error(SDP_SRC_AVAIL_CANCEL), StreamError::none);
    Connection twice = c, more = c, early = c;
    EXPECT_EQ(twice.error(SDP_SRC_AVAIL_CANCEL), StreamError::sdp_completion);
    EXPECT_EQ(more.error(SDP_SRC_AVAIL, 0, source()), StreamError::sdp_advertisement);
    EXPECT_EQ(early.send(1).header.mseq_ack, 3u);  // not past the cancel
    const SdpMessage answer = c.next();
    EXPECT_EQ(answer.header.mid, SDP_SEND_SM);
    EXPECT_EQ(answer.header.mseq_ack, 4u);
    EXPECT_EQ(c.next().header.mid, 0);
}

TEST(Sdp, a_cancel_of_what_was_answered_is_ignored) {
    Connection c;
    EXPECT_EQ(c.error(SDP_SRC_AVAIL_CANCEL), StreamError::none);
    EXPECT_EQ(c.error(SDP_SRC_AVAIL, 1, source()), StreamError::none);
    EXPECT_EQ(c.next().header.mid, SDP_SEND_SM);
    c.ack = 0;
    EXPECT_EQ(c.error(SDP_SRC_AVAIL_CANCEL), StreamError::none);
    EXPECT_EQ(c.error(SDP_SRC_AVAIL_CANCEL), StreamError::none);
    EXPECT_EQ(c.next().header.mid, 0);
}

TEST(Sdp, answers_to_what_was_not_asked_are_refused) {
    EXPECT_EQ(Connection().error(SDP_RDMA_RD_COMPL, 0, sized(1)), StreamError::sdp_completion);
    EXPECT_EQ(Connection().error(SDP_RDMA_WR_COMPL, 0, sized(1)), StreamError::sdp_completion);
    EXPECT_EQ(Connection().error(SDP_SEND_SM), StreamError::sdp_completion);
    EXPECT_EQ(Connection().error(SDP_SINK_CANCEL_ACK), StreamError::sdp_completion);
    EXPECT_EQ(Connection().error(SDP_CH_RCV_BUF_ACK, 0, sized(500)), StreamError::sdp_resize);
    EXPECT_EQ(Connection().error(SDP_SUSP_COMM_ACK), StreamError::sdp_suspend);
}

// ---- sinks of the peer (draft §9.3) -----------------------------------------------

/// In Pipelined, and the peer knows it.
Connection pipelined(std::uint16_t max_adverts = 2) {
    Connection c(max_adverts);
    EXPECT_TRUE(c.sdp.change_send_mode(SdpMode::pipelined));
    const SdpMessage change = c.next();
    EXPECT_EQ(change.header.mid, SDP_MODE_CHANGE);
    EXPECT_EQ(change.mode, SdpMode::pipelined);
    EXPECT_FALSE(change.send_half);
    return c;
}

TEST(Sdp, sinks_outside_pipelined_are_refused) {
    EXPECT_EQ(Connection().error(SDP_SINK_AVAIL, 0, sink(0)), StreamError::sdp_advertisement);
}

TEST(Sdp, a_sink_is_taken_with_its_payload) {
    Connection c = pipelined();
    EXPECT_EQ(c.give(SDP_SINK_AVAIL, 5, sink(0)).payload.size(), 5u);
    EXPECT_EQ(c.error(SDP_SINK_AVAIL, 0, sink(0)), StreamError::none);
    EXPECT_EQ(c.error(SDP_SINK_AVAIL, 0, sink(0)), StreamError::sdp_advertisement);  // a third
}

TEST(Sdp, data_that_void_a_sink_are_not_counted) {
    Connection c = pipelined();
    EXPECT_EQ(c.error(SDP_SINK_AVAIL, 0, sink(0)), StreamError::none);
    c.ack = c.send(10).header.mseq;  // instead of writing into it
    EXPECT_EQ(c.error(SDP_SINK_AVAIL, 0, sink(0)), StreamError::none);
    c.ack = c.send(10).header.mseq;
    c.ack = c.send(10).header.mseq;  // and this one is counted
    Connection wrong = c;
    EXPECT_EQ(wrong.error(SDP_SINK_AVAIL, 0, sink(0)), StreamError::sdp_advertisement);
    EXPECT_EQ(c.error(SDP_SINK_AVAIL, 0, sink(1)), StreamError::none);
}

TEST(Sdp, a_sink_that_data_crossed_is_void) {
    Connection c = pipelined(1);  // so that the second has no place if the first counts
    const std::uint32_t sent = c.send(10).header.mseq;  // the peer has not seen it
    EXPECT_EQ(c.error(SDP_SINK_AVAIL, 0, sink(0)), StreamError::none);
    c.ack = sent;  // now it has, and voided its sink
    EXPECT_EQ(c.error(SDP_SINK_AVAIL, 0, sink(0)), StreamError::none);
    EXPECT_EQ(c.error(SDP_SINK_AVAIL_CANCEL), StreamError::none);
    EXPECT_EQ(c.next().header.mid, SDP_SINK_CANCEL_ACK);
}

TEST(Sdp, counts_of_sinks_that_cannot_be_are_refused) {
    for (const std::uint32_t wrong : {1u, 0x80000000u, 0xffffffffu}) {
        EXPECT_EQ(pipelined().error(SDP_SINK_AVAIL, 0, sink(wrong)),
                  StreamError::sdp_advertisement);
    }
}

TEST(Sdp, a_cancel_of_sinks_is_acknowledged_if_there_are_any) {
    Connection c = pipelined();
    EXPECT_EQ(c.error(SDP_SINK_AVAIL_CANCEL), StreamError::none);
    EXPECT_EQ(c.next().header.mid, 0);
    EXPECT_EQ(c.error(SDP_SINK_AVAIL, 0, sink(0)), StreamError::none);
    EXPECT_EQ(c.error(SDP_SINK_AVAIL_CANCEL), StreamError::none);
    Connection twice = c;
    EXPECT_EQ(twice.error(SDP_SINK_AVAIL_CANCEL), StreamError::sdp_completion);
    EXPECT_EQ(c.next().header.mid, SDP_SINK_CANCEL_ACK);
    EXPECT_EQ(c.kind, SendKind::solicited);
    EXPECT_EQ(c.next().header.mid, 0);
}

// ---- modes (draft §11) --------------------------------------------------------------

TEST(Sdp, takes_the_changes_that_a_source_may_make) {
    Connection c;
    EXPECT_EQ(c.error(SDP_MODE_CHANGE, 0, mode(SdpMode::pipelined)), StreamError::none);
    EXPECT_EQ(c.error(SDP_MODE_CHANGE, 0, mode(SdpMode::combined)), StreamError::none);
    Connection early = c;
    EXPECT_EQ(early.error(SDP_MODE_CHANGE, 0, mode(SdpMode::buffered)), StreamError::sdp_mode);
    c.send(1);  // acknowledges it
    EXPECT_EQ(c.error(SDP_MODE_CHANGE, 0, mode(SdpMode::buffered)), StreamError::none);
    EXPECT_EQ(c.sdp.receive_mode(), SdpMode::buffered);
}

TEST(Sdp, every_other_change_is_refused) {
    const std::vector<std::vector<SdpMode>> ways{{}, {SdpMode::buffered}, {SdpMode::pipelined}};
    for (const auto& way : ways) {
        const SdpMode from = way.empty() ? SdpMode::combined : way[0];
        for (const SdpMode to : {SdpMode::buffered, SdpMode::combined, SdpMode::pipelined}) {
            for (const bool send_half : {false, true}) {
                Connection c;
                for (const SdpMode step : way) {
                    ASSERT_EQ(c.error(SDP_MODE_CHANGE, 0, mode(step)), StreamError::none);
                }
                const bool legal =
                    !send_half && ((from == SdpMode::combined && to != from) ||
                                   (from == SdpMode::pipelined && to == SdpMode::combined));
                EXPECT_EQ(c.error(SDP_MODE_CHANGE, 0, mode(to, send_half)),
                          legal ? StreamError::none : StreamError::sdp_mode)
                    << static_cast<int>(from) << static_cast<int>(to) << send_half;
            }
        }
    }
}

TEST(Sdp, the_sink_ends_buffered) {
    Connection c;
    EXPECT_TRUE(c.sdp.change_send_mode(SdpMode::buffered));
    EXPECT_EQ(c.next().header.mid, SDP_MODE_CHANGE);
    EXPECT_FALSE(c.sdp.change_send_mode(SdpMode::combined));
    EXPECT_EQ(c.error(SDP_MODE_CHANGE, 0, mode(SdpMode::combined, true)), StreamError::none);
    EXPECT_EQ(c.sdp.send_mode(), SdpMode::combined);
}

TEST(Sdp, leaving_combined_needs_the_source_to_be_answered) {
    Connection c;
    EXPECT_EQ(c.error(SDP_SRC_AVAIL, 1, source()), StreamError::none);
    EXPECT_EQ(c.error(SDP_MODE_CHANGE, 0, mode(SdpMode::buffered)), StreamError::sdp_mode);
}

TEST(Sdp, sinks_on_their_way_when_pipelined_ends_are_void) {
    Connection c = pipelined();
    EXPECT_EQ(c.error(SDP_DATA), StreamError::none);
    EXPECT_TRUE(c.sdp.change_send_mode(SdpMode::combined));
    const std::uint32_t seen = c.ack;
    const std::uint32_t change = c.next().header.mseq;
    c.ack = seen;
    EXPECT_EQ(c.error(SDP_SINK_AVAIL, 0, sink(0)), StreamError::none);
    c.ack = change;
    EXPECT_EQ(c.error(SDP_SINK_AVAIL, 0, sink(0)), StreamError::sdp_advertisement);
}

// ---- sizes (draft §12), suspension (§13) ----------------------------------------------

TEST(Sdp, a_wish_for_another_size_is_answered_by_the_present_one) {
    Connection c;
    EXPECT_EQ(c.error(SDP_CH_RCV_BUF, 0, sized(5000)), StreamError::none);
    Connection twice = c;
    EXPECT_EQ(twice.error(SDP_CH_RCV_BUF, 0, sized(5000)), StreamError::sdp_resize);
    const SdpMessage answer = c.next();
    EXPECT_EQ(answer.header.mid, SDP_CH_RCV_BUF_ACK);
    EXPECT_EQ(answer.octets, kBuffer);
    EXPECT_EQ(c.kind, SendKind::plain);
}

TEST(Sdp, a_suspension_is_refused) {
    for (const std::uint16_t port : {std::uint16_t{0}, std::uint16_t{8080}}) {
        SdpMessage m;
        m.port = port;
        EXPECT_EQ(Connection().error(SDP_SUSP_COMM, 0, m), StreamError::sdp_suspend);
    }
}

// ---- closing (draft §13) ----------------------------------------------------------------

TEST(Sdp, the_end_of_one_direction_leaves_the_other) {
    Connection c;
    const Arrival end = c.give(SDP_DISCONN);
    EXPECT_EQ(end.error, StreamError::none);
    EXPECT_TRUE(end.finished);
    EXPECT_EQ(c.error(SDP_DATA), StreamError::none);  // credit still comes
    EXPECT_EQ(c.error(SDP_CH_RCV_BUF, 0, sized(500)), StreamError::none);
    c.ack = c.send(5).header.mseq;
    EXPECT_TRUE(c.give(SDP_ABORT_CONN).aborted);
}

TEST(Sdp, what_may_not_follow_the_end_is_refused) {
    Connection c;
    EXPECT_EQ(c.error(SDP_DISCONN), StreamError::none);
    Connection twice = c, data = c, advertised = c;
    EXPECT_EQ(twice.error(SDP_DISCONN), StreamError::sdp_closing);
    EXPECT_EQ(data.error(SDP_DATA, 1), StreamError::sdp_closing);
    EXPECT_EQ(advertised.error(SDP_SRC_AVAIL, 1, source()), StreamError::sdp_closing);
    EXPECT_EQ(Connection().error(SDP_ABORT_CONN), StreamError::sdp_closing);
    Connection open;
    EXPECT_EQ(open.error(SDP_SRC_AVAIL, 1, source()), StreamError::none);
    EXPECT_EQ(open.error(SDP_DISCONN), StreamError::sdp_closing);
}

TEST(Sdp, our_end_goes_once_and_an_abort_behind_it) {
    Connection c;
    EXPECT_EQ(c.next({.abort = true}).header.mid, 0);
    EXPECT_EQ(c.next({.finish = true}).header.mid, SDP_DISCONN);
    EXPECT_EQ(c.kind, SendKind::plain);
    EXPECT_EQ(c.next({.finish = true}).header.mid, 0);
    EXPECT_EQ(c.next({.abort = true}).header.mid, SDP_ABORT_CONN);
    EXPECT_EQ(c.kind, SendKind::solicited);
}

// ---- urgent data (draft §14) --------------------------------------------------------------

TEST(Sdp, urgent_data_are_announced_and_marked) {
    Connection c;
    const Arrival first = c.give(SDP_DATA, 100, flagged(SDP_FLAG_OOB_PEND));
    EXPECT_TRUE(first.urgent.pending);
    EXPECT_FALSE(first.urgent.present);
    EXPECT_TRUE(c.give(SDP_DATA, 10, flagged(SDP_FLAG_OOB_PRES)).urgent.present);
    const Arrival both = c.give(SDP_DATA, 1, flagged(SDP_FLAG_OOB_PEND | SDP_FLAG_OOB_PRES));
    EXPECT_TRUE(both.urgent.pending && both.urgent.present);
}

TEST(Sdp, marks_that_cannot_be_are_refused) {
    EXPECT_EQ(Connection().error(SDP_DATA, 1, flagged(SDP_FLAG_OOB_PRES)), StreamError::sdp_urgent);
    Connection unfulfilled;
    EXPECT_EQ(unfulfilled.error(SDP_DATA, 0, flagged(SDP_FLAG_OOB_PEND)), StreamError::none);
    Connection ends = unfulfilled;
    EXPECT_EQ(ends.error(SDP_DISCONN), StreamError::sdp_urgent);
    StreamError error = StreamError::none;
    std::size_t bytes = 0;
    for (; error == StreamError::none && bytes < 100'000; bytes += 900) {
        error = unfulfilled.error(SDP_DATA, 900);
        unfulfilled.ack = unfulfilled.send(1).header.mseq;  // which gives credit
        unfulfilled.limit = unfulfilled.ack + 100;
    }
    EXPECT_EQ(error, StreamError::sdp_urgent);
    EXPECT_GT(bytes, 65'535u);
}

TEST(Sdp, our_marks_go_with_solicited_sends) {
    Connection c;
    const SdpMessage seen = c.send(3, {.pending = true, .present = true});
    EXPECT_EQ(seen.header.flags, SDP_FLAG_OOB_PEND | SDP_FLAG_OOB_PRES);
    EXPECT_EQ(c.kind, SendKind::solicited);
    EXPECT_EQ(c.next({.urgent_pending = true}).header.flags, SDP_FLAG_OOB_PEND);
    c.send(3);
    EXPECT_EQ(c.kind, SendKind::plain);
}

}  // namespace
}  // namespace xsock::stream
