// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Reads of one segment, written many at a time and taken in one step: the same octets, order and
// errors as one by one and in pieces.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

class ShortReads : public OneEnd {
  protected:
    Sge piece(std::size_t from, std::size_t n) {
        return {memory.data() + from, static_cast<std::uint32_t>(n), kLkeyNone};
    }
    static ReadRequest request_in(const ByteVector& ulpdu) {
        EXPECT_EQ(ulpdu.size(), kUntaggedOctets + kReadRequestOctets);
        return parse_read_request(
            std::span<const std::byte>(ulpdu).subspan<kUntaggedOctets, kReadRequestOctets>());
    }
    static ByteVector request(std::uint32_t msn, const ReadRequest& what) {
        return header({.opcode = RDMAP_READ_REQUEST, .qn = DDP_QN_READ_REQUEST, .msn = msn}) +
               body(what);
    }
    static ByteVector response(std::uint32_t sink, const ByteVector& data) {
        return header({.opcode = RDMAP_READ_RESPONSE, .tagged = true, .stag = sink}) + data;
    }
};

bool is_terminate(const ByteVector& ulpdu) {
    return (ulpdu[1] & std::byte{RDMAP_OPCODE_MASK}) == std::byte{RDMAP_TERMINATE};
}

TEST_F(ShortReads, requests_of_a_batch_are_what_they_are_one_by_one) {
    const auto post_all = [&](std::uint64_t id) {
        end.post({.wr_id = id, .opcode = SendOpcode::read, .remote_stag = 5, .remote_to = 1000},
                 {piece(0, 8)});
        end.post({.wr_id = id + 1, .opcode = SendOpcode::read, .remote_stag = 6, .remote_to = 7},
                 {piece(8, 3), piece(16, 5)});
        end.post({.wr_id = id + 2, .opcode = SendOpcode::read, .remote_stag = 7});
        end.post({.wr_id = id + 3, .opcode = SendOpcode::read, .remote_stag = 5}, {piece(30, 900)});
    };
    post_all(1);
    std::vector<ByteVector> requests = drain(*end.stream);
    post_all(5);
    const std::vector<ByteVector> together = fill(*end.stream, 4096);
    ASSERT_THAT(requests, SizeIs(4));
    ASSERT_THAT(together, SizeIs(4));
    for (std::size_t i = 0; i < together.size(); ++i) {
        ReadRequest one = request_in(requests[i]), other = request_in(together[i]);
        EXPECT_EQ(ByteVector(together[i].begin(), together[i].begin() + kUntaggedOctets),
                  header({.opcode = RDMAP_READ_REQUEST,
                          .qn = DDP_QN_READ_REQUEST,
                          .msn = static_cast<std::uint32_t>(i) + 5}));
        EXPECT_NE(other.sink_stag, 0u);
        EXPECT_NE(one.sink_stag, other.sink_stag);
        one.sink_stag = other.sink_stag;
        EXPECT_EQ(one, other);
    }
    EXPECT_EQ(end->counters().tx_messages[RDMAP_READ_REQUEST], 8u);
    EXPECT_EQ(end->counters().tx_segments, 8u);
    requests.insert(requests.end(), together.begin(), together.end());
    const ByteVector data = pattern(900, 3);
    const std::size_t sizes[] = {8, 8, 0, 900};
    for (std::size_t i = 0; i < requests.size(); ++i) {
        const std::size_t n = sizes[i % 4];
        const auto first = data.begin();
        ASSERT_TRUE(feed(*end.stream, response(request_in(requests[i]).sink_stag,
                                               {first, first + static_cast<std::ptrdiff_t>(n)})));
        ASSERT_THAT(end.sent(),
                    ElementsAre(AllOf(Completed(i + 1, WcStatus::success), Field(&Wc::byte_len, n),
                                      Field(&Wc::opcode, WcOpcode::read))));
    }
    EXPECT_TRUE(std::equal(data.begin(), data.end(), memory.begin() + 30));
    EXPECT_TRUE(std::equal(data.begin(), data.begin() + 3, memory.begin() + 8));
    EXPECT_TRUE(std::equal(data.begin() + 3, data.begin() + 8, memory.begin() + 16));
    EXPECT_EQ(end->counters().rx_messages[RDMAP_READ_RESPONSE], 8u);
    EXPECT_EQ(end->counters().rx_payload_bytes, 2 * 916u);
    EXPECT_TRUE(end->drained());
}

TEST_F(ShortReads, a_batch_of_requests_ends_at_a_fence_and_at_the_ord) {
    for (std::uint64_t id = 1; id <= 20; ++id) {
        end.post({.wr_id = id,
                  .opcode = SendOpcode::read,
                  .flags = static_cast<std::uint8_t>(kSendSignaled | (id == 3 ? kSendFence : 0)),
                  .remote_stag = 5},
                 {piece(0, 8)});
    }
    const auto answer = [&](const std::vector<ByteVector>& requests) {
        for (const ByteVector& r : requests) {
            ASSERT_TRUE(feed(*end.stream, response(request_in(r).sink_stag, part(0, 8))));
        }
    };
    const std::vector<ByteVector> first = fill(*end.stream, 4096);
    ASSERT_THAT(first, SizeIs(2));
    EXPECT_THAT(fill(*end.stream, 4096), IsEmpty());
    answer({first[0]});
    EXPECT_THAT(fill(*end.stream, 4096), IsEmpty());
    answer({first[1]});
    const std::vector<ByteVector> second = fill(*end.stream, 4096);
    ASSERT_EQ(second.size(), end->ord());
    EXPECT_THAT(fill(*end.stream, 4096), IsEmpty());
    answer(second);
    answer(fill(*end.stream, 4096));
    EXPECT_THAT(end.sent(), SizeIs(20));
}

TEST_F(ShortReads, a_batch_of_requests_ends_with_the_terminate_over_what_no_key_permits) {
    end.post({.wr_id = 1, .opcode = SendOpcode::read, .remote_stag = 5}, {piece(0, 8)});
    end.post({.wr_id = 2, .opcode = SendOpcode::read, .remote_stag = 5},
             {Sge{memory.data(), 8, 0x12345678}});
    const std::vector<ByteVector> out = fill(*end.stream, 4096);
    ASSERT_THAT(out, SizeIs(2));
    EXPECT_TRUE(is_terminate(out[1]));
    EXPECT_EQ(end->state(), Stream::State::ended);
}

TEST_F(ShortReads, answers_of_a_batch_are_what_they_are_one_by_one) {
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    const ReadRequest requests[] = {
        {.sink_stag = 1, .sink_to = 1ull << 40, .size = 8, .source_stag = stag, .source_to = 3},
        {.sink_stag = 2, .size = 0, .source_stag = 99},  // of a zero-length Read it is not checked
        {.sink_stag = 3, .size = 64, .source_stag = stag, .source_to = 2936},
        {.sink_stag = 4, .size = 700, .source_stag = stag},
    };
    std::uint32_t msn = 0;
    const auto ask_all = [&](std::size_t step) {
        for (const ReadRequest& r : requests) {
            ASSERT_TRUE(feed(*end.stream, request(++msn, r), true, step));
        }
    };
    ask_all(~std::size_t{0});
    const std::vector<ByteVector> one_by_one = drain(*end.stream);
    ASSERT_THAT(one_by_one, SizeIs(4));
    EXPECT_EQ(one_by_one[0],
              header({.opcode = RDMAP_READ_RESPONSE, .tagged = true, .stag = 1, .to = 1ull << 40}) +
                  part(3, 8));
    ask_all(5);
    EXPECT_EQ(fill(*end.stream, 4096, 1000), one_by_one);
    ask_all(~std::size_t{0});
    EXPECT_EQ(fill(*end.stream, 4096, 100), one_by_one);  // the last is described
    EXPECT_EQ(end->counters().tx_messages[RDMAP_READ_RESPONSE], 12u);
    EXPECT_EQ(end->counters().rx_messages[RDMAP_READ_REQUEST], 12u);
    EXPECT_EQ(end->counters().tx_payload_bytes, 3u * 772);
    EXPECT_EQ(end->counters().rx_payload_bytes, 12u * kReadRequestOctets);
}

TEST_F(ShortReads, a_batch_of_answers_ends_with_the_terminate_over_a_region_that_went) {
    ByteVector more = pattern(100, 2);
    const std::uint32_t stag = world.add(memory, kRemoteRead);
    const std::uint32_t gone = world.add(more, kRemoteRead);
    for (std::uint32_t msn = 1; msn <= 3; ++msn) {
        const std::uint32_t source = msn == 2 ? gone : stag;
        ASSERT_TRUE(
            feed(*end.stream, request(msn, {.sink_stag = msn, .size = 16, .source_stag = source})));
    }
    world.remove(gone);
    const std::vector<ByteVector> out = fill(*end.stream, 4096);
    ASSERT_THAT(out, SizeIs(2));
    EXPECT_EQ(out[0], response(1, part(0, 16)));
    EXPECT_TRUE(is_terminate(out[1]));
}

/// What a stream made of a ULPDU, as far as anything outside can tell.
struct Outcome {
    std::vector<ByteVector> sends;
    std::vector<Wc> sent;
    Stream::State state;
    std::uint64_t segments, payload;
    ByteVector memory;
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Each bit of the headers is turned once: whatever that makes of the ULPDU, taken in one step it
// does what it does octet by octet.
TEST(ShortReadsDamaged, do_the_same_whole_and_in_pieces) {
    const auto run = [](bool our_read, std::size_t bit, std::size_t step) {
        World world;
        ByteVector memory = pattern(200);
        const std::uint32_t stag = world.add(memory, kRemoteRead, 1, 7);
        End end(world, {.qp_num = 7, .pd = 1});
        end.establish();
        ByteVector ulpdu;
        if (our_read) {
            end.post({.wr_id = 1, .opcode = SendOpcode::read, .remote_stag = 5},
                     {{memory.data(), 32, kLkeyNone}});
            const ByteVector asked = drain(*end.stream).at(0);
            ulpdu = header({.opcode = RDMAP_READ_RESPONSE,
                            .tagged = true,
                            .stag = load_be32(asked.data() + kUntaggedOctets)}) +
                    pattern(32, 9);
        } else {
            ulpdu = header({.opcode = RDMAP_READ_REQUEST, .qn = DDP_QN_READ_REQUEST, .msn = 1}) +
                    body({.sink_stag = 3, .size = 64, .source_stag = stag, .source_to = 100});
        }
        const std::size_t headers = our_read ? kTaggedOctets : ulpdu.size();
        if (bit < 8 * headers) ulpdu[bit / 8] ^= std::byte{1} << (bit % 8);
        EXPECT_TRUE(feed(*end.stream, ulpdu, true, step) || end.stream->rx_blocked());
        Outcome out;
        // STags are random: what quotes the ULPDU is compared without them.
        for (ByteVector sends : drain(*end.stream)) {
            for (std::size_t i = 0; i + 4 <= sends.size(); ++i) {
                const std::uint32_t word = load_be32(sends.data() + i);
                if (word == stag || (our_read && word == load_be32(ulpdu.data() + 2))) {
                    store_be32(sends.data() + i, 0);
                }
            }
            out.sends.push_back(sends);
        }
        out.sent = end.sent();
        out.state = end->state();
        out.segments = end->counters().rx_segments;
        out.payload = end->counters().rx_payload_bytes;
        out.memory = memory;
        return out;
    };
    for (const bool our_read : {false, true}) {
        const std::size_t bits = 8 * (our_read ? kTaggedOctets : kUntaggedOctets + 28) + 1;
        for (std::size_t bit = 0; bit < bits; ++bit) {
            const bool source_stag =
                !our_read && bit / 8 >= kUntaggedOctets + 16 && bit / 8 < kUntaggedOctets + 20;
            if (source_stag) continue;  // random: what it turns into is not the same twice
            EXPECT_EQ(run(our_read, bit, ~std::size_t{0}), run(our_read, bit, 1))
                << (our_read ? "Response" : "Request") << ", bit " << bit;
        }
    }
}

}  // namespace
}  // namespace xsock::ddp
