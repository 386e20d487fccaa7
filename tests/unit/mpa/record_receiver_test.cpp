// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Records -> ULPDUs. A stream that was placed in part is told by records in many ways; however the
// records are cut, the ULP hears the same.
#include "mpa/record_receiver.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mpa/fpdu.hpp"
#include "mpa/fpdu_sender.hpp"
#include "tests/support/records.hpp"
#include "tests/unit/mpa/recording_ulp.hpp"

namespace xsock::mpa {
namespace {

using test::bytes_of;
using test::ByteVector;
using test::pattern;
using test::RecordingUlp;
using test::Records;

constexpr PlacedWrites kRun = {
    .segments = 3, .messages = 1, .bytes = 300, .last_bytes = 100, .last_ended = false};

/// FPDUs around ULPDUs of these sizes.
ByteVector fpdus(const std::vector<ByteVector>& ulpdus, bool crc, bool markers = false) {
    RecordingUlp source;
    for (const ByteVector& u : ulpdus) {
        const auto header = std::min<std::size_t>(u.size(), 14);
        source.outgoing.push_back(
            {{u.begin(), u.begin() + static_cast<std::ptrdiff_t>(header)}, {}});
        source.outgoing.back().payload.emplace_back(u.begin() + static_cast<std::ptrdiff_t>(header),
                                                    u.end());
    }
    ByteVector scratch(256 * 1024);
    FpduSender sender(crc, markers);
    return test::flatten(
        sender.prepare(source, scratch, {.mulpdu = 65535, .byte_budget = 1 << 20}));
}

struct Outcome {
    std::vector<ByteVector> delivered;
    std::vector<PlacedWrites> placed;
    std::vector<std::pair<ByteVector, std::size_t>> responses;
    std::vector<std::string> events;
    StreamError error = StreamError::none;
    std::uint64_t octets = 0;
    bool between = false;
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// `cut` bytes first, then pieces of `step`.
Outcome run(const ByteVector& records, std::size_t cut = SIZE_MAX, std::size_t step = SIZE_MAX,
            bool crc = true, bool markers = false) {
    RecordingUlp ulp;
    RecordReceiver receiver(crc, markers);
    for (std::size_t at = 0; at < records.size();) {
        const std::size_t n = std::min(at == 0 ? cut : step, records.size() - at);
        // Memory of exactly that size: a sanitizer sees a read beyond it.
        const ByteVector piece(records.begin() + static_cast<std::ptrdiff_t>(at),
                               records.begin() + static_cast<std::ptrdiff_t>(at + n));
        const std::size_t used = receiver.consume(piece, ulp);
        if (receiver.stream_error() != StreamError::none) break;
        EXPECT_EQ(used, n);
        at += n;
        if (n == 0) cut = step;
    }
    return {ulp.delivered,           ulp.placed,
            ulp.placed_responses,    ulp.events,
            receiver.stream_error(), receiver.stream_octets(),
            receiver.between_fpdus()};
}

/// All kinds, and ULPDUs of lengths around the paddings of records and of FPDUs.
ByteVector all_kinds() {
    Records r;
    std::vector<ByteVector> raw;
    for (const std::size_t n : {0, 1, 2, 3, 14, 18, 64, 99}) raw.push_back(pattern(n, 7));
    const ByteVector octets = fpdus(raw, true);
    r.raw(octets);
    for (const std::size_t n : {0, 1, 7, 8, 9, 14, 18, 100, 511}) r.ulpdu(pattern(n, 3));
    r.placed(kRun);
    r.raw({});
    // One FPDU in three records.
    const ByteVector one = fpdus({pattern(60, 9)}, true);
    r.raw(ConstBytes(one).first(1)).raw(ConstBytes(one).subspan(1, 30));
    r.raw(ConstBytes(one).subspan(31));
    r.response(pattern(14, 5), 16384).unknown(77, 13);
    r.placed({.segments = 1, .messages = 1, .bytes = 9, .last_bytes = 9, .last_ended = true}, 24);
    r.ulpdu(pattern(20, 4));
    return r.bytes;
}

TEST(RecordReceiver, tells_the_ulp_what_each_kind_stands_for) {
    const Outcome out = run(all_kinds());
    EXPECT_EQ(out.error, StreamError::none);
    EXPECT_EQ(out.delivered.size(), 8u + 9 + 1 + 1);
    EXPECT_EQ(out.delivered[16], pattern(511, 3));
    EXPECT_EQ(out.delivered[17], pattern(60, 9));
    EXPECT_EQ(out.delivered[18], pattern(20, 4));
    EXPECT_THAT(out.placed, testing::ElementsAre(kRun, PlacedWrites{1, 1, 9, 9, true}));
    EXPECT_THAT(out.responses, testing::ElementsAre(std::pair(pattern(14, 5), std::size_t{16384})));
    EXPECT_THAT(out.events, testing::IsEmpty());
    EXPECT_TRUE(out.between);
}

TEST(RecordReceiver, tells_the_bytes_of_the_last_message_not_of_its_last_fpdu) {
    ddp_placed body = Records::body(kRun);
    body.message_octets = 250;
    Records r;
    r.structure(DDP_RECORD_PLACED, body);
    const Outcome out = run(r.bytes);
    ASSERT_THAT(out.placed, testing::SizeIs(1));
    EXPECT_EQ(out.placed[0].last_bytes, 250u);
}

TEST(RecordReceiver, split_in_two_at_every_byte) {
    const ByteVector records = all_kinds();
    const Outcome whole = run(records);
    for (std::size_t cut = 1; cut < records.size(); ++cut)
        ASSERT_EQ(run(records, cut), whole) << cut;
}

TEST(RecordReceiver, split_into_pieces_of_every_small_size) {
    const ByteVector records = all_kinds();
    const Outcome whole = run(records);
    for (std::size_t step = 1; step < 70; ++step)
        ASSERT_EQ(run(records, step, step), whole) << step;
}

TEST(RecordReceiver, goes_on_where_the_ulp_had_no_room) {
    for (const bool raw : {false, true}) {
        const ByteVector ulpdu = pattern(100);
        Records r;
        if (raw) r.raw(fpdus({ulpdu}, true));
        if (!raw) r.ulpdu(ulpdu);
        r.placed(kRun);
        for (std::size_t block = 0; block < 100; ++block) {
            RecordingUlp ulp;
            ulp.block_at = block;
            RecordReceiver receiver(true, false);
            const std::size_t used = receiver.consume(r.bytes, ulp);
            ASSERT_LT(used, r.bytes.size());
            EXPECT_EQ(receiver.consume(ConstBytes(r.bytes).subspan(used), ulp), 0u);
            EXPECT_FALSE(receiver.between_fpdus());
            ulp.block_at = SIZE_MAX;
            EXPECT_EQ(receiver.consume(ConstBytes(r.bytes).subspan(used), ulp),
                      r.bytes.size() - used);
            EXPECT_THAT(ulp.delivered, testing::ElementsAre(ulpdu));
            EXPECT_THAT(ulp.placed, testing::ElementsAre(kRun));
            EXPECT_TRUE(receiver.between_fpdus());
        }
    }
}

TEST(RecordReceiver, takes_a_ulpdu_that_lies_there_whole_at_once) {
    Records r;
    r.ulpdu(pattern(40)).ulpdu(pattern(41));
    RecordingUlp ulp;
    RecordReceiver receiver(true, false);
    receiver.consume(r.bytes, ulp);
    EXPECT_EQ(ulp.taken_whole, 2u);
}

// Each row: the octets of the stream that a record stands for.
TEST(RecordReceiver, counts_octets_of_the_stream) {
    const ByteVector octets = fpdus({pattern(33)}, true);
    EXPECT_EQ(run(Records().raw(octets).bytes).octets, octets.size());
    for (const std::size_t n : {0, 1, 2, 3, 4, 100}) {
        EXPECT_EQ(run(Records().ulpdu(pattern(n)).bytes).octets, fpdu_octets(n)) << n;
    }
    EXPECT_EQ(run(Records().placed(kRun).bytes).octets, Records::wire(kRun));
    EXPECT_EQ(run(Records().response(pattern(14), 100).bytes).octets, fpdu_octets(114));
}

// What was placed moves the grid on: markers in the octets behind it are where the sender put them.
TEST(RecordReceiver, knows_where_markers_fall_behind_what_was_placed) {
    const std::vector<ByteVector> all = {pattern(700, 1), pattern(90, 2), pattern(1200, 3),
                                         pattern(33, 4)};
    const ByteVector stream = fpdus(all, true, true);
    for (const std::size_t first : {1u, 2u, 3u}) {
        const std::vector<ByteVector> head(all.begin(), all.begin() + first);
        const std::size_t wire = fpdus(head, true, true).size();
        for (const bool ulpdus : {false, true}) {
            Records r;
            if (ulpdus) {
                for (const ByteVector& u : head) r.ulpdu(u);
            } else {
                r.placed({.segments = first, .bytes = 10}, 0, wire);
            }
            r.raw(ConstBytes(stream).subspan(wire));
            const Outcome out = run(r.bytes, SIZE_MAX, SIZE_MAX, true, true);
            EXPECT_EQ(out.error, StreamError::none);
            EXPECT_EQ(out.octets, stream.size());
            EXPECT_EQ(out.delivered.back(), all.back());
        }
    }
}

// -- what no module may say --

TEST(RecordReceiver, refuses_what_begins_inside_an_fpdu) {
    const ByteVector fpdu = fpdus({pattern(60)}, true);
    const Records rows[] = {Records().ulpdu(pattern(20)), Records().placed(kRun),
                            Records().response(pattern(14), 10)};
    for (const Records& row : rows) {
        for (std::size_t n = 1; n < fpdu.size(); ++n) {
            Records r;
            r.raw(ConstBytes(fpdu).first(n)).append(row);
            const Outcome out = run(r.bytes);
            EXPECT_EQ(out.error, StreamError::mpa_local_catastrophic) << n;
            EXPECT_THAT(out.delivered, testing::IsEmpty());
            EXPECT_THAT(out.placed, testing::IsEmpty());
        }
    }
}

TEST(RecordReceiver, refuses_bodies_of_impossible_lengths) {
    for (const auto& [type, length] :
         std::initializer_list<std::pair<std::uint16_t, std::uint32_t>>{
             {DDP_RECORD_ULPDU, 65536},
             {DDP_RECORD_ULPDU, 0xffffffff},
             {DDP_RECORD_PLACED, 0},
             {DDP_RECORD_PLACED, sizeof(ddp_placed) - 1},
             {DDP_RECORD_RESPONSE, sizeof(ddp_response) - 1}}) {
        Records r;
        r.header(type, length);
        EXPECT_EQ(run(r.bytes).error, StreamError::mpa_local_catastrophic) << type << " " << length;
    }
}

TEST(RecordReceiver, refuses_runs_that_contradict_themselves) {
    const auto refused = [](auto&& change) {
        ddp_placed body = Records::body(kRun);
        change(body);
        Records r;
        r.structure(DDP_RECORD_PLACED, body);
        const Outcome out = run(r.bytes);
        return out.error == StreamError::mpa_local_catastrophic && out.placed.empty();
    };
    EXPECT_FALSE(refused([](ddp_placed&) {}));
    EXPECT_TRUE(refused([](ddp_placed& p) { p.fpdus = 0; }));
    EXPECT_TRUE(refused([](ddp_placed& p) { p.fpdus = p.wire + 1; }));
    EXPECT_TRUE(refused([](ddp_placed& p) { p.octets = p.wire + 1; }));
    EXPECT_TRUE(refused([](ddp_placed& p) { p.messages = p.fpdus + 1; }));
    EXPECT_TRUE(refused(
        [](ddp_placed& p) { p.last_length = static_cast<std::uint32_t>(p.message_octets + 1); }));
    EXPECT_TRUE(refused([](ddp_placed& p) { p.message_octets = p.octets + 1; }));
    EXPECT_TRUE(refused([](ddp_placed& p) {
        p.messages = 0;
        p.last_control |= DDP_FLAG_LAST;
    }));
    EXPECT_TRUE(refused([](ddp_placed& p) { p.last_control = DDP_VERSION; }));
    EXPECT_TRUE(refused([](ddp_placed& p) { p.last_control = DDP_FLAG_TAGGED | 2; }));
    EXPECT_TRUE(refused([](ddp_placed& p) { p.last_rdmap |= RDMAP_READ_RESPONSE; }));
    // Reserved bits are for a later extension.
    EXPECT_FALSE(refused([](ddp_placed& p) { p.last_rdmap |= 0x30; }));
}

TEST(RecordReceiver, refuses_a_response_longer_than_a_ulpdu_or_than_its_octets) {
    for (const std::uint32_t length : {65535u - 13, 0xffffffffu}) {
        Records r;
        r.response(pattern(14), length);
        EXPECT_EQ(run(r.bytes).error, StreamError::mpa_local_catastrophic);
    }
    Records r;
    r.response(pattern(14), 100, 99);
    EXPECT_EQ(run(r.bytes).error, StreamError::mpa_local_catastrophic);
}

TEST(RecordReceiver, a_wrong_crc_among_the_octets_is_what_it_is_without_records) {
    ByteVector fpdu = fpdus({pattern(60)}, true);
    fpdu[9] ^= std::byte{1};
    const Outcome out = run(Records().placed(kRun).raw(fpdu).bytes);
    EXPECT_EQ(out.error, StreamError::mpa_crc);
    EXPECT_THAT(out.delivered, testing::IsEmpty());
}

TEST(RecordReceiver, hands_over_to_octets_inside_an_fpdu) {
    const std::vector<ByteVector> all = {pattern(60), pattern(700)};
    const ByteVector stream = fpdus(all, true, true);
    for (std::size_t cut = 0; cut < stream.size(); ++cut) {
        RecordingUlp ulp;
        RecordReceiver records(true, true);
        records.consume(Records().raw(ConstBytes(stream).first(cut)).bytes, ulp);
        FpduReceiver receiver = records.octets();
        receiver.consume(ConstBytes(stream).subspan(cut), ulp);
        ASSERT_EQ(ulp.delivered, all) << cut;
    }
}

}  // namespace
}  // namespace xsock::mpa
