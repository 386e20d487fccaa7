// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/fpdu_receiver.hpp"

#include <gtest/gtest.h>

#include "mpa/fpdu.hpp"
#include "mpa/fpdu_sender.hpp"
#include "tests/unit/mpa/recording_ulp.hpp"
#include "tests/unit/mpa/rfc5044_vectors.hpp"

namespace xsock::mpa {
namespace {

using test::ByteVector;
using test::RecordingUlp;

void queue(RecordingUlp& ulp, const std::vector<std::size_t>& payloads) {
    for (const std::size_t n : payloads) ulp.queue(n < 18 ? n : 18, n < 18 ? 0 : n - 18);
}

std::vector<ByteVector> ulpdus_of(const std::vector<std::size_t>& payloads) {
    RecordingUlp ulp;
    queue(ulp, payloads);
    return ulp.queued();
}

ByteVector stream_of(const std::vector<std::size_t>& payloads, bool crc, bool markers) {
    RecordingUlp ulp;
    queue(ulp, payloads);
    ByteVector scratch(1 << 20);
    FpduSender sender(crc, markers);
    ByteVector stream;
    for (;;) {
        const TxBatch batch =
            sender.prepare(ulp, scratch, {.mulpdu = 65535, .byte_budget = 1 << 20});
        if (batch.bytes == 0) return stream;
        const ByteVector octets = test::flatten(batch);
        stream.insert(stream.end(), octets.begin(), octets.end());
        sender.commit(ulp, batch.bytes);
    }
}

void feed(FpduReceiver& receiver, RecordingUlp& ulp, ConstBytes bytes, std::size_t step) {
    while (!bytes.empty() && receiver.stream_error() == StreamError::none) {
        const ConstBytes piece = bytes.first(std::min(step, bytes.size()));
        bytes = bytes.subspan(receiver.consume(piece, ulp));
    }
}

TEST(FpduReceiver, takes_figures_5_and_6_of_rfc_5044) {
    ByteVector stream = test::figure5();
    const ByteVector filler = stream_of({482 - 48}, true, false);  // up to where figure 6 begins
    stream.insert(stream.end(), filler.begin(), filler.end());
    ASSERT_EQ(stream.size(), test::kFigure6Offset);
    const ByteVector figure6 = test::figure6();
    stream.insert(stream.end(), figure6.begin(), figure6.end());
    for (const std::size_t step : {1, 5, 1000}) {
        RecordingUlp ulp;
        FpduReceiver receiver(true, true);
        feed(receiver, ulp, stream, step);
        EXPECT_EQ(receiver.stream_error(), StreamError::none);
        ASSERT_EQ(ulp.delivered.size(), 3u);
        EXPECT_EQ(ulp.delivered[0], test::figure_ulpdu(1));
        EXPECT_EQ(ulp.delivered[2], test::figure_ulpdu(2));
        EXPECT_TRUE(receiver.between_fpdus());
    }
}

TEST(FpduReceiver, a_ulpdu_of_no_bytes_is_begun_and_ended) {
    for (const std::size_t step : {1, 100}) {
        RecordingUlp ulp;
        FpduReceiver receiver(true, false);
        feed(receiver, ulp, stream_of({0, 1, 0}, true, false), step);
        ASSERT_EQ(ulp.delivered.size(), 3u);
        EXPECT_EQ(ulp.begun, 3u);
        EXPECT_TRUE(ulp.delivered[0].empty());
        EXPECT_EQ(ulp.delivered[1].size(), 1u);
    }
}

TEST(FpduReceiver, places_into_whatever_targets_the_ulp_names) {
    const std::vector<std::size_t> sizes = {18, 30, 500, 1500, 4000};
    for (const bool crc : {false, true}) {
        const ByteVector stream = stream_of(sizes, crc, false);
        RecordingUlp whole;
        FpduReceiver first(crc, false);
        feed(first, whole, stream, stream.size());
        for (const std::size_t target : {1, 2, 7, 8, 9, 100}) {
            RecordingUlp ulp;
            ulp.target_bytes = target;
            ulp.header_octets = target;
            FpduReceiver receiver(crc, false);
            feed(receiver, ulp, stream, 997);
            EXPECT_EQ(ulp.delivered, whole.delivered);
            EXPECT_TRUE(ulp.events.empty());
        }
    }
}

TEST(FpduReceiver, whole_ulpdus_are_taken_whole_and_others_as_ever) {
    std::vector<std::size_t> sizes;
    for (std::size_t n = 0; n < 300; ++n) sizes.push_back(n);
    sizes.push_back(5000);  // with a CRC, too large to be checked first
    for (const bool crc : {false, true}) {
        const ByteVector stream = stream_of(sizes, crc, false);
        RecordingUlp expected;
        FpduReceiver first(crc, false);
        feed(first, expected, stream, 7);
        for (const std::size_t step : {stream.size(), std::size_t{1000}, std::size_t{1}}) {
            RecordingUlp ulp;
            FpduReceiver receiver(crc, false);
            feed(receiver, ulp, stream, step);
            EXPECT_EQ(ulp.delivered, expected.delivered);
            EXPECT_EQ(ulp.taken_whole > (step == 1000 ? 100u : 250u), step != 1) << step;
            EXPECT_EQ(ulp.begun, sizes.size());
        }
    }
}

TEST(FpduReceiver, corruption_of_any_byte_is_never_delivered) {
    const std::vector<std::size_t> sizes = {21, 600, 0, 33};
    for (const bool markers : {false, true}) {
        const ByteVector good = stream_of(sizes, true, markers);
        RecordingUlp reference;
        FpduReceiver(true, markers).consume(good, reference);
        for (std::size_t at = 0; at < good.size(); ++at) {
            for (const int bit : {0, 7}) {
                ByteVector bad = good;
                bad[at] ^= static_cast<std::byte>(1 << bit);
                for (const std::size_t step : {std::size_t{13}, bad.size()}) {
                    RecordingUlp ulp;
                    FpduReceiver receiver(true, markers);
                    feed(receiver, ulp, bad, step);
                    ASSERT_LT(ulp.delivered.size(), sizes.size());
                    for (std::size_t i = 0; i < ulp.delivered.size(); ++i) {
                        ASSERT_EQ(ulp.delivered[i], reference.delivered[i]) << at;
                    }
                }
            }
        }
    }
}

// Equal FPDUs, whose CRCs are computed several at a time: those before the broken one are
// delivered.
TEST(FpduReceiver, corruption_in_a_run_of_equal_fpdus_stops_there) {
    const std::vector<std::size_t> sizes(11, 30);
    const ByteVector good = stream_of(sizes, true, false);
    for (std::size_t at = 0; at < good.size(); ++at) {
        ByteVector bad = good;
        bad[at] ^= std::byte{4};
        RecordingUlp ulp;
        FpduReceiver receiver(true, false);
        receiver.consume(bad, ulp);
        ASSERT_EQ(ulp.delivered.size(), at / fpdu_octets(30)) << at;
    }
}

TEST(FpduReceiver, wrong_crc_ends_the_ulpdu_as_not_intact) {
    ByteVector bad = stream_of({40, 40}, true, false);
    bad[10] ^= std::byte{1};
    for (const std::size_t step : {std::size_t{1}, bad.size()}) {
        RecordingUlp ulp;
        FpduReceiver receiver(true, false);
        feed(receiver, ulp, bad, step);
        EXPECT_EQ(receiver.stream_error(), StreamError::mpa_crc);
        EXPECT_EQ(ulp.refused.size(), 1u);
        EXPECT_TRUE(ulp.delivered.empty());
        EXPECT_FALSE(receiver.delivered_any());
    }
}

TEST(FpduReceiver, without_crc_the_field_is_not_looked_at) {
    ByteVector stream = stream_of({40, 700}, false, false);
    stream.back() = std::byte{0xff};
    stream[fpdu_octets(40) - 1] = std::byte{0xff};
    for (const std::size_t step : {std::size_t{1}, stream.size()}) {
        RecordingUlp ulp;
        FpduReceiver receiver(false, false);
        feed(receiver, ulp, stream, step);
        EXPECT_EQ(ulp.delivered.size(), 2u);
    }
}

TEST(FpduReceiver, marker_that_points_elsewhere_is_a_stream_error) {
    const ByteVector good = stream_of({700, 700}, false, true);
    for (const std::size_t marker : {0, 512, 1024}) {
        for (const bool one_step : {false, true}) {
            ByteVector bad = good;
            bad[marker + 3] ^= std::byte{4};
            RecordingUlp ulp;
            FpduReceiver receiver(false, true);
            feed(receiver, ulp, bad, one_step ? bad.size() : 3);
            EXPECT_EQ(receiver.stream_error(), StreamError::mpa_marker);
            EXPECT_EQ(ulp.delivered.size(), marker == 1024 ? 1u : 0u);
        }
    }
}

TEST(FpduReceiver, low_bits_and_reserved_bytes_of_a_marker_do_not_matter) {
    ByteVector stream = stream_of({700}, false, true);
    stream[515] |= std::byte{3};
    stream[512] = std::byte{0xab};
    RecordingUlp ulp;
    FpduReceiver receiver(false, true);
    feed(receiver, ulp, stream, stream.size());
    EXPECT_EQ(ulp.delivered.size(), 1u);
}

/// Where in an FPDU the second marker of a stream falls, over all sizes of the FPDU before it.
TEST(FpduReceiver, takes_a_marker_at_every_place_it_can_have) {
    for (const bool crc : {false, true}) {
        for (std::size_t first = 380; first < 520; ++first) {
            const ByteVector stream = stream_of({first, 41, 19}, crc, true);
            for (const std::size_t step : {std::size_t{1}, std::size_t{6}, stream.size()}) {
                RecordingUlp ulp;
                FpduReceiver receiver(crc, true);
                feed(receiver, ulp, stream, step);
                ASSERT_EQ(receiver.stream_error(), StreamError::none) << first;
                ASSERT_EQ(ulp.delivered, ulpdus_of({first, 41, 19}));
            }
        }
    }
}

TEST(FpduReceiver, stops_while_the_ulp_has_no_room_and_resumes_there) {
    for (const std::size_t size : {60, 5000}) {  // the short way, and the long
        for (const bool crc : {false, true}) {
            for (const bool markers : {false, true}) {
                for (std::size_t block = 0; block < 60; block += 3) {
                    const ByteVector stream = stream_of({size, 20}, crc, markers);
                    RecordingUlp ulp;
                    ulp.block_at = block;
                    FpduReceiver receiver(crc, markers);
                    const std::size_t used = receiver.consume(stream, ulp);
                    EXPECT_EQ(used, (markers ? 4 : 0) + 2 + block);
                    EXPECT_EQ(receiver.consume(ConstBytes(stream).subspan(used), ulp), 0u);
                    EXPECT_FALSE(receiver.between_fpdus());
                    ulp.block_at = SIZE_MAX;
                    feed(receiver, ulp, ConstBytes(stream).subspan(used), SIZE_MAX);
                    EXPECT_EQ(receiver.stream_error(), StreamError::none);
                    EXPECT_EQ(ulp.delivered, ulpdus_of({size, 20}));
                    EXPECT_TRUE(ulp.events.empty());
                }
            }
        }
    }
}

TEST(FpduReceiver, longest_length_with_markers_does_not_wrap) {
    RecordingUlp ulp;
    FpduReceiver receiver(false, true);
    feed(receiver, ulp, stream_of({65535, 20}, false, true), 4096);
    EXPECT_EQ(receiver.stream_error(), StreamError::none);
    ASSERT_EQ(ulp.delivered.size(), 2u);
    EXPECT_TRUE(ulp.delivered == ulpdus_of({65535, 20}));
}

TEST(FpduReceiver, is_small) { EXPECT_LE(sizeof(FpduReceiver), 64u); }

}  // namespace
}  // namespace xsock::mpa
