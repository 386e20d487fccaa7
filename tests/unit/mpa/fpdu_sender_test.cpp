// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/fpdu_sender.hpp"

#include <gtest/gtest.h>

#include "mpa/fpdu.hpp"
#include "mpa/fpdu_receiver.hpp"
#include "tests/unit/mpa/recording_ulp.hpp"
#include "tests/unit/mpa/rfc5044_vectors.hpp"

namespace xsock::mpa {
namespace {

using test::ByteVector;
using test::flatten;
using test::RecordingUlp;

struct Rig {
    explicit Rig(bool crc = true, bool markers = false) : sender(crc, markers) {}

    TxBatch prepare() { return sender.prepare(ulp, scratch, limits); }
    /// Writes out everything the Ulp has, in whole batches.
    ByteVector run() {
        ByteVector out;
        for (TxBatch batch = prepare(); batch.bytes != 0; batch = prepare()) {
            const ByteVector piece = flatten(batch);
            EXPECT_EQ(piece.size(), batch.bytes);
            out.insert(out.end(), piece.begin(), piece.end());
            sender.commit(ulp, batch.bytes);
        }
        return out;
    }

    RecordingUlp ulp;
    ByteVector scratch = ByteVector(kMinTxScratch);
    FpduSender::Limits limits{.mulpdu = 65535, .byte_budget = 1 << 20};
    FpduSender sender;
};

RecordingUlp::Outgoing cut(const ByteVector& ulpdu, std::size_t header) {
    const auto at = ulpdu.begin() + static_cast<std::ptrdiff_t>(header);
    return {ByteVector(ulpdu.begin(), at), {ByteVector(at, ulpdu.end())}};
}

TEST(FpduSender, makes_figure_5_of_rfc_5044) {
    for (const std::size_t copy_limit : {0, 4096}) {
        Rig rig(true, true);
        rig.limits.copy_limit = copy_limit;
        rig.ulp.outgoing = {cut(test::figure_ulpdu(1), test::kFigureHeader)};
        EXPECT_EQ(rig.run(), test::figure5());
    }
}

TEST(FpduSender, makes_figure_6_of_rfc_5044) {
    for (const std::size_t copy_limit : {0, 4096}) {
        Rig rig(true, true);
        rig.limits.copy_limit = copy_limit;
        rig.ulp.queue(18, 482 - 18);  // fills the stream up to where the figure begins
        rig.ulp.outgoing.push_back(cut(test::figure_ulpdu(2), test::kFigureHeader));
        const ByteVector stream = rig.run();
        ASSERT_GT(stream.size(), test::kFigure6Offset);
        EXPECT_EQ(ByteVector(stream.begin() + test::kFigure6Offset, stream.end()), test::figure6());
    }
}

TEST(FpduSender, without_crc_the_field_is_zero) {
    Rig rig(false, false);
    rig.ulp.outgoing = {cut(test::figure_ulpdu(1), test::kFigureHeader)};
    ByteVector expected = test::figure5();
    expected.erase(expected.begin(), expected.begin() + MPA_MARKER_OCTETS);
    std::fill(expected.end() - MPA_CRC_OCTETS, expected.end(), std::byte{0});
    EXPECT_EQ(rig.run(), expected);
}

TEST(FpduSender, small_fpdus_share_one_iovec) {
    Rig rig;
    for (int i = 0; i < 100; ++i) rig.ulp.queue(14, 64);
    const TxBatch batch = rig.prepare();
    EXPECT_EQ(rig.ulp.given, 100u);
    ASSERT_EQ(batch.iov.size(), 1u);
    ASSERT_EQ(batch.group_ends.size(), 1u);
    EXPECT_EQ(batch.group_ends[0], 1u);
    EXPECT_FALSE(batch.separate_groups);
    EXPECT_EQ(batch.bytes, 100 * fpdu_octets(78));
}

TEST(FpduSender, large_payloads_are_gathered_where_they_lie) {
    Rig rig;
    rig.limits.copy_limit = 100;
    rig.ulp.queue(14, 101);
    rig.ulp.queue(14, 100);
    rig.ulp.queue(14, 5000, 3);
    const TxBatch batch = rig.prepare();
    // header | payload | trailer, the copied FPDU, header | three payloads | trailer
    ASSERT_EQ(batch.iov.size(), 7u);
    EXPECT_EQ(batch.iov[1].iov_base, rig.ulp.outgoing[0].payload[0].data());
    EXPECT_EQ(batch.iov[3].iov_base, rig.ulp.outgoing[2].payload[0].data());
    EXPECT_TRUE(rig.sender.gathers());
}

TEST(FpduSender, copies_do_not_gather) {
    Rig rig;
    rig.ulp.queue(14, 4096);
    rig.prepare();
    EXPECT_FALSE(rig.sender.gathers());
}

TEST(FpduSender, payloads_that_may_change_are_copied_for_their_crc) {
    for (const bool crc : {true, false}) {
        Rig rig(crc);
        rig.ulp.queue(14, 5000);
        rig.ulp.outgoing.back().unstable = true;
        const TxBatch batch = rig.prepare();
        EXPECT_EQ(rig.sender.gathers(), !crc);
        EXPECT_EQ(batch.iov.size(), crc ? 1u : 3u);
    }
}

TEST(FpduSender, gathering_and_copying_make_the_same_stream) {
    for (const bool crc : {false, true}) {
        for (const bool markers : {false, true}) {
            ByteVector streams[2];
            for (const std::size_t copy_limit : {0, 65535}) {
                Rig rig(crc, markers);
                rig.limits.copy_limit = copy_limit;
                for (std::size_t n = 0; n < 1200; n += 7) rig.ulp.queue(14 + n % 5, n, 1 + n % 6);
                rig.ulp.queue(18, 60000, 6);
                streams[copy_limit == 0 ? 0 : 1] = rig.run();
            }
            EXPECT_EQ(streams[0], streams[1]);
        }
    }
}

TEST(FpduSender, done_follows_the_last_byte_of_each_fpdu) {
    Rig rig;
    rig.limits.copy_limit = 30;
    for (const std::size_t n : {0, 5, 40, 30, 31, 100}) rig.ulp.queue(14, n);
    const TxBatch batch = rig.prepare();
    std::size_t written = 0, end = 0, fpdus = 0;
    while (written != batch.bytes) {
        if (written == end) end += fpdu_octets(rig.ulp.queued()[fpdus++].size());
        rig.sender.commit(rig.ulp, 1);
        ++written;
        EXPECT_EQ(rig.ulp.done, written == end ? fpdus : fpdus - 1);
    }
    EXPECT_EQ(rig.ulp.done, 6u);
    EXPECT_EQ(rig.sender.pending(), 0u);
}

TEST(FpduSender, a_partial_write_at_any_byte_continues_the_stream) {
    for (const std::size_t group : {0, 300}) {
        for (const bool markers : {false, true}) {
            ByteVector whole;
            for (std::size_t split = 0; split == 0 || split < whole.size(); ++split) {
                Rig rig(true, markers);
                rig.limits.copy_limit = 100;
                rig.limits.group_bytes = group;
                for (const std::size_t n : {0, 5, 120, 100, 101, 230}) rig.ulp.queue(18, n, 3);
                const TxBatch batch = rig.prepare();
                if (split == 0) {
                    whole = flatten(batch);
                    continue;
                }
                ByteVector out = flatten(batch, split);
                rig.sender.commit(rig.ulp, split);
                const TxBatch rest = rig.sender.remainder();
                EXPECT_EQ(rest.bytes, whole.size() - split);
                ASSERT_FALSE(rest.group_ends.empty());
                EXPECT_EQ(rest.group_ends.back(), rest.iov.size());
                EXPECT_GT(rest.group_ends.front(), 0u);
                const ByteVector tail = flatten(rest);
                out.insert(out.end(), tail.begin(), tail.end());
                ASSERT_EQ(out, whole) << split;
                rig.sender.commit(rig.ulp, rest.bytes);
                EXPECT_EQ(rig.ulp.done, 6u);
            }
        }
    }
}

TEST(FpduSender, writes_in_steps_of_any_size_make_the_same_stream) {
    ByteVector whole;
    for (const std::size_t step : {100000, 1, 2, 3, 7, 64, 513}) {
        Rig rig(true, true);
        rig.limits.copy_limit = 64;
        rig.limits.group_bytes = 400;
        for (std::size_t n = 0; n < 300; n += 11) rig.ulp.queue(14, n, 2);
        ByteVector out;
        TxBatch batch = rig.prepare();
        while (batch.bytes != 0) {
            const std::size_t n = std::min(step, batch.bytes);
            const ByteVector piece = flatten(batch, n);
            out.insert(out.end(), piece.begin(), piece.end());
            rig.sender.commit(rig.ulp, n);
            batch = rig.sender.pending() != 0 ? rig.sender.remainder() : rig.prepare();
        }
        if (whole.empty()) whole = out;
        EXPECT_EQ(out, whole) << step;
        EXPECT_EQ(rig.ulp.done, rig.ulp.outgoing.size());
    }
}

TEST(FpduSender, groups_hold_whole_fpdus_of_at_most_emss) {
    for (const bool markers : {false, true}) {
        Rig rig(true, markers);
        rig.limits.group_bytes = 1448;
        rig.limits.mulpdu = markers ? 1430 : 1442;
        rig.limits.copy_limit = 600;
        for (std::size_t n = 0; n < 200; ++n) rig.ulp.queue(14, (n * 37) % 1400, 1 + n % 3);
        ByteVector stream;
        std::vector<std::size_t> group_ends;
        for (TxBatch batch = rig.prepare(); batch.bytes != 0; batch = rig.prepare()) {
            EXPECT_TRUE(batch.separate_groups);
            std::size_t from = 0;
            for (const std::uint32_t to : batch.group_ends) {
                ASSERT_GT(to, from);
                TxBatch one = batch;
                one.iov = batch.iov.subspan(from, to - from);
                const ByteVector group = flatten(one);
                EXPECT_LE(group.size(), 1448u);
                stream.insert(stream.end(), group.begin(), group.end());
                group_ends.push_back(stream.size());
                from = to;
            }
            EXPECT_EQ(from, batch.iov.size());
            rig.sender.commit(rig.ulp, batch.bytes);
        }
        EXPECT_LT(group_ends.size(), 200u) << "several FPDUs share a group";
        // Each group ends between two FPDUs.
        RecordingUlp peer;
        FpduReceiver receiver(true, markers);
        std::size_t at = 0;
        for (const std::size_t end : group_ends) {
            receiver.consume(ConstBytes(stream).subspan(at, end - at), peer);
            EXPECT_TRUE(receiver.between_fpdus());
            at = end;
        }
        EXPECT_EQ(peer.delivered, rig.ulp.queued());
    }
}

// TCP cuts a group at multiples of the segment size: each segment begins with an FPDU.
TEST(FpduSender, long_groups_begin_each_segment_with_an_fpdu) {
    constexpr std::size_t kSegment = 1448, kMulpdu = kSegment - 6;
    Rig rig;
    rig.limits.group_bytes = kSegment;
    rig.limits.segment_bytes = kSegment;
    rig.limits.mulpdu = kMulpdu;
    // Messages of some full FPDUs and a short one, small messages, and full ones again.
    for (std::size_t n = 0; n < 120; ++n) {
        const bool full = n % 11 != 5 && n % 7 < 5;
        rig.ulp.queue(14, full ? kMulpdu - 14 : (n * 53) % 900);
    }
    std::size_t groups = 0, fpdus = 0, full_behind_each_other = 0;
    for (TxBatch batch = rig.prepare(); batch.bytes != 0; batch = rig.prepare()) {
        std::size_t from = 0;
        for (const std::uint32_t to : batch.group_ends) {
            TxBatch one = batch;
            one.iov = batch.iov.subspan(from, to - from);
            const ByteVector group = flatten(one);
            std::size_t next_segment = 0;
            for (std::size_t at = 0; at < group.size();) {
                if (at == next_segment) next_segment += kSegment;
                ASSERT_LE(at, next_segment) << "a segment begins inside an FPDU";
                const std::size_t size = fpdu_octets(load_be16(group.data() + at));
                full_behind_each_other += at != 0 && size == kSegment;
                at += size;
                ASSERT_LE(at, next_segment);
                ++fpdus;
            }
            from = to;
            ++groups;
        }
        rig.sender.commit(rig.ulp, batch.bytes);
    }
    EXPECT_EQ(fpdus, 120u);
    EXPECT_LT(groups, 70u);
    EXPECT_GT(full_behind_each_other, 40u);
}

TEST(FpduSender, stops_at_the_budget_and_goes_on) {
    Rig rig;
    for (int i = 0; i < 10; ++i) rig.ulp.queue(14, 64);
    rig.limits.byte_budget = 3 * fpdu_octets(78) - 1;
    EXPECT_EQ(rig.prepare().bytes, 3 * fpdu_octets(78));
    EXPECT_EQ(rig.ulp.given, 3u);
    rig.sender.commit(rig.ulp, rig.sender.pending());
    rig.limits.byte_budget = 0;
    EXPECT_EQ(rig.prepare().bytes, 0u);
    rig.limits.byte_budget = 1 << 20;
    EXPECT_EQ(rig.prepare().bytes, 7 * fpdu_octets(78));
}

TEST(FpduSender, stops_when_scratch_iovecs_or_fpdus_are_used_up) {
    for (const std::size_t payload : {std::size_t{0}, std::size_t{64}, std::size_t{5000}}) {
        for (const bool markers : {false, true}) {
            Rig rig(true, markers);
            // Guarded on both sides, and nowhere aligned.
            ByteVector memory(kMinTxScratch + 67, std::byte{0x5a});
            const Bytes scratch = Bytes(memory).subspan(33, kMinTxScratch);
            for (int i = 0; i < 3000; ++i) rig.ulp.queue(14, payload, 6);
            ByteVector stream;
            int batches = 0;
            for (;;) {
                const TxBatch batch = rig.sender.prepare(rig.ulp, scratch, rig.limits);
                if (batch.bytes == 0) break;
                ++batches;
                EXPECT_LE(batch.iov.size(), 512u);
                const ByteVector piece = flatten(batch);
                stream.insert(stream.end(), piece.begin(), piece.end());
                rig.sender.commit(rig.ulp, batch.bytes);
            }
            EXPECT_GT(batches, 2);
            EXPECT_EQ(rig.ulp.done, 3000u);
            for (std::size_t i = 0; i < 33; ++i) {
                EXPECT_EQ(memory[i], std::byte{0x5a});
                EXPECT_EQ(memory[memory.size() - 1 - i], std::byte{0x5a});
            }
            RecordingUlp peer;
            FpduReceiver receiver(true, markers);
            EXPECT_EQ(receiver.consume(stream, peer), stream.size());
            EXPECT_EQ(peer.delivered.size(), 3000u);
        }
    }
}

TEST(FpduSender, largest_ulpdu_fits_into_the_smallest_scratch) {
    for (const std::size_t copy_limit : {0, 65535}) {
        for (const bool markers : {false, true}) {
            Rig rig(true, markers);
            rig.scratch.resize(kMinTxScratch);
            rig.limits.copy_limit = copy_limit;
            rig.limits.mulpdu = markers ? 64768 : 65535;
            rig.ulp.queue(80, rig.limits.mulpdu - 80, 6);
            const ByteVector stream = rig.run();
            RecordingUlp peer;
            FpduReceiver receiver(true, markers);
            receiver.consume(stream, peer);
            EXPECT_EQ(peer.delivered, rig.ulp.queued());
        }
    }
}

/// Sizes of the batches in which the Ulp's ULPDUs are sent.
std::vector<std::size_t> batches(Rig& rig) {
    std::vector<std::size_t> out;
    for (TxBatch batch = rig.prepare(); batch.bytes != 0; batch = rig.prepare()) {
        out.push_back(batch.bytes);
        rig.sender.commit(rig.ulp, batch.bytes);
    }
    return out;
}

TEST(FpduSender, ramps_up_from_an_idle_path) {
    Rig rig;
    rig.limits.ramp = true;
    rig.limits.mulpdu = 40000;  // what a Ulp with a long message is asked for, one by one
    const auto long_message = [&] {
        constexpr std::size_t k32 = 32768;
        const std::size_t whole = rig.limits.mulpdu - 18;
        // The first two are cut to 32 KiB; then batches of 64 and 128 KiB.
        for (const std::size_t payload : {k32, k32, whole, whole, whole, whole, whole, whole}) {
            rig.ulp.queue(18, payload);
        }
    };
    const std::size_t first = fpdu_octets(18 + 32768), whole = fpdu_octets(rig.limits.mulpdu);
    for (int i = 0; i < 2; ++i) {
        SCOPED_TRACE(i);
        long_message();
        EXPECT_EQ(batches(rig), (std::vector<std::size_t>{first, first, 2 * whole, 4 * whole}));
        rig.sender.heard();
    }
}

TEST(FpduSender, does_not_ramp_up_again_before_something_was_heard) {
    Rig rig;
    rig.limits.ramp = true;
    rig.limits.mulpdu = 30000;
    const std::size_t one = fpdu_octets(rig.limits.mulpdu);
    const auto queue = [&](int n) {
        for (int i = 0; i < n; ++i) rig.ulp.queue(18, rig.limits.mulpdu - 18);
    };
    queue(3);
    EXPECT_EQ(batches(rig), (std::vector<std::size_t>{2 * one, one}));
    queue(3);
    EXPECT_EQ(batches(rig), (std::vector<std::size_t>{3 * one}));
    rig.sender.heard();
    queue(7);
    for (int i = 0; i < 2; ++i) {
        const TxBatch batch = rig.prepare();
        EXPECT_EQ(batch.bytes, 2 * one);
        rig.sender.heard();  // all was not sent
        rig.sender.commit(rig.ulp, batch.bytes);
        rig.sender.heard();
    }
    EXPECT_EQ(batches(rig), (std::vector<std::size_t>{3 * one}));
}

TEST(FpduSender, does_not_ramp_small_messages) {
    Rig rig;
    rig.limits.ramp = true;
    for (int i = 0; i < 100; ++i) rig.ulp.queue(18, 400);
    EXPECT_EQ(batches(rig), (std::vector<std::size_t>{100 * fpdu_octets(418)}));
}

TEST(FpduSender, a_single_fpdu_is_what_a_batch_would_hold) {
    for (const bool crc : {true, false}) {
        for (std::size_t payload = 0; payload <= 40; ++payload) {
            Rig batch(crc, false), rig(crc, false);
            batch.ulp.queue(18, payload);
            rig.ulp.queue(18, payload);
            ByteVector frame(128, std::byte{0xee});
            frame.resize(rig.sender.prepare_single(rig.ulp, frame));
            EXPECT_EQ(frame, batch.run()) << payload;
            EXPECT_EQ(rig.sender.pending(), frame.size());
            rig.sender.commit(rig.ulp, frame.size());
            EXPECT_EQ(rig.ulp.done, 1u);
            EXPECT_EQ(rig.prepare().bytes, 0u);
        }
    }
}

TEST(FpduSender, a_single_fpdu_is_kept_when_it_is_not_written_whole) {
    for (std::size_t written = 0; written < 56; ++written) {
        Rig rig;
        rig.ulp.queue(18, 30);
        ByteVector frame(56);
        ASSERT_EQ(rig.sender.prepare_single(rig.ulp, frame), 56u);
        rig.sender.keep_single(frame, rig.scratch);
        rig.sender.commit(rig.ulp, written);
        EXPECT_EQ(rig.ulp.done, 0u);
        const TxBatch rest = rig.sender.remainder();
        EXPECT_EQ(flatten(rest),
                  ByteVector(frame.begin() + static_cast<long>(written), frame.end()));
        EXPECT_EQ(rest.group_ends.back(), 1u);
        rig.sender.commit(rig.ulp, rest.bytes);
        EXPECT_EQ(rig.ulp.done, 1u);
        rig.ulp.queue(18, 5);  // and what comes next begins a batch as ever
        EXPECT_EQ(rig.prepare().bytes, fpdu_octets(23));
    }
}

TEST(FpduSender, no_single_fpdu_with_markers_or_without_room) {
    ByteVector frame(128);
    Rig marked(true, true);
    marked.ulp.queue(18, 10);
    EXPECT_EQ(marked.sender.prepare_single(marked.ulp, frame), 0u);
    Rig rig;
    rig.ulp.queue(18, 30);
    for (std::size_t room = 0; room < fpdu_octets(18 + 30); ++room) {
        EXPECT_EQ(rig.sender.prepare_single(rig.ulp, Bytes(frame).first(room)), 0u) << room;
    }
    EXPECT_EQ(rig.ulp.given, 0u);
    EXPECT_EQ(rig.sender.prepare_single(rig.ulp, Bytes(frame).first(56)), 56u);
}

TEST(FpduSender, small_fpdus_that_the_ulp_writes_make_the_same_stream) {
    for (const bool crc : {false, true}) {
        for (const std::size_t group : {0, 1448}) {
            ByteVector streams[2];
            for (const bool writes : {false, true}) {
                Rig rig(crc);
                rig.ulp.writes = writes;
                rig.limits.group_bytes = group;
                for (int i = 0; i < 200; ++i) rig.ulp.queue(18, static_cast<std::size_t>(i));
                rig.ulp.queue(14, 3000);
                for (int i = 0; i < 5; ++i) rig.ulp.queue(18, 64);
                rig.ulp.queue(14, 30000);  // gathered
                for (int i = 0; i < 1200; ++i) rig.ulp.queue(18, 1);
                streams[writes] = rig.run();
                EXPECT_EQ(rig.ulp.done, 1407u);
                EXPECT_EQ(rig.ulp.written > 1400, writes);
            }
            EXPECT_EQ(streams[0], streams[1]);
        }
    }
}

TEST(FpduSender, a_batch_is_committed_byte_by_byte_and_keeps_to_the_budget) {
    Rig rig;
    rig.limits.byte_budget = 300;  // three of 88
    for (int i = 0; i < 5; ++i) rig.ulp.queue(18, 64);
    TxBatch batch = rig.prepare();
    EXPECT_EQ(batch.bytes, 4u * 88);  // the fourth is begun before the budget is reached
    for (std::size_t byte = 1; byte <= 4u * 88; ++byte) {
        rig.sender.commit(rig.ulp, 1);
        EXPECT_EQ(rig.ulp.done, byte / 88);
    }
    EXPECT_EQ(rig.prepare().bytes, 88u);
}

TEST(FpduSender, with_markers_it_writes_all_itself) {
    Rig rig(true, true);
    for (int i = 0; i < 5; ++i) rig.ulp.queue(18, 64);
    rig.run();
    EXPECT_EQ(rig.ulp.done, 5u);
    EXPECT_EQ(rig.ulp.written, 0u);
}

TEST(FpduSender, is_small_when_idle) { EXPECT_LE(sizeof(FpduSender), 96u); }

}  // namespace
}  // namespace xsock::mpa
