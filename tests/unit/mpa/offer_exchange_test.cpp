// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The offer of shared memory in the responder's extension frame, and the initiator's answer in its
// own: who waits for whom, what ends the wait, and that nothing follows the frames by itself.
#include <gtest/gtest.h>

#include <algorithm>

#include "mpa/startup.hpp"
#include "mpa/stream.hpp"
#include "tests/unit/mpa/stream_end.hpp"

namespace xsock::mpa {
namespace {

using State = Startup::State;

const ByteVector kOffer = test::pattern(62), kAnswer = test::pattern(16);

ByteVector bytes(ConstBytes span) { return {span.begin(), span.end()}; }

ByteVector operator+(ByteVector a, const ByteVector& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

StartupConfig offers(bool offer = true) {
    StartupConfig c{.role = Role::responder};
    if (offer) append_tlv(c.extension_tlvs, MPA_TLV_SHM_OFFER, kOffer);
    return c;
}

StartupConfig answers(bool answer = true) {
    return {.role = Role::initiator, .answers_offer = answer};
}

/// An extension frame with at most one TLV.
ByteVector frame_of(std::uint16_t type = 0, const ByteVector& value = {}) {
    ByteVector out, tlvs;
    if (type != 0) append_tlv(tlvs, type, value);
    append_extension_frame(out, tlvs);
    return out;
}

/// A state machine that has begun.
struct Begun : Startup {
    explicit Begun(StartupConfig c) : Startup(std::move(c)) { begin(0); }
    ByteVector write(std::size_t most = SIZE_MAX) {
        const ByteVector out = bytes(tx().first(std::min(most, tx().size())));
        tx_commit(out.size());
        return out;
    }
};

/// An initiator whose Request is written, and a responder whose Reply is not yet.
struct Asked {
    explicit Asked(StartupConfig initiator = answers(), StartupConfig responder = offers())
        : i(std::move(initiator)), r(std::move(responder)) {
        r.rx(i.write());
    }
    Begun i, r;
};

TEST(OfferExchange, an_offer_is_answered_in_the_initiators_frame) {
    Asked a;
    a.i.rx(a.r.write());
    EXPECT_EQ(bytes(a.i.offer()), kOffer);
    EXPECT_TRUE(a.i.tx().empty()) << "the frame waits for the answer";
    EXPECT_EQ(a.i.state(), State::exchanging);

    ASSERT_TRUE(a.i.answer_offer(kAnswer));
    EXPECT_TRUE(a.i.offer().empty());
    EXPECT_FALSE(a.i.answer_offer(kAnswer)) << "once";
    const ByteVector frame = a.i.write();
    EXPECT_EQ(frame, frame_of(MPA_TLV_SHM_ANSWER, kAnswer));
    EXPECT_EQ(a.i.state(), State::established);

    a.r.rx(frame);
    EXPECT_EQ(a.r.state(), State::established);
    EXPECT_EQ(bytes(a.r.answer()), kAnswer);
    EXPECT_TRUE(a.i.answer().empty());
    EXPECT_EQ(bytes(a.r.take_result().answer), kAnswer);
    EXPECT_TRUE(a.i.take_result().answer.empty());
}

TEST(OfferExchange, the_frame_waits_for_the_responders_whole_frame) {
    Asked a;
    const ByteVector in = a.r.write();
    a.i.rx(ConstBytes(in).first(in.size() - 1));
    EXPECT_TRUE(a.i.tx().empty());
    EXPECT_TRUE(a.i.offer().empty());
    EXPECT_FALSE(a.i.answer_offer(kAnswer));
    a.i.rx(ConstBytes(in).last(1));
    EXPECT_EQ(bytes(a.i.offer()), kOffer);
}

TEST(OfferExchange, without_an_offer_the_frame_goes_as_soon_as_the_responders_is_there) {
    for (const ByteVector& frame :
         {frame_of(), frame_of(MPA_TLV_SHM_OFFER, {}), frame_of(5, test::pattern(3))}) {
        Asked a(answers(), offers(false));
        ByteVector in = a.r.write();
        in.resize(in.size() - frame_of().size());
        a.i.rx(in + frame);
        EXPECT_TRUE(a.i.offer().empty());
        EXPECT_FALSE(a.i.answer_offer(kAnswer));
        EXPECT_EQ(bytes(a.i.tx()), frame_of());
        a.r.rx(a.i.write());
        EXPECT_EQ(a.i.state(), State::established);
        EXPECT_EQ(a.r.state(), State::established);
        EXPECT_TRUE(a.r.answer().empty());
    }
}

TEST(OfferExchange, an_initiator_that_answers_none_skips_the_offer) {
    Asked a(answers(false));
    const ByteVector in = a.r.write();
    a.i.rx(ConstBytes(in).first(in.size() - 1));
    EXPECT_EQ(bytes(a.i.tx()), frame_of()) << "it waits for nothing";
    const ByteVector frame = a.i.write();
    a.i.rx(ConstBytes(in).last(1));
    EXPECT_TRUE(a.i.offer().empty());
    EXPECT_EQ(a.i.state(), State::established);
    a.r.rx(frame);
    EXPECT_EQ(a.r.state(), State::established);
    EXPECT_TRUE(a.r.answer().empty());
}

TEST(OfferExchange, a_peer_without_extension_frames_is_not_waited_for) {
    StartupConfig older = offers();
    older.extensions = false;
    Asked a(answers(), older);
    a.i.rx(a.r.write());
    EXPECT_EQ(a.i.state(), State::established);
    EXPECT_TRUE(a.i.offer().empty());
    EXPECT_TRUE(a.i.tx().empty());
}

TEST(OfferExchange, an_answer_that_was_not_asked_for_is_skipped) {
    Asked a(answers(), offers(false));
    a.r.write();
    a.r.rx(frame_of(MPA_TLV_SHM_ANSWER, kAnswer));
    EXPECT_EQ(a.r.state(), State::established);
    EXPECT_TRUE(a.r.answer().empty());

    // Nor does one of the responder count.
    StartupConfig wrong{.role = Role::responder};
    append_tlv(wrong.extension_tlvs, MPA_TLV_SHM_ANSWER, kAnswer);
    Asked b(answers(), wrong);
    b.i.rx(b.r.write());
    EXPECT_EQ(bytes(b.i.tx()), frame_of());
    EXPECT_TRUE(b.i.answer().empty());
}

TEST(OfferExchange, an_offer_of_the_initiator_is_skipped) {
    for (const bool offer : {false, true}) {
        Asked a(answers(), offers(offer));
        a.r.write();
        a.r.rx(frame_of(MPA_TLV_SHM_OFFER, kOffer));
        EXPECT_EQ(a.r.state(), State::established);
        EXPECT_TRUE(a.r.offer().empty());
        EXPECT_TRUE(a.r.answer().empty());
        EXPECT_FALSE(a.r.answer_offer(kAnswer));
    }
}

TEST(OfferExchange, the_answer_takes_its_place_among_other_types) {
    StartupConfig c = answers();
    append_tlv(c.extension_tlvs, 2, test::pattern(1));
    append_tlv(c.extension_tlvs, 5, test::pattern(2));
    Asked a(c);
    a.i.rx(a.r.write());
    ASSERT_TRUE(a.i.answer_offer(kAnswer));
    ByteVector expected, tlvs;
    append_tlv(tlvs, 2, test::pattern(1));
    append_tlv(tlvs, MPA_TLV_SHM_ANSWER, kAnswer);
    append_tlv(tlvs, 5, test::pattern(2));
    append_extension_frame(expected, tlvs);
    EXPECT_EQ(a.i.write(), expected);
}

TEST(OfferExchange, only_the_start_up_time_ends_the_wait_for_an_answer) {
    Asked a;
    a.i.rx(a.r.write());
    for (Begun* end : {&a.i, &a.r}) {
        EXPECT_EQ(end->next_timeout(), 10 * kSecond);
        end->on_time(10 * kSecond - 1);
        EXPECT_EQ(end->state(), State::exchanging);
        end->on_time(10 * kSecond);
        EXPECT_EQ(end->stream_error(), StreamError::startup_timeout);
    }
    EXPECT_TRUE(a.i.offer().empty());
    EXPECT_FALSE(a.i.answer_offer(kAnswer));
}

TEST(OfferExchange, end_of_stream_before_the_answer_is_a_lost_connection) {
    Asked a;
    a.i.rx(a.r.write());
    a.i.rx_eof();
    EXPECT_EQ(a.i.stream_error(), StreamError::mpa_connection_lost);
    EXPECT_FALSE(a.i.answer_offer(kAnswer));
    EXPECT_TRUE(a.i.tx().empty());
}

TEST(OfferExchange, nothing_may_follow_the_responders_frame_before_the_answer) {
    Asked a;
    const ByteVector in = a.r.write() + test::pattern(1);
    EXPECT_EQ(a.i.rx(in), in.size());
    EXPECT_EQ(a.i.stream_error(), StreamError::mpa_extension_frame);
    EXPECT_FALSE(a.i.answer_offer(kAnswer));

    Asked b;
    b.i.rx(b.r.write());
    b.i.rx(test::pattern(1));
    EXPECT_EQ(b.i.stream_error(), StreamError::mpa_extension_frame);
}

TEST(OfferExchange, what_is_wrong_with_the_reply_waits_for_no_answer) {
    StartupConfig c = answers();
    c.ird = 1;
    Asked a(c);
    ByteVector in = a.r.write();
    store_be16(in.data() + sizeof(mpa_frame) + 2, 9);  // more Reads than we answer
    a.i.rx(in);
    EXPECT_TRUE(a.i.offer().empty());
    EXPECT_EQ(bytes(a.i.tx()), frame_of());
    a.r.rx(a.i.write());
    EXPECT_EQ(a.i.stream_error(), StreamError::mpa_insufficient_ird);
    EXPECT_EQ(a.r.state(), State::established) << "the Terminate will be read";
    EXPECT_TRUE(a.r.answer().empty());
}

TEST(OfferExchange, deferred_replies_offer_too) {
    StartupConfig c = offers();
    c.defer_reply = true;
    Asked a(answers(), c);
    ASSERT_TRUE(a.r.accept({}, 1, 1));
    a.i.rx(a.r.write());
    ASSERT_TRUE(a.i.answer_offer(kAnswer));
    a.r.rx(a.i.write());
    EXPECT_EQ(bytes(a.r.answer()), kAnswer);
}

TEST(OfferExchange, cut_at_every_byte_is_the_same) {
    Asked model;
    const ByteVector in = model.r.write();
    const ByteVector back = frame_of(MPA_TLV_SHM_ANSWER, kAnswer);
    for (std::size_t cut = 0; cut <= in.size(); ++cut) {
        Asked a;
        a.i.rx(ConstBytes(in).first(cut));
        a.i.rx(ConstBytes(in).subspan(cut));
        ASSERT_TRUE(a.i.answer_offer(kAnswer)) << cut;
        ASSERT_EQ(a.i.write(), back) << cut;
    }
    for (std::size_t cut = 0; cut <= back.size(); ++cut) {
        Asked a;
        a.r.write();
        a.r.rx(ConstBytes(back).first(cut));
        a.r.rx(ConstBytes(back).subspan(cut));
        ASSERT_EQ(bytes(a.r.answer()), kAnswer) << cut;
    }
}

// -- in a stream --

struct End {
    explicit End(StartupConfig c) : stream({.startup = std::move(c)}, ulp) { stream.start(0); }
    ByteVector write() {
        ByteVector out;
        for (;;) {
            const TxBatch batch = stream.tx_prepare(scratch, 1 << 20, 0);
            if (batch.bytes == 0) return out;
            const ByteVector piece = flatten(batch, SIZE_MAX);
            out.insert(out.end(), piece.begin(), piece.end());
            stream.tx_commit(piece.size(), 0);
        }
    }
    RecordingUlp ulp;
    ByteVector scratch = ByteVector(kMinTxScratch);
    Stream stream;
};

/// Both have started, as the owner of another data layer leaves them.
struct Agreed {
    Agreed() {
        r.stream.rx(i.write(), 0);
        i.stream.rx(r.write(), 0);
    }
    End i{answers()}, r{offers()};
};

TEST(OfferStream, the_answer_is_to_be_written_at_once) {
    Agreed a;
    EXPECT_EQ(bytes(a.i.stream.offer()), kOffer);
    EXPECT_FALSE(a.i.stream.status().tx_allowed);
    EXPECT_EQ(a.i.stream.status().next_timeout, 10 * kSecond);
    ASSERT_TRUE(a.i.stream.answer_offer(kAnswer));
    EXPECT_TRUE(a.i.stream.status().tx_allowed);
    EXPECT_GT(a.i.stream.status().tx_pending, 0u);
    a.r.stream.rx(a.i.write(), 0);
    EXPECT_EQ(a.i.stream.state(), Llp::State::started);
    EXPECT_EQ(a.r.stream.state(), Llp::State::started);
    EXPECT_EQ(bytes(a.r.stream.answer()), kAnswer);
}

TEST(OfferStream, nothing_follows_the_frames_unless_it_is_opened) {
    Agreed a;
    a.i.ulp.queue(14, 100);
    a.r.ulp.queue(14, 100);
    a.i.stream.answer_offer(kAnswer);
    a.r.stream.rx(a.i.write(), 0);
    for (End* end : {&a.i, &a.r}) {
        ASSERT_EQ(end->stream.state(), Llp::State::started);
        end->stream.on_time(9 * kSecond);
        EXPECT_TRUE(end->write().empty());
        EXPECT_TRUE(end->ulp.events.empty()) << "the layer that is opened tells";
    }
    a.r.stream.open(Llp::Opening::first, a.r.stream.negotiated(), 0);
    EXPECT_TRUE(a.r.stream.answer().empty()) << "not kept any longer";
    EXPECT_FALSE(a.r.write().empty());
}

TEST(OfferStream, a_lost_connection_ends_the_wait) {
    Agreed a;
    a.i.stream.lost();
    EXPECT_TRUE(a.i.stream.offer().empty());
    EXPECT_FALSE(a.i.stream.answer_offer(kAnswer));
    EXPECT_TRUE(a.i.write().empty());
}

}  // namespace
}  // namespace xsock::mpa
