// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// However TCP cuts the stream, the same ULPDUs are delivered.
#include <gtest/gtest.h>

#include "mpa/fpdu_receiver.hpp"
#include "mpa/fpdu_sender.hpp"
#include "tests/unit/mpa/recording_ulp.hpp"

namespace xsock::mpa {
namespace {

using test::ByteVector;
using test::RecordingUlp;

struct Case {
    bool crc, markers;
};

class Split : public ::testing::TestWithParam<Case> {
  protected:
    void SetUp() override {
        std::size_t seed = 0;
        for (const std::size_t n :
             {0, 1, 2, 3, 4, 14, 18, 64, 100, 487, 488, 489, 511, 512, 1500}) {
            const std::size_t header = std::min<std::size_t>(n, 14 + seed++ % 5);
            source_.queue(header, n - header);
        }
        ByteVector scratch(256 * 1024);
        FpduSender sender(GetParam().crc, GetParam().markers);
        stream_ = test::flatten(
            sender.prepare(source_, scratch, {.mulpdu = 1500, .byte_budget = 1 << 20}));
        expected_ = source_.queued();
    }

    RecordingUlp source_;
    ByteVector stream_;
    std::vector<ByteVector> expected_;
};

TEST_P(Split, in_two_at_every_byte) {
    for (std::size_t cut = 0; cut <= stream_.size(); ++cut) {
        RecordingUlp ulp;
        FpduReceiver receiver(GetParam().crc, GetParam().markers);
        EXPECT_EQ(receiver.consume(ConstBytes(stream_).first(cut), ulp), cut);
        EXPECT_EQ(receiver.consume(ConstBytes(stream_).subspan(cut), ulp), stream_.size() - cut);
        ASSERT_EQ(receiver.stream_error(), StreamError::none) << cut;
        ASSERT_EQ(ulp.delivered, expected_) << cut;
    }
}

TEST_P(Split, into_pieces_of_every_small_size) {
    for (std::size_t step = 1; step < 70; ++step) {
        RecordingUlp ulp;
        FpduReceiver receiver(GetParam().crc, GetParam().markers);
        for (std::size_t at = 0; at < stream_.size(); at += step) {
            const std::size_t n = std::min(step, stream_.size() - at);
            EXPECT_EQ(receiver.consume(ConstBytes(stream_).subspan(at, n), ulp), n);
        }
        ASSERT_EQ(receiver.stream_error(), StreamError::none) << step;
        ASSERT_EQ(ulp.delivered, expected_) << step;
        EXPECT_TRUE(receiver.between_fpdus());
    }
}

INSTANTIATE_TEST_SUITE_P(Modes, Split,
                         ::testing::Values(Case{false, false}, Case{false, true}, Case{true, false},
                                           Case{true, true}),
                         [](const ::testing::TestParamInfo<Case>& mode) {
                             return std::string(mode.param.crc ? "crc" : "no_crc") +
                                    (mode.param.markers ? "_markers" : "");
                         });

}  // namespace
}  // namespace xsock::mpa
