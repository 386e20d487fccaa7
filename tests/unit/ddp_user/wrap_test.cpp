// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Numbers of 32 bits at their end: MSNs, which begin again at 0 (RFC 5041 §5.1), and offsets in a
// message, which never do.
#include <sys/mman.h>

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

constexpr std::uint32_t kLast = 0xffffffff;
constexpr Negotiated kXsockPeer{.peer_is_xsock = true};

std::uint32_t msn_of(const ByteVector& ulpdu) { return load_be32(ulpdu.data() + 10); }

// -- MSN --

class Wrap : public testing::Test {
  protected:
    /// Two messages before the wrap.
    static Config near(QpNum num) { return {.qp_num = num, .pd = 1, .first_msn = kLast - 1}; }

    Pipe pipe{near(1), near(2)};
    ByteVector memory = pattern(3000);

    void SetUp() override { pipe.establish(kXsockPeer); }
    /// What `end` sends now, on its way to its peer, and the MSNs of it.
    std::vector<std::uint32_t> carry(End& end, std::deque<Inbound>& out) {
        std::vector<std::uint32_t> msns;
        for (ByteVector& ulpdu : drain(*end.stream, pipe.mulpdu)) {
            msns.push_back(msn_of(ulpdu));
            out.emplace_back(std::move(ulpdu));
        }
        pipe.run();
        return msns;
    }
};

TEST_F(Wrap, sends_go_on_at_zero) {
    std::vector<ByteVector> into(5, ByteVector(3000));
    for (std::uint64_t i = 0; i < into.size(); ++i) {
        pipe.b.post_recv(i, {sge(into[i])});
        pipe.a.post({.wr_id = i}, {sge(memory)});  // three segments
    }
    EXPECT_THAT(carry(pipe.a, pipe.to_b), ElementsAre(kLast - 1, kLast - 1, kLast - 1, kLast, kLast,
                                                      kLast, 0, 0, 0, 1, 1, 1, 2, 2, 2));
    EXPECT_THAT(into, testing::Each(memory));
    EXPECT_THAT(pipe.b.received(), SizeIs(5));
    EXPECT_EQ(pipe.b->counters().rx_messages[RDMAP_SEND], 5u);
    EXPECT_EQ(pipe.b->state(), Stream::State::established);
}

TEST_F(Wrap, small_sends_of_a_batch_go_on_at_zero) {
    ByteVector into(64);
    for (std::uint64_t i = 0; i < 4; ++i) {
        pipe.b.post_recv(i, {sge(into)});
        pipe.a.post({.wr_id = i}, {{memory.data(), 64, 0}});
    }
    std::vector<std::uint32_t> msns;
    for (const ByteVector& ulpdu : fill(*pipe.a.stream, 8192)) {
        msns.push_back(msn_of(ulpdu));
        EXPECT_TRUE(feed(*pipe.b.stream, ulpdu));
    }
    EXPECT_THAT(msns, ElementsAre(kLast - 1, kLast, 0, 1));
    const auto got = pipe.b.received();
    ASSERT_THAT(got, SizeIs(4));
    EXPECT_THAT(got, testing::Each(Status(WcStatus::success)));
}

TEST_F(Wrap, immediate_data_shares_the_msns_of_sends) {
    ByteVector into(64);
    for (std::uint64_t i = 0; i < 4; ++i) {
        pipe.b.post_recv(i, {sge(into)});
        pipe.a.post({.wr_id = i, .opcode = SendOpcode::immediate, .immediate = i});
    }
    EXPECT_THAT(carry(pipe.a, pipe.to_b), ElementsAre(kLast - 1, kLast, 0, 1));
    EXPECT_THAT(pipe.b.received(), ElementsAre(Field(&Wc::immediate, 0), Field(&Wc::immediate, 1),
                                               Field(&Wc::immediate, 2), Field(&Wc::immediate, 3)));
}

TEST_F(Wrap, requests_and_atomic_responses_go_on_at_zero) {
    ByteVector sink(8);
    alignas(8) std::uint64_t word = 100, result = 0;
    const std::uint32_t readable = pipe.world.add(memory, kRemoteRead);
    const std::uint32_t atomic = pipe.world.table
                                     .add({.address = reinterpret_cast<std::byte*>(&word),
                                           .length = sizeof word,
                                           .access = kRemoteAtomic | kLocalWrite | kZeroBased,
                                           .pd = 1})
                                     .value();
    const Atomic one{.operand = 1};
    for (std::uint64_t i = 0; i < 3; ++i) {
        pipe.a.post({.wr_id = 2 * i, .opcode = SendOpcode::read, .remote_stag = readable},
                    {sge(sink)});
        pipe.a.post({.wr_id = 2 * i + 1,
                     .opcode = SendOpcode::fetch_add,
                     .remote_stag = atomic,
                     .atomic = &one},
                    {{reinterpret_cast<std::byte*>(&result), 8, 0}});
    }
    const auto requests = drain(*pipe.a.stream);
    std::vector<std::uint32_t> msns;
    for (const ByteVector& request : requests) {
        msns.push_back(msn_of(request));
        EXPECT_TRUE(feed(*pipe.b.stream, request));
    }
    EXPECT_THAT(msns, ElementsAre(kLast - 1, kLast, 0, 1, 2, 3));
    msns.clear();
    for (const ByteVector& response : drain(*pipe.b.stream)) {
        if ((response[0] & std::byte{DDP_FLAG_TAGGED}) == std::byte{0}) {
            msns.push_back(msn_of(response));
        }
        EXPECT_TRUE(feed(*pipe.a.stream, response));
    }
    EXPECT_THAT(msns, ElementsAre(kLast - 1, kLast, 0));
    EXPECT_EQ(word, 103u);
    EXPECT_EQ(result, 102u);
    const auto done = pipe.a.sent();
    ASSERT_THAT(done, SizeIs(6));
    EXPECT_THAT(done, testing::Each(Status(WcStatus::success)));
    EXPECT_TRUE(pipe.a->drained() && pipe.b->drained());
}

TEST_F(Wrap, a_receiver_takes_zero_after_the_last_and_nothing_else) {
    for (const std::uint32_t next : {0u, kLast, kLast - 1, 1u, 0x80000000u}) {
        World world;
        End end(world, {.pd = 1, .first_msn = kLast});
        end.establish();
        ByteVector into(8);
        for (std::uint64_t i = 0; i < 3; ++i) end.post_recv(i, {sge(into)});
        EXPECT_TRUE(feed(*end.stream, header({.opcode = RDMAP_SEND, .msn = kLast}) + into));
        EXPECT_EQ(end->state(), Stream::State::established);
        EXPECT_TRUE(feed(*end.stream, header({.opcode = RDMAP_SEND, .msn = next}) + into));
        EXPECT_EQ(end->stream_error(),
                  next == 0 ? StreamError::none : StreamError::untagged_msn_range)
            << next;
        EXPECT_THAT(end.received(), SizeIs(next == 0 ? 2 : 1));
    }
}

TEST_F(Wrap, a_refusal_names_its_message) {
    // Of five Sends, on either side of the wrap, the peer finds one too long.
    for (std::uint64_t wrong = 0; wrong < 5; ++wrong) {
        Pipe p(near(1), near(2));
        p.batch = 32;
        p.a->set_acknowledged();  // so that what was refused has not completed
        p.establish();
        ByteVector from = pattern(64), into(64), small(16);
        for (std::uint64_t i = 0; i < 5; ++i) {
            p.b.post_recv(i, {i == wrong ? sge(small) : sge(into)});
            p.a.post({.wr_id = i}, {sge(from)});
        }
        p.run();
        p.a->flush(WcStatus::flushed);
        const auto done = p.a.sent();
        ASSERT_THAT(done, SizeIs(5));
        for (std::uint64_t i = 0; i < 5; ++i) {
            EXPECT_EQ(done[i].status, i < wrong   ? WcStatus::success
                                      : i > wrong ? WcStatus::flushed
                                                  : WcStatus::remote_invalid_request)
                << "request " << i << ", refused " << wrong;
        }
    }
}

// -- MO, and how far an answer has come --

/// Addresses of as many octets as a message has at most; nothing may be read or written there.
class Longest : public testing::Test {
  protected:
    static constexpr std::size_t kMulpdu = 65535;

    void SetUp() override {
        at = static_cast<std::byte*>(
            mmap(nullptr, kLast, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        ASSERT_NE(at, MAP_FAILED);
        end.establish();
    }
    void TearDown() override { munmap(at, kLast); }
    /// All that `end` sends now, whatever the payload. Of each: its header, and how many
    /// octets of payload it has.
    template <typename F>
    void send_all(F&& each) {
        UlpduOut out;
        while (next_ulpdu(*end.stream, kMulpdu, out)) {
            const std::span<const std::byte> bytes(out.header);
            Segment segment;
            const OpcodeInfo* op = nullptr;
            ASSERT_EQ(parse_start(bytes.first<kTaggedOctets>(), segment, op), StreamError::none);
            if (!segment.tagged) parse_untagged_rest(bytes.first<kUntaggedOctets>(), segment);
            each(segment, out.size() - out.header_size);
            end->tx_done(1);
        }
    }
    /// A ULPDU of which `payload` octets are said to be stored where they belong.
    void receive(const Segment& segment, std::size_t payload) {
        const ByteVector start = header(segment);
        end->rx_begin(start.size() + payload);
        for (std::size_t have = 0; have < start.size() + payload;) {
            const Bytes target = end->rx_target();
            ASSERT_FALSE(target.empty());
            if (have < start.size()) {
                std::copy_n(start.begin() + static_cast<std::ptrdiff_t>(have), target.size(),
                            target.begin());
            } else if (end->stream_error() == StreamError::none) {
                placed = target.data() + target.size();
            }
            have += target.size();
            end->rx_advance(target.size());
        }
        end->rx_end(true);
    }

    World world;
    End end{world, {.pd = 1}};
    std::byte* at = nullptr;
    std::byte* placed = nullptr;  ///< behind the last octet that was said to be stored
};

TEST_F(Longest, send_is_cut_up_to_its_last_octet) {
    end.post({.wr_id = 1}, {{at, kLast, 0}});
    std::uint64_t sent = 0;
    bool last = false;
    send_all([&](const Segment& segment, std::size_t payload) {
        EXPECT_FALSE(last);
        ASSERT_EQ(segment.mo, sent);
        EXPECT_EQ(segment.msn, 1u);
        last = segment.last;
        sent += payload;
    });
    EXPECT_TRUE(last);
    EXPECT_EQ(sent, kLast);
    EXPECT_THAT(end.sent(), ElementsAre(Completed(1, WcStatus::success)));
}

TEST_F(Longest, write_is_cut_up_to_the_end_of_its_address_space) {
    end.post({.wr_id = 1,
              .opcode = SendOpcode::write,
              .remote_stag = 5,
              .remote_to = ~std::uint64_t{0} - kLast},
             {{at, kLast, 0}});
    std::uint64_t to = ~std::uint64_t{0} - kLast;
    send_all([&](const Segment& segment, std::size_t payload) {
        ASSERT_EQ(segment.to, to);
        to += payload;
    });
    EXPECT_EQ(to, ~std::uint64_t{0});
}

TEST_F(Longest, send_is_received_up_to_its_last_octet) {
    end.post_recv(1, {{at, kLast, 0}});
    for (std::uint64_t mo = 0; mo < kLast;) {
        const std::uint64_t n = std::min<std::uint64_t>(kMulpdu - kUntaggedOctets, kLast - mo);
        receive({.opcode = RDMAP_SEND,
                 .last = mo + n == kLast,
                 .msn = 1,
                 .mo = static_cast<std::uint32_t>(mo)},
                n);
        ASSERT_EQ(placed, at + mo + n);
        mo += n;
    }
    EXPECT_THAT(end.received(),
                ElementsAre(AllOf(Completed(1, WcStatus::success), Field(&Wc::byte_len, kLast))));
    EXPECT_EQ(end->counters().rx_payload_bytes, kLast);
}

TEST_F(Longest, send_with_an_octet_more_is_refused_where_mo_would_wrap) {
    end.post_recv(1, {{at, kLast, 0}});
    for (std::uint64_t mo = 0; mo < kLast;) {
        const std::uint64_t n = std::min<std::uint64_t>(kMulpdu - kUntaggedOctets, kLast - mo);
        const bool end_of_it = mo + n == kLast;
        const auto from = static_cast<std::uint32_t>(mo);
        receive({.opcode = RDMAP_SEND, .last = end_of_it, .msn = 1, .mo = from},
                end_of_it ? n + 1 : n);
        mo += n;
    }
    EXPECT_LT(placed, at + kLast) << "the segment that leads too far is not placed at all";
    EXPECT_EQ(end->stream_error(), StreamError::untagged_too_long);
    EXPECT_THAT(end.received(), ElementsAre(Completed(1, WcStatus::local_length_error)));
}

TEST_F(Longest, read_is_answered_and_received_up_to_its_last_octet) {
    const std::uint32_t stag =
        world.table
            .add({.address = at, .length = kLast, .access = kRemoteRead | kZeroBased, .pd = 1})
            .value();
    feed(*end.stream, header({.opcode = RDMAP_READ_REQUEST, .qn = DDP_QN_READ_REQUEST, .msn = 1}) +
                          body({.sink_stag = 9, .size = kLast, .source_stag = stag}));
    std::uint64_t sent = 0;
    send_all([&](const Segment& segment, std::size_t payload) {
        ASSERT_EQ(segment.to, sent);
        sent += payload;
        EXPECT_EQ(segment.last, sent == kLast);
    });
    EXPECT_EQ(sent, kLast);
    EXPECT_TRUE(end->drained());

    end.post({.wr_id = 1, .opcode = SendOpcode::read, .remote_stag = 5}, {{at, kLast, 0}});
    const ReadRequest request =
        parse_read_request(std::span<const std::byte>(drain(*end.stream).at(0))
                               .subspan<kUntaggedOctets, kReadRequestOctets>());
    ASSERT_EQ(request.size, kLast);
    for (std::uint64_t to = 0; to < kLast;) {
        const std::uint64_t n = std::min<std::uint64_t>(kMulpdu - kTaggedOctets, kLast - to);
        receive({.opcode = RDMAP_READ_RESPONSE,
                 .tagged = true,
                 .last = to + n == kLast,
                 .stag = request.sink_stag,
                 .to = to},
                n);
        to += n;
    }
    EXPECT_EQ(placed, at + kLast);
    EXPECT_THAT(end.sent(),
                ElementsAre(AllOf(Completed(1, WcStatus::success), Field(&Wc::byte_len, kLast))));
}

TEST_F(Longest, write_before_immediate_data_is_told_as_no_more_than_32_bits_say) {
    const std::uint32_t stag = world.table
                                   .add({.address = at,
                                         .length = kLast,
                                         .access = kRemoteWrite | kLocalWrite | kZeroBased,
                                         .pd = 1})
                                   .value();
    ByteVector into(8);
    end.post_recv(1, {sge(into)});
    constexpr std::uint64_t kMore = std::uint64_t{kLast} + 100'000;
    for (std::uint64_t sent = 0; sent < kMore;) {
        const std::uint64_t n = std::min<std::uint64_t>(kMulpdu - kTaggedOctets, kMore - sent);
        receive({.opcode = RDMAP_WRITE, .tagged = true, .last = sent + n == kMore, .stag = stag},
                n);
        sent += n;
    }
    ByteVector immediate = header({.opcode = RDMAP_IMMEDIATE, .qn = DDP_QN_SEND, .msn = 1});
    immediate.resize(immediate.size() + kImmediateOctets);
    feed(*end.stream, immediate);
    EXPECT_THAT(end.received(),
                ElementsAre(AllOf(Completed(1, WcStatus::success), Field(&Wc::byte_len, kLast))));
}

}  // namespace
}  // namespace xsock::ddp
