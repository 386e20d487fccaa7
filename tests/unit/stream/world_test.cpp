// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Thousands of small worlds: two byte streams, programs that send, read, shut down and mark urgent
// bytes in random order, a link that delays messages and memory that is given back late. What must
// hold in each: every byte arrives once and in order, the ends are seen behind the data, no queue
// outgrows its limit, no message is refused, all memory comes back, and where a program reads on
// all of it ends.
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/stream/pair.hpp"

namespace xsock::stream {
namespace {

using test::bytes_of;
using test::StreamEnd;
using test::StreamPair;

struct Program {
    std::string out;  // all that it will send
    std::size_t sent = 0;
    std::string in;
    bool ends = false, saw_end = false;
};

class World {
  public:
    explicit World(unsigned seed)
        : random_(seed), pair_(config(), config(), {.send_bytes = draw(100, 100'000)}) {
        for (unsigned i = 0; i < 2; ++i) {
            programs_[i].out = bytes_of(draw(0, 60'000), seed * 2 + i);
            ends_[i]->stream.set_nodelay(draw(0, 2) == 0);
            ends_[i]->stream.set_urgent_inline(true);  // what is read is what was sent
            ends_[i]->memory.rounds = draw(0, 1) == 0;
        }
        if (draw(0, 3) == 0) {
            const auto start = static_cast<std::uint32_t>(0u - draw(0, 200));
            pair_.a.sdp.start_numbers_at(start);
            pair_.b.sdp.start_numbers_at(start);
        }
        reads_ = draw(1, 4);
    }

    void run() {
        for (int step = 0; step < 400'000 && !over(); ++step) {
            const std::size_t side = draw(0, 1);
            act(side);
            check(side);
            if (::testing::Test::HasFailure()) return;
        }
        EXPECT_TRUE(over()) << "stuck: " << programs_[0].in.size() << " of "
                            << programs_[1].out.size() << ", " << programs_[1].in.size() << " of "
                            << programs_[0].out.size() << "; credit " << pair_.a.sdp.credit() << " "
                            << pair_.b.sdp.credit() << ", waiting for it "
                            << pair_.a.stream.waits_for_credit()
                            << pair_.b.stream.waits_for_credit() << ", readable "
                            << pair_.a.stream.readable() << " " << pair_.b.stream.readable()
                            << ", limits " << pair_.a.stream.limits().receive_bytes << " "
                            << pair_.b.stream.limits().receive_bytes;
        for (StreamEnd* end : ends_) {
            end->stream.on_eof();
            end->stream.on_lost();
            EXPECT_EQ(end->stream.error(), StreamError::none);
            EXPECT_EQ(end->stream.send_queued(), 0u);
            EXPECT_EQ(end->memory.chunks, 0u);
        }
        EXPECT_EQ(programs_[0].in, programs_[1].out);
        EXPECT_EQ(programs_[1].in, programs_[0].out);
    }
    std::size_t messages() const { return pair_.a.messages + pair_.b.messages; }

  private:
    std::size_t draw(std::size_t low, std::size_t high) {
        return std::uniform_int_distribution<std::size_t>(low, high)(random_);
    }
    SdpConfig config() {
        SdpConfig c;
        c.buffer_bytes = static_cast<std::uint32_t>(draw(37, 3'000));
        c.receive_bytes = c.buffer_bytes * draw(2, 20) + draw(0, 500);
        c.message_bytes = static_cast<std::uint32_t>(draw(37, 3'000));
        return c;
    }
    bool over() const {
        for (std::size_t i = 0; i < 2; ++i) {
            if (!programs_[i].saw_end || !ends_[i]->stream.finish_sent()) return false;
            if (!links_[i].empty() || !ends_[i]->under_way.empty()) return false;
        }
        return true;
    }
    void act(std::size_t side) {
        StreamEnd& end = *ends_[side];
        Program& program = programs_[side];
        auto& out = links_[side];
        auto& in = links_[1 - side];
        switch (draw(0, 8)) {
            case 0:
                if (program.sent == program.out.size()) {
                    program.ends = true;
                    end.stream.finish();
                    break;
                }
                if (draw(0, 9) == 0) {
                    program.sent += end.send_urgent(program.out.substr(program.sent, draw(1, 200)));
                    break;
                }
                program.sent += end.send(
                    program.out.substr(program.sent, draw(1, draw(0, 3) == 0 ? 5'000 : 40)),
                    draw(0, 9) == 0);
                break;
            case 1:
            case 2:
                if (const auto octets = end.tx(); !octets.empty()) out.push_back(octets);
                break;
            case 3:
            case 4:
                if (in.empty()) break;
                EXPECT_FALSE(end.rx(in.front()).unwanted);
                in.pop_front();
                break;
            case 5:
                if (draw(1, reads_) != 1) break;
                end.stream.flush();
                program.in += end.read(draw(1, 4'000));
                if (end.stream.receive_finished() && end.stream.readable() == 0) {
                    program.saw_end = true;
                }
                break;
            case 6:
                end.done();
                break;
            case 7:
                end.now += draw(0, 400'000);
                end.stream.on_time(end.now);
                break;
            default:
                break;
        }
    }
    void check(std::size_t side) {
        const StreamEnd& end = *ends_[side];
        ASSERT_EQ(end.stream.error(), StreamError::none)
            << stream_error_info(end.stream.error()).name;
        ASSERT_LE(end.stream.readable(), end.stream.limits().receive_bytes);
        ASSERT_LE(end.stream.send_queued(), end.stream.limits().send_bytes);
        const Program& other = programs_[1 - side];
        ASSERT_LE(programs_[side].in.size(), other.sent);
    }

    std::mt19937 random_;
    StreamPair pair_;
    StreamEnd* ends_[2]{&pair_.a, &pair_.b};
    Program programs_[2];
    std::deque<std::vector<std::byte>> links_[2];
    std::size_t reads_ = 1;
};

TEST(StreamWorld, every_byte_arrives_and_everything_ends) {
    for (unsigned seed = 1; seed <= 2'000; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        World world(seed);
        world.run();
        if (::testing::Test::HasFailure()) return;
    }
}

// A link without delay: what two ends say to each other about credit alone comes to an end.
TEST(StreamWorld, idle_ends_are_silent) {
    for (unsigned seed = 1; seed <= 500; ++seed) {
        std::mt19937 random(seed);
        const auto draw = [&](std::size_t low, std::size_t high) {
            return std::uniform_int_distribution<std::size_t>(low, high)(random);
        };
        SdpConfig c;
        c.buffer_bytes = static_cast<std::uint32_t>(draw(37, 500));
        c.receive_bytes = c.buffer_bytes * draw(2, 5);
        StreamPair p(c);
        for (int i = 0; i < 50; ++i) {
            StreamEnd& end = draw(0, 1) == 0 ? p.a : p.b;
            draw(0, 1) == 0 ? (void)end.send(bytes_of(draw(1, 2'000)))
                            : (void)end.read(draw(1, 500));
            end.stream.flush();
            const std::size_t before = p.a.messages + p.b.messages;
            p.run();
            ASSERT_LE(p.a.messages + p.b.messages - before, 200u) << seed;
        }
    }
}

}  // namespace
}  // namespace xsock::stream
