// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include <gtest/gtest.h>

#include "tools/perf/protocol.hpp"

namespace xsock::tools::perf {
namespace {

Control full() {
    Control control;
    control.version = kVersion + 1;
    control.kind = Kind::sample;
    control.token = 0x0123456789abcdef;
    control.op = Op::read;
    control.test = perf::Test::stream;
    control.flags = kBothWays | kNoCrc;
    control.size = Limits::size;
    control.depth = Limits::depth;
    control.connections = Limits::connections;
    control.count = Limits::count;
    control.text = "why";
    return control;
}

TEST(PerfControl, comes_back_as_it_was) {
    Control back;
    ASSERT_TRUE(decode(encode(full()), back));
    EXPECT_EQ(back.version, kVersion + 1);
    EXPECT_EQ(back.kind, Kind::sample);
    EXPECT_EQ(back.token, 0x0123456789abcdefu);
    EXPECT_EQ(back.op, Op::read);
    EXPECT_EQ(back.test, perf::Test::stream);
    EXPECT_EQ(back.flags, kBothWays | kNoCrc);
    EXPECT_EQ(back.size, Limits::size);
    EXPECT_EQ(back.depth, Limits::depth);
    EXPECT_EQ(back.connections, Limits::connections);
    EXPECT_EQ(back.count, Limits::count);
    EXPECT_EQ(back.text, "why");
}

TEST(PerfControl, holds_to_its_limits) {
    Control back;
    for (const auto change : {+[](Control& c) { c.size = Limits::size + 1; },
                              +[](Control& c) { c.depth = Limits::depth + 1; },
                              +[](Control& c) { c.connections = Limits::connections + 1; },
                              +[](Control& c) { c.count = Limits::count + 1; },
                              +[](Control& c) { c.op = static_cast<Op>(3); },
                              +[](Control& c) { c.test = static_cast<perf::Test>(2); },
                              +[](Control& c) { c.kind = static_cast<Kind>(0); },
                              +[](Control& c) { c.kind = static_cast<Kind>(9); }}) {
        Control control = full();
        change(control);
        EXPECT_FALSE(decode(encode(control), back));
    }
    ControlMessage message = encode(full());
    message.magic[3] ^= 1;
    EXPECT_FALSE(decode(message, back));
    message = encode(full());
    std::memset(message.text, 'x', sizeof message.text);  // no NUL
    ASSERT_TRUE(decode(message, back));
    EXPECT_EQ(back.text, std::string(sizeof message.text, 'x'));
}

}  // namespace
}  // namespace xsock::tools::perf
