// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a Stream makes of payload that the LLP has placed. The oracle is a Stream that was given the
// same ULPDUs.
#include <gmock/gmock.h>

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

class RxPlaced : public OneEnd {
  protected:
    /// A Read of `bytes` into the start of `memory`, whose Request has gone. @return its sink STag
    std::uint32_t read(std::uint32_t bytes, std::uint32_t lkey = kLkeyNone) {
        end.post(
            {.wr_id = 1, .opcode = SendOpcode::read, .remote_stag = 5},
            {{memory.data(), bytes / 2, lkey}, {memory.data() + 1000, bytes - bytes / 2, lkey}});
        UlpduOut out;
        EXPECT_TRUE(next_ulpdu(*end.stream, 1000, out));
        end->tx_done(1);
        return parse_read_request(std::span<const std::byte>(out.header)
                                      .subspan<kUntaggedOctets, kReadRequestOctets>())
            .sink_stag;
    }
    static ByteVector response(std::uint32_t stag, std::uint64_t to, bool last) {
        return header(
            {.opcode = RDMAP_READ_RESPONSE, .tagged = true, .last = last, .stag = stag, .to = to});
    }
    void expect_failed(StreamError why) {
        EXPECT_EQ(end->stream_error(), why);
        EXPECT_EQ(end->state(), Stream::State::terminating);
    }
};

TEST_F(RxPlaced, writes_count_as_if_they_had_been_stored) {
    end->rx_placed({.segments = 5, .messages = 2, .bytes = 700, .last_bytes = 100});
    EXPECT_EQ(end->counters().rx_segments, 5u);
    EXPECT_EQ(end->counters().rx_payload_bytes, 700u);
    EXPECT_EQ(end->counters().rx_messages[RDMAP_WRITE], 2u);
    EXPECT_THAT(end.received(), IsEmpty());
    EXPECT_EQ(memory, pattern(3000));
}

// Each row: Writes as segments of (bytes, last), cut into runs at every place.
TEST_F(RxPlaced, immediate_data_tell_the_same_bytes_as_of_stored_writes) {
    using Segments = std::vector<std::pair<std::size_t, bool>>;
    const Segments rows[] = {{{10, true}},
                             {{10, false}, {20, true}},
                             {{10, true}, {7, true}},
                             {{10, true}, {7, false}, {8, false}, {9, true}},
                             {{1, false}, {2, true}, {3, false}, {4, true}},
                             {{10, true}, {7, false}}};
    for (const Segments& row : rows) {
        for (std::size_t cut = 0; cut <= row.size(); ++cut) {
            World w;
            End stored(w), placed(w);
            ByteVector target(100);
            const std::uint32_t stag = w.add(target, kRemoteWrite);
            for (End* e : {&stored, &placed}) {
                e->establish();
                e->post_recv(1);
            }
            for (const auto& [bytes, last] : row) {
                feed(*stored.stream,
                     header({.opcode = RDMAP_WRITE, .tagged = true, .last = last, .stag = stag}) +
                         pattern(bytes));
            }
            for (std::size_t from : {std::size_t{0}, cut}) {
                PlacedWrites run;
                const std::size_t to = from == 0 && cut != 0 ? cut : row.size();
                if (cut == row.size() && from == cut) continue;
                for (std::size_t i = from; i < to; ++i) {
                    ++run.segments;
                    run.bytes += row[i].first;
                    if (run.last_ended) run.last_bytes = 0;
                    run.last_bytes += row[i].first;
                    run.last_ended = row[i].second;
                    run.messages += run.last_ended ? 1 : 0;
                }
                placed->rx_placed(run);
                if (cut == 0) break;
            }
            for (End* e : {&stored, &placed}) {
                feed(*e->stream,
                     header({.opcode = RDMAP_IMMEDIATE, .qn = DDP_QN_SEND, .msn = 1}) + pattern(8));
            }
            const auto told = stored.received();
            ASSERT_THAT(told, SizeIs(1));
            EXPECT_EQ(placed.received(), told) << "cut at " << cut;
        }
    }
}

TEST_F(RxPlaced, a_run_is_as_good_as_the_rtr_message) {
    World w;
    End e(w);
    e.establish({.initiator = false, .rtr = Rtr::write});
    EXPECT_EQ(e->state(), Stream::State::idle);
    e->rx_placed({.segments = 1, .messages = 1, .bytes = 9, .last_bytes = 9, .last_ended = true});
    EXPECT_EQ(e->state(), Stream::State::established);
}

TEST_F(RxPlaced, nothing_counts_once_reception_is_over) {
    for (const bool failed : {false, true}) {
        World w;
        End e(w);
        e.establish();
        failed ? e->llp_failed(StreamError::mpa_crc) : e->stop_receiving();
        e->rx_placed({.segments = 1, .messages = 1, .bytes = 9, .last_bytes = 9});
        EXPECT_EQ(e->counters().rx_segments, 0u);
        EXPECT_EQ(e->counters().rx_messages[RDMAP_WRITE], 0u);
        EXPECT_EQ(e->counters().rx_payload_bytes, 0u);
    }
}

TEST_F(RxPlaced, a_response_completes_its_read_and_touches_nothing) {
    const std::uint32_t sink = read(700);
    end->rx_placed_response(response(sink, 0, false), 300);
    EXPECT_THAT(end.sent(), IsEmpty());
    end->rx_placed_response(response(sink, 300, true), 400);
    EXPECT_THAT(end.sent(),
                ElementsAre(AllOf(Completed(1, WcStatus::success), Field(&Wc::byte_len, 700u))));
    EXPECT_EQ(memory, pattern(3000));
    EXPECT_EQ(end->counters().rx_payload_bytes, 700u);
    EXPECT_EQ(end->counters().rx_messages[RDMAP_READ_RESPONSE], 1u);
}

TEST_F(RxPlaced, a_response_may_be_placed_in_part) {
    const std::uint32_t sink = read(700);
    end->rx_placed_response(response(sink, 0, false), 300);
    feed(*end.stream, response(sink, 300, true) + pattern(400, 2));
    EXPECT_THAT(end.sent(), ElementsAre(Completed(1, WcStatus::success)));
    const ByteVector untouched = pattern(3000);
    EXPECT_EQ(part(0, 300), ByteVector(untouched.begin(), untouched.begin() + 300));
    EXPECT_EQ(part(300, 50) + part(1000, 350), pattern(400, 2));
}

TEST_F(RxPlaced, a_response_to_no_read_fails_the_stream) {
    end->rx_placed_response(response(77, 0, true), 10);
    expect_failed(StreamError::response_unexpected);
}

TEST_F(RxPlaced, a_response_that_does_not_fit_its_read_fails_the_stream) {
    struct {
        std::uint32_t stag_off;
        std::uint64_t to;
        bool last;
        std::size_t bytes;
    } const rows[] = {{1, 0, true, 700}, {0, 1, true, 700}, {0, 0, false, 700},
                      {0, 0, true, 699}, {0, 0, true, 701}, {0, 0, false, 65000}};
    for (const auto& row : rows) {
        World w;
        End e(w);
        e.establish();
        ByteVector to(700);
        e.post({.opcode = SendOpcode::read, .remote_stag = 5}, {sge(to)});
        UlpduOut out;
        ASSERT_TRUE(next_ulpdu(*e.stream, 1000, out));
        e->tx_done(1);
        const std::uint32_t sink = load_be32(out.header.data() + kUntaggedOctets);
        e->rx_placed_response(response(sink + row.stag_off, row.to, row.last), row.bytes);
        EXPECT_EQ(e->stream_error(), StreamError::response_unexpected);
        e->flush(WcStatus::flushed);
        EXPECT_THAT(e.sent(), ElementsAre(Status(WcStatus::bad_response)));
    }
}

TEST_F(RxPlaced, a_response_into_memory_that_was_revoked_fails_the_read) {
    const std::uint32_t lkey = world.add(memory, kLocalWrite);
    const std::uint32_t sink = read(700, lkey);
    world.remove(lkey);
    end->rx_placed_response(response(sink, 0, true), 700);
    expect_failed(StreamError::local_catastrophic);
    end->flush(WcStatus::flushed);
    EXPECT_THAT(end.sent(), ElementsAre(Completed(1, WcStatus::local_protection_error)));
}

TEST_F(RxPlaced, another_header_than_that_of_a_response_fails_the_stream) {
    const std::uint32_t stag = world.add(memory, kRemoteWrite);
    end->rx_placed_response(header({.opcode = RDMAP_WRITE, .tagged = true, .stag = stag}), 10);
    expect_failed(StreamError::rdmap_opcode);
    EXPECT_EQ(end->counters().rx_messages[RDMAP_WRITE], 0u);
}

}  // namespace
}  // namespace xsock::ddp
