// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two byte streams over SDP, joined by a link in memory. For tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "stream/byte_stream.hpp"
#include "stream/sdp.hpp"
#include "tests/support/pattern.hpp"
#include "tests/unit/stream/memory.hpp"

namespace xsock::test {

struct StreamEnd {
    StreamEnd(const stream::SdpConfig& config, const stream::StreamLimits& limits)
        : sdp(config), stream(sdp, memory, limits) {}
    ~StreamEnd() {
        for (stream::Chunk* chunk : under_way) memory.give(chunk);
    }

    Memory memory;
    stream::Sdp sdp;
    stream::ByteStream stream;
    std::deque<stream::Chunk*> under_way;  ///< handed out by tx(), not yet done
    Time now = kSecond;
    std::size_t messages = 0;  ///< handed out

    /// As send() of a non-blocking socket: how many bytes were taken.
    std::size_t send(const std::string& text, bool more = false) {
        std::size_t sent = 0;
        while (sent < text.size() && stream.send_room() > 0) {
            const Bytes room = stream.send_prepare(text.size() - sent);
            if (room.empty()) break;
            std::memcpy(room.data(), text.data() + sent, room.size());
            stream.send_commit(room.size(), more, stream.send_needs_time() ? now : 0);
            sent += room.size();
        }
        return sent;
    }
    std::size_t send_urgent(const std::string& text) {
        const std::size_t sent = send(text);
        if (sent > 0) stream.mark_urgent();
        return sent;
    }
    /// As recv(): what there is, up to `most`, in pieces of any number.
    std::string read(std::size_t most = 1 << 20) {
        std::string text;
        ConstBytes pieces[3];
        while (text.size() < most) {
            const std::size_t n = stream.peek(most - text.size(), pieces);
            if (n == 0) break;
            std::size_t bytes = 0;
            for (std::size_t i = 0; i < n; ++i) {
                text.append(reinterpret_cast<const char*>(pieces[i].data()), pieces[i].size());
                bytes += pieces[i].size();
            }
            const bool to_mark = bytes == stream.readable();
            stream.consume(bytes);
            if (to_mark) break;
        }
        return text;
    }
    /// The next message as octets; empty: none now. Its memory stays taken until done().
    std::vector<std::byte> tx() {
        stream::TxMessage message;
        if (!stream.tx(message)) return {};
        ++messages;
        if (message.chunk != nullptr) under_way.push_back(message.chunk);
        return {message.bytes.begin(), message.bytes.end()};
    }
    void done() {
        while (!under_way.empty()) {
            stream.tx_done(under_way.front());
            under_way.pop_front();
        }
    }
    stream::RxNews rx(ConstBytes octets) {
        stream::Chunk* const chunk = memory.take(octets.size());
        std::memcpy(chunk->data(), octets.data(), octets.size());
        chunk->end = static_cast<std::uint32_t>(octets.size());
        const stream::RxNews news = stream.rx(chunk);
        if (!news.kept) memory.give(chunk);
        return news;
    }
};

struct StreamPair {
    StreamEnd a, b;

    explicit StreamPair(const stream::SdpConfig& config = {}, stream::StreamLimits limits = {})
        : StreamPair(config, config, limits) {}
    StreamPair(const stream::SdpConfig& of_a, const stream::SdpConfig& of_b,
               stream::StreamLimits limits = {})
        : StreamPair(NotStarted{}, of_a, of_b, limits) {
        start();
    }
    struct NotStarted {};
    StreamPair(NotStarted, const stream::SdpConfig& of_a, const stream::SdpConfig& of_b,
               stream::StreamLimits limits = {})
        : a(of_a, limits_of(of_a, limits)), b(of_b, limits_of(of_b, limits)) {}
    void start() {
        EXPECT_EQ(b.sdp.take_hello(a.sdp.hello()), StreamError::none);
        EXPECT_EQ(a.sdp.take_hello_ack(b.sdp.hello_ack()), StreamError::none);
    }
    static stream::StreamLimits limits_of(const stream::SdpConfig& config,
                                          stream::StreamLimits limits) {
        limits.receive_bytes = config.receive_bytes;
        return limits;
    }

    /// Moves all messages that there are, one by one in turns.
    stream::RxNews run() {
        stream::RxNews all;
        for (bool again = true; again;) {
            again = false;
            for (auto [from, to] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
                const auto octets = from->tx();
                if (octets.empty()) continue;
                from->done();
                again = true;
                const stream::RxNews news = to->rx(octets);
                all.data |= news.data;
                all.urgent |= news.urgent;
                all.finished |= news.finished;
                all.unwanted |= news.unwanted;
            }
        }
        return all;
    }
};

inline std::string bytes_of(std::size_t n, unsigned seed = 1) {
    return pattern_of<std::string>(n, seed);
}

}  // namespace xsock::test
