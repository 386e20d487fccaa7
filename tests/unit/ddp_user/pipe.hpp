// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A world for tests of ddp_user: memory, queue pairs, and a pipe that carries ULPDUs from one
// Stream to another with a chosen MULPDU and in pieces of a chosen size. Single-threaded.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/completion_queue.hpp"
#include "base/epoch.hpp"
#include "base/memory_table.hpp"
#include "base/recv_queue.hpp"
#include "base/send_queue.hpp"
#include "ddp_user/segment.hpp"
#include "ddp_user/stream.hpp"
#include "tests/support/pattern.hpp"

namespace xsock::ddp {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::SizeIs;

/// They match a Wc.
inline auto Status(WcStatus status) { return Field(&Wc::status, status); }
inline auto Completed(std::uint64_t id, WcStatus status) {
    return AllOf(Field(&Wc::wr_id, id), Status(status));
}

using ByteVector = std::vector<std::byte>;

inline ByteVector pattern(std::size_t n, unsigned seed = 1) {
    return test::pattern_of<ByteVector>(n, seed);
}

inline ByteVector from_hex(const char* hex) {
    auto digit = [](char c) {
        return static_cast<unsigned>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    };
    ByteVector out;
    while (*hex != '\0') {
        if (*hex == ' ') {
            ++hex;
            continue;
        }
        out.push_back(static_cast<std::byte>(digit(hex[0]) << 4 | digit(hex[1])));
        hex += 2;
    }
    return out;
}

inline ByteVector operator+(ByteVector a, ConstBytes b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

inline ByteVector header(const Segment& segment) {
    ByteVector out(kUntaggedOctets);
    out.resize(encode(segment, out.data()));
    return out;
}

inline ByteVector body(const ReadRequest& request) {
    ByteVector out(kReadRequestOctets);
    encode(request, out.data());
    return out;
}

inline Sge sge(ByteVector& memory, std::uint32_t lkey = kLkeyNone) {
    return {.address = memory.data(),
            .length = static_cast<std::uint32_t>(memory.size()),
            .lkey = lkey};
}

/// The memory of one program. The poller is inside an Epochs section except while it revokes.
struct World {
    Epochs epochs;
    MemoryTable table{epochs};
    Epochs::Reader reader{epochs};
    World() { reader.enter(); }
    ~World() { reader.leave(); }

    std::uint32_t add(ByteVector& memory, std::uint32_t access, PdId pd = 1, QpNum only_qp = 0) {
        auto stag = table.add({.address = memory.data(),
                               .length = memory.size(),
                               .access = access | kZeroBased,
                               .pd = pd,
                               .only_qp = only_qp});
        return stag.value();
    }
    void replace(std::uint32_t stag, ByteVector& memory, std::uint32_t access) {
        reader.leave();
        EXPECT_TRUE(table
                        .replace(stag, {.address = memory.data(),
                                        .length = memory.size(),
                                        .access = access | kZeroBased,
                                        .pd = 1})
                        .ok());
        reader.enter();
    }
    void remove(std::uint32_t stag) {
        reader.leave();
        EXPECT_TRUE(table.remove(stag).ok());
        reader.enter();
    }
};

/// A queue pair with its Stream.
struct End {
    SendQueue sq{64};
    RecvQueue rq{64};
    CompletionQueue send_cq{256};
    CompletionQueue recv_cq{256};
    std::unique_ptr<Stream> stream;

    explicit End(World& world, Config config = {.pd = 1}) {
        config.memory = &world.table;
        config.sq = &sq;
        config.rq = &rq;
        config.send_cq = &send_cq;
        config.recv_cq = &recv_cq;
        stream = std::make_unique<Stream>(config);
    }
    Stream* operator->() { return stream.get(); }

    void establish(const Negotiated& negotiated = {}) { stream->llp_established(negotiated); }

    void post(SendWr wr, std::initializer_list<Sge> sges = {}) {
        wr.sges = {sges.begin(), sges.size()};
        ASSERT_TRUE(sq.post(wr).ok());
    }
    void post_recv(std::uint64_t wr_id, std::initializer_list<Sge> sges = {}) {
        ASSERT_TRUE(rq.post({.wr_id = wr_id, .sges = {sges.begin(), sges.size()}}).ok());
    }
    static std::vector<Wc> take(CompletionQueue& cq) {
        std::vector<Wc> out(cq.size());
        out.resize(cq.take(out));
        return out;
    }
    std::vector<Wc> sent() { return take(send_cq); }
    std::vector<Wc> received() { return take(recv_cq); }
};

/// For tests of one end: QP 7 in PD 1, established, with 3,000 bytes to send or receive.
class OneEnd : public testing::Test {
  protected:
    World world;
    End end{world, {.qp_num = 7, .pd = 1, .qp_context = 0x77}};
    ByteVector memory = pattern(3000);

    void SetUp() override { end.establish(); }
    ByteVector part(std::size_t from, std::size_t n) const {
        return {memory.begin() + static_cast<std::ptrdiff_t>(from),
                memory.begin() + static_cast<std::ptrdiff_t>(from + n)};
    }
};

/// The octets of a ULPDU as the wire would have them.
inline ByteVector flatten(const UlpduOut& ulpdu) {
    ByteVector out(ulpdu.header.begin(), ulpdu.header.begin() + ulpdu.header_size);
    for (std::size_t i = 0; i < ulpdu.payload_count; ++i) out = std::move(out) + ulpdu.payload[i];
    return out;
}

/// The next ULPDU, described: there is no room to write it.
inline bool next_ulpdu(Stream& stream, std::size_t mulpdu, UlpduOut& out) {
    return stream.tx_fill({.mulpdu = mulpdu, .described = &out}).described;
}

/// The ULPDU that is the only one, written where there are `room` bytes; empty: there is none.
inline ByteVector single_ulpdu(Stream& stream, std::size_t room = kUntaggedOctets + kMaxInline) {
    ByteVector out(room, std::byte{0xee});
    std::uint16_t size = 0;
    const UlpdusGiven given =
        stream.tx_fill({.room = out, .small = room, .sizes = {&size, 1}, .single = true});
    EXPECT_FALSE(given.described);
    EXPECT_EQ(given.small, size == 0 ? 0u : 1u);
    out.resize(size);
    return out;
}

/// What a stream writes of a batch, each ULPDU by itself; all of it is done at once. What it
/// describes besides comes last.
inline std::vector<ByteVector> fill(Stream& stream, std::size_t room, std::size_t small = 500,
                                    std::size_t at_most = 64) {
    ByteVector scratch(room, std::byte{0xee});
    std::vector<std::uint16_t> sizes(at_most);
    UlpduOut described;
    const UlpduBatch batch{.room = scratch,
                           .before = 3,
                           .align = 8,
                           .after = 5,
                           .small = small,
                           .sizes = sizes,
                           .mulpdu = 1024,
                           .described = &described};
    const UlpdusGiven given = stream.tx_fill(batch);
    std::vector<ByteVector> out;
    std::size_t at = 0;
    for (std::size_t i = 0; i < given.small; ++i) {
        EXPECT_LE(sizes[i], small);
        const auto begin = scratch.begin() + static_cast<std::ptrdiff_t>(at + batch.before);
        out.emplace_back(begin, begin + sizes[i]);
        at += (batch.before + sizes[i] + 7) / 8 * 8 + batch.after;
    }
    EXPECT_LE(at, room);
    if (given.described) out.push_back(flatten(described));
    if (!out.empty()) stream.tx_done(static_cast<std::uint32_t>(out.size()));
    return out;
}

/// All ULPDUs that a stream has to send now, each done at once.
inline std::vector<ByteVector> drain(Stream& stream, std::size_t mulpdu = 1024) {
    std::vector<ByteVector> out;
    UlpduOut ulpdu;
    while (next_ulpdu(stream, mulpdu, ulpdu)) {
        out.push_back(flatten(ulpdu));
        EXPECT_LE(out.back().size(), mulpdu);
        stream.tx_done(1);
    }
    return out;
}

/// A ULPDU on its way into a stream; it may have to wait for a receive.
class Inbound {
  public:
    Inbound(ByteVector bytes, bool intact = true) : bytes_(std::move(bytes)), intact_(intact) {}

    /// True once all of it was consumed; `step`: at most that many octets at a time.
    bool feed(Stream& stream, std::size_t step = ~std::size_t{0}) {
        // As MPA does with an FPDU that it has whole; in steps it comes as from a split one.
        if (!begun_ && intact_ && step == ~std::size_t{0}) {
            at_ = stream.rx_ulpdu(bytes_);
            EXPECT_LE(at_, bytes_.size());
            begun_ = true;
            if (at_ == bytes_.size()) return true;
        }
        if (!begun_) stream.rx_begin(bytes_.size());
        begun_ = true;
        while (at_ < bytes_.size()) {
            const Bytes target = stream.rx_target();
            if (target.empty()) {
                EXPECT_TRUE(stream.rx_blocked());
                return false;
            }
            EXPECT_LE(target.size(), bytes_.size() - at_);
            const std::size_t n = std::min(target.size(), step);
            std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at_), n, target.begin());
            at_ += n;
            stream.rx_advance(n);
        }
        stream.rx_end(intact_);
        return true;
    }

  private:
    ByteVector bytes_;
    bool intact_;
    bool begun_ = false;
    std::size_t at_ = 0;
};

/// One ULPDU, whole. @return false: it waits for a receive
inline bool feed(Stream& stream, const ByteVector& bytes, bool intact = true,
                 std::size_t step = ~std::size_t{0}) {
    return Inbound(bytes, intact).feed(stream, step);
}

/// Two queue pairs and what is under way between them.
struct Pipe {
    World world;
    End a, b;
    std::size_t mulpdu = 1024;
    std::size_t step = ~std::size_t{0};
    std::size_t batch = 4;  // ULPDUs given before the first is done
    std::deque<Inbound> to_a, to_b;

    explicit Pipe(Config config_a = {.qp_num = 1, .pd = 1},
                  Config config_b = {.qp_num = 2, .pd = 1})
        : a(world, config_a), b(world, config_b) {}

    void establish(Negotiated negotiated = {}) {
        negotiated.initiator = true;
        a.establish(negotiated);
        negotiated.initiator = false;
        b.establish(negotiated);
    }

    /// Sends up to `batch` ULPDUs of `end`.
    bool send(End& end, std::deque<Inbound>& out) {
        std::size_t given = 0;
        for (UlpduOut ulpdu; given < batch && next_ulpdu(*end.stream, mulpdu, ulpdu); ++given) {
            out.emplace_back(flatten(ulpdu));
        }
        EXPECT_TRUE(end->tx_intact() || end->state() == Stream::State::ended);
        end->tx_done(static_cast<std::uint32_t>(given));
        return given > 0;
    }
    /// Delivers one ULPDU to `end`.
    bool receive(End& end, std::deque<Inbound>& in) {
        if (in.empty() || !in.front().feed(*end.stream, step)) return false;
        in.pop_front();
        return true;
    }
    /// Carries ULPDUs until nothing moves.
    void run() {
        bool moved = true;
        while (moved) {
            moved = send(a, to_b);
            moved = send(b, to_a) || moved;
            moved = receive(a, to_a) || moved;
            moved = receive(b, to_b) || moved;
        }
    }
};

}  // namespace xsock::ddp
