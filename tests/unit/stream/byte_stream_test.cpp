// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The byte stream as a program sees it: gathering, limits, halves, urgent bytes, the end.
#include "stream/byte_stream.hpp"

#include <gtest/gtest.h>

#include "tests/unit/stream/pair.hpp"

namespace xsock::stream {
namespace {

using test::bytes_of;
using test::StreamPair;

// ---- sending and gathering ----------------------------------------------------------

TEST(ByteStream, carries_bytes_both_ways) {
    StreamPair p;
    EXPECT_EQ(p.a.send("question"), 8u);
    p.run();
    EXPECT_EQ(p.b.read(), "question");
    p.b.send("answer");
    p.run();
    EXPECT_EQ(p.a.read(), "answer");
}

TEST(ByteStream, keeps_no_boundaries) {
    StreamPair p;
    p.a.send("one ");
    p.run();
    p.a.send("two");
    p.a.stream.flush();
    p.run();
    EXPECT_EQ(p.b.read(5), "one t");
    EXPECT_EQ(p.b.read(), "wo");
}

TEST(ByteStream, the_first_send_goes_at_once_and_the_next_gather) {
    StreamPair p;
    p.a.send("1");
    EXPECT_FALSE(p.a.tx().empty());
    for (int i = 0; i < 50; ++i) p.a.send("234");
    EXPECT_TRUE(p.a.tx().empty());
    EXPECT_EQ(p.a.stream.next_timeout(), p.a.now + 500'000);
    EXPECT_FALSE(p.a.stream.on_time(p.a.now + 499'999));
    EXPECT_TRUE(p.a.tx().empty());
    EXPECT_TRUE(p.a.stream.on_time(p.a.now + 500'000));
    EXPECT_EQ(p.a.tx().size(), kBsdhOctets + 150);
    EXPECT_EQ(p.a.stream.next_timeout(), kNever);
}

TEST(ByteStream, a_program_that_reads_or_waits_sends_what_was_gathered) {
    StreamPair p;
    p.a.send("1");
    p.a.tx();
    p.a.send("2");
    EXPECT_TRUE(p.a.tx().empty());
    p.a.stream.flush();
    EXPECT_FALSE(p.a.tx().empty());
    p.a.send("3");  // and the next goes at once again
    EXPECT_FALSE(p.a.tx().empty());
}

TEST(ByteStream, sends_that_are_far_apart_go_at_once) {
    StreamPair p;
    for (int i = 0; i < 10; ++i) {
        p.a.send("1");
        EXPECT_FALSE(p.a.tx().empty()) << i;
        p.a.now += 500'000;
    }
}

TEST(ByteStream, a_full_message_does_not_wait) {
    StreamPair p;
    p.a.send("1");
    p.a.tx();
    const std::size_t full = p.a.sdp.payload_limit();
    p.a.send(bytes_of(full - 1));
    EXPECT_TRUE(p.a.tx().empty());
    p.a.send("23");
    EXPECT_EQ(p.a.tx().size(), kBsdhOctets + full);
    EXPECT_TRUE(p.a.tx().empty());  // "3"
    EXPECT_EQ(p.a.stream.next_timeout(), p.a.now + 500'000);
}

TEST(ByteStream, nodelay_gathers_nothing) {
    StreamPair p;
    p.a.send("1");
    p.a.tx();
    p.a.send("2");
    p.a.stream.set_nodelay(true);
    EXPECT_EQ(p.a.tx().size(), kBsdhOctets + 1);
    for (int i = 0; i < 3; ++i) {
        p.a.send("3");
        EXPECT_FALSE(p.a.tx().empty());
    }
}

TEST(ByteStream, more_waits_for_the_next) {
    for (const bool nodelay : {false, true}) {
        StreamPair p;
        p.a.stream.set_nodelay(nodelay);
        p.a.send("head", true);
        EXPECT_TRUE(p.a.tx().empty());
        const Time due = p.a.now + p.a.stream.limits().hold;
        EXPECT_EQ(p.a.stream.next_timeout(), due);
        p.a.now += 100'000;
        p.a.send("neck", true);
        EXPECT_EQ(p.a.stream.next_timeout(), due) << "each does not begin anew";
        p.a.stream.flush();
        EXPECT_TRUE(p.a.tx().empty()) << "a program that reads has not said the rest";
        p.a.send("body");
        EXPECT_EQ(p.a.tx().size(), kBsdhOctets + 12);
    }
}

TEST(ByteStream, more_waits_for_nothing_where_the_buffer_is_half_full) {
    StreamPair p;
    p.a.stream.set_send_limit(100);
    p.a.send(std::string(50, 'x'), true);
    EXPECT_TRUE(p.a.stream.holds());
    EXPECT_TRUE(p.a.tx().empty());
    p.a.send("y", true);
    EXPECT_FALSE(p.a.stream.holds()) << "a program that is told of no room sends no more";
    EXPECT_EQ(p.a.tx().size(), kBsdhOctets + 51);
}

TEST(ByteStream, more_goes_when_it_is_pushed_or_its_time_has_come) {
    StreamPair p;
    p.a.send("head", true);
    p.a.stream.push();
    EXPECT_EQ(p.a.tx().size(), kBsdhOctets + 4);
    p.a.send("neck", true);
    EXPECT_TRUE(p.a.stream.holds());
    EXPECT_FALSE(p.a.stream.on_time(p.a.now + p.a.stream.limits().gather));
    EXPECT_TRUE(p.a.tx().empty());
    EXPECT_TRUE(p.a.stream.on_time(p.a.now + p.a.stream.limits().hold));
    EXPECT_EQ(p.a.tx().size(), kBsdhOctets + 4);
    EXPECT_FALSE(p.a.stream.holds());
}

TEST(ByteStream, more_that_there_is_no_room_for_is_not_waited_for) {
    StreamPair p({}, {.send_bytes = 1000});
    EXPECT_EQ(p.a.send(bytes_of(1500), true), 1000u);
    EXPECT_EQ(p.a.tx().size(), kBsdhOctets + 1000);
}

TEST(ByteStream, small_sends_take_no_large_chunk_unless_they_gather) {
    StreamPair p;
    p.a.send("1");
    EXPECT_LT(p.a.memory.bytes, 512u);
    p.a.tx();
    p.a.done();
    EXPECT_EQ(p.a.memory.chunks, 0u);
    for (int i = 0; i < 100; ++i) p.a.send(bytes_of(64));
    EXPECT_EQ(p.a.memory.chunks, 1u);
    p.a.stream.flush();
    EXPECT_EQ(p.a.tx().size(), kBsdhOctets + 6400);
}

TEST(ByteStream, takes_no_more_than_its_limit) {
    StreamPair p({}, {.send_bytes = 100'000});
    EXPECT_EQ(p.a.send(bytes_of(150'000)), 100'000u);
    EXPECT_EQ(p.a.stream.send_room(), 0u);
    while (!p.a.tx().empty()) {
    }
    EXPECT_EQ(p.a.stream.send_room(), 0u);  // being sent
    p.a.done();
    EXPECT_EQ(p.a.stream.send_queued(), 0u);
    EXPECT_EQ(p.a.stream.send_room(), 100'000u);
}

TEST(ByteStream, goes_on_without_memory_once_there_is_some) {
    StreamPair p;
    p.a.memory.none_left = true;
    EXPECT_EQ(p.a.send("1"), 0u);
    p.a.memory.none_left = false;
    p.a.send("1");
    p.a.tx();
    p.a.send("2");
    p.a.memory.none_left = true;  // the small chunk cannot become a larger one
    EXPECT_GT(p.a.send(bytes_of(1000)), 0u);
    p.a.memory.none_left = false;
    p.a.stream.flush();
    EXPECT_FALSE(p.a.tx().empty());
}

TEST(ByteStream, bytes_that_are_not_there_are_not_sent) {
    StreamPair p;
    p.a.send(bytes_of(p.a.sdp.payload_limit()));
    ASSERT_FALSE(p.a.stream.send_prepare(10).empty());
    EXPECT_FALSE(p.a.tx().empty());
    p.a.stream.send_commit(0, false, 0);  // EFAULT
    EXPECT_TRUE(p.a.tx().empty());
    p.a.stream.finish();
    p.run();
    EXPECT_TRUE(p.a.stream.finish_sent());
}

// a sends "abc", and calls `end` between the two halves of that: nothing goes before the second.
void send_around(StreamPair& p, void (stream::ByteStream::*end)()) {
    const Bytes room = p.a.stream.send_prepare(3);
    ASSERT_EQ(room.size(), 3u);
    (p.a.stream.*end)();
    EXPECT_TRUE(p.a.tx().empty());
    std::memcpy(room.data(), "abc", 3);
    p.a.stream.send_commit(3, false, p.a.now);
    p.run();
    EXPECT_EQ(p.b.read(), "abc");
}

TEST(ByteStream, a_chunk_that_is_being_filled_does_not_go) {
    StreamPair p;
    send_around(p, &stream::ByteStream::flush);
}

// ---- limits and credits -------------------------------------------------------------

TEST(ByteStream, a_reader_that_sleeps_holds_the_sender) {
    StreamPair p({.buffer_bytes = 1000, .receive_bytes = 10'000});
    const std::string all = bytes_of(200'000);
    std::size_t sent = p.a.send(all);
    p.run();
    EXPECT_TRUE(p.a.stream.waits_for_credit());
    EXPECT_LE(p.b.stream.readable(), 10'000u);
    EXPECT_GE(p.b.stream.readable(), 9'000u);
    std::string seen;
    while (seen.size() < all.size()) {
        const std::string piece = p.b.read(1'000);
        ASSERT_FALSE(piece.empty());
        seen += piece;
        sent += p.a.send(all.substr(sent));
        p.run();
        ASSERT_LE(p.b.stream.readable(), 10'000u);
    }
    EXPECT_EQ(seen, all);
}

TEST(ByteStream, many_small_messages_cost_little_memory) {
    StreamPair p;
    p.b.memory.rounds = true;
    p.a.stream.set_nodelay(true);
    std::string all;
    for (unsigned i = 0; i < 5'000; ++i) {
        const std::string some = bytes_of(64, i);
        ASSERT_EQ(p.a.send(some), 64u);
        all += some;
        p.run();
    }
    EXPECT_EQ(p.b.stream.readable(), all.size());
    EXPECT_LE(p.b.memory.bytes, 2 * all.size());
    EXPECT_EQ(p.b.read(), all);
}

TEST(ByteStream, messages_of_any_size_cost_little_more_than_twice_their_memory) {
    for (const std::size_t size : {17, 300, 401, 4'001, 16'385, 32'769, 60'000}) {
        StreamPair p;
        p.b.memory.rounds = true;
        p.a.stream.set_nodelay(true);
        std::string all;
        while (all.size() < 2'000'000 && p.a.messages < 3'000) {
            const std::string some = bytes_of(size, static_cast<unsigned>(all.size()));
            ASSERT_EQ(p.a.send(some), size);
            all += some;
            p.run();
        }
        EXPECT_LE(p.b.memory.bytes, all.size() * 9 / 4 + 66'000) << size;
        EXPECT_EQ(p.b.read(all.size()), all);
    }
}

TEST(ByteStream, urgent_bytes_on_a_stuck_stream_take_small_chunks) {
    StreamPair p({.buffer_bytes = 65'456, .receive_bytes = 131'000});
    p.a.memory.rounds = true;
    while (p.a.send(bytes_of(65'440)) > 0 && !p.a.stream.waits_for_credit()) p.run();
    const std::size_t before = p.a.memory.bytes;
    for (int i = 0; i < 1'000; ++i) p.a.send_urgent("u");
    EXPECT_LE(p.a.memory.bytes - before, 1'100u * 512);  // one each, 65 MB if they were large
}

TEST(ByteStream, an_announcement_is_told_although_an_older_mark_is_not_passed) {
    StreamPair p({.buffer_bytes = 1000, .receive_bytes = 8'000});
    p.a.send_urgent("!");
    p.run();
    ASSERT_EQ(p.b.stream.urgent(), ByteStream::Urgent::there);
    p.b.stream.take_urgent();
    EXPECT_EQ(p.b.stream.urgent(), ByteStream::Urgent::none);
    while (p.a.send(bytes_of(984)) > 0 && !p.a.stream.waits_for_credit()) p.run();
    p.a.send_urgent("?");
    EXPECT_TRUE(p.run().urgent);
    EXPECT_EQ(p.b.stream.urgent(), ByteStream::Urgent::awaited);
}

TEST(ByteStream, what_is_sent_ahead_of_start_up_goes_in_messages_that_the_peer_takes) {
    for (const std::uint32_t buffer_bytes : {272u, 1000u, 65'456u}) {
        StreamPair p(StreamPair::NotStarted{}, {}, {.buffer_bytes = buffer_bytes});
        const std::string text = bytes_of(200'001);
        std::size_t sent = p.a.send(text.substr(0, 5));
        while (sent < text.size() - 1) {
            sent +=
                p.a.send(text.substr(sent, std::min<std::size_t>(1000, text.size() - 1 - sent)));
        }
        sent += p.a.send_urgent(text.substr(sent));
        ASSERT_EQ(sent, text.size());
        p.a.stream.finish();
        EXPECT_TRUE(p.a.tx().empty()) << "the peer has given no credit";
        p.start();
        std::string got;
        for (std::size_t before = 1; got.size() != before;) {
            before = got.size();
            p.run();
            got += p.b.read();
        }
        EXPECT_EQ(p.b.stream.urgent_byte(), static_cast<std::byte>(text.back()));
        EXPECT_TRUE(got == text.substr(0, text.size() - 1)) << got.size();
        EXPECT_TRUE(p.b.stream.receive_finished());
        EXPECT_EQ(p.a.stream.send_queued(), 0u);
        EXPECT_EQ(p.b.stream.error(), StreamError::none);
    }
}

// The chunk that was divided has no room, and is as large as one may be now.
TEST(ByteStream, more_follows_a_chunk_that_was_divided) {
    StreamPair p(StreamPair::NotStarted{}, {}, {.buffer_bytes = 8192, .receive_bytes = 65'536});
    std::string text = bytes_of(65'430);
    ASSERT_EQ(p.a.send(text), text.size());
    p.start();
    while (!p.a.tx().empty()) p.a.done();
    ASSERT_GT(p.a.stream.send_queued(), 0u) << "for want of credit";
    EXPECT_EQ(p.a.send(bytes_of(10'000)), 10'000u);
}

TEST(ByteStream, no_memory_to_divide_what_was_sent_ahead_of_start_up_is_an_error) {
    StreamPair p(StreamPair::NotStarted{}, {}, {.buffer_bytes = 1000});
    p.a.send(bytes_of(5000));
    p.start();
    p.a.memory.none_left = true;
    p.run();
    EXPECT_EQ(p.a.stream.error(), StreamError::local_catastrophic);
}

TEST(ByteStream, pieces_stay_where_they_are_while_more_comes) {
    StreamPair p;
    p.a.stream.set_nodelay(true);
    p.a.send(bytes_of(5000, 1));
    p.run();
    ConstBytes piece;
    ASSERT_EQ(p.b.stream.peek(5000, {&piece, 1}), 1u);
    for (unsigned i = 0; i < 10; ++i) p.a.send(bytes_of(5000, 2));
    p.run();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(piece.data()), piece.size()),
              bytes_of(5000, 1));
    p.b.stream.consume(5000);
    EXPECT_EQ(p.b.stream.readable(), 50'000u);
}

TEST(ByteStream, peek_takes_nothing) {
    StreamPair p;
    p.a.send("abc");
    p.run();
    ConstBytes piece;
    EXPECT_EQ(p.b.stream.peek(2, {&piece, 1}), 1u);
    EXPECT_EQ(piece.size(), 2u);
    EXPECT_EQ(p.b.read(), "abc");
}

// ---- the end ----------------------------------------------------------------------------

TEST(ByteStream, one_half_ends_behind_its_data_and_the_other_goes_on) {
    StreamPair p;
    p.a.send("1");
    p.a.tx();
    StreamPair q;
    q.a.send("first");
    q.a.send("last");
    q.a.stream.finish();
    EXPECT_EQ(q.a.stream.send_room(), 0u);
    EXPECT_TRUE(q.run().finished);
    EXPECT_EQ(q.b.read(), "firstlast");
    EXPECT_TRUE(q.b.stream.receive_finished());
    EXPECT_TRUE(q.a.stream.finish_sent());
    EXPECT_FALSE(q.a.stream.receive_finished());
    q.b.send("still");
    q.run();
    EXPECT_EQ(q.a.read(), "still");
    q.b.stream.finish();
    q.run();
    q.a.stream.on_eof();
    q.b.stream.on_eof();
    EXPECT_EQ(q.a.stream.error(), StreamError::none);
    EXPECT_EQ(q.b.stream.error(), StreamError::none);
}

TEST(ByteStream, the_end_waits_for_credit_of_its_data) {
    StreamPair p({.buffer_bytes = 1000, .receive_bytes = 3'000});
    p.a.send(bytes_of(10'000));
    p.a.stream.finish();
    p.run();
    EXPECT_FALSE(p.a.stream.finish_sent());
    std::string seen;
    for (int i = 0; i < 100 && !p.b.stream.receive_finished(); ++i) {
        seen += p.b.read();
        p.run();
    }
    EXPECT_EQ(seen + p.b.read(), bytes_of(10'000));
    EXPECT_TRUE(p.b.stream.receive_finished());
}

TEST(ByteStream, tcp_that_ends_first_is_an_error_behind_the_data) {
    StreamPair p;
    p.a.send("data");
    p.run();
    p.b.stream.on_eof();
    EXPECT_EQ(p.b.stream.error(), StreamError::stream_truncated);
    EXPECT_EQ(p.b.read(), "data");
    EXPECT_EQ(p.b.stream.send_room(), 0u);
}

TEST(ByteStream, a_peer_that_has_closed_leaves_our_half_open) {
    StreamPair p;
    p.a.send("data");
    p.a.stream.finish();
    p.run();
    p.b.stream.on_eof();
    EXPECT_EQ(p.b.stream.error(), StreamError::none);
    EXPECT_EQ(p.b.read(), "data");
    EXPECT_TRUE(p.b.stream.receive_finished());
    EXPECT_NE(p.b.stream.send_room(), 0u);
}

TEST(ByteStream, a_connection_that_ends_before_our_half_is_an_error) {
    StreamPair p;
    p.a.stream.finish();
    p.run();
    p.b.stream.on_eof();
    p.b.stream.on_lost();
    EXPECT_EQ(p.b.stream.error(), StreamError::stream_truncated);
    EXPECT_TRUE(p.b.stream.receive_finished());
}

TEST(ByteStream, the_end_waits_for_bytes_that_are_being_added) {
    StreamPair p;
    send_around(p, &stream::ByteStream::finish);
    EXPECT_TRUE(p.b.stream.receive_finished());
}

TEST(ByteStream, urgent_bytes_do_not_pass_the_room_of_the_peer) {
    constexpr std::size_t kBuffer = 1000, kRoom = 8'000;
    StreamPair p({.buffer_bytes = kBuffer, .receive_bytes = kRoom});
    for (int i = 0; i < 200; ++i) {
        p.a.send_urgent(std::string(kBuffer - 16, 'u'));
        p.run();
    }
    EXPECT_LE(p.b.memory.bytes, kRoom + 2 * kBuffer);
}

TEST(ByteStream, urgent_bytes_that_cross_are_all_sent) {
    StreamPair p({.buffer_bytes = 1000, .receive_bytes = 8'000});
    const auto cross = [&p] {
        for (bool again = true; again;) {
            const auto from_a = p.a.tx(), from_b = p.b.tx();
            p.a.done();
            p.b.done();
            if (!from_a.empty()) p.b.rx(from_a);
            if (!from_b.empty()) p.a.rx(from_b);
            again = !from_a.empty() || !from_b.empty();
        }
    };
    while (p.a.sdp.credit() > 2 && p.b.sdp.credit() > 2) {
        p.a.send(std::string(984, 'a'));
        p.b.send(std::string(984, 'b'));
        cross();
    }
    for (int i = 0; i < 2; ++i) {
        p.a.send_urgent("u");
        p.b.send_urgent("u");
        cross();
    }
    for (int i = 0; i < 40; ++i) {
        for (test::StreamEnd* end : {&p.a, &p.b}) {
            if (end->read().empty()) end->stream.consume(0);  // passes a mark, as recv()
        }
        p.run();
    }
    EXPECT_EQ(p.a.stream.send_queued(), 0u);
    EXPECT_EQ(p.b.stream.send_queued(), 0u);
}

TEST(ByteStream, an_abort_behind_the_end_is_told_by_a_message) {
    StreamPair p;
    EXPECT_FALSE(p.a.stream.abort());  // a reset says it
    p.a.send("data");
    p.a.stream.finish();
    p.run();
    EXPECT_TRUE(p.a.stream.abort());
    p.run();
    EXPECT_EQ(p.b.stream.error(), StreamError::stream_aborted);
    EXPECT_EQ(p.b.read(), "data");
}

TEST(ByteStream, data_that_no_one_will_read_are_unwanted) {
    StreamPair p;
    EXPECT_FALSE(p.b.stream.close_receiving());
    p.a.send("data");
    EXPECT_TRUE(p.run().unwanted);
    StreamPair q;
    q.a.send("data");
    q.run();
    EXPECT_TRUE(q.b.stream.close_receiving());
    EXPECT_EQ(q.b.memory.chunks, 0u);
}

TEST(ByteStream, nothing_moves_after_an_error) {
    StreamPair p;
    p.a.send("before");
    p.run();
    p.a.send("after");
    p.a.stream.flush();
    const auto good = p.a.tx();
    ASSERT_FALSE(good.empty());
    p.b.send("out");
    p.b.stream.flush();
    std::vector<std::byte> wrong(kBsdhOctets, std::byte{0x0f});
    p.b.rx(wrong);
    EXPECT_NE(p.b.stream.error(), StreamError::none);
    EXPECT_FALSE(p.b.rx(wrong).kept);
    EXPECT_TRUE(p.b.tx().empty());
    p.b.rx(good);
    EXPECT_EQ(p.b.read(), "before");
}

// ---- urgent bytes ---------------------------------------------------------------------

TEST(ByteStream, an_urgent_byte_is_taken_out_of_the_stream) {
    StreamPair p;
    p.a.send("ab");
    p.a.send_urgent("c!");
    p.a.send("de");
    p.a.stream.flush();
    EXPECT_TRUE(p.run().urgent);
    EXPECT_EQ(p.b.stream.urgent(), ByteStream::Urgent::there);
    EXPECT_EQ(p.b.stream.urgent_byte(), std::byte{'!'});
    EXPECT_EQ(p.b.stream.readable(), 3u);
    EXPECT_FALSE(p.b.stream.at_mark());
    EXPECT_EQ(p.b.read(), "abc");  // a read stops at the mark
    EXPECT_TRUE(p.b.stream.at_mark());
    p.b.stream.take_urgent();
    EXPECT_EQ(p.b.stream.urgent(), ByteStream::Urgent::none);
    EXPECT_TRUE(p.b.stream.at_mark());
    EXPECT_EQ(p.b.read(), "de");
    EXPECT_FALSE(p.b.stream.at_mark());
}

TEST(ByteStream, an_urgent_byte_inline_is_one_of_the_stream) {
    StreamPair p;
    p.b.stream.set_urgent_inline(true);
    p.a.send_urgent("ab!");
    p.a.send("cd");
    p.a.stream.flush();
    p.run();
    EXPECT_EQ(p.b.stream.urgent(), ByteStream::Urgent::none);
    EXPECT_EQ(p.b.read(), "ab");
    EXPECT_TRUE(p.b.stream.at_mark());
    EXPECT_EQ(p.b.read(), "!cd");
}

TEST(ByteStream, a_newer_mark_replaces_an_older_one) {
    StreamPair p;
    p.a.send_urgent("a1");
    p.a.send_urgent("b2");
    p.run();
    EXPECT_EQ(p.b.stream.urgent_byte(), std::byte{'2'});
    EXPECT_EQ(p.b.read(), "a1b");
    EXPECT_EQ(p.b.read(), "");
}

TEST(ByteStream, an_urgent_byte_is_announced_although_the_stream_is_stuck) {
    StreamPair p({.buffer_bytes = 1000, .receive_bytes = 3'000});
    p.a.send(bytes_of(20'000));
    p.run();
    p.a.send_urgent("!");
    EXPECT_TRUE(p.run().urgent);
    EXPECT_EQ(p.b.stream.urgent(), ByteStream::Urgent::awaited);
    p.a.send_urgent("?");  // the first keeps its mark: it was announced
    std::string seen;
    std::string urgent;
    for (int i = 0; i < 100 && seen.size() < 20'001; ++i) {
        seen += p.b.read();
        if (p.b.stream.urgent() == ByteStream::Urgent::there) {
            urgent += static_cast<char>(p.b.stream.urgent_byte());
            p.b.stream.take_urgent();
        }
        p.run();
    }
    EXPECT_EQ(urgent.back(), '?');  // the first may have been replaced before it was read
    EXPECT_EQ(seen.substr(0, 20'000), bytes_of(20'000));
}

TEST(ByteStream, an_urgent_byte_far_ahead_is_announced_later) {
    StreamPair p({.buffer_bytes = 1000, .receive_bytes = 3'000});
    p.a.send(bytes_of(100'000));
    p.a.send_urgent("!");
    EXPECT_FALSE(p.run().urgent);
    std::size_t read = 0;
    bool announced = false;
    while (!announced && read < 100'000) {
        read += p.b.read().size();
        announced = p.run().urgent;
    }
    EXPECT_TRUE(announced);
    EXPECT_GE(read, 100'001u - 65'535 - 6'000);
    EXPECT_EQ(p.b.stream.error(), StreamError::none);
    while (p.b.stream.urgent() != ByteStream::Urgent::there && !p.b.read().empty()) p.run();
    EXPECT_EQ(p.b.stream.urgent_byte(), std::byte{'!'});
}

}  // namespace
}  // namespace xsock::stream
