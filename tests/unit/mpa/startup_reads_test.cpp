// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How many octets start-up wants: an owner that never reads more leaves the first FPDU unread, and
// one that reads what nobody may send sees the peer's fault.
#include <gtest/gtest.h>

#include "mpa/stream.hpp"
#include "tests/support/records.hpp"
#include "tests/unit/mpa/stream_end.hpp"

namespace xsock::mpa {
namespace {

using test::StreamEnd;

struct Case {
    std::uint8_t revision;
    bool extensions, depths, markers;
    std::size_t private_data;
};

Config config(Role role, const Case& c) {
    Config config{.startup = {.role = role,
                              .revision = c.revision,
                              .markers = c.markers,
                              .negotiate_depths = c.depths,
                              .extensions = c.extensions,
                              .private_data = test::pattern(c.private_data)}};
    append_tlv(config.startup.extension_tlvs,
               {.name = Implementation::text("somebody"), .version = Implementation::text("1")});
    return config;
}

/// What one end has written and the other has not read.
struct Way {
    ByteVector octets;
    std::size_t at = 0;
    [[nodiscard]] std::size_t unread() const { return octets.size() - at; }
};

/// Reads as often as start-up wants something that is there, never more than it wants.
void read_exactly(StreamEnd& end, Way& in) {
    while (end.stream.state() == Llp::State::startup) {
        const std::size_t n = std::min(end.stream.rx_wanted(), in.unread());
        if (n == 0) return;
        const Llp::Rx rx = end.stream.rx(ConstBytes(in.octets).subspan(in.at, n), 0);
        ASSERT_EQ(rx.taken, n);
        in.at += n;
    }
}

/// Writes one frame or less; FPDUs only once start-up is over.
void write_some(StreamEnd& end, Way& out, std::size_t most) {
    if (end.stream.state() == Llp::State::started) return;
    const TxBatch batch = end.stream.tx_prepare(end.scratch, 1 << 20, 0);
    const ByteVector piece = test::flatten(batch, most);
    out.octets.insert(out.octets.end(), piece.begin(), piece.end());
    if (!piece.empty()) end.stream.tx_commit(piece.size(), 0);
}

/// Both ends, and what is on its way between them.
struct Ends {
    explicit Ends(const Case& c) : i(config(Role::initiator, c)), r(config(Role::responder, c)) {}

    /// One frame, or `most` octets of it, is written and read.
    void initiator_to_responder(std::size_t most = SIZE_MAX) {
        write_some(i, to_r, most);
        read_exactly(r, to_r);
    }
    void responder_to_initiator(std::size_t most = SIZE_MAX) {
        write_some(r, to_i, most);
        read_exactly(i, to_i);
    }
    /// Longer than any start-up takes.
    void run_startup() {
        for (int round = 0; round < 4; ++round) {
            initiator_to_responder();
            responder_to_initiator();
        }
    }

    StreamEnd i, r;
    Way to_r, to_i;
};

class ExactReads : public testing::TestWithParam<Case> {};

TEST_P(ExactReads, end_before_the_first_fpdu) {
    for (const std::size_t most : {std::size_t{1}, std::size_t{7}, SIZE_MAX}) {
        Ends ends(GetParam());
        auto& [i, r, to_r, to_i] = ends;
        for (int round = 0; round < 2000 && (i.stream.state() == Llp::State::startup ||
                                             r.stream.state() == Llp::State::startup);
             ++round) {
            ends.initiator_to_responder(most);
            ends.responder_to_initiator(most);
            // The initiator sends as soon as it may, while the responder still reads its frame.
            if (i.stream.state() == Llp::State::started) {
                i.open(0);
                i.ulp.queue(14, 40);
            }
        }
        ASSERT_EQ(r.stream.state(), Llp::State::started);
        ASSERT_EQ(i.stream.state(), Llp::State::operational);
        EXPECT_EQ(r.stream.rx_wanted(), SIZE_MAX);
        while (i.ulp.given < i.ulp.outgoing.size()) write_some(i, to_r, SIZE_MAX);
        // What is unread is FPDUs, from the first octet on.
        r.open(0);
        r.read(ConstBytes(to_r.octets).subspan(to_r.at));
        EXPECT_EQ(r.ulp.delivered.back(), i.ulp.queued().back());
        EXPECT_EQ(to_i.unread(), 0u);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Frames, ExactReads,
    testing::Values(Case{2, true, true, false, 0}, Case{2, true, true, true, 300},
                    Case{2, true, false, false, 0}, Case{2, false, true, false, 200},
                    Case{1, false, false, false, 0}, Case{1, true, false, false, 9}),
    [](const testing::TestParamInfo<Case>& c) {
        return "revision_" + std::to_string(c.param.revision) +
               (c.param.extensions ? "_extensions" : "") + (c.param.depths ? "_depths" : "") +
               (c.param.markers ? "_markers" : "") + "_data_" +
               std::to_string(c.param.private_data);
    });

TEST(ExactReads, nothing_is_wanted_between_request_and_reply) {
    const Case standard{2, false, true, false, 0};
    Ends ends(standard);
    auto& [i, r, to_r, to_i] = ends;
    ends.initiator_to_responder();
    EXPECT_EQ(to_r.unread(), 0u);
    EXPECT_EQ(r.stream.rx_wanted(), 0u);
    // One octet more is there all the same.
    r.stream.rx(test::pattern(1), 0);
    EXPECT_EQ(r.ulp.failures, std::vector{StreamError::mpa_startup_frame});
}

TEST(ExactReads, nothing_is_wanted_behind_the_extension_frame_of_a_peer_that_waits_for_ours) {
    const Case extended{2, true, true, false, 0};
    Ends ends(extended);
    auto& [i, r, to_r, to_i] = ends;
    ends.initiator_to_responder();
    ends.responder_to_initiator();  // Reply and frame; ours is not written
    EXPECT_EQ(i.stream.state(), Llp::State::startup);
    EXPECT_EQ(to_i.unread(), 0u);
    EXPECT_EQ(i.stream.rx_wanted(), 0u);
    i.stream.rx(test::pattern(1), 0);
    EXPECT_EQ(i.ulp.failures, std::vector{StreamError::mpa_extension_frame});
}

// -- from there on records may be read --

TEST(StreamRecords, are_taken_in_the_place_of_octets) {
    const Case extended{2, true, true, false, 0};
    Ends ends(extended);
    auto& [i, r, to_r, to_i] = ends;
    ends.run_startup();
    i.open(0);
    r.stream.use_records();
    r.open(0);
    test::Records records;
    records.ulpdu(test::pattern(50)).placed({.segments = 1, .bytes = 9, .last_bytes = 9});
    r.stream.rx(records.bytes, 0);
    EXPECT_EQ(r.ulp.delivered, std::vector<ByteVector>{test::pattern(50)});
    EXPECT_EQ(r.ulp.placed.size(), 1u);
    EXPECT_EQ(r.stream.record_octets(), 56u + 9 + 24);
    // Back to octets.
    r.stream.use_octets();
    i.ulp.queue(14, 40);
    while (i.ulp.given < i.ulp.outgoing.size()) write_some(i, to_r, SIZE_MAX);
    r.read(ConstBytes(to_r.octets).subspan(to_r.at));
    EXPECT_EQ(r.ulp.delivered.back(), i.ulp.queued().back());
    EXPECT_EQ(r.stream.state(), Llp::State::operational);
}

TEST(StreamRecords, fin_inside_an_fpdu_is_what_it_is_inside_octets) {
    const Case extended{2, true, true, false, 0};
    Ends ends(extended);
    ends.run_startup();
    ends.r.stream.use_records();
    ends.r.open(0);
    test::Records records;
    records.raw(test::bytes_of({0, 14, 0x41}));
    ends.r.stream.rx(records.bytes, 0);
    ends.r.stream.rx_eof(0);
    EXPECT_EQ(ends.r.ulp.failures, std::vector{StreamError::mpa_connection_lost});
}

TEST(StreamRecords, that_make_no_sense_fail_the_stream_by_a_terminate) {
    const Case standard{2, false, true, false, 0};
    Ends ends(standard);
    ends.run_startup();
    StreamEnd& r = ends.r;
    r.stream.use_records();
    r.open(0);
    test::Records records;
    records.header(DDP_RECORD_PLACED, 8);
    EXPECT_EQ(r.stream.rx(records.bytes, 0).taken, records.bytes.size());
    EXPECT_EQ(r.ulp.failures, std::vector{StreamError::mpa_local_catastrophic});
    EXPECT_EQ(r.stream.state(), Llp::State::failed);
    r.ulp.queue(40, 0);
    EXPECT_FALSE(r.write().empty()) << "it waits for the initiator's first FPDU no longer";
}

}  // namespace
}  // namespace xsock::mpa
