// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Both ends of a ring in shared memory, each beside a process that changes every byte whenever it
// is looked at: no access beyond the ring, no byte of a record is loaded twice, what is given as a
// record lies in the ring, and nothing is written where no memory was allowed.
//
// Input: a byte for what is done next, and for each load a byte that says what it answers.
#include <cstring>
#include <set>

#include "base/shared_ring.hpp"
#include "tests/fuzz/input.hpp"

namespace {

using namespace xsock;
using ByteVector = std::vector<std::byte>;

constexpr std::size_t kLine = SharedMemory::kLine;
constexpr std::size_t kRingBytes = std::size_t{128} << 10;
constexpr RingPlace kPlace{.at = 2 * kLine, .bytes = kRingBytes, .tail_at = kLine};
constexpr std::size_t kBytes = kPlace.at + kRingBytes;

class HostileMemory final : public SharedMemory::Interposer {
  public:
    explicit HostileMemory(fuzz::Input& input) : input_(input), bytes_(kBytes) {}

    bool reading = false;  ///< the end at work reads records
    std::size_t allowed = RingWriter::kFirstLap;

    /// One record is over: its bytes may be loaded again.
    void forget() { loaded_.clear(); }

    std::uint32_t load32(std::size_t at) override {
        FUZZ_CHECK(reading);
        note(at, 4);
        return change(load<std::uint32_t>(at));
    }
    std::uint64_t load64(std::size_t at) override {
        FUZZ_CHECK(!reading && at == kPlace.tail_at);
        return change(load<std::uint64_t>(at));
    }
    void store32(std::size_t at, std::uint32_t value, bool) override { store(at, &value, 4); }
    void store64(std::size_t at, std::uint64_t value) override {
        FUZZ_CHECK(reading && at == kPlace.tail_at && value % kLine == 0 && value >= tail_);
        tail_ = value;
    }
    std::uint32_t exchange32(std::size_t, std::uint32_t) override { return 0; }
    void fence() override {}
    void copy_out(std::size_t at, Bytes to) override {
        FUZZ_CHECK(reading);
        note(at, to.size());
        std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), to.size(), to.begin());
        if (to.size() < 8) return;
        // What a header may say.
        for (unsigned n = input_.next_byte() % 4; n != 0; --n) {
            to[input_.next_byte() % 8] = static_cast<std::byte>(input_.next_byte());
        }
    }
    void copy_in(std::size_t at, ConstBytes from) override { store(at, from.data(), from.size()); }
    Bytes room(std::size_t at, std::size_t bytes) override {
        check(at, bytes);
        FUZZ_CHECK(at + bytes <= kPlace.at + allowed);
        return Bytes(bytes_).subspan(at, bytes);
    }
    void room_written(std::size_t at, std::size_t bytes) override { check(at, bytes); }

  private:
    static void check(std::size_t at, std::size_t bytes) {
        FUZZ_CHECK(at >= kPlace.at && at <= kBytes && bytes <= kBytes - at);
    }
    void note(std::size_t at, std::size_t bytes) {
        check(at, bytes);
        for (std::size_t i = at; i < at + bytes; ++i) FUZZ_CHECK(loaded_.insert(i).second);
    }
    void store(std::size_t at, const void* from, std::size_t bytes) {
        FUZZ_CHECK(!reading);
        check(at, bytes);
        FUZZ_CHECK(at + bytes <= kPlace.at + allowed);
        if (bytes != 0) std::memcpy(bytes_.data() + at, from, bytes);
    }
    template <typename T>
    T load(std::size_t at) {
        T value;
        std::memcpy(&value, bytes_.data() + at, sizeof value);
        return value;
    }
    template <typename T>
    T change(T value) {
        return input_.altered(value, kLine, kRecordHeader);
    }

    fuzz::Input& input_;
    ByteVector bytes_;
    std::set<std::size_t> loaded_;
    std::uint64_t tail_ = 0;
};

void read(fuzz::Input& input, HostileMemory& memory, RingReader& reader) {
    memory.reading = true;
    memory.forget();
    RingReader::Record record;
    if (reader.next(record) == RingReader::Found::record) {
        const std::size_t front = record.front().size();
        FUZZ_CHECK(front <= record.body() && record.body() < kRingBytes);
        const std::size_t from = front + (record.body() - front) * input.next_byte() / 256;
        ByteVector body(record.body() - from);
        reader.copy_body(record, from, body);
        reader.pop(record);
    }
    static_cast<void>(reader.publish_tail((input.next_byte() & 1) != 0));
    memory.reading = false;
}

void write(fuzz::Input& input, RingWriter& writer) {
    const unsigned how = input.next_byte();
    const std::size_t most = kLine * (1 + input.next_byte() * ((how & 1) != 0 ? 1 : 16));
    const auto use = (how & 2) != 0 ? RingWriter::Use::data : RingWriter::Use::control;
    const std::size_t room = writer.begin(most, use);
    FUZZ_CHECK(room == 0 || (room >= most && !writer.broken()));
    for (std::size_t left = room; left != 0;) {
        RecordHeader header{.slot = static_cast<std::uint16_t>(how)};
        std::size_t body = input.next_byte() * ((how & 4) != 0 ? 40 : 1);
        if ((how & 8) != 0 && body > 18) header.split = 18;
        const std::size_t extent = record_extent(body, header.split);
        if (extent > left) break;
        left -= extent;
        const ByteVector bytes(body, static_cast<std::byte>(how));
        writer.copy_in(0, header.split, ConstBytes(bytes).first(header.split));
        writer.copy_in(header.split, header.split, ConstBytes(bytes).subspan(header.split));
        writer.add(header, body);
        if ((how & 16) != 0) break;
    }
    if ((how & 32) == 0) writer.publish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    HostileMemory hostile(input);
    alignas(kLine) static std::byte unused[kBytes];
    const SharedMemory memory(unused, &hostile);
    RingWriter writer(memory, kPlace);
    RingReader reader(memory, kPlace);
    while (!input.empty()) {
        switch (input.next_byte() % 8) {
            case 0:
                hostile.allowed = std::max<std::size_t>(
                    hostile.allowed, std::min(kRingBytes, kLine * 16 * input.next_byte()));
                writer.allow(hostile.allowed);
                break;
            case 1:
                if (writer.drained()) {
                    static_cast<void>(writer.give_back(kLine));
                    hostile.allowed = writer.allowed();
                }
                break;
            case 2:
                static_cast<void>(writer.drained());
                break;
            case 3:
            case 4:
                read(input, hostile, reader);
                break;
            default:
                write(input, writer);
                break;
        }
    }
    return 0;
}
