// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The bound over the receive buffers of all byte streams of a process.
#include <sys/wait.h>

#include "libxsock/socket/stream_memory.hpp"
#include "tests/unit/libxsock/own_process.hpp"
#include "tests/unit/libxsock/socket_shim.hpp"

namespace xsock::test {
namespace {

using sockets::parse_stream_memory;
using sockets::StreamMemory;

constexpr std::uint64_t kUsual = 4 << 20, kGiB = std::uint64_t{1} << 30;

TEST(SockStreamMemory, the_first_streams_get_what_they_ask_for) {
    StreamMemory memory(kGiB);
    EXPECT_EQ(memory.add(32 << 20), std::uint64_t{32} << 20);
    for (std::uint64_t i = 1; i < StreamMemory::kUnshared; ++i) {
        EXPECT_EQ(memory.add(kUsual), kUsual) << i;
    }
    EXPECT_LT(memory.add(kUsual), kUsual);
}

TEST(SockStreamMemory, the_sum_stays_within_the_limit) {
    StreamMemory memory(kGiB);
    std::uint64_t sum = 0, last = kGiB;
    for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t granted = memory.add(kUsual);
        EXPECT_LE(granted, last) << i;
        last = granted;
        sum += granted;
    }
    EXPECT_LE(sum, kGiB);
    EXPECT_EQ(memory.granted(), sum);
}

TEST(SockStreamMemory, none_gets_less_than_a_stream_needs) {
    StreamMemory memory(1 << 20);
    for (int i = 0; i < 2000; ++i) EXPECT_GE(memory.add(kUsual), StreamMemory::kLeast);
}

TEST(SockStreamMemory, what_has_ended_is_free_again) {
    StreamMemory memory(kGiB);
    std::vector<std::uint64_t> granted;
    for (int i = 0; i < 5000; ++i) granted.push_back(memory.add(kUsual));
    for (const std::uint64_t bytes : granted) memory.remove(bytes);
    EXPECT_EQ(memory.granted(), 0u);
    EXPECT_EQ(memory.add(kUsual), kUsual);
}

TEST(SockStreamMemory, a_change_is_as_a_new_request) {
    StreamMemory memory(kGiB);
    const std::uint64_t first = memory.add(kUsual);
    EXPECT_EQ(memory.change(first, 8 << 20), std::uint64_t{8} << 20);
    EXPECT_EQ(memory.change(8 << 20, kGiB), kGiB / 16);
    EXPECT_EQ(memory.change(kGiB / 16, 4096), 4096u);
    EXPECT_EQ(memory.granted(), 4096u);
}

TEST(SockStreamMemory, of_a_setting) {
    EXPECT_EQ(parse_stream_memory("1G"), kGiB);
    EXPECT_EQ(parse_stream_memory("1048576"), 1u << 20);
    EXPECT_EQ(parse_stream_memory("2048K"), 2u << 20);
    EXPECT_EQ(parse_stream_memory("1GiB"), kGiB);
    EXPECT_EQ(parse_stream_memory("1048576G"), std::uint64_t{1} << 50);
    for (const char* bad : {"", "1", "1023K", "1T", "1048577G"}) {
        EXPECT_FALSE(parse_stream_memory(bad)) << bad;
    }
}

struct Streams {
    Sock listener = Sock::fresh(), client = Sock::fresh(), server;
    Streams() {
        EXPECT_EQ(listener.set(DDPMODE, DDPMODE_STREAM), 0);
        EXPECT_EQ(client.set(DDPMODE, DDPMODE_STREAM), 0);
        EXPECT_EQ(listener.bind_and_listen(), 0);
        EXPECT_EQ(client.connect(listener.port()), 0);
        server = listener.accept();
        EXPECT_EQ(client.send(std::string("x")), 1);
        char byte = 0;
        EXPECT_EQ(server.recv(&byte, 1), 1);
    }
    static int receives(Sock& s) {
        int bytes = 0;
        socklen_t size = sizeof bytes;
        EXPECT_EQ(s.get(SOL_SOCKET, SO_RCVBUF, &bytes, &size), 0);
        return bytes;
    }
};

// In a process with little memory for them.
void carry_with_little() {
    {
        Streams s;
        EXPECT_LE(Streams::receives(s.server), 64 << 10);
        const std::string text = text_of(3 << 20);
        std::thread sender([&] { EXPECT_EQ(s.client.send(text), ssize_t(text.size())); });
        std::string got(text.size(), '\0');
        EXPECT_EQ(s.server.recv(got.data(), got.size(), MSG_WAITALL), ssize_t(got.size()));
        EXPECT_EQ(got, text);
        sender.join();
    }
    std::vector<Streams> many(100);
    EXPECT_EQ(Streams::receives(many.back().server), int(StreamMemory::kLeast));
    const pid_t child = fork();
    if (child == 0) {
        Streams own;
        _exit(Streams::receives(own.server) > int(StreamMemory::kLeast) ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "the parent's streams are not the child's";
}

TEST(SockStreamMemory, streams_of_a_process_with_little_carry_everything) {
    with_environment("XSOCK_STREAM_MEMORY", "1M", carry_with_little);
}

}  // namespace
}  // namespace xsock::test
