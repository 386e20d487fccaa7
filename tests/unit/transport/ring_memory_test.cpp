// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The pages behind the ring of a link, counted by the kernel.
#include "transport/ring_memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <optional>
#include <vector>

#include "tests/unit/transport/mapped_memory.hpp"

namespace xsock {
namespace {

using Use = RingWriter::Use;
constexpr std::size_t kBody = 1000;

class RingMemoryTest : public test::MappedMemoryTest {
  protected:
    RingMemoryTest() : MappedMemoryTest({.ring_bytes = 1 << 20, .slots = 64}) {}
    void SetUp() override {
        test::MappedMemoryTest::SetUp();
        const RingPlace place = layout.ring_of(shm::Side::creator);
        const SharedMemory shared(bytes);
        ring = bytes.subspan(place.at, place.bytes);
        writer.emplace(shared, place);
        reader.emplace(shared, place);
        ring_memory.emplace(ring, *writer);
    }
    [[nodiscard]] std::size_t allocated() const {
        struct stat status {};
        EXPECT_EQ(fstat(fd, &status), 0);
        return static_cast<std::size_t>(status.st_blocks) * 512;
    }
    bool put(unsigned seed) {
        if (writer->begin(record_extent(kBody, 0), Use::data) == 0) return false;
        writer->copy_in(0, 0, body_of(seed));
        writer->add({}, kBody);
        writer->publish();
        return true;
    }
    bool take(unsigned seed) {
        RingReader::Record record;
        if (reader->next(record) != RingReader::Found::record) return false;
        std::vector<std::byte> body(record.body());
        reader->copy_body(record, 0, body);
        reader->pop(record);
        reader->publish_tail(true);
        return body == body_of(seed);
    }
    /// Records that the ring takes, with all the memory that it may get.
    unsigned fill() {
        unsigned n = 0;
        for (;;) {
            while (put(n)) ++n;
            if (!writer->wants_more()) return n;
            const std::size_t before = writer->allowed();
            ring_memory->grow(now);
            if (writer->allowed() == before) return n;
        }
    }
    static std::vector<std::byte> body_of(unsigned seed) {
        std::vector<std::byte> body(kBody);
        for (std::size_t i = 0; i < kBody; ++i) body[i] = static_cast<std::byte>(i * 3 + seed);
        return body;
    }

    Bytes ring;
    std::optional<RingWriter> writer;
    std::optional<RingReader> reader;
    std::optional<RingMemory> ring_memory;
    Time now = 100 * kSecond;
};

TEST_F(RingMemoryTest, a_full_ring_gets_memory_step_by_step_before_it_is_used) {
    for (unsigned i = 0; i < 5000; ++i) {
        ASSERT_TRUE(put(i));
        ASSERT_TRUE(take(i));
    }
    EXPECT_FALSE(writer->wants_more());
    EXPECT_FALSE(ring_memory->has_grown());
    EXPECT_LE(allocated(), RingWriter::kFirstLap + 8192);
    unsigned n = 0;
    while (put(n)) ++n;
    ASSERT_TRUE(writer->wants_more());
    const std::size_t before = allocated();
    ring_memory->grow(now);
    EXPECT_TRUE(ring_memory->has_grown());
    EXPECT_EQ(writer->allowed(), RingWriter::kFirstLap + RingMemory::kStep);
    EXPECT_GE(allocated(), before + RingMemory::kStep);
    // A lap that has begun ends where it would have.
    for (int round = 0; n * kBody < ring.size() * 3 / 4 && round < 4; ++round) {
        for (unsigned i = 0; i < n; ++i) ASSERT_TRUE(take(i));
        n = fill();
    }
    EXPECT_GT(n * kBody, ring.size() * 3 / 4);
    EXPECT_EQ(writer->allowed(), ring.size());
    EXPECT_GE(allocated(), ring.size());
    for (unsigned i = 0; i < n; ++i) ASSERT_TRUE(take(i));
}

TEST_F(RingMemoryTest, a_ring_without_memory_stays_as_it_is_for_a_second) {
    // Pages that cannot be written cannot be allocated either.
    const std::size_t refused = RingWriter::kFirstLap + RingMemory::kStep;
    ASSERT_EQ(mprotect(ring.data() + refused, ring.size() - refused, PROT_READ), 0);
    const unsigned n = fill();
    EXPECT_EQ(writer->allowed(), refused);
    for (unsigned i = 0; i < n; ++i) ASSERT_TRUE(take(i));
    for (unsigned i = 0; i < 5000; ++i) {
        ASSERT_TRUE(put(i));
        ASSERT_TRUE(take(i));
    }
    ASSERT_EQ(mprotect(ring.data() + refused, ring.size() - refused, PROT_READ | PROT_WRITE), 0);
    ring_memory->grow(now + RingMemory::kIdle - 1);
    EXPECT_EQ(writer->allowed(), refused);
    ring_memory->grow(now + RingMemory::kIdle);
    EXPECT_EQ(writer->allowed(), refused + RingMemory::kStep);
}

TEST_F(RingMemoryTest, what_is_idle_is_given_back_and_comes_again) {
    for (int round = 0; round < 3; ++round) {
        const unsigned n = fill();
        ASSERT_EQ(writer->allowed(), ring.size());
        ring_memory->check_idle();  // written to since the last time
        ring_memory->check_idle();  // not read
        EXPECT_TRUE(ring_memory->has_grown());
        EXPECT_GE(allocated(), ring.size());
        for (unsigned i = 0; i < n; ++i) ASSERT_TRUE(take(i));
        ASSERT_TRUE(put(1));  // in use
        ASSERT_TRUE(take(1));
        ring_memory->check_idle();
        EXPECT_TRUE(ring_memory->has_grown());
        ring_memory->check_idle();
        EXPECT_FALSE(ring_memory->has_grown());
        EXPECT_LE(allocated(), RingWriter::kFirstLap + 16384);
        for (unsigned i = 0; i < 500; ++i) {
            ASSERT_TRUE(put(i));
            ASSERT_TRUE(take(i));
        }
        EXPECT_LE(allocated(), RingWriter::kFirstLap + 16384);
    }
}

}  // namespace
}  // namespace xsock
