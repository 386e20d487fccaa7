// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Every interleaving of the two ends of a shared ring, which sleep when there is nothing to read,
// or no room: no record is lost, none is seen before it is whole, no wake-up is lost.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/shared_ring.hpp"
#include "tests/unit/interleaving.hpp"

namespace xsock {
namespace {

constexpr std::size_t kLine = SharedMemory::kLine;
constexpr std::size_t kRingBytes = 256;
constexpr RingPlace kPlace{.at = 2 * kLine, .bytes = kRingBytes, .tail_at = 0};
constexpr std::size_t kReaderFlag = 8, kWriterFlag = kLine;

constexpr int kReader = 0, kWriter = 1;
constexpr std::size_t kStepsToFill = 3 * 4;  // record, word behind it, its word, the reader's flag

struct World {
    alignas(kLine) std::array<std::byte, kPlace.at + kRingBytes> memory{};
    std::vector<std::array<std::byte, kLine>> copied;  // by the reader
    int notified[2] = {0, 0};
    std::vector<int> log[2];
    bool done[2] = {false, false};
    bool torn = false;
};

using Sides = test::Interleaving<World>;
World*& world = Sides::world;

/// Each access of either end is one step.
class SteppedMemory final : public SharedMemory::Interposer {
  public:
    bool word_first = false;  ///< a record's word is stored before the record

    std::uint32_t load32(std::size_t at) override {
        return static_cast<std::uint32_t>(
            Sides::step([&] { return static_cast<int>(load<std::uint32_t>(at)); }));
    }
    std::uint64_t load64(std::size_t at) override {
        return static_cast<std::uint64_t>(
            Sides::step([&] { return static_cast<int>(load<std::uint64_t>(at)); }));
    }
    void store32(std::size_t at, std::uint32_t value, bool) override {
        Sides::step([&] { return store(at, value); });
        if (word_first && value != 0) store_body();
    }
    void store64(std::size_t at, std::uint64_t value) override {
        Sides::step([&] { return store(at, value); });
    }
    std::uint32_t exchange32(std::size_t at, std::uint32_t value) override {
        return static_cast<std::uint32_t>(Sides::step([&] {
            const auto was = static_cast<int>(load<std::uint32_t>(at));
            store(at, value);
            return was;
        }));
    }
    void fence() override {}
    void copy_out(std::size_t at, Bytes to) override {
        const int which = Sides::step([&] {
            std::copy_n(world->memory.begin() + static_cast<std::ptrdiff_t>(at), to.size(),
                        world->copied.emplace_back().begin());
            return static_cast<int>(world->copied.size()) - 1;
        });
        const auto& copy = world->copied[static_cast<std::size_t>(which)];
        std::copy_n(copy.begin(), to.size(), to.begin());
    }
    /// The parts of a record are one step: no order between them is promised.
    void copy_in(std::size_t at, ConstBytes from) override {
        body_.emplace_back(at, std::vector<std::byte>(from.begin(), from.end()));
        if (!word_first && at % kLine == sizeof(std::uint32_t)) store_body();  // the header, last
    }
    Bytes room(std::size_t, std::size_t) override { return {}; }
    void room_written(std::size_t, std::size_t) override {}

  private:
    void store_body() {
        if (body_.empty()) return;
        Sides::step([&] {
            for (const auto& [at, bytes] : body_) {
                std::copy(bytes.begin(), bytes.end(),
                          world->memory.begin() + static_cast<std::ptrdiff_t>(at));
            }
            return 0;
        });
        body_.clear();
    }
    template <typename T>
    static T load(std::size_t at) {
        T value;
        std::memcpy(&value, world->memory.data() + at, sizeof value);
        return value;
    }
    template <typename T>
    static int store(std::size_t at, T value) {
        std::memcpy(world->memory.data() + at, &value, sizeof value);
        return 0;
    }

    std::vector<std::pair<std::size_t, std::vector<std::byte>>> body_;
};

/// How the ends must not be written.
enum class Fault { none, reader_checks_first, writer_checks_first, notifies_first, word_first };

struct Script {
    int records;
    Fault fault = Fault::none;
};

SharedMemory memory_over(SteppedMemory& stepped) {
    static constexpr std::size_t kBytes = kPlace.at + kRingBytes;
    alignas(kLine) static std::byte unused[kBytes];
    return SharedMemory({unused, kBytes}, &stepped);
}

void notify(int who) {
    Sides::step([who] { return ++world->notified[who]; });
}
void sleep_until_notified(int who) {
    Sides::step([who] {
        if (world->notified[who] == 0) throw test::CannotStep{};
        return world->notified[who] = 0;
    });
}

void read(const Script& script) {
    SteppedMemory stepped;
    const SharedMemory memory = memory_over(stepped);
    RingReader reader(memory, kPlace);
    const SharedWakeFlag flag(memory, kReaderFlag, kWriterFlag);
    RingReader::Record record;
    for (int got = 0; got < script.records;) {
        const auto found = reader.next(record);
        if (found == RingReader::Found::none) {
            if (script.fault == Fault::reader_checks_first) {
                flag.begin_sleep(SharedWakeFlag::kRecords);
                sleep_until_notified(kReader);
            } else {
                flag.begin_sleep(SharedWakeFlag::kRecords);
                if (!reader.waits()) sleep_until_notified(kReader);
            }
            flag.end_sleep();
            continue;
        }
        std::byte body{};
        if (found == RingReader::Found::garbage || record.body() != 1 ||
            record.header.generation != static_cast<std::uint32_t>(got)) {
            world->torn = true;
            return;
        }
        reader.copy_body(record, 0, {&body, 1});
        if (body != static_cast<std::byte>(got + 100)) world->torn = true;
        reader.pop(record);
        ++got;
        if (reader.publish_tail(true) && flag.should_notify(SharedWakeFlag::kRoom)) {
            notify(kWriter);
        }
    }
}

void write(const Script& script) {
    SteppedMemory stepped;
    stepped.word_first = script.fault == Fault::word_first;
    const SharedMemory memory = memory_over(stepped);
    RingWriter writer(memory, kPlace);
    const SharedWakeFlag flag(memory, kWriterFlag, kReaderFlag);
    for (int i = 0; i < script.records; ++i) {
        while (writer.begin(kLine, RingWriter::Use::control) == 0) {
            if (script.fault != Fault::writer_checks_first) {
                flag.begin_sleep(SharedWakeFlag::kRoom);
                if (writer.begin(kLine, RingWriter::Use::control) == 0)
                    sleep_until_notified(kWriter);
            } else {
                flag.begin_sleep(SharedWakeFlag::kRoom);
                sleep_until_notified(kWriter);
            }
            flag.end_sleep();
        }
        const auto body = static_cast<std::byte>(i + 100);
        writer.copy_in(0, 0, {&body, 1});
        writer.add({.generation = static_cast<std::uint32_t>(i)}, 1);
        bool wake = false;
        if (script.fault == Fault::notifies_first) {
            wake = flag.should_notify(SharedWakeFlag::kRecords);
            writer.publish();
        } else {
            writer.publish();
            wake = flag.should_notify(SharedWakeFlag::kRecords);
        }
        if (wake) notify(kReader);
    }
}

struct Verdict {
    long states = 0;
    long stuck = 0;  // a thread sleeps for ever
    long torn = 0;   // another record was read than was written
    std::set<std::string> met;
};

/// All that tells one world from another.
std::string key_of(const World& w) {
    std::string key(reinterpret_cast<const char*>(w.memory.data()), w.memory.size());
    const auto add = [&key](int n) { key.append(reinterpret_cast<const char*>(&n), sizeof n); };
    for (const int who : {kReader, kWriter}) {
        for (const int n : w.log[who]) add(n);
        add(static_cast<int>(w.log[who].size()));
        add(w.notified[who]);
        add(w.done[who]);
    }
    for (const auto& copy : w.copied) {
        key.append(reinterpret_cast<const char*>(copy.data()), copy.size());
    }
    add(w.torn);
    return key;
}

bool advance(World& w, int who, const Script& script) {
    return Sides::advance(w, who, [&] {
        if (who == kReader) {
            read(script);
        } else {
            write(script);
        }
    });
}

/// Depth first; schedules that come to the same world go on as one.
void walk(const World& w, const Script& script, Verdict& verdict) {
    if (!verdict.met.insert(key_of(w)).second) return;
    ++verdict.states;
    bool moved = false;
    for (const int who : {kReader, kWriter}) {
        if (w.done[who] || w.torn) continue;
        World next = w;
        if (!advance(next, who, script)) continue;
        moved = true;
        walk(next, script, verdict);
    }
    if (moved) return;
    verdict.torn += w.torn;
    verdict.stuck += !w.torn && (!w.done[kReader] || !w.done[kWriter]);
}

Verdict walk_all(const Script& script) {
    Verdict verdict;
    walk(World{}, script, verdict);
    return verdict;
}

/// From where the writer has filled the ring, and has made no step to find that out.
Verdict walk_full(const Script& script) {
    World full;
    for (World w; advance(w, kWriter, script); full = w) {
        if (w.log[kWriter].size() > kStepsToFill) break;
    }
    Verdict verdict;
    walk(full, script, verdict);
    return verdict;
}

void expect_sound(const Verdict& verdict, long more_states_than) {
    EXPECT_GT(verdict.states, more_states_than);
    EXPECT_EQ(verdict.stuck, 0);
    EXPECT_EQ(verdict.torn, 0);
}

TEST(SharedRingInterleaving, one_record) { expect_sound(walk_all({.records = 1}), 100); }

TEST(SharedRingInterleaving, two_records) { expect_sound(walk_all({.records = 2}), 1000); }

TEST(SharedRingInterleaving, a_ring_that_is_full_at_times) {
    expect_sound(walk_full({.records = 4}), 1000);
}

TEST(SharedRingInterleaving, the_walk_finds_a_reader_that_does_not_check_again) {
    EXPECT_GT(walk_all({.records = 1, .fault = Fault::reader_checks_first}).stuck, 0);
}

TEST(SharedRingInterleaving, the_walk_finds_a_writer_that_does_not_check_again) {
    EXPECT_GT(walk_full({.records = 4, .fault = Fault::writer_checks_first}).stuck, 0);
}

TEST(SharedRingInterleaving, the_walk_finds_a_writer_that_notifies_too_early) {
    EXPECT_GT(walk_all({.records = 1, .fault = Fault::notifies_first}).stuck, 0);
}

TEST(SharedRingInterleaving, the_walk_finds_a_word_that_is_stored_too_early) {
    EXPECT_GT(walk_all({.records = 1, .fault = Fault::word_first}).torn, 0);
}

}  // namespace
}  // namespace xsock
