// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/shared_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace xsock {
namespace {

using Found = RingReader::Found;
using Use = RingWriter::Use;
using ByteVector = std::vector<std::byte>;
constexpr std::size_t kLine = SharedMemory::kLine;
constexpr std::size_t kRingAt = 2 * kLine;

ByteVector pattern(std::size_t bytes, unsigned seed) {
    ByteVector out(bytes);
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + seed);
    return out;
}

/// A ring of some size, and both ends of it.
struct Ring {
    explicit Ring(std::size_t bytes, SharedMemory::Interposer* interposer = nullptr)
        : lines((kRingAt + bytes) / kLine),
          memory({reinterpret_cast<std::byte*>(lines.data()), kRingAt + bytes}, interposer),
          place{.at = kRingAt, .bytes = bytes, .tail_at = 0},
          writer(memory, place),
          reader(memory, place) {
        writer.allow(bytes);
    }
    struct alignas(kLine) Line {
        std::byte bytes[kLine] = {};
    };

    std::byte* at(std::size_t offset) { return memory.bytes().data() + kRingAt + offset; }
    /// Nothing was ever stored in this part of the ring.
    bool untouched(std::size_t from, std::size_t to) {
        return std::all_of(at(from), at(to), [](std::byte b) { return b == std::byte{0}; });
    }
    template <typename T>
    void poke(std::size_t offset, T value) {
        std::memcpy(memory.bytes().data() + offset, &value, sizeof value);
    }

    /// One record, published or not.
    bool put(const ByteVector& body, RecordHeader header = {}, Use use = Use::data) {
        if (writer.begin(record_extent(body.size(), header.split), use) == 0) return false;
        add(body, header);
        writer.publish();
        return true;
    }
    void add(const ByteVector& body, RecordHeader header = {}) {
        writer.copy_in(0, header.split, ConstBytes(body).first(header.split));
        writer.copy_in(header.split, header.split, ConstBytes(body).subspan(header.split));
        writer.add(header, body.size());
    }
    ByteVector take(Found expected = Found::record) {
        EXPECT_EQ(reader.next(record), expected);
        if (expected != Found::record) return {};
        ByteVector body(record.body());
        reader.copy_body(record, 0, body);
        reader.pop(record);
        return body;
    }

    std::vector<Line> lines;
    SharedMemory memory;
    RingPlace place;
    RingWriter writer;
    RingReader reader;
    RingReader::Record record;
};

// ---- records --------------------------------------------------------------

TEST(SharedRing, is_empty_at_first) {
    Ring ring(4096);
    EXPECT_FALSE(ring.reader.waits());
    ring.take(Found::none);
    EXPECT_TRUE(ring.writer.drained());
}

TEST(SharedRing, a_record_comes_out_as_it_went_in) {
    Ring ring(4096);
    const ByteVector body = pattern(100, 1);
    ASSERT_TRUE(ring.put(body, {.kind = RecordKind::data, .slot = 7, .generation = 0x12345678}));
    EXPECT_TRUE(ring.reader.waits());
    EXPECT_EQ(ring.take(), body);
    EXPECT_EQ(ring.record.header.kind, RecordKind::data);
    EXPECT_EQ(ring.record.header.slot, 7);
    EXPECT_EQ(ring.record.header.generation, 0x12345678u);
    ring.take(Found::none);
}

TEST(SharedRing, bodies_of_every_size_and_split) {
    for (const std::size_t split : {0u, 14u, 18u, 52u}) {
        Ring ring(std::size_t{64} << 10);
        for (std::size_t bytes = split; bytes < 700; ++bytes) {
            const ByteVector body = pattern(bytes, static_cast<unsigned>(bytes));
            ASSERT_TRUE(ring.put(body, {.split = static_cast<std::uint8_t>(split)})) << bytes;
            ASSERT_EQ(ring.take(), body) << bytes << " split at " << split;
            ring.reader.publish_tail(true);
        }
    }
}

TEST(SharedRing, the_rest_of_a_split_body_begins_on_a_line) {
    Ring ring(4096);
    ASSERT_TRUE(ring.put(pattern(1000, 3), {.split = 18}));
    EXPECT_EQ(std::memcmp(ring.at(kRecordHeader), pattern(18, 3).data(), 18), 0);
    EXPECT_EQ(std::memcmp(ring.at(kLine), pattern(1000, 3).data() + 18, 1000 - 18), 0);
}

TEST(SharedRing, parts_of_a_body_can_be_copied) {
    for (const std::size_t split : {0u, 18u}) {
        Ring ring(4096);
        const ByteVector body = pattern(500, 9);
        ASSERT_TRUE(ring.put(body, {.split = static_cast<std::uint8_t>(split)}));
        ASSERT_EQ(ring.reader.next(ring.record), Found::record);
        EXPECT_EQ(ring.record.front().size(), split != 0 ? split : kFirstLineBody);
        for (std::size_t at = 0; at <= body.size(); at += 13) {
            ByteVector part(std::min<std::size_t>(100, body.size() - at));
            ring.reader.copy_body(ring.record, at, part);
            EXPECT_TRUE(std::equal(part.begin(), part.end(),
                                   body.begin() + static_cast<std::ptrdiff_t>(at)))
                << at;
        }
    }
}

TEST(SharedRing, a_batch_is_seen_once_it_is_published) {
    Ring ring(4096);
    ASSERT_NE(ring.writer.begin(kLine, Use::data), 0u);
    for (unsigned i = 0; i < 3; ++i) ring.add(pattern(40 + i, i));
    ring.take(Found::none);
    ring.writer.publish();
    for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(ring.take(), pattern(40 + i, i));
    ring.take(Found::none);
}

TEST(SharedRing, room_is_where_the_next_record_begins) {
    Ring ring(4096);
    ASSERT_NE(ring.writer.begin(kLine, Use::data), 0u);
    ring.add(pattern(10, 1));
    const ByteVector body = pattern(60, 2);
    std::copy(body.begin(), body.end(), ring.writer.room().begin() + kRecordHeader);
    ring.writer.room_written(kRecordHeader + body.size());
    ring.writer.add({}, body.size());
    ring.writer.publish();
    EXPECT_EQ(ring.take(), pattern(10, 1));
    EXPECT_EQ(ring.take(), body);
}

TEST(SharedRing, an_abandoned_batch_is_never_seen) {
    Ring ring(1024);
    for (unsigned i = 0; i < 50; ++i) {
        ASSERT_NE(ring.writer.begin(256, Use::data), 0u);
        ring.add(pattern(40, 200));
        ring.add(pattern(100, 201));
        ring.take(Found::none);
        ASSERT_TRUE(ring.put(pattern(i, i)));
        EXPECT_EQ(ring.take(), pattern(i, i));
        ring.take(Found::none);
        ring.reader.publish_tail(true);
    }
}

// ---- laps and room --------------------------------------------------------

TEST(SharedRing, random_traffic_in_rings_of_every_size) {
    std::mt19937 rng(1);
    for (std::size_t bytes = 512; bytes <= (std::size_t{1} << 18); bytes *= 2) {
        Ring ring(bytes);
        std::deque<ByteVector> inside;
        const std::size_t most = bytes / 4;
        for (unsigned i = 0; i < 20'000; ++i) {
            switch (rng() % 3) {
                case 0: {  // a batch
                    const std::size_t room = ring.writer.begin(kLine, Use::data);
                    std::size_t used = 0;
                    for (unsigned n = rng() % 4; n != 0; --n) {
                        ByteVector body = pattern(rng() % most, i);
                        RecordHeader header{.slot = static_cast<std::uint16_t>(i)};
                        if (body.size() > 100) header.split = 18;
                        if (used + record_extent(body.size(), header.split) > room) break;
                        used += record_extent(body.size(), header.split);
                        ring.add(body, header);
                        inside.push_back(std::move(body));
                    }
                    ring.writer.publish();
                    break;
                }
                case 1:
                    if (inside.empty()) {
                        ring.take(Found::none);
                    } else {
                        ASSERT_EQ(ring.take(), inside.front());
                        inside.pop_front();
                    }
                    break;
                default:
                    ring.reader.publish_tail(rng() % 2 == 0);
            }
        }
        ASSERT_FALSE(ring.writer.broken());
    }
}

TEST(SharedRing, a_full_ring_keeps_what_is_in_it) {
    Ring ring(4096);
    unsigned put = 0;
    while (ring.put(pattern(50, put))) ++put;
    EXPECT_GE(put, (4096u - 2 * kLine - 256) / kLine);
    for (unsigned i = 0; i < put; ++i) ASSERT_EQ(ring.take(), pattern(50, i));
    EXPECT_FALSE(ring.put({})) << "the tail was not published";
    EXPECT_TRUE(ring.reader.publish_tail(true));
    EXPECT_TRUE(ring.writer.drained());
    EXPECT_TRUE(ring.put({}));
}

TEST(SharedRing, control_finds_room_where_data_does_not) {
    Ring ring(std::size_t{1} << 20);
    while (ring.put(pattern(1000, 0))) continue;
    while (ring.put({})) continue;
    unsigned put = 0;
    while (ring.put({}, {.kind = RecordKind::fin}, Use::control)) ++put;
    EXPECT_GE(put, (64u << 10) / kLine);
}

TEST(SharedRing, half_of_what_data_may_use_is_always_found_in_an_empty_ring) {
    for (const std::size_t bytes : {std::size_t{1024}, std::size_t{64} << 10}) {
        const std::size_t most = (bytes - bytes / 16 - 3 * kLine) / 2 & ~(kLine - 1);
        Ring ring(bytes);
        for (unsigned i = 0; i < 3 * bytes / kLine; ++i) {
            ASSERT_GE(ring.writer.begin(most, Use::data), most) << i;
            ASSERT_TRUE(ring.put({}));
            ring.take();
            ring.reader.publish_tail(true);
        }
    }
}

TEST(SharedRing, laps_are_short_while_the_reader_keeps_up) {
    Ring ring(std::size_t{1} << 20);
    for (unsigned i = 0; i < 5000; ++i) {
        ASSERT_TRUE(ring.put(pattern(200, i)));
        ASSERT_EQ(ring.take(), pattern(200, i));
        ring.reader.publish_tail(false);
    }
    EXPECT_TRUE(ring.untouched(RingWriter::kFirstLap, std::size_t{1} << 20));
}

TEST(SharedRing, what_a_full_ring_has_used_is_given_back_but_for_the_polled_page) {
    constexpr std::size_t kBytes = std::size_t{1} << 20, kPage = 4096;
    // Where the ring is drained: in the first lap, behind it, in the last page.
    for (const std::size_t records : {10u, 64u, 200u, 961u}) {
        Ring ring(kBytes);
        ring.writer.allow(kBytes);
        std::size_t put = 0;
        while (ring.put(pattern(1000, 0))) ++put;
        EXPECT_GT(put * 1024, kBytes - 3 * 65536);
        for (std::size_t i = 0; i < put; ++i) ring.take();
        ring.reader.publish_tail(true);
        for (unsigned i = 0; i < records; ++i) {
            ASSERT_TRUE(ring.put(pattern(1000, i)));
            ASSERT_EQ(ring.take(), pattern(1000, i));
            ring.reader.publish_tail(true);
        }
        ASSERT_TRUE(ring.writer.drained());
        const std::uint64_t position = ring.writer.position();
        const auto polled = static_cast<std::size_t>(position & (kBytes - 1));
        std::size_t unused = 0;
        for (const auto& part : ring.writer.give_back(kPage)) {
            ASSERT_TRUE(part.at % kPage == 0 && part.at >= RingWriter::kFirstLap);
            ASSERT_LE(part.at + part.bytes, kBytes);
            EXPECT_TRUE(polled < part.at || polled >= part.at + part.bytes);
            std::fill_n(ring.at(part.at), part.bytes, std::byte{0});
            unused += part.bytes;
        }
        EXPECT_GE(unused, kBytes - RingWriter::kFirstLap - kPage) << records;
        EXPECT_EQ(ring.writer.position(), position);
        EXPECT_EQ(ring.writer.allowed(), RingWriter::kFirstLap);
        EXPECT_FALSE(ring.writer.wants_more());
        const std::size_t page = polled & ~(kPage - 1);
        for (unsigned i = 0; i < 5000; ++i) {
            ASSERT_TRUE(ring.put(pattern(200, i)));
            ASSERT_EQ(ring.take(), pattern(200, i));
            ring.reader.publish_tail(false);
        }
        EXPECT_TRUE(ring.untouched(RingWriter::kFirstLap, std::max(page, RingWriter::kFirstLap)));
        EXPECT_TRUE(ring.untouched(std::max(page + kPage, RingWriter::kFirstLap), kBytes));
        ring.writer.allow(kBytes);  // the second time it begins with an empty first lap
        for (int again = 0; again < 2; ++again) {
            put = 0;
            while (ring.put(pattern(1000, 0))) ++put;
            for (std::size_t i = 0; i < put; ++i) ASSERT_EQ(ring.take(), pattern(1000, 0));
            ring.reader.publish_tail(true);
        }
        EXPECT_GT(put * 1024, kBytes - 3 * 65536);
    }
}

TEST(SharedRing, memory_that_is_not_allowed_is_not_used) {
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    Ring ring(kBytes);
    RingWriter writer(ring.memory, ring.place);  // as made: the first lap is allowed
    const auto put = [&] {
        if (writer.begin(1024, Use::data) == 0) return false;
        writer.copy_in(0, 0, pattern(1000, 0));
        writer.add({}, 1000);
        writer.publish();
        return true;
    };
    EXPECT_FALSE(writer.wants_more());
    while (put()) continue;
    EXPECT_TRUE(writer.wants_more());
    EXPECT_TRUE(ring.untouched(RingWriter::kFirstLap, kBytes));
    writer.allow(RingWriter::kFirstLap + (16u << 10));
    EXPECT_TRUE(put());
    writer.allow(kBytes);
    EXPECT_FALSE(writer.wants_more());
    std::size_t n = 0;
    while (put()) ++n;
    EXPECT_GT(n * 1024, kBytes / 2);
    // A tail that no reader has: in the lap before, beyond what is allowed.
    Ring small(kBytes);
    RingWriter first(small.memory, small.place);
    small.poke<std::uint64_t>(0, 0);
    while (first.begin(1024, Use::data) != 0) first.add({}, 1000), first.publish();
    small.poke<std::uint64_t>(0, RingWriter::kFirstLap / 2);
    while (first.begin(1024, Use::data) != 0) first.add({}, 1000), first.publish();
    small.poke<std::uint64_t>(0, kBytes - kLine);
    while (first.begin(1024, Use::data) != 0) first.add({}, 1000), first.publish();
    EXPECT_FALSE(first.broken());
    EXPECT_TRUE(small.untouched(RingWriter::kFirstLap, kBytes));
}

TEST(SharedRing, the_tail_is_told_in_steps_or_at_once) {
    Ring ring(std::size_t{256} << 10);
    unsigned told = 0;
    for (unsigned i = 0; i < 1024; ++i) {  // 128 KiB
        ASSERT_TRUE(ring.put(pattern(100, i)));
        ring.take();
        told += ring.reader.publish_tail(false);
    }
    EXPECT_GE(told, 8u);
    EXPECT_LE(told, 32u);
    ASSERT_TRUE(ring.put({}));
    ring.take();
    EXPECT_FALSE(ring.reader.publish_tail(false));
    EXPECT_TRUE(ring.reader.publish_tail(true));
    EXPECT_FALSE(ring.reader.publish_tail(true)) << "nothing new";
}

// ---- a hostile other end --------------------------------------------------

TEST(SharedRing, a_tail_that_makes_no_sense_breaks_the_writer) {
    const auto tail_after = [](std::uint64_t first, std::uint64_t second) {
        Ring ring(4096);
        for (unsigned i = 0; i < 8; ++i) EXPECT_TRUE(ring.put(pattern(100, i)));  // 1024 bytes
        ring.poke<std::uint64_t>(0, first);
        EXPECT_FALSE(ring.writer.drained());
        EXPECT_FALSE(ring.writer.broken());
        ring.poke<std::uint64_t>(0, second);
        static_cast<void>(ring.writer.drained());
        EXPECT_EQ(ring.writer.broken(), ring.writer.begin(kLine, Use::control) == 0);
        return ring.writer.broken();
    };
    EXPECT_FALSE(tail_after(512, 512));
    EXPECT_FALSE(tail_after(512, 1024));
    EXPECT_TRUE(tail_after(512, 448));
    EXPECT_TRUE(tail_after(512, 0));
    EXPECT_TRUE(tail_after(512, 1024 + kLine));
    EXPECT_TRUE(tail_after(512, 513));
    EXPECT_TRUE(tail_after(512, ~std::uint64_t{0}));
    EXPECT_TRUE(tail_after(512, std::uint64_t{1} << 63));
}

struct GarbageCase {
    const char* name;
    RecordHeader header;
    std::size_t at = 0;  // of the record, in a ring of 4096 bytes
};

TEST(SharedRing, what_no_writer_writes_is_garbage) {
    const auto kind = [](unsigned n) { return static_cast<RecordKind>(n); };
    const GarbageCase cases[] = {
        {"length below the header", {.length = 11}},
        {"length 1", {.length = 1}},
        {"length beyond the ring", {.length = 4097}},
        {"length that wraps", {.length = ~0u}},
        {"no line behind the record", {.length = 4096}},
        {"no line behind the record at the end", {.length = 64}, 4096 - kLine},
        {"kind 0", {.length = 12, .kind = kind(0)}},
        {"kind 5", {.length = 12, .kind = kind(5)}},
        {"kind 255", {.length = 12, .kind = kind(255)}},
        {"split beyond the line", {.length = 1000, .split = 53}},
        {"split beyond the body", {.length = 12 + 17, .split = 18}},
        {"split that makes it too long", {.length = 3990, .split = 1}},
        {"a lap that ends and begins with nothing", {.length = 12, .kind = RecordKind::wrap}, 1024},
    };
    for (const GarbageCase& c : cases) {
        Ring ring(4096);
        for (std::size_t at = 0; at < c.at; at += kLine) {
            ASSERT_TRUE(ring.put({}, {}, Use::control));
            ring.take();
            ring.reader.publish_tail(true);
        }
        if (c.at != 0) ring.poke(kRingAt, std::uint32_t{0});
        ring.poke(kRingAt + c.at, c.header);
        EXPECT_EQ(ring.reader.next(ring.record), Found::garbage) << c.name;
    }
}

TEST(SharedRing, a_lap_that_begins_with_what_was_not_given_back_is_garbage) {
    for (const std::size_t extent : {448u, 512u}) {
        Ring ring(4096);
        for (unsigned i = 0; i < 8; ++i) {  // 512 bytes
            ASSERT_TRUE(ring.put({}, {}, Use::control));
            ring.take();
        }
        ring.poke(kRingAt, RecordHeader{.length = static_cast<std::uint32_t>(extent)});
        ring.poke(kRingAt + 512, RecordHeader{.length = 12, .kind = RecordKind::wrap});
        EXPECT_EQ(ring.reader.next(ring.record), extent == 448 ? Found::record : Found::garbage);
    }
}

TEST(SharedRing, a_lap_of_nothing_but_its_end_is_garbage) {
    Ring ring(4096);
    ring.poke(kRingAt, RecordHeader{.length = 12, .kind = RecordKind::wrap});
    EXPECT_EQ(ring.reader.next(ring.record), Found::garbage);
}

/// Counts what is loaded; bytes change after they were loaded once.
class FickleMemory final : public SharedMemory::Interposer {
  public:
    Bytes memory;
    unsigned words = 0;
    std::vector<unsigned> loads;

    std::uint32_t load32(std::size_t at) override {
        ++words;
        return load<std::uint32_t>(at);
    }
    std::uint64_t load64(std::size_t at) override { return load<std::uint64_t>(at); }
    void store32(std::size_t at, std::uint32_t value, bool) override { store(at, value); }
    void store64(std::size_t at, std::uint64_t value) override { store(at, value); }
    std::uint32_t exchange32(std::size_t at, std::uint32_t value) override {
        const auto was = load<std::uint32_t>(at);
        store(at, value);
        return was;
    }
    void fence() override {}
    void copy_out(std::size_t at, Bytes to) override {
        std::copy_n(memory.begin() + static_cast<std::ptrdiff_t>(at), to.size(), to.begin());
        note(at, to.size());
    }
    void copy_in(std::size_t at, ConstBytes from) override {
        std::copy(from.begin(), from.end(), memory.begin() + static_cast<std::ptrdiff_t>(at));
    }
    Bytes room(std::size_t at, std::size_t bytes) override { return memory.subspan(at, bytes); }
    void room_written(std::size_t, std::size_t) override {}

  private:
    void note(std::size_t at, std::size_t bytes) {
        loads.resize(memory.size());
        for (std::size_t i = at; i < at + bytes; ++i) {
            ++loads[i];
            memory[i] ^= std::byte{0xff};
        }
    }
    template <typename T>
    T load(std::size_t at) {
        T value;
        std::memcpy(&value, memory.data() + at, sizeof value);
        note(at, sizeof value);
        return value;
    }
    template <typename T>
    void store(std::size_t at, T value) {
        std::memcpy(memory.data() + at, &value, sizeof value);
    }
};

TEST(SharedRing, each_byte_of_a_record_is_loaded_once) {
    for (const std::size_t split : {0u, 18u}) {
        FickleMemory fickle;
        Ring ring(4096, &fickle);
        fickle.memory = ring.memory.bytes();
        const ByteVector body = pattern(300, 5);
        ASSERT_TRUE(
            ring.put(body, {.split = static_cast<std::uint8_t>(split), .generation = 0x55aa}));
        fickle.words = 0;
        ASSERT_EQ(ring.reader.next(ring.record), Found::record);
        ByteVector heard(ring.record.body());
        ring.reader.copy_body(ring.record, 0, heard);
        EXPECT_EQ(heard, body);
        EXPECT_EQ(ring.record.header.generation, 0x55aau);
        EXPECT_EQ(fickle.words, 1u);
        for (std::size_t i = 0; i < fickle.loads.size(); ++i) {
            EXPECT_LE(fickle.loads[i], 1u) << "byte " << i;
        }
        EXPECT_EQ(fickle.loads[kRingAt], 1u);
    }
}

/// Keeps the order of stores.
class RecordingMemory final : public SharedMemory::Interposer {
  public:
    std::vector<std::string> stores;
    std::uint64_t tail = 0;

    std::uint32_t load32(std::size_t) override { return 0; }
    std::uint64_t load64(std::size_t) override { return tail; }
    void store32(std::size_t at, std::uint32_t value, bool release) override {
        stores.push_back(std::to_string(at - kRingAt) + (release ? " := " : " = ") +
                         std::to_string(value));
    }
    void store64(std::size_t, std::uint64_t) override { stores.push_back("tail"); }
    std::uint32_t exchange32(std::size_t, std::uint32_t) override { return 0; }
    void fence() override {}
    void copy_out(std::size_t, Bytes) override {}
    void copy_in(std::size_t at, ConstBytes from) override {
        if (from.empty()) return;
        stores.push_back(std::to_string(at - kRingAt) + " + " + std::to_string(from.size()));
    }
    Bytes room(std::size_t, std::size_t) override { return {}; }
    void room_written(std::size_t, std::size_t) override {}
};

TEST(SharedRing, words_are_stored_behind_what_they_announce) {
    using Stores = std::vector<std::string>;
    RecordingMemory recording;
    Ring ring(1024, &recording);
    ASSERT_NE(ring.writer.begin(kLine, Use::data), 0u);
    for (unsigned i = 0; i < 2; ++i) {
        ring.writer.copy_in(0, 0, pattern(20, i));
        ring.writer.add({}, 20);
    }
    ring.writer.publish();
    EXPECT_EQ(recording.stores,
              (Stores{"12 + 20", "4 + 8", "76 + 20", "68 + 8", "64 = 32", "128 = 0", "0 := 32"}));
}

TEST(SharedRing, the_end_of_a_lap_is_stored_behind_what_begins_the_next) {
    using Stores = std::vector<std::string>;
    RecordingMemory recording;
    Ring ring(1024, &recording);
    for (unsigned i = 0; i < 14; ++i) ASSERT_TRUE(ring.put({}, {}, Use::control));  // 896 of 1024
    recording.tail = 512;
    recording.stores.clear();
    ASSERT_NE(ring.writer.begin(128, Use::control), 0u);
    ring.writer.add({}, 100);
    ring.writer.publish();
    EXPECT_EQ(recording.stores, (Stores{"4 + 8", "128 = 0", "0 = 112", "900 + 8", "896 := 12"}));
}

// ---- two threads ----------------------------------------------------------

TEST(SharedRing, two_threads_pass_records_through_a_small_ring) {
    constexpr unsigned kRecords = 30'000;
    Ring ring(2048);
    std::thread writing([&] {
        for (unsigned i = 0; i < kRecords;) {
            const std::size_t room = ring.writer.begin(256, Use::data);
            for (std::size_t used = 0; i < kRecords && room != 0; ++i) {
                const std::size_t bytes = i % 200;
                used += record_extent(bytes, 0);
                if (used > room) break;
                ring.add(pattern(bytes, i), {.generation = i});
            }
            ring.writer.publish();
            if (room == 0) std::this_thread::yield();
        }
    });
    for (unsigned i = 0; i < kRecords;) {
        const Found found = ring.reader.next(ring.record);
        ASSERT_NE(found, Found::garbage);
        if (found == Found::none) {
            ring.reader.publish_tail(true);
            std::this_thread::yield();
            continue;
        }
        ASSERT_EQ(ring.record.header.generation, i);
        ASSERT_EQ(ring.take(), pattern(i % 200, i));
        ring.reader.publish_tail(false);
        ++i;
    }
    writing.join();
    ring.reader.publish_tail(true);
    EXPECT_TRUE(ring.writer.drained());
}

}  // namespace
}  // namespace xsock
