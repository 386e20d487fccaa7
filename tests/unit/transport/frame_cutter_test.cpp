// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/frame_cutter.hpp"

#include <gtest/gtest.h>

#include <string>

#include "include/xsock/iwarp.h"
#include "mpa/extension_frame.hpp"
#include "tests/unit/mpa/rfc5044_vectors.hpp"

namespace xsock {
namespace {

using ByteVector = std::vector<std::byte>;

ByteVector startup(const char* key, unsigned flags, std::size_t private_data) {
    ByteVector out;
    for (const char c : std::string(key)) out.push_back(static_cast<std::byte>(c));
    out.push_back(static_cast<std::byte>(flags));
    out.push_back(std::byte{2});
    out.push_back(static_cast<std::byte>(private_data >> 8));
    out.push_back(static_cast<std::byte>(private_data));
    out.resize(out.size() + private_data, std::byte{7});
    return out;
}

/// Feeds `stream` in steps; answers the sizes of the pieces.
std::vector<std::size_t> cut(FrameCutter& cutter, ConstBytes stream, std::size_t step,
                             bool markers) {
    std::vector<std::size_t> sizes;
    ByteVector joined;
    for (std::size_t at = 0; at < stream.size(); at += step) {
        cutter.add(stream.subspan(at, std::min(step, stream.size() - at)));
        for (ConstBytes piece = cutter.next(markers); !piece.empty();
             piece = cutter.next(markers)) {
            sizes.push_back(piece.size());
            joined.insert(joined.end(), piece.begin(), piece.end());
        }
    }
    const ConstBytes rest = cutter.rest();
    joined.insert(joined.end(), rest.begin(), rest.end());
    EXPECT_TRUE(joined.size() == stream.size() &&
                std::equal(joined.begin(), joined.end(), stream.begin()))
        << "bytes were lost or changed, step " << step;
    return sizes;
}

TEST(FrameCutter, cuts_between_frames_whatever_the_steps) {
    ByteVector stream = startup(MPA_KEY_REQUEST, MPA_FLAG_MARKERS, 5);
    for (const std::size_t ulpdu : {0u, 1u, 42u, 700u}) {
        const std::size_t bytes = (2 + ulpdu + 3) / 4 * 4 + 4;
        ByteVector fpdu(bytes);
        store_be16(fpdu.data(), static_cast<std::uint16_t>(ulpdu));
        stream.insert(stream.end(), fpdu.begin(), fpdu.end());
    }
    for (const std::size_t step : {1u, 3u, 64u, 4096u}) {
        FrameCutter cutter;
        EXPECT_EQ(cut(cutter, stream, step, false), (std::vector<std::size_t>{25, 8, 8, 48, 708}))
            << step;
        EXPECT_TRUE(cutter.asks_for_markers());
    }
}

TEST(FrameCutter, counts_markers_as_rfc5044_figures_5_and_6) {
    ByteVector stream = startup(MPA_KEY_REPLY, 0, 0);
    // Figure 5, FPDUs up to byte 492 of the stream, figure 6: 48 bytes of FPDU and a marker.
    const ByteVector first = test::figure5(), last = test::figure6();
    stream.insert(stream.end(), first.begin(), first.end());
    ByteVector between(test::kFigure6Offset - first.size());
    store_be16(between.data(), static_cast<std::uint16_t>(between.size() - 6));
    stream.insert(stream.end(), between.begin(), between.end());
    stream.insert(stream.end(), last.begin(), last.end());
    for (const std::size_t step : {1u, 5u, 512u, 4096u}) {
        FrameCutter cutter;
        EXPECT_EQ(cut(cutter, stream, step, true),
                  (std::vector<std::size_t>{20, first.size(), between.size(), last.size()}))
            << step;
    }
}

TEST(FrameCutter, a_marker_due_at_the_end_belongs_to_the_next_fpdu) {
    ByteVector stream = startup(MPA_KEY_REQUEST, 0, 0);
    ByteVector first(512);  // marker, then an FPDU of 508 bytes
    store_be16(first.data() + 4, 508 - 6);
    ByteVector second(4 + 8);  // marker, then the smallest FPDU
    stream.insert(stream.end(), first.begin(), first.end());
    stream.insert(stream.end(), second.begin(), second.end());
    FrameCutter cutter;
    EXPECT_EQ(cut(cutter, stream, 7, true), (std::vector<std::size_t>{20, 512, 12}));
}

TEST(FrameCutter, an_extension_frame_is_a_piece_without_markers) {
    ByteVector frame;
    mpa::append_extension_frame(frame, ByteVector(4));
    // Behind it, and behind the Request alone if the Reply declined: figure 5, whose markers count
    // from its own first byte.
    const ByteVector first = test::figure5();
    for (const bool exchanged : {true, false}) {
        ByteVector stream = startup(MPA_KEY_REQUEST, MPA_FLAG_EXTENSIONS, 0);
        if (exchanged) stream.insert(stream.end(), frame.begin(), frame.end());
        stream.insert(stream.end(), first.begin(), first.end());
        std::vector<std::size_t> expected = {20, frame.size(), first.size()};
        if (!exchanged) expected.erase(expected.begin() + 1);
        for (const std::size_t step : {1u, 5u, 4096u}) {
            FrameCutter cutter;
            EXPECT_EQ(cut(cutter, stream, step, true), expected) << step;
        }
    }
}

TEST(FrameCutter, what_is_no_mpa_is_cut_anywhere) {
    const ByteVector http(100, std::byte{'G'});
    FrameCutter cutter;
    EXPECT_EQ(cut(cutter, http, 40, false), (std::vector<std::size_t>{40, 40, 20}));

    FrameCutter rejected;  // a Reply that rejects: no FPDU follows
    ByteVector stream = startup(MPA_KEY_REPLY, MPA_FLAG_REJECT, 0);
    stream.resize(stream.size() + 9);
    EXPECT_EQ(cut(rejected, stream, 100, false), (std::vector<std::size_t>{20, 9}));

    FrameCutter huge;  // more private data than MPA allows
    const ByteVector bad = startup(MPA_KEY_REQUEST, 0, 513);
    EXPECT_EQ(cut(huge, bad, 600, false), (std::vector<std::size_t>{533}));
}

TEST(FrameCutter, gives_the_incomplete_rest) {
    FrameCutter cutter;
    const ByteVector frame = startup(MPA_KEY_REQUEST, 0, 12);
    cutter.add(ConstBytes(frame).first(30));
    EXPECT_TRUE(cutter.next(false).empty());
    EXPECT_EQ(cutter.rest().size(), 30u);
    EXPECT_TRUE(cutter.rest().empty());
}

}  // namespace
}  // namespace xsock
