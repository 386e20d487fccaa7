// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// For tests of links: memory, the two ends of a link over it, and connections that record what they
// are told. Single-threaded.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "shm/link.hpp"
#include "tests/unit/mpa/recording_ulp.hpp"

namespace xsock::shm {

using test::ByteVector;
using test::pattern;
using test::RecordingUlp;

inline constexpr Layout kSmallLayout{.ring_bytes = 64 << 10, .slots = 16};

/// One end of a connection: keeps what its stream does not take, as ddp::Connection does.
struct End final : Stream::Owner {
    explicit End(CreditPool& pool) : stream(ulp, *this, pool) {}

    RecordingUlp ulp;
    ByteVector unconsumed;
    unsigned fins = 0, aborts = 0, rooms = 0, boundaries = 0;
    std::vector<StreamError> link_ends;
    Stream stream;

    void open(const Negotiated& agreed = {}) {
        stream.open(Llp::Opening::first, agreed, 0);
        if (stream.has_early()) on_rx(stream.take_early());
    }
    void send(std::size_t budget = SIZE_MAX) {
        EXPECT_EQ(stream.tx_prepare({}, budget, 0).bytes, 0u);
        EXPECT_EQ(stream.status().tx_pending, 0u);
    }
    /// A receive was posted.
    void resume() {
        ulp.block_at = SIZE_MAX;
        feed();
    }

    void on_rx(ConstBytes bytes) override {
        // In memory of its own size, so that a sanitizer sees a read beyond it.
        const bool waits = !unconsumed.empty();
        unconsumed.insert(unconsumed.end(), bytes.begin(), bytes.end());
        unconsumed.shrink_to_fit();
        if (!waits) feed();
    }
    void on_fin(bool aborted) override { ++(aborted ? aborts : fins); }
    void on_room() override { ++rooms; }
    void on_link_end(StreamError why) override {
        link_ends.push_back(why);
        stream.lost();
    }

  private:
    void feed() {
        for (bool again = true; again && !unconsumed.empty();) {
            const ByteVector bytes = unconsumed;
            const Llp::Rx rx = stream.rx(bytes, 0);
            ASSERT_LE(rx.taken, bytes.size());
            unconsumed.assign(bytes.begin() + static_cast<std::ptrdiff_t>(rx.taken), bytes.end());
            boundaries += rx.boundary;
            again = rx.boundary;
        }
    }
};

/// One process.
struct Host final : Link::Owner {
    Host(SharedMemory memory, const Layout& layout, Side side)
        : link(memory, layout, side, *this) {}

    CreditPool pool{std::size_t{256} << 20};
    std::map<std::uint64_t, std::unique_ptr<End>> ends;  // by token
    Link link;
    ByteVector scratch = ByteVector(Link::kScratch);
    bool wakes = false;  // the other one, at the end of the last cycle

    ~Host() { ends.clear(); }
    End& make(std::uint64_t token) { return *(ends[token] = std::make_unique<End>(pool)); }
    Stream* on_open(std::uint64_t token) override {
        const auto found = ends.find(token);
        return found != ends.end() ? &found->second->stream : nullptr;
    }
    bool poll(std::size_t budget = SIZE_MAX) {
        const bool busy = link.poll(scratch, budget);
        wakes = link.end_cycle(!busy);
        return busy;
    }
};

struct Memory {
    explicit Memory(const Layout& layout)
        : bytes_((layout.bytes() + sizeof(Line) - 1) / sizeof(Line)),
          shared({reinterpret_cast<std::byte*>(bytes_.data()), layout.bytes()}) {}

  private:
    struct alignas(SharedMemory::kLine) Line {
        std::byte bytes[SharedMemory::kLine] = {};
    };
    std::vector<Line> bytes_;

  public:
    SharedMemory shared;
};

/// Two processes and their link.
struct LinkPair {
    explicit LinkPair(const Layout& used = kSmallLayout) : layout(used), memory(used) {}

    Layout layout;
    Memory memory;
    Host a{memory.shared, layout, Side::creator};
    Host b{memory.shared, layout, Side::acceptor};

    /// The ends of a connection that a opens; b's is not in operation yet.
    std::pair<End&, End&> begin(std::uint64_t token) {
        End& from = a.make(token);
        End& to = b.make(token);
        EXPECT_TRUE(a.link.open(from.stream, token));
        from.open({.initiator = true});
        return {from, to};
    }
    /// The same in operation at both ends.
    std::pair<End&, End&> connect(std::uint64_t token) {
        const std::pair<End&, End&> ends = begin(token);
        ends.second.open();
        settle();
        return ends;
    }
    /// Until nothing moves any more.
    void settle() {
        for (unsigned quiet = 0; quiet < 3; ++quiet) {
            for (Host* const host : {&a, &b}) {
                if (host->poll()) quiet = 0;
                for (const auto& [token, end] : host->ends) {
                    const std::size_t done = end->ulp.done;
                    end->send();
                    if (end->ulp.done != done) quiet = 0;
                }
            }
        }
    }
};

/// A peer that writes what it likes.
struct RawPeer {
    explicit RawPeer(const Layout& used = kSmallLayout) : layout(used), memory(used) {}

    Layout layout;
    Memory memory;
    Host host{memory.shared, layout, Side::acceptor};
    RingWriter writer{memory.shared, layout.ring_of(Side::creator)};

    void put(RecordHeader header, const ByteVector& body) {
        ASSERT_NE(writer.begin(record_extent(body.size(), header.split), RingWriter::Use::control),
                  0u);
        writer.copy_in(0, header.split, ConstBytes(body).first(header.split));
        writer.copy_in(header.split, header.split, ConstBytes(body).subspan(header.split));
        writer.add(header, body.size());
        writer.publish();
    }
    void open(std::uint16_t slot, std::uint32_t generation, std::uint64_t token) {
        ByteVector body(sizeof token);
        std::memcpy(body.data(), &token, sizeof token);
        put({.kind = RecordKind::open, .slot = slot, .generation = generation}, body);
    }
    /// Slot 0, generation 1, in operation; its end.
    End& connect(std::uint64_t token = 7) {
        End& end = host.make(token);
        end.open();
        open(0, 1, token);
        host.poll();
        EXPECT_TRUE(end.stream.attached());
        return end;
    }
    void permit(std::uint16_t slot, std::uint32_t generation, std::uint32_t lines) {
        memory.shared.publish64(layout.credit_at(slot, Side::creator),
                                std::uint64_t{generation} << 32 | lines);
        memory.shared.publish32(layout.grants_at(Side::creator), ++grants);
    }

    std::uint32_t grants = 0;
};

}  // namespace xsock::shm
