// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/stream.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>

#include "base/fault.hpp"
#include "base/place.hpp"
#include "mpa/fpdu.hpp"
#include "mpa/fpdu_receiver.hpp"
#include "mpa/fpdu_sender.hpp"
#include "tests/support/silent_ulp.hpp"
#include "tests/unit/mpa/recording_ulp.hpp"
#include "tests/unit/mpa/stream_end.hpp"
#include "tests/vectors/pcap_streams.hpp"

namespace xsock::mpa {
namespace {

using State = Stream::State;

Config config(Role role) {
    Config c;
    c.startup.role = role;
    return c;
}

struct End : test::StreamEnd {
    using test::StreamEnd::StreamEnd;
    explicit End(Role role) : StreamEnd(config(role)) {}
};

void start_up(End& initiator, End& responder, Time now = 0) {
    responder.read(initiator.write(now), now);
    initiator.read(responder.write(now), now);
    responder.read(initiator.write(now), now);  // its extension frame
    ASSERT_EQ(initiator.stream.state(), State::operational);
    ASSERT_EQ(responder.stream.state(), State::operational);
}

class StartedStream : public ::testing::Test {
  protected:
    void SetUp() override { start_up(i, r); }
    /// TCP has taken three bytes of such a payload's FPDU when its memory goes.
    void revoke_behind_three_bytes_of(std::size_t payload) {
        i.ulp.queue(14, payload);
        i.stream.tx_prepare(i.scratch, 1 << 20, 0);
        i.stream.tx_commit(3, 0);
        i.ulp.intact = false;
    }

    End i{Role::initiator}, r{Role::responder};
};

Config not_xsock(Role role) {
    Config c = config(role);
    c.startup.xsock_mark = false;
    return c;
}

// -- start-up --

TEST(Stream, establishes_and_carries_ulpdus_both_ways) {
    End i(Role::initiator), r(Role::responder);
    EXPECT_EQ(i.stream.state(), State::startup);
    EXPECT_TRUE(i.stream.status().tx_allowed);
    EXPECT_FALSE(r.stream.status().tx_allowed);
    start_up(i, r);
    EXPECT_EQ(r.ulp.events, Events{"established"});
    i.ulp.queue(14, 100);
    r.ulp.queue(18, 9000, 2);
    r.read(i.write());
    i.read(r.write());
    EXPECT_EQ(r.ulp.delivered, i.ulp.queued());
    EXPECT_EQ(i.ulp.delivered, r.ulp.queued());
    EXPECT_EQ(i.ulp.done, 1u);
    EXPECT_EQ(r.ulp.done, 1u);
}

TEST(Stream, byte_by_byte_is_the_same) {
    End i(Role::initiator), r(Role::responder);
    for (const std::byte& b : i.write(0, 1)) EXPECT_EQ(r.read({&b, 1}), 1u);
    for (const std::byte& b : r.write(0, 1)) EXPECT_EQ(i.read({&b, 1}), 1u);
    i.ulp.queue(14, 5000, 2);
    for (const std::byte& b : i.write(0, 1)) EXPECT_EQ(r.read({&b, 1}), 1u);
    EXPECT_EQ(r.ulp.delivered, i.ulp.queued());
}

TEST(Stream, responder_is_established_once_its_reply_is_written) {
    End i(not_xsock(Role::initiator)), r(Role::responder);
    r.read(i.write());
    const TxBatch reply = r.stream.tx_prepare(r.scratch, 1000, 0);
    r.commit(reply.bytes - 1);
    EXPECT_TRUE(r.ulp.events.empty());
    EXPECT_EQ(r.stream.tx_prepare(r.scratch, 1000, 0).bytes, 1u);
    r.commit(1);
    EXPECT_EQ(r.ulp.events, Events{"established"});
}

TEST(Stream, is_started_and_silent_until_it_is_opened) {
    End i(not_xsock(Role::initiator)), r(not_xsock(Role::responder));
    r.read(i.write());
    const ByteVector reply = r.write();
    const Llp::Rx rx = i.stream.rx(reply, 0);
    EXPECT_EQ(rx.taken, reply.size());
    EXPECT_TRUE(rx.boundary);
    EXPECT_EQ(i.stream.state(), State::started);
    i.ulp.queue(14, 20);
    EXPECT_TRUE(i.write().empty());
    EXPECT_EQ(i.stream.rx(reply, 0).taken, 0u) << "what follows is offered again";
    EXPECT_TRUE(i.ulp.events.empty());
    i.open(0);
    EXPECT_EQ(i.stream.state(), State::operational);
    EXPECT_EQ(i.ulp.events.front(), "established");
    EXPECT_FALSE(i.write().empty());
}

TEST(Stream, that_goes_on_after_another_layer_neither_tells_nor_holds_nor_probes) {
    End i(not_xsock(Role::initiator)), r(not_xsock(Role::responder));
    r.read(i.write());
    const TxBatch reply = r.stream.tx_prepare(r.scratch, 1000, 0);
    const ByteVector said = flatten(reply);
    r.stream.tx_commit(said.size(), 0);
    i.stream.rx(said, 0);
    for (End* end : {&i, &r}) {
        end->stream.open(Llp::Opening::resumed, end->stream.negotiated(), 0);
        EXPECT_EQ(end->stream.state(), State::operational);
        EXPECT_TRUE(end->stream.status().tx_allowed);
        EXPECT_EQ(end->stream.status().next_timeout, kNever);
    }
    r.ulp.queue(18, 40);
    i.read(r.write());
    EXPECT_EQ(i.ulp.delivered, r.ulp.queued());
    EXPECT_TRUE(i.ulp.events.empty());
    EXPECT_TRUE(r.ulp.events.empty());
}

TEST(Stream, takes_fpdus_glued_to_the_reply) {
    End i(not_xsock(Role::initiator)), r(not_xsock(Role::responder));
    r.read(i.write());
    r.ulp.queue(18, 30);
    ByteVector in = r.write(0);
    const ByteVector fpdu = r.write(r.stream.status().next_timeout);
    in.insert(in.end(), fpdu.begin(), fpdu.end());
    EXPECT_EQ(i.read(in), in.size());
    EXPECT_EQ(i.ulp.events, Events{"established"});
    EXPECT_EQ(i.ulp.delivered, r.ulp.queued());
    EXPECT_EQ(i.stream.status().next_timeout, kNever) << "no probe is due";
}

TEST(Stream, defers_the_reply_until_accepted) {
    Config c = config(Role::responder);
    c.startup.defer_reply = true;
    c.startup.private_data = {};
    End i(Role::initiator), r(c);
    r.read(i.write());
    EXPECT_EQ(r.stream.state(), State::await_decision);
    EXPECT_TRUE(r.stream.accept(test::pattern(5), 2, 3, 0));
    i.read(r.write());
    i.write();
    EXPECT_EQ(i.stream.state(), State::operational);
    EXPECT_EQ(i.stream.negotiated().ord, 2);
    EXPECT_EQ(i.stream.private_data().size(), 5u);
    EXPECT_FALSE(r.stream.accept({}, 2, 3, 0));
}

TEST(Stream, rejection_closes_both_ends) {
    Config c = config(Role::responder);
    c.startup.defer_reply = true;
    End i(Role::initiator), r(c);
    r.read(i.write());
    EXPECT_TRUE(r.stream.reject(test::pattern(7), 0));
    i.read(r.write());
    EXPECT_EQ(i.stream.state(), State::closed);
    EXPECT_EQ(i.stream.status().stream_error, StreamError::startup_rejected);
    EXPECT_EQ(i.stream.private_data().size(), 7u);
    EXPECT_EQ(i.ulp.failures, std::vector{StreamError::startup_rejected});
    EXPECT_EQ(r.stream.state(), State::closed);
    EXPECT_EQ(r.ulp.failures.size(), 1u);
}

TEST(Stream, two_initiators_fail) {
    End a(Role::initiator), b(Role::initiator);
    const ByteVector in = a.write();
    b.write();
    EXPECT_EQ(b.read(in), in.size());
    EXPECT_EQ(b.stream.status().stream_error, StreamError::startup_both_initiators);
    EXPECT_EQ(b.stream.state(), State::closed);
    EXPECT_FALSE(b.stream.status().tx_allowed);
    EXPECT_EQ(b.stream.status().tx_pending, 0u);
}

TEST(Stream, insufficient_ird_leaves_room_for_a_terminate) {
    Config c = config(Role::initiator);
    c.startup.ird = 1;
    End i(c);
    i.write();
    ByteVector reply(24);
    std::memcpy(reply.data(), MPA_KEY_REPLY, MPA_KEY_OCTETS);
    reply[16] = std::byte{MPA_FLAG_CRC | MPA_FLAG_ENHANCED};
    reply[17] = std::byte{2};
    reply[19] = std::byte{4};
    reply[23] = std::byte{9};  // ORD
    i.read(reply);
    EXPECT_EQ(i.ulp.failures, std::vector{StreamError::mpa_insufficient_ird});
    EXPECT_EQ(i.stream.state(), State::failed);
    i.ulp.queue(40, 0);
    EXPECT_EQ(i.write().size(), fpdu_octets(40));
}

TEST(Stream, start_up_times_out) {
    for (const Role role : {Role::initiator, Role::responder}) {
        End e(role);
        EXPECT_EQ(e.stream.status().next_timeout, 10 * kSecond);
        e.stream.on_time(10 * kSecond);
        EXPECT_EQ(e.stream.state(), State::closed);
        EXPECT_EQ(e.ulp.failures, std::vector{StreamError::startup_timeout});
        EXPECT_EQ(e.stream.status().next_timeout, kNever);
        e.stream.on_time(20 * kSecond);
        EXPECT_EQ(e.ulp.failures.size(), 1u);
    }
}

TEST(Stream, end_of_stream_during_start_up) {
    End r(Role::responder);
    r.stream.rx_eof(0);
    EXPECT_EQ(r.stream.state(), State::closed);
    EXPECT_EQ(r.stream.status().stream_error, StreamError::mpa_connection_lost);
}

// -- which end may send first --

TEST(Stream, responder_waits_for_the_first_fpdu_of_its_peer) {
    End i(not_xsock(Role::initiator)), r(not_xsock(Role::responder));
    start_up(i, r);
    r.ulp.queue(18, 10);
    EXPECT_TRUE(r.write(0).empty());
    EXPECT_FALSE(r.stream.status().tx_allowed);
    i.ulp.queue(14, 0);
    const ByteVector fpdu = i.write();
    r.read(ConstBytes(fpdu).first(fpdu.size() - 1));
    EXPECT_FALSE(r.stream.status().tx_allowed) << "it must be whole";
    r.read(ConstBytes(fpdu).last(1));
    EXPECT_TRUE(r.stream.status().tx_allowed);
    EXPECT_EQ(r.stream.status().next_timeout, kNever);
    EXPECT_FALSE(r.write(0).empty());
}

TEST(Stream, responder_waits_no_longer_than_the_hold) {
    End i(not_xsock(Role::initiator)), r(not_xsock(Role::responder));
    start_up(i, r, 7);
    const Time end = 7 + 200 * kMillisecond;
    EXPECT_EQ(r.stream.status().next_timeout, end);
    r.stream.on_time(end - 1);
    EXPECT_FALSE(r.stream.status().tx_allowed);
    r.stream.on_time(end);
    EXPECT_TRUE(r.stream.status().tx_allowed);
    EXPECT_EQ(r.stream.status().next_timeout, kNever);
}

TEST(Stream, responder_waits_for_the_rtr_message_however_long) {
    Config ci = not_xsock(Role::initiator), cr = not_xsock(Role::responder);
    ci.startup.rtr = cr.startup.rtr = kRtrWrite;
    End i(ci), r(cr);
    start_up(i, r);
    EXPECT_EQ(i.ulp.negotiated.rtr, Rtr::write);
    EXPECT_EQ(r.stream.status().next_timeout, kNever);
    EXPECT_FALSE(r.stream.status().tx_allowed);
    r.ulp.queue(18, 10);
    r.stream.on_time(3600 * kSecond);
    EXPECT_FALSE(r.stream.status().tx_allowed);
    EXPECT_TRUE(r.write().empty());
}

TEST(Stream, says_where_the_rtr_message_ends) {
    Config ci = not_xsock(Role::initiator), cr = not_xsock(Role::responder);
    ci.startup.rtr = cr.startup.rtr = kRtrWrite;
    End i(ci), r(cr);
    const ByteVector request = i.write();
    EXPECT_EQ(r.read(request), request.size());
    i.read(r.write());
    EXPECT_TRUE(r.boundaries.empty()) << "a responder's start-up ends with its Reply";
    i.ulp.queue(14, 0);
    const std::size_t rtr = i.write().size();
    i.ulp.outgoing.clear(), i.ulp.given = 0;
    i.ulp.queue(14, 0);
    i.ulp.queue(14, 500);
    // The same again with two more behind it.
    const ByteVector in = i.write();
    EXPECT_EQ(r.read(in), in.size());
    EXPECT_EQ(r.boundaries, std::vector{rtr});
    EXPECT_EQ(r.ulp.delivered.size(), 2u);
    EXPECT_TRUE(r.stream.status().tx_allowed);
    i.ulp.queue(14, 9);
    r.read(i.write());
    EXPECT_EQ(r.ulp.delivered.size(), 3u);
    EXPECT_EQ(r.boundaries.size(), 1u) << "once";
}

TEST(Stream, initiator_probes_a_silent_peer_three_times) {
    End i(not_xsock(Role::initiator)), r(not_xsock(Role::responder));
    start_up(i, r, 3);
    for (const Time at : {5, 25, 105}) {
        EXPECT_EQ(i.stream.status().next_timeout, 3 + at * kMillisecond);
        i.stream.on_time(i.stream.status().next_timeout);
    }
    EXPECT_EQ(i.ulp.events, (Events{"established", "probe", "probe", "probe"}));
    EXPECT_EQ(i.stream.status().next_timeout, kNever);
}

TEST(Stream, initiator_probes_no_more_once_the_peer_spoke) {
    End i(not_xsock(Role::initiator)), r(not_xsock(Role::responder));
    start_up(i, r);
    i.stream.on_time(i.stream.status().next_timeout);
    const std::byte byte{0};
    i.read({&byte, 1});
    EXPECT_EQ(i.stream.status().next_timeout, kNever);
}

TEST(Stream, initiator_that_sent_an_rtr_message_finishes_once_the_peer_spoke_or_had_time) {
    Config ci = not_xsock(Role::initiator), cr = not_xsock(Role::responder);
    EXPECT_EQ(End(ci).stream.status().finish_at, 0u);
    ci.startup.rtr = cr.startup.rtr = kRtrWrite;
    End i(ci), r(cr);
    start_up(i, r, 3);
    EXPECT_EQ(i.stream.status().finish_at, 3 + 150 * kMillisecond);
    EXPECT_EQ(r.stream.status().finish_at, 0u);
    const std::byte byte{0};
    i.read({&byte, 1});
    EXPECT_EQ(i.stream.status().finish_at, 0u);
}

TEST(Stream, fpdus_are_larger_than_a_segment_only_where_siw_agreed_and_no_crc_is_on) {
    struct {
        bool crc, gso;
        std::size_t mulpdu;
    } const cases[] = {
        {false, true, 65472 + 14}, {true, true, 1442}, {false, false, 1442}, {true, false, 1442}};
    for (const auto& c : cases) {
        Config config = not_xsock(Role::responder);
        config.startup.crc = c.crc;
        End r(config);
        const int flags = (c.crc ? MPA_FLAG_CRC : 0) | (c.gso ? MPA_FLAG_SIW_GSO : 0);
        std::string request = MPA_KEY_REQUEST;
        request += {static_cast<char>(flags), 1, 0, 0};
        r.read(std::as_bytes(std::span(request)));
        r.write();
        r.stream.set_emss(1448);
        EXPECT_EQ(r.stream.mulpdu(), c.mulpdu) << c.crc << c.gso;
    }
}

TEST(Stream, mulpdu_limit_holds_toward_anyone) {
    for (const bool xsock : {false, true}) {
        Config ci = xsock ? Config{} : not_xsock(Role::initiator), cr = ci;
        ci.startup.role = Role::initiator, cr.startup.role = Role::responder;
        ci.mulpdu_limit = 200;
        End i(ci), r(cr);
        start_up(i, r);
        EXPECT_EQ(i.stream.mulpdu(), 200u);
    }
}

TEST(Stream, initiator_does_not_probe_a_peer_that_spoke) {
    End i(not_xsock(Role::initiator)), r(not_xsock(Role::responder));
    start_up(i, r);
    const std::byte byte{0};
    i.read({&byte, 1});
    EXPECT_EQ(i.stream.status().next_timeout, kNever);
}

TEST(Stream, initiator_that_has_finished_does_not_probe) {
    End i(not_xsock(Role::initiator)), r(not_xsock(Role::responder));
    start_up(i, r);
    i.stream.tx_finished();  // nothing may follow a FIN
    EXPECT_EQ(i.stream.status().next_timeout, kNever);
    i.stream.on_time(kSecond);
    EXPECT_EQ(i.ulp.events, (Events{"established"}));
}

TEST(Stream, initiator_releases_an_older_xsock_at_once) {
    Config older = config(Role::responder);
    older.startup.extensions = false;
    End i(Role::initiator), r(older);
    start_up(i, r);
    EXPECT_EQ(i.ulp.events, (Events{"established", "probe"}));
    EXPECT_EQ(i.stream.status().next_timeout, kNever);
}

// -- reception --

TEST_F(StartedStream, reception_ends_at_a_crc_error_but_a_terminate_may_go) {
    i.ulp.queue(14, 50);
    i.ulp.queue(14, 50);
    ByteVector in = i.write();
    in[20] ^= std::byte{1};
    EXPECT_EQ(r.read(in), in.size());
    EXPECT_EQ(r.stream.state(), State::failed);
    EXPECT_EQ(r.stream.status().stream_error, StreamError::mpa_crc);
    EXPECT_EQ(r.ulp.failures, std::vector{StreamError::mpa_crc});
    EXPECT_TRUE(r.ulp.delivered.empty());
    EXPECT_EQ(r.read(in), in.size()) << "dropped";
    EXPECT_EQ(r.ulp.begun, 1u);
    r.ulp.queue(40, 0);
    EXPECT_FALSE(r.write().empty());
}

TEST_F(StartedStream, bytes_wait_while_the_ulp_has_no_room) {
    i.ulp.queue(18, 50);
    const ByteVector in = i.write();
    r.ulp.block_at = 18;
    EXPECT_EQ(r.read(in), 20u);
    EXPECT_EQ(r.read(ConstBytes(in).subspan(20)), 0u);
    r.ulp.block_at = SIZE_MAX;
    EXPECT_EQ(r.read(ConstBytes(in).subspan(20)), in.size() - 20);
    EXPECT_EQ(r.ulp.delivered, i.ulp.queued());
}

TEST_F(StartedStream, end_of_stream_between_fpdus_is_orderly) {
    i.ulp.queue(14, 50);
    r.read(i.write());
    r.stream.rx_eof(0);
    EXPECT_EQ(r.ulp.events, (Events{"established", "finished"}));
    EXPECT_EQ(r.stream.state(), State::operational);
    r.ulp.queue(14, 50);
    EXPECT_FALSE(r.write().empty()) << "half-closed";
}

TEST_F(StartedStream, end_of_stream_inside_an_fpdu_is_a_lost_connection) {
    i.ulp.queue(14, 50);
    const ByteVector in = i.write();
    for (const std::size_t n : {std::size_t{1}, in.size() - 2}) {
        End i2(Role::initiator), r2(Role::responder);
        start_up(i2, r2);
        r2.read(ConstBytes(in).first(n));
        r2.stream.rx_eof(0);
        EXPECT_EQ(r2.stream.status().stream_error, StreamError::mpa_connection_lost);
    }
}

TEST_F(StartedStream, lost_is_told_once) {
    r.ulp.queue(14, 50);
    r.stream.lost();
    r.stream.lost();
    r.stream.rx_eof(0);
    EXPECT_EQ(r.ulp.events, (Events{"established", "reset"}));
    EXPECT_EQ(r.stream.state(), State::closed);
    EXPECT_TRUE(r.write(kSecond).empty());
}

// -- transmission --

TEST_F(StartedStream, single_message_goes_whole_or_is_the_next_batch) {
    ByteVector frame(128);
    EXPECT_EQ(i.stream.tx_single(frame), 0u) << "there is none";
    for (const bool kept : {false, true, false}) {
        i.ulp.queue(18, 64);
        const auto done = i.ulp.done;
        const std::size_t size = i.stream.tx_single(frame);
        ASSERT_NE(size, 0u);
        EXPECT_EQ(i.stream.status().tx_pending, size);
        const ByteVector sent(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
        if (kept) {
            i.stream.tx_keep(sent, i.scratch);
            EXPECT_EQ(i.write(), sent);
        } else {
            i.stream.tx_commit(size, 0);
        }
        EXPECT_EQ(i.ulp.done, done + 1);
        EXPECT_EQ(i.stream.status().tx_pending, 0u);
        r.read(sent);
    }
    EXPECT_EQ(r.ulp.delivered, i.ulp.queued());
}

TEST_F(StartedStream, remainder_comes_first_and_nothing_new_with_it) {
    i.ulp.queue(14, 50);
    const std::size_t size = i.stream.tx_prepare(i.scratch, 1 << 20, 0).bytes;
    i.ulp.queue(14, 50);
    i.stream.tx_commit(3, 0);
    EXPECT_EQ(i.stream.tx_prepare(i.scratch, 1 << 20, 0).bytes, size - 3);
    EXPECT_EQ(i.ulp.given, 1u);
    i.stream.tx_commit(size - 3, 0);
    EXPECT_EQ(i.ulp.done, 1u);
    EXPECT_EQ(i.stream.tx_prepare(i.scratch, 1 << 20, 0).bytes, size);
}

TEST_F(StartedStream, revoked_memory_under_a_remainder_closes) {
    revoke_behind_three_bytes_of(30000);
    EXPECT_EQ(i.stream.tx_prepare(i.scratch, 1 << 20, 0).bytes, 0u);
    EXPECT_EQ(i.stream.state(), State::closed);
    EXPECT_EQ(i.stream.status().stream_error, StreamError::local_fault);
    EXPECT_EQ(i.ulp.failures, std::vector{StreamError::local_fault});
    EXPECT_EQ(i.stream.status().tx_pending, 0u);
    EXPECT_FALSE(i.stream.status().tx_allowed);
    i.stream.tx_commit(0, 0);
}

TEST_F(StartedStream, revoked_memory_does_not_touch_copies) {
    revoke_behind_three_bytes_of(500);
    EXPECT_NE(i.stream.tx_prepare(i.scratch, 1 << 20, 0).bytes, 0u);
}

TEST(Stream, groups_only_toward_others) {
    for (const bool xsock : {false, true}) {
        End i(xsock ? config(Role::initiator) : not_xsock(Role::initiator)), r(Role::responder);
        start_up(i, r);
        i.stream.set_emss(1448);
        for (int n = 0; n < 40; ++n) i.ulp.queue(14, 64);
        const TxBatch batch = i.stream.tx_prepare(i.scratch, 1 << 20, 0);
        EXPECT_EQ(batch.separate_groups, !xsock);
        EXPECT_EQ(batch.group_ends.size(), xsock ? 1u : 3u);
        EXPECT_EQ(batch.group_ends.back(), batch.iov.size());
    }
}

TEST(Stream, aligns_fpdus_to_segments_if_the_peer_asks) {
    for (const std::size_t emss : {1448, 8948, 65483}) {
        Config asks = config(Role::responder);
        append_tlv(asks.startup.extension_tlvs, MPA_TLV_ALIGN, {});
        End i(config(Role::initiator)), r(asks);
        start_up(i, r);
        EXPECT_TRUE(i.stream.wants_emss());
        EXPECT_FALSE(r.stream.wants_emss());
        EXPECT_TRUE(i.stream.negotiated().align_tx);
        i.stream.set_emss(emss);
        r.stream.set_emss(emss);
        EXPECT_EQ(i.stream.mulpdu(), emss / 4 * 4 - 6);
        EXPECT_EQ(r.stream.mulpdu(), asks.xsock_mulpdu);
        for (int n = 0; n < 4; ++n) i.ulp.queue(14, i.stream.mulpdu() - 14);
        ByteVector scratch(std::size_t{1} << 20);
        i.ulp.writes = false;
        std::size_t fpdus = 0, groups = 0;
        for (;;) {
            const TxBatch batch = i.stream.tx_prepare(scratch, 1 << 20, 0);
            if (batch.bytes == 0) break;
            EXPECT_TRUE(batch.separate_groups);
            groups += batch.group_ends.size();
            fpdus += batch.bytes / (emss / 4 * 4);
            i.stream.tx_commit(batch.bytes, 0);
        }
        EXPECT_EQ(fpdus, 4u);
        // Of those that leave octets of a segment over each goes by itself.
        EXPECT_EQ(groups, emss == 1448 ? 1u : emss == 8948 ? 1u : 4u);
    }
}

TEST(Stream, mulpdu_follows_emss_and_markers) {
    const auto mulpdu = [](bool markers, std::size_t emss) {
        Config c = not_xsock(Role::responder);
        c.startup.markers = markers;
        End i(not_xsock(Role::initiator)), r(c);
        start_up(i, r);
        i.stream.set_emss(emss);
        i.ulp.queue(14, 1);
        i.write();
        EXPECT_EQ(i.ulp.last_mulpdu, i.stream.mulpdu());
        return i.stream.mulpdu();
    };
    EXPECT_EQ(mulpdu(false, 1448), 1442u);
    EXPECT_EQ(mulpdu(false, 1449), 1442u);
    EXPECT_EQ(mulpdu(true, 1448), 1448u - 6 - 12);
    EXPECT_EQ(mulpdu(true, 1451), 1448u - 6 - 12);
    EXPECT_EQ(mulpdu(false, 0), 138u);
    EXPECT_EQ(mulpdu(true, 1), 134u);
    EXPECT_EQ(mulpdu(false, 1 << 30), 65535u - 6 - 3);
}

TEST_F(StartedStream, mulpdu_toward_an_xsock_is_as_configured) {
    EXPECT_EQ(i.stream.mulpdu(), 65472u + 14);
}

TEST(Stream, markers_only_in_the_direction_that_asked) {
    Config c = config(Role::responder);
    c.startup.markers = true;
    End i(Role::initiator), r(c);
    start_up(i, r);
    i.ulp.queue(14, 3000);
    r.ulp.queue(14, 3000);
    const ByteVector to_responder = i.write();
    r.read(to_responder);
    const ByteVector to_initiator = r.write();
    i.read(to_initiator);
    EXPECT_EQ(to_initiator.size(), fpdu_octets(3014));
    EXPECT_EQ(to_responder.size(), fpdu_octets(3014) + 6 * MPA_MARKER_OCTETS);
    EXPECT_EQ(r.ulp.delivered, i.ulp.queued());
    EXPECT_EQ(i.ulp.delivered, r.ulp.queued());
}

// -- memory that is not there --

struct Unmapped {
    static constexpr std::size_t kSize = 1 << 16;
    Unmapped()
        : at(static_cast<std::byte*>(
              mmap(nullptr, kSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        fault::install();
    }
    ~Unmapped() { munmap(at, kSize); }
    std::byte* at;
};

/// Places and sends memory of another object.
struct PointingUlp final : test::SilentUlp {
    UlpdusGiven tx_fill(const UlpduBatch& batch) override {
        if (left-- <= 0) return {};
        batch.described->header_size = 14;
        batch.described->payload[0] = memory;
        batch.described->payload_count = 1;
        return {0, true, left > 0};
    }
    std::size_t rx_ulpdu(ConstBytes ulpdu) override {
        const fault::Touch touch(1, memory.data(), memory.size());
        place(memory.data(), ulpdu.data(), ulpdu.size());
        return ulpdu.size();
    }
    Bytes rx_target() override { return memory; }
    Bytes memory;
    int left = 1;
};

TEST(FaultInProgramMemory, while_placing_ends_the_guarded_call) {
    Unmapped hole;
    for (const std::size_t size : {40, 9000}) {
        for (const bool crc : {false, true}) {
            RecordingUlp source;
            source.queue(14, size);
            ByteVector scratch(kMinTxScratch);
            FpduSender sender(crc, false);
            const ByteVector in =
                flatten(sender.prepare(source, scratch, {.mulpdu = 65535, .byte_budget = 1 << 20}));
            PointingUlp ulp;
            ulp.memory = {hole.at, size};
            FpduReceiver receiver(crc, false);
            EXPECT_FALSE(fault::guard([&] { receiver.consume(in, ulp); }));
        }
    }
}

TEST(FaultInProgramMemory, while_sending_leaves_no_half_batch) {
    Unmapped hole;
    for (const std::size_t size : {40, 3000, 9000}) {
        PointingUlp ulp;
        ulp.memory = {hole.at, size};
        ByteVector scratch(kMinTxScratch);
        FpduSender sender(true, true);
        EXPECT_FALSE(fault::guard(
            [&] { sender.prepare(ulp, scratch, {.mulpdu = 65535, .byte_budget = 1 << 20}); }));
        EXPECT_EQ(sender.pending(), 0u);
    }
}

// -- what siw sent: tests/vectors --

struct Capture {
    const char* name;
    bool crc, peer_to_peer;
    std::size_t fpdus_of_client, fpdus_of_server;
};

class Captures : public ::testing::TestWithParam<Capture> {};

/// Takes the place of one end: starts up with what the capture's other end said, then decodes it.
void decode(const Capture& capture, Role role, const ByteVector& peer, std::size_t step,
            std::vector<ByteVector>& ulpdus) {
    Config c = not_xsock(role);
    c.startup.crc = false;
    c.startup.ird = c.startup.ord = 1;
    if (capture.peer_to_peer) c.startup.rtr = kRtrWrite | kRtrRead;
    End end(c);
    end.ulp.header_octets = 14;
    end.write();
    for (std::size_t at = 0; at < peer.size();) {
        const std::size_t n = std::min(step, peer.size() - at);
        // What follows the Request follows our Reply.
        const bool request = role == Role::responder && at < 24;
        at +=
            end.read(ConstBytes(peer).subspan(at, request ? std::min<std::size_t>(n, 24 - at) : n));
        end.write();
    }
    end.stream.rx_eof(0);
    EXPECT_EQ(end.stream.status().stream_error, StreamError::none);
    EXPECT_EQ(end.ulp.events.back(), "finished");
    const Negotiated& n = end.stream.negotiated();
    EXPECT_EQ(n.crc, capture.crc);
    EXPECT_EQ(n.revision, 2);
    EXPECT_TRUE(n.enhanced);
    EXPECT_EQ(n.ird, 1);
    EXPECT_EQ(n.ord, 1);
    EXPECT_EQ(n.rtr, capture.peer_to_peer ? Rtr::write : Rtr::none);
    EXPECT_FALSE(n.peer_is_xsock);
    EXPECT_EQ(n.peer_accepts_gso, capture.peer_to_peer);
    ulpdus = end.ulp.delivered;
}

TEST_P(Captures, are_decoded_and_made_again_bit_for_bit) {
    const Capture& capture = GetParam();
    const test::TcpStreams streams =
        test::read_tcp_streams(std::string(XSOCK_VECTORS "/siw-siw-") + capture.name + ".pcap");
    for (const Role peer : {Role::initiator, Role::responder}) {
        const bool client = peer == Role::initiator;
        const ByteVector& bytes = client ? streams.from_client : streams.from_server;
        for (const std::size_t step : {std::size_t{1}, std::size_t{1448}, bytes.size()}) {
            std::vector<ByteVector> ulpdus;
            decode(capture, client ? Role::responder : Role::initiator, bytes, step, ulpdus);
            EXPECT_EQ(ulpdus.size(), client ? capture.fpdus_of_client : capture.fpdus_of_server);

            RecordingUlp again;
            for (const ByteVector& u : ulpdus) {
                const auto header_end = u.begin() + 14;
                again.outgoing.push_back(
                    {ByteVector(u.begin(), header_end), {ByteVector(header_end, u.end())}});
            }
            for (const std::size_t copy_limit : {0, 100000}) {
                again.given = 0;
                ByteVector scratch(256 * 1024);
                FpduSender sender(capture.crc, false);
                const ByteVector made = flatten(sender.prepare(
                    again, scratch,
                    {.mulpdu = 65535, .copy_limit = copy_limit, .byte_budget = 1 << 20}));
                EXPECT_EQ(made, ByteVector(bytes.begin() + 24, bytes.end()));
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Siw, Captures,
                         ::testing::Values(Capture{"rping-64", false, false, 6, 8},
                                           Capture{"rping-8000", false, false, 8, 9},
                                           Capture{"rping-crc-p2p-gso", true, true, 4, 4},
                                           Capture{"terminate-base-bounds", false, false, 4, 2}));

}  // namespace
}  // namespace xsock::mpa
