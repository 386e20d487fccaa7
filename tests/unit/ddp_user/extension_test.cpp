// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RFC 7306 on a stream: atomic operations and Immediate Data, as they look and what they do.
#include <gmock/gmock.h>

#include <cstring>

#include "tests/unit/ddp_user/pipe.hpp"

namespace xsock::ddp {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};
constexpr Negotiated kXsock{.peer_is_xsock = true};

class Extension : public testing::Test {
  protected:
    Pipe pipe;
    alignas(8) std::array<std::uint64_t, 4> words{10, 20, 30, 40};
    std::uint64_t result = 0xdead;
    std::uint32_t stag = add(kRemoteAtomic | kLocalWrite);

    std::uint32_t add(std::uint32_t access) {
        return pipe.world.table
            .add({.address = reinterpret_cast<std::byte*>(words.data()),
                  .length = sizeof words,
                  .access = access | kZeroBased,
                  .pd = 1})
            .value();
    }
    static Sge to(std::uint64_t& word) {
        return {.address = reinterpret_cast<std::byte*>(&word), .length = 8, .lkey = kLkeyNone};
    }
    void post(std::uint64_t id, SendOpcode opcode, std::uint64_t at, const Atomic& operands,
              std::uint64_t& into, std::uint8_t flags = kSendSignaled) {
        pipe.a.post({.wr_id = id,
                     .opcode = opcode,
                     .flags = flags,
                     .remote_stag = stag,
                     .remote_to = at,
                     .atomic = &operands},
                    {to(into)});
    }
};

TEST_F(Extension, fetch_add_and_compare_swap_bring_what_was_there) {
    pipe.establish(kXsock);
    std::array<std::uint64_t, 3> former{};
    post(1, SendOpcode::fetch_add, 8, {.operand = 5}, former[0]);
    post(2, SendOpcode::compare_swap, 8,
         {.operand = 99, .operand_mask = kAll, .compare = 25, .compare_mask = kAll}, former[1]);
    post(3, SendOpcode::compare_swap, 24,
         {.operand = 99, .operand_mask = kAll, .compare = 25, .compare_mask = kAll}, former[2]);
    pipe.run();
    EXPECT_EQ(former, (std::array<std::uint64_t, 3>{20, 25, 40}));
    EXPECT_EQ(words, (std::array<std::uint64_t, 4>{10, 99, 30, 40}));
    EXPECT_THAT(pipe.a.sent(),
                ElementsAre(testing::AllOf(Field(&Wc::opcode, WcOpcode::fetch_add),
                                           Field(&Wc::byte_len, 8), Status(WcStatus::success)),
                            Field(&Wc::opcode, WcOpcode::compare_swap),
                            Field(&Wc::opcode, WcOpcode::compare_swap)));
    EXPECT_TRUE(pipe.a->drained() && pipe.b->drained());
}

TEST_F(Extension, result_may_lie_in_two_pieces) {
    pipe.establish(kXsock);
    ByteVector low(3), high(5);
    const Atomic operands{.operand = 1};
    words[0] = 0x0102030405060708;
    pipe.a.post(
        {.wr_id = 1, .opcode = SendOpcode::fetch_add, .remote_stag = stag, .atomic = &operands},
        {sge(low), sge(high)});
    pipe.run();
    const ByteVector all = low + high;
    std::uint64_t value = 0;
    std::memcpy(&value, all.data(), 8);
    EXPECT_EQ(value, 0x0102030405060708u);
}

TEST_F(Extension, atomic_messages_look_as_the_rfc_has_them) {
    pipe.establish(kXsock);
    post(1, SendOpcode::compare_swap, 16,
         {.operand = 0x0102030405060708,
          .operand_mask = 0xff,
          .compare = 30,
          .compare_mask = 0xffff0000ffff0000},
         result);
    post(2, SendOpcode::fetch_add, 16, {.operand = 7, .operand_mask = 1}, result);
    const auto requests = drain(*pipe.a.stream);
    ASSERT_THAT(requests, SizeIs(2));
    ByteVector stags(4);
    store_be32(stags.data(), stag);
    EXPECT_EQ(requests[0], from_hex("414a 00000000 00000001 00000001 00000000 00000002 00000001") +
                               stags +
                               from_hex("0000000000000010 0102030405060708 00000000000000ff"
                                        "000000000000001e ffff0000ffff0000"));
    EXPECT_EQ(requests[1], from_hex("414a 00000000 00000001 00000002 00000000 00000000 00000002") +
                               stags +
                               from_hex("0000000000000010 0000000000000007 0000000000000001"
                                        "0000000000000000 ffffffffffffffff"));
    for (const ByteVector& request : requests) feed(*pipe.b.stream, request);
    EXPECT_THAT(drain(*pipe.b.stream),
                ElementsAre(from_hex("414b 00000000 00000003 00000001 00000000 00000001"
                                     "000000000000001e"),
                            from_hex("414b 00000000 00000003 00000002 00000000 00000002"
                                     "0000000000000008")));
}

TEST_F(Extension, atomics_share_queue_msn_and_depth_with_reads) {
    Pipe other({.qp_num = 1, .pd = 1, .ird = 2, .ord = 2},
               {.qp_num = 2, .pd = 1, .ird = 2, .ord = 2});
    other.establish(kXsock);
    ByteVector source = pattern(100), sink(100);
    alignas(8) std::uint64_t word = 5;
    const std::uint32_t readable = other.world.add(source, kRemoteRead);
    const std::uint32_t atomic = other.world.table
                                     .add({.address = reinterpret_cast<std::byte*>(&word),
                                           .length = 8,
                                           .access = kRemoteAtomic | kZeroBased,
                                           .pd = 1})
                                     .value();
    const Atomic one{.operand = 1};
    for (std::uint64_t i = 0; i < 3; ++i) {
        other.a.post({.wr_id = 2 * i, .opcode = SendOpcode::read, .remote_stag = readable},
                     {sge(sink)});
        other.a.post({.wr_id = 2 * i + 1,
                      .opcode = SendOpcode::fetch_add,
                      .remote_stag = atomic,
                      .atomic = &one},
                     {to(result)});
    }
    const auto requests = drain(*other.a.stream);
    ASSERT_THAT(requests, SizeIs(2));  // as many as ORD
    EXPECT_EQ(load_be32(requests[0].data() + 10), 1u);
    EXPECT_EQ(load_be32(requests[1].data() + 10), 2u);
    for (const ByteVector& request : requests) other.to_b.emplace_back(request);
    other.run();
    EXPECT_EQ(sink, source);
    EXPECT_EQ(word, 8u);
    EXPECT_EQ(result, 7u);
    std::vector<std::uint64_t> ids;
    for (const Wc& wc : other.a.sent()) ids.push_back(wc.wr_id);
    EXPECT_THAT(ids, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(Extension, a_fence_waits_for_atomics) {
    pipe.establish(kXsock);
    post(1, SendOpcode::fetch_add, 0, {.operand = 1}, result);
    pipe.a.post({.wr_id = 2, .flags = kSendSignaled | kSendFence});
    const auto before = drain(*pipe.a.stream);
    ASSERT_THAT(before, SizeIs(1));
    feed(*pipe.b.stream, before[0]);
    feed(*pipe.a.stream, drain(*pipe.b.stream).at(0));
    EXPECT_THAT(drain(*pipe.a.stream), SizeIs(1));
}

TEST_F(Extension, an_atomic_sees_the_write_before_it_and_a_read_sees_the_atomic) {
    const std::uint32_t all = add(kRemoteAtomic | kRemoteWrite | kRemoteRead | kLocalWrite);
    pipe.establish(kXsock);
    std::uint64_t word = 1000, seen = 0;
    const Atomic one{.operand = 1};
    pipe.a.post({.opcode = SendOpcode::write, .remote_stag = all}, {to(word)});
    pipe.a.post({.opcode = SendOpcode::fetch_add, .remote_stag = all, .atomic = &one},
                {to(result)});
    pipe.a.post({.opcode = SendOpcode::read, .remote_stag = all}, {to(seen)});
    pipe.run();
    EXPECT_EQ(result, 1000u);
    EXPECT_EQ(seen, 1001u);
}

TEST_F(Extension, nothing_is_done_for_a_corrupted_request) {
    pipe.establish(kXsock);
    post(1, SendOpcode::fetch_add, 0, {.operand = 1}, result);
    feed(*pipe.b.stream, drain(*pipe.a.stream).at(0), false);
    EXPECT_EQ(words[0], 10u);
}

TEST_F(Extension, an_answer_must_be_the_one_that_is_due) {
    struct {
        const char* what;
        const char* ulpdu;
        StreamError stream_error;
    } const cases[] = {
        {"identifier", "414b 00000000 00000003 00000001 00000000 00000002 0000000000000001",
         StreamError::response_unexpected},
        {"length", "414b 00000000 00000003 00000001 00000000 00000001 00000000000000",
         StreamError::response_unexpected},
        {"not last", "014b 00000000 00000003 00000001 00000000 00000001 0000000000000001",
         StreamError::response_unexpected},
        {"MSN", "414b 00000000 00000003 00000002 00000000 00000001 0000000000000001",
         StreamError::untagged_msn_range},
        {"MO", "414b 00000000 00000003 00000001 00000001 00000001 0000000000000001",
         StreamError::untagged_mo},
        {"a Read's", "c142 00000001 0000000000000000 0000000000000001",
         StreamError::response_unexpected},
    };
    for (const auto& c : cases) {
        SCOPED_TRACE(c.what);
        Pipe fresh;
        fresh.establish(kXsock);
        const Atomic one{.operand = 1};
        fresh.a.post({.wr_id = 1, .opcode = SendOpcode::fetch_add, .atomic = &one}, {to(result)});
        drain(*fresh.a.stream);
        feed(*fresh.a.stream, from_hex(c.ulpdu));
        EXPECT_EQ(fresh.a->stream_error(), c.stream_error);
        EXPECT_EQ(result, 0xdeadu);
        fresh.a->flush(WcStatus::flushed);
        EXPECT_THAT(fresh.a.sent(),
                    ElementsAre(Status(c.stream_error == StreamError::response_unexpected
                                           ? WcStatus::bad_response
                                           : WcStatus::flushed)));
    }
    Pipe fresh;
    fresh.establish(kXsock);
    feed(*fresh.a.stream, from_hex(cases[0].ulpdu));  // to no question at all
    EXPECT_EQ(fresh.a->stream_error(), StreamError::response_unexpected);
}

TEST_F(Extension, result_goes_only_where_its_key_still_permits) {
    pipe.establish(kXsock);
    const std::uint32_t key = pipe.world.table
                                  .add({.address = reinterpret_cast<std::byte*>(&result),
                                        .length = 8,
                                        .access = kLocalWrite,
                                        .pd = 1})
                                  .value();
    const Atomic one{.operand = 1};
    Sge into = to(result);
    into.lkey = key;
    pipe.a.post({.wr_id = 1, .opcode = SendOpcode::fetch_add, .remote_stag = stag, .atomic = &one},
                {into});
    feed(*pipe.b.stream, drain(*pipe.a.stream).at(0));
    pipe.world.table.invalidate(key);
    feed(*pipe.a.stream, drain(*pipe.b.stream).at(0));
    EXPECT_EQ(result, 0xdeadu);
    pipe.a->flush(WcStatus::flushed);
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Status(WcStatus::local_protection_error)));
}

TEST_F(Extension, a_refusal_comes_back_as_the_status_of_the_request) {
    struct {
        std::uint64_t at;
        std::uint32_t access;
        WcStatus status;
    } const cases[] = {
        {25, kRemoteAtomic, WcStatus::remote_access_error},
        {32, kRemoteAtomic, WcStatus::remote_access_error},
        {4, kRemoteAtomic, WcStatus::remote_invalid_request},
        {0, kRemoteRead | kRemoteWrite | kLocalWrite, WcStatus::remote_access_error}};
    for (const auto& c : cases) {
        Pipe fresh;
        fresh.establish(kXsock);
        const std::uint32_t key = fresh.world.table
                                      .add({.address = reinterpret_cast<std::byte*>(words.data()),
                                            .length = sizeof words,
                                            .access = c.access | kZeroBased,
                                            .pd = 1})
                                      .value();
        const Atomic one{.operand = 1};
        fresh.a.post({.wr_id = 1, .opcode = SendOpcode::write});
        fresh.a.post({.wr_id = 2,
                      .opcode = SendOpcode::fetch_add,
                      .remote_stag = key,
                      .remote_to = c.at,
                      .atomic = &one},
                     {to(result)});
        fresh.a.post({.wr_id = 3});
        fresh.run();
        EXPECT_EQ(words, (std::array<std::uint64_t, 4>{10, 20, 30, 40}));
        fresh.a->flush(WcStatus::flushed);
        EXPECT_THAT(fresh.a.sent(), ElementsAre(Status(WcStatus::success), Status(c.status),
                                                Status(WcStatus::flushed)));
    }
}

TEST_F(Extension, atomics_die_with_the_peers_half) {
    pipe.establish(kXsock);
    post(1, SendOpcode::fetch_add, 0, {.operand = 1}, result);
    drain(*pipe.a.stream);
    post(2, SendOpcode::fetch_add, 0, {.operand = 1}, result);
    pipe.a.post({.wr_id = 3, .opcode = SendOpcode::write});
    pipe.a->flush_receives();
    EXPECT_THAT(drain(*pipe.a.stream), SizeIs(1));  // the Write
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Status(WcStatus::flushed), Status(WcStatus::flushed),
                                           Status(WcStatus::success)));
}

// -- Immediate Data --

TEST_F(Extension, immediate_data_take_a_receive_and_no_memory) {
    pipe.establish(kXsock);
    ByteVector inbox = pattern(100);
    const ByteVector before = inbox;
    pipe.b.post_recv(1, {sge(inbox)});
    pipe.b.post_recv(2);
    pipe.a.post({.opcode = SendOpcode::immediate, .immediate = 0x1122334455667788});
    pipe.a.post(
        {.opcode = SendOpcode::immediate, .flags = kSendSignaled | kSendSolicited, .immediate = 9});
    const auto out = drain(*pipe.a.stream);
    EXPECT_THAT(out, ElementsAre(from_hex("4148 00000000 00000000 00000001 00000000"
                                          "1122334455667788"),
                                 from_hex("4149 00000000 00000000 00000002 00000000"
                                          "0000000000000009")));
    for (const ByteVector& ulpdu : out) feed(*pipe.b.stream, ulpdu, true, 3);
    const auto got = pipe.b.received();
    ASSERT_THAT(got, SizeIs(2));
    EXPECT_EQ(got[0].wr_id, 1u);
    EXPECT_EQ(got[0].immediate, 0x1122334455667788u);
    EXPECT_EQ(got[0].flags, kWcImmediate);
    EXPECT_EQ(got[0].byte_len, 0u);
    EXPECT_EQ(got[1].flags, kWcImmediate | kWcSolicited);
    EXPECT_EQ(inbox, before);
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Field(&Wc::opcode, WcOpcode::immediate),
                                           Field(&Wc::opcode, WcOpcode::immediate)));
}

TEST_F(Extension, write_with_immediate_is_one_request_and_two_messages) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
        Pipe fresh;
        fresh.mulpdu = 200;
        fresh.batch = 1;
        fresh.establish(kXsock);
        ByteVector source = pattern(n), target(1000);
        const std::uint32_t key = fresh.world.add(target, kRemoteWrite | kLocalWrite);
        fresh.b.post_recv(5);
        fresh.b.post_recv(6);
        fresh.a.post({.wr_id = 1, .opcode = SendOpcode::write, .remote_stag = key}, {sge(target)});
        fresh.a.post({.wr_id = 2,
                      .opcode = SendOpcode::write_immediate,
                      .remote_stag = key,
                      .immediate = 77},
                     {sge(source)});
        fresh.a.post({.wr_id = 3, .opcode = SendOpcode::immediate, .immediate = 78});
        fresh.run();
        EXPECT_TRUE(std::equal(source.begin(), source.end(), target.begin()));
        const auto got = fresh.b.received();
        ASSERT_THAT(got, SizeIs(2));
        EXPECT_EQ(got[0].immediate, 77u);
        EXPECT_EQ(got[0].byte_len, n);
        EXPECT_EQ(got[1].immediate, 78u);
        EXPECT_EQ(got[1].byte_len, 0u);
        EXPECT_THAT(fresh.a.sent(), ElementsAre(Field(&Wc::opcode, WcOpcode::write),
                                                Field(&Wc::opcode, WcOpcode::write_immediate),
                                                Field(&Wc::opcode, WcOpcode::immediate)));
        EXPECT_EQ(fresh.a->counters().tx_messages[RDMAP_IMMEDIATE], 2u);
        EXPECT_EQ(fresh.a->counters().tx_messages[RDMAP_WRITE], 2u);
        EXPECT_TRUE(fresh.a->drained());
    }
}

TEST_F(Extension, write_with_immediate_may_be_inline) {
    pipe.establish(kXsock);
    ByteVector source = pattern(kMaxInline), target(kMaxInline);
    const std::uint32_t key = pipe.world.add(target, kRemoteWrite | kLocalWrite);
    pipe.b.post_recv(1);
    pipe.a.post({.opcode = SendOpcode::write_immediate,
                 .flags = kSendInline,
                 .remote_stag = key,
                 .immediate = 5},
                {sge(source)});
    const ByteVector sent = source;
    source.assign(source.size(), std::byte{0});
    pipe.run();
    EXPECT_EQ(target, sent);
    EXPECT_THAT(pipe.b.received(), ElementsAre(Field(&Wc::immediate, 5)));
}

TEST_F(Extension, immediate_data_wait_for_a_receive) {
    pipe.establish(kXsock);
    pipe.a.post({.opcode = SendOpcode::immediate, .immediate = 3});
    pipe.run();
    EXPECT_TRUE(pipe.b->rx_blocked());
    pipe.b.post_recv(1);
    pipe.run();
    EXPECT_THAT(pipe.b.received(), ElementsAre(Field(&Wc::immediate, 3)));
}

// -- Send with Immediate (docs/wire.md) --

constexpr Negotiated kNewer{.peer_is_xsock = true, .features = MPA_FEATURE_SEND_IMMEDIATE};

TEST_F(Extension, a_send_with_immediate_is_one_message_and_one_receive) {
    pipe.establish(kNewer);
    ByteVector source = pattern(4), inbox(4);
    pipe.b.post_recv(1, {sge(inbox)});
    pipe.b.post_recv(2);
    pipe.a.post({.opcode = SendOpcode::send_immediate, .immediate = 0xfedcba98}, {sge(source)});
    pipe.a.post({.opcode = SendOpcode::send_immediate,
                 .flags = kSendSignaled | kSendSolicited,
                 .immediate = 1});
    const auto out = drain(*pipe.a.stream);
    EXPECT_THAT(out, ElementsAre(from_hex("414c fedcba98 00000000 00000001 00000000") + source,
                                 from_hex("414d 00000001 00000000 00000002 00000000")));
    for (const ByteVector& ulpdu : out) feed(*pipe.b.stream, ulpdu, true, 3);
    const auto got = pipe.b.received();
    ASSERT_THAT(got, SizeIs(2));
    EXPECT_EQ(got[0].wr_id, 1u);
    EXPECT_EQ(got[0].immediate, 0xfedcba98u);
    EXPECT_EQ(got[0].invalidated_stag, 0u);
    EXPECT_EQ(got[0].byte_len, 4u);
    EXPECT_EQ(got[0].flags, kWcSendImmediate);
    EXPECT_EQ(got[1].flags, kWcSendImmediate | kWcSolicited);
    EXPECT_EQ(got[1].immediate, 1u);
    EXPECT_EQ(inbox, source);
    EXPECT_THAT(pipe.a.sent(), ElementsAre(Field(&Wc::opcode, WcOpcode::send_immediate),
                                           Field(&Wc::opcode, WcOpcode::send_immediate)));
    EXPECT_EQ(pipe.b->counters().rx_messages[RDMAP_SEND_IMMEDIATE], 1u);
    EXPECT_EQ(pipe.b->counters().rx_messages[RDMAP_SEND_SE_IMMEDIATE], 1u);
}

TEST_F(Extension, a_send_with_immediate_has_it_on_every_segment) {
    for (const unsigned flags : {0u, 0u + kSendInline}) {
        Pipe fresh;
        fresh.mulpdu = 100;
        fresh.batch = 1;
        fresh.establish(kNewer);
        ByteVector source = pattern(kMaxInline), inbox(1000);
        fresh.b.post_recv(1, {sge(inbox)});
        fresh.a.post({.opcode = SendOpcode::send_immediate,
                      .flags = static_cast<std::uint8_t>(flags | kSendSignaled),
                      .immediate = 0xffffffff},
                     {sge(source)});
        const auto out = drain(*fresh.a.stream, 100);
        ASSERT_GT(out.size(), 1u);
        for (const ByteVector& ulpdu : out) {
            EXPECT_EQ(load_be32(ulpdu.data() + 2), 0xffffffffu);
            fresh.to_b.emplace_back(ulpdu);
        }
        fresh.run();
        const auto got = fresh.b.received();
        ASSERT_THAT(got, SizeIs(1));
        EXPECT_EQ(got[0].immediate, 0xffffffffu);
        EXPECT_EQ(got[0].byte_len, source.size());
        EXPECT_TRUE(std::equal(source.begin(), source.end(), inbox.begin()));
        EXPECT_TRUE(fresh.a->drained());
    }
}

TEST_F(Extension, a_send_with_immediate_that_is_too_long_is_refused) {
    pipe.establish(kNewer);
    ByteVector source = pattern(20), inbox(10);
    pipe.b.post_recv(1, {sge(inbox)});
    pipe.a.post({.wr_id = 1, .opcode = SendOpcode::send_immediate, .immediate = 7}, {sge(source)});
    const auto out = drain(*pipe.a.stream);
    for (const ByteVector& ulpdu : out) feed(*pipe.b.stream, ulpdu);
    EXPECT_EQ(pipe.b->stream_error(), StreamError::untagged_too_long);
    EXPECT_THAT(pipe.b.received(), ElementsAre(Status(WcStatus::local_length_error)));
}

TEST_F(Extension, a_send_with_immediate_amid_another_send_is_refused) {
    pipe.establish(kNewer);
    ByteVector inbox(100);
    pipe.b.post_recv(1, {sge(inbox)});
    feed(*pipe.b.stream, from_hex("0143 00000000 00000000 00000001 00000000 aabbccdd"));
    feed(*pipe.b.stream, from_hex("414c 00000000 00000000 00000001 00000004 aabbccdd"));
    EXPECT_EQ(pipe.b->stream_error(), StreamError::rdmap_opcode);
}

TEST_F(Extension, a_send_with_immediate_is_not_sent_to_ends_that_do_not_announce_it) {
    for (const Negotiated& peer : {Negotiated{}, kXsock}) {
        Pipe fresh;
        fresh.establish(peer);
        fresh.a.post({.wr_id = 1, .opcode = SendOpcode::send_immediate, .immediate = 1});
        EXPECT_THAT(drain(*fresh.a.stream),
                    ElementsAre(from_hex("4147 00000000 00000002 00000001 00000000 00000000")));
        fresh.a->flush(WcStatus::flushed);
        EXPECT_THAT(fresh.a.sent(), ElementsAre(Status(WcStatus::local_qp_error)));
        // Nor taken from them.
        fresh.b.post_recv(1);
        feed(*fresh.b.stream, from_hex("414c 00000000 00000000 00000001 00000000"));
        EXPECT_EQ(fresh.b->stream_error(), StreamError::rdmap_opcode);
    }
}

// -- peers that may not speak it --

TEST_F(Extension, is_not_sent_to_standard_peers) {
    for (const SendOpcode opcode : {SendOpcode::fetch_add, SendOpcode::compare_swap,
                                    SendOpcode::write_immediate, SendOpcode::immediate}) {
        Pipe fresh;
        fresh.establish();
        const Atomic one{.operand = 1};
        SendWr wr{.wr_id = 1, .opcode = opcode, .remote_stag = stag, .atomic = &one};
        if (is_atomic(opcode)) {
            fresh.a.post(wr, {to(result)});
        } else {
            fresh.a.post(wr);
        }
        const auto out = drain(*fresh.a.stream);
        EXPECT_THAT(out,
                    ElementsAre(from_hex("4147 00000000 00000002 00000001 00000000 00000000")));
        fresh.a->flush(WcStatus::flushed);
        EXPECT_THAT(fresh.a.sent(), ElementsAre(Status(WcStatus::local_qp_error)));
    }
}

}  // namespace
}  // namespace xsock::ddp
