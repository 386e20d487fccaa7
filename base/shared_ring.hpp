// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory that two processes share, and the byte rings in it: one process writes records, the other
// reads them. This file and shared_ring.cpp are the only ones that touch such memory. One thread
// at a time at each end.
//
// The other process may change any byte at any time. So each word is loaded once, into a local,
// and checked; the first line of a record is copied before it is parsed; and the rest of a record
// is copied once, to where it belongs. A fault in the memory (a page was punched out, and the
// machine is full) is repaired, with zeros: base/shared_range.hpp.
//
//   writer                                  reader
//   W1 the word behind the record = 0       R1 load the word at its position; 0: none
//   W2 the record                           R2 copy the record
//   W3 the record's word (release)          R3 tail = behind it (release)
//
// A record begins with a word, its length, which is stored last: the line that is polled brings a
// short record whole. The word behind it was zeroed before, so the reader never meets what is
// left of an earlier lap. A position counts bytes from the beginning; a lap of the ring may end
// anywhere, by a record of kind `wrap`, and the next begins at the next multiple of the ring's
// size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/assert.hpp"
#include "base/bytes.hpp"

namespace xsock {

/// Places in shared memory are offsets from its beginning. Words are in native byte order.
class SharedMemory {
  public:
    /// Stands between both ends and the memory, in tests: delays what is stored, changes what is
    /// loaded, counts steps.
    class Interposer {
      public:
        virtual std::uint32_t load32(std::size_t at) = 0;
        virtual std::uint64_t load64(std::size_t at) = 0;
        /// `release`: what was stored before is visible to whoever sees this.
        virtual void store32(std::size_t at, std::uint32_t value, bool release) = 0;
        virtual void store64(std::size_t at, std::uint64_t value) = 0;  ///< release
        virtual std::uint32_t exchange32(std::size_t at, std::uint32_t value) = 0;
        virtual void fence() = 0;
        virtual void copy_out(std::size_t at, Bytes to) = 0;
        virtual void copy_in(std::size_t at, ConstBytes from) = 0;
        /// Where a batch of records is written; room_written() follows, or it is abandoned.
        virtual Bytes room(std::size_t at, std::size_t bytes) = 0;
        virtual void room_written(std::size_t at, std::size_t bytes) = 0;

      protected:
        ~Interposer() = default;
    };

    /// @pre `memory` is aligned to kLine, and outlives all that uses it
    explicit SharedMemory(Bytes memory, Interposer* interposer = nullptr) noexcept
        : memory_(memory), interposer_(interposer) {}

    static constexpr std::size_t kLine = 64;  ///< of the cache; all that is shared is aligned to it

    [[nodiscard]] Bytes bytes() const noexcept { return memory_; }

    [[nodiscard]] std::uint32_t load32(std::size_t at) const {  // acquire
        if (interposer_ != nullptr) [[unlikely]]
            return interposer_->load32(at);
        return __atomic_load_n(word<std::uint32_t>(at), __ATOMIC_ACQUIRE);
    }
    [[nodiscard]] std::uint64_t load64(std::size_t at) const {  // acquire
        if (interposer_ != nullptr) [[unlikely]]
            return interposer_->load64(at);
        return __atomic_load_n(word<std::uint64_t>(at), __ATOMIC_ACQUIRE);
    }
    void store32(std::size_t at, std::uint32_t value) const {  // relaxed
        if (interposer_ != nullptr) [[unlikely]]
            return interposer_->store32(at, value, false);
        __atomic_store_n(word<std::uint32_t>(at), value, __ATOMIC_RELAXED);
    }
    void publish32(std::size_t at, std::uint32_t value) const {  // release
        if (interposer_ != nullptr) [[unlikely]]
            return interposer_->store32(at, value, true);
        __atomic_store_n(word<std::uint32_t>(at), value, __ATOMIC_RELEASE);
    }
    void publish64(std::size_t at, std::uint64_t value) const {  // release
        if (interposer_ != nullptr) [[unlikely]]
            return interposer_->store64(at, value);
        __atomic_store_n(word<std::uint64_t>(at), value, __ATOMIC_RELEASE);
    }
    std::uint32_t exchange32(std::size_t at, std::uint32_t value) const {  // seq_cst
        if (interposer_ != nullptr) [[unlikely]]
            return interposer_->exchange32(at, value);
        return __atomic_exchange_n(word<std::uint32_t>(at), value, __ATOMIC_SEQ_CST);
    }
    void fence() const {  // seq_cst
        if (interposer_ != nullptr) [[unlikely]]
            return interposer_->fence();
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }

    /// Copies to private or program memory (named by a fault::Touch then), its last bytes last. The
    /// compiler may not read the source again later.
    void copy_out(std::size_t at, Bytes to) const;
    void copy_in(std::size_t at, ConstBytes from) const;
    /// The one exception to "only this file": memory that Ulp::tx_fill() writes, and never reads.
    [[nodiscard]] Bytes room(std::size_t at, std::size_t bytes) const {
        if (interposer_ != nullptr) [[unlikely]]
            return interposer_->room(at, bytes);
        return checked(at, bytes);
    }
    /// The first `bytes` of that room are written.
    void room_written(std::size_t at, std::size_t bytes) const {
        if (interposer_ != nullptr) [[unlikely]]
            interposer_->room_written(at, bytes);
    }

  private:
    [[nodiscard]] Bytes checked(std::size_t at, std::size_t bytes) const {
        XSOCK_ASSERT(at <= memory_.size() && bytes <= memory_.size() - at);
        return memory_.subspan(at, bytes);
    }
    template <typename T>
    [[nodiscard]] T* word(std::size_t at) const {
        return reinterpret_cast<T*>(checked(at, sizeof(T)).data());
    }

    Bytes memory_;
    Interposer* interposer_;
};

// -- waking --

/// Wakes the other process only if it sleeps: base/wake_flag.hpp in shared memory, for more than
/// one reason to wake up. Each process stores its own word; who wakes it clears that. The order of
/// steps, and why no wake-up is lost, are those of WakeFlag: what is waited for is published
/// before should_notify(), and checked for after begin_sleep().
class SharedWakeFlag {
  public:
    static constexpr std::uint32_t kRecords = 1;  ///< wake me when there are records
    static constexpr std::uint32_t kRoom = 2;     ///< when there is room, or credit

    SharedWakeFlag(SharedMemory memory, std::size_t own_at, std::size_t peer_at) noexcept
        : memory_(memory), own_at_(own_at), peer_at_(peer_at) {}

    /// Announces sleep until one of `reasons`. Check for all of them again; only then sleep.
    void begin_sleep(std::uint32_t reasons) const {
        static_cast<void>(memory_.exchange32(own_at_, reasons));
        memory_.fence();
    }
    void end_sleep() const { memory_.publish32(own_at_, 0); }
    /// One of `events` was published. True: the other process must be woken now.
    [[nodiscard]] bool should_notify(std::uint32_t events) const {
        memory_.fence();
        return (memory_.load32(peer_at_) & events) != 0 && memory_.exchange32(peer_at_, 0) != 0;
    }

  private:
    SharedMemory memory_;
    std::size_t own_at_, peer_at_;
};

// -- records --

enum class RecordKind : std::uint8_t { data = 1, open = 2, fin = 3, wrap = 4 };

/// The front of a record, as it lies in the ring. `body` follows, unless it is split.
struct RecordHeader {
    std::uint32_t length = 0;  ///< of header and body; 0: not there
    RecordKind kind = RecordKind::data;
    /// 0: the body follows the header. Else so many bytes of it do, and the rest begins on the next
    /// line: large payloads are copied from line to line.
    std::uint8_t split = 0;
    std::uint16_t slot = 0;
    std::uint32_t generation = 0;
};
static_assert(sizeof(RecordHeader) == 12);

inline constexpr std::size_t kRecordHeader = sizeof(RecordHeader);
/// Bytes of a body that lie in the record's first line.
inline constexpr std::size_t kFirstLineBody = SharedMemory::kLine - kRecordHeader;

/// Bytes of the ring that a record takes.
[[nodiscard]] constexpr std::size_t record_extent(std::size_t body, std::size_t split) noexcept {
    constexpr std::size_t kLine = SharedMemory::kLine;
    const std::size_t bytes = split == 0 ? kRecordHeader + body : kLine + body - split;
    return (bytes + kLine - 1) & ~(kLine - 1);
}

/// Where a ring lies in the memory.
struct RingPlace {
    std::size_t at = 0;
    std::size_t bytes = 0;    ///< a power of two
    std::size_t tail_at = 0;  ///< the reader's word (u64)
};

/// Writes records. They are prepared in room that is contiguous, and published together: those of
/// an abandoned batch are never seen.
class RingWriter {
  public:
    /// So much of the ring is used at first, over and over, and all of it once that was full: the
    /// first touch of a page costs microseconds.
    static constexpr std::size_t kFirstLap = std::size_t{64} << 10;

    /// @pre the ring's memory was zero when both ends were made
    RingWriter(SharedMemory memory, const RingPlace& place) noexcept;

    /// What may be in the ring: records of control (`open`, `fin`) find room where data does not.
    enum class Use : std::uint8_t { data, control };
    /// Begins a batch: contiguous bytes for records with what they take; at least `least`, or 0:
    /// there is no room now, or broken(). A batch that was begun before is abandoned.
    [[nodiscard]] std::size_t begin(std::size_t least, Use use);
    /// The memory at which the next record of the batch begins, up to the end of what begin()
    /// answered. The header's bytes are left out until add().
    [[nodiscard]] Bytes room() const { return memory_.room(offset(cursor_), left_); }
    /// `bytes` at the front of room() were written.
    void room_written(std::size_t bytes) const { memory_.room_written(offset(cursor_), bytes); }
    /// Copies into the body of the next record, whose split is known: `from` goes behind its first
    /// `at` bytes.
    void copy_in(std::size_t at, std::size_t split, ConstBytes from) const;
    /// The next record of the batch: its body was written. `header.length` is filled in.
    void add(RecordHeader header, std::size_t body);
    /// Makes what was added since begin() visible to the reader.
    void publish();

    /// So much of the ring has memory behind it, from its beginning; not less than before.
    /// @pre a multiple of kLine, at most the ring
    void allow(std::size_t bytes) noexcept;
    [[nodiscard]] std::size_t allowed() const noexcept { return allowed_; }
    /// More than allowed would be used now.
    [[nodiscard]] bool wants_more() const noexcept { return growing_ && allowed_ < place_.bytes; }
    /// Bytes from the ring's beginning.
    struct Unused {
        std::size_t at = 0;
        std::size_t bytes = 0;
    };
    /// Back to what was allowed at first: what lies behind that is not used until it is allowed
    /// anew, and may be zeroed now, but for the page with the word that the reader polls.
    /// @pre drained(); `page` is a power of two
    std::array<Unused, 2> give_back(std::size_t page) noexcept;
    /// The reader has everything. Loads the tail.
    [[nodiscard]] bool drained();
    /// Where the next record is published; counts bytes.
    [[nodiscard]] std::uint64_t position() const noexcept { return head_; }
    /// The reader's word makes no sense.
    [[nodiscard]] bool broken() const noexcept { return broken_; }

  private:
    [[nodiscard]] std::size_t offset(std::uint64_t position) const noexcept {
        return place_.at + static_cast<std::size_t>(position & (place_.bytes - 1));
    }
    [[nodiscard]] std::uint64_t next_lap() const noexcept {
        return (head_ | (place_.bytes - 1)) + 1;
    }
    /// Where a lap ends at the latest.
    [[nodiscard]] std::size_t lap() const noexcept {
        return growing_ || allowed_ < kFirstLap ? allowed_ : kFirstLap;
    }
    bool load_tail();
    [[nodiscard]] std::size_t find_room(std::size_t least, Use use);

    SharedMemory memory_;
    RingPlace place_;
    std::uint64_t head_ = 0;    // where the next record is published
    std::uint64_t tail_ = 0;    // as loaded last
    std::uint64_t first_ = 0;   // of the batch: head_, or the beginning of the next lap
    std::uint64_t cursor_ = 0;  // behind what was added
    std::size_t left_ = 0;      // of what begin() answered
    std::size_t allowed_;
    std::uint32_t first_word_ = 0;  // of the batch; withheld until publish()
    bool growing_ = false;
    bool broken_ = false;
};

/// Reads them.
class RingReader {
  public:
    RingReader(SharedMemory memory, const RingPlace& place) noexcept
        : memory_(memory), place_(place) {}

    /// A record, checked: it lies in the ring, and header and first line are ours.
    class Record {
      public:
        RecordHeader header;
        [[nodiscard]] std::size_t body() const noexcept { return header.length - kRecordHeader; }
        /// The front of its body, as far as the first line has it.
        [[nodiscard]] ConstBytes front() const noexcept {
            const std::size_t most = header.split != 0 ? header.split : kFirstLineBody;
            return ConstBytes(line_).subspan(kRecordHeader, most < body() ? most : body());
        }

      private:
        friend class RingReader;
        std::array<std::byte, SharedMemory::kLine> line_;
        std::size_t rest_at_ = 0;  // in the memory, of what follows front()
    };

    enum class Found : std::uint8_t {
        none,
        record,
        garbage,  ///< what no writer writes
    };
    /// The next record; again the same one until pop().
    [[nodiscard]] Found next(Record& record);
    /// Is there one? One load.
    [[nodiscard]] bool waits() const { return memory_.load32(offset()) != 0; }
    /// Copies bytes of its body, from the `at`th on. @pre they are within it
    void copy_body(const Record& record, std::size_t at, Bytes to) const;
    /// Its memory is the writer's again, once the tail is published.
    void pop(const Record& record) noexcept;
    /// Tells the writer; unless `all`, only once some have come together. True: it
    /// was told something.
    bool publish_tail(bool all);

  private:
    [[nodiscard]] std::size_t offset() const noexcept {
        return place_.at + static_cast<std::size_t>(position_ & (place_.bytes - 1));
    }
    [[nodiscard]] bool take_header(std::uint32_t word, Record& record) const;

    SharedMemory memory_;
    RingPlace place_;
    std::uint64_t position_ = 0;
    std::uint64_t published_ = 0;
};

}  // namespace xsock
