// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The memory that two processes share, and all connections between them that use it: two rings,
// and a slot for each connection. Sans-IO; one thread at a time.
//
//   poll()          a poll cycle: hands the peer's records to their streams, and says to streams
//                   that waited that there is room
//   end_cycle()     true: the peer sleeps, and must be woken (one byte, by the owner)
//   begin_sleep()   before the owner relies on being woken; then, unless it answers false, sleep
//
// What poll() calls must not call it again.
//
// All of these, and whatever a stream sends, load and store shared memory. A fault in it is
// repaired (base/shared_range.hpp); the owner checks for that after each poll(), and calls end().
//
// A slot is opened by a record and is free again when both ends have published their FIN and read
// the other's. Each side opens slots of its own parity, so that they never want the same one.
// What makes no sense, in whatever word, ends the link and its connections with `shm_garbage`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/shared_ring.hpp"
#include "base/stream_error.hpp"
#include "shm/layout.hpp"
#include "shm/slot_table.hpp"
#include "shm/stream.hpp"

namespace xsock::shm {

class Link final {
  public:
    class Owner {
      public:
        /// The peer has opened a slot for the connection of this token: its stream; null: there is
        /// none (any more), and the slot is finished at once.
        virtual Stream* on_open(std::uint64_t token) = 0;

      protected:
        ~Owner() = default;
    };

    /// poll() needs so much scratch at least.
    static constexpr std::size_t kScratch = std::size_t{64} << 10;

    /// @pre memory.bytes().size() >= layout.bytes(), zero when it was made
    Link(SharedMemory memory, const Layout& layout, Side side, Owner& owner);
    /// Streams that are left are told nothing.
    ~Link();
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;

    // -- connections --

    /// Takes a slot for `stream` and tells the peer. False: none is free, the ring is full, or the
    /// link has ended.
    bool open(Stream& stream, std::uint64_t token);
    [[nodiscard]] std::size_t connections() const noexcept { return slots_.open_slots(); }

    // -- a poll cycle --

    /// About `byte_budget` bytes of records. `scratch` is overwritten. True: something was read, or
    /// some stream may send again.
    bool poll(Bytes scratch, std::size_t byte_budget);
    /// `idle`: nothing was read in this cycle.
    [[nodiscard]] bool end_cycle(bool idle);
    /// False: there is something to do.
    [[nodiscard]] bool begin_sleep();
    /// To be asked while it sleeps, after something was sent. True: begin_sleep() must be called
    /// again, because more is waited for than it announced, or because there is something to do.
    [[nodiscard]] bool must_sleep_anew() const noexcept {
        return (reasons() & ~announced_) != 0 || garbage_ || new_fins_;
    }
    void end_sleep();

    // -- the end --

    /// The other process is gone (what it published was read), or the memory is: tells all streams.
    /// Shared memory is not touched any more.
    void end(StreamError why);
    [[nodiscard]] bool ended() const noexcept { return ended_; }

    [[nodiscard]] RingWriter& writer() noexcept { return writer_; }

  private:
    friend class Stream;

    /// A record whose payload is still in the ring, while its stream takes it.
    struct Offer {
        const RingReader::Record* record = nullptr;
        std::uint16_t slot = 0;
        std::size_t at = 0;  ///< bytes of the body that were taken
        [[nodiscard]] std::size_t left() const noexcept { return record->body() - at; }
    };
    // What streams ask.
    [[nodiscard]] std::uint64_t credit_of(const Stream& stream) const;
    void publish_credit(const Stream& stream, std::uint32_t lines);
    void wait_for_room(Stream& stream) { waiting_.push_back(&stream); }
    void on_published() noexcept { published_ = true; }
    void fail() noexcept { garbage_ = true; }
    void send_fin(std::uint16_t number, bool abort);
    void forget(Stream& stream);
    [[nodiscard]] Offer* offer_to(const Stream& stream) noexcept;
    void take_offered(Offer& offer, Bytes to) const;

    bool put_control(RecordKind kind, std::uint16_t number, ConstBytes body);
    bool put_fin(std::uint16_t number);
    void check_free(std::uint16_t number);
    /// What may wake us.
    [[nodiscard]] std::uint32_t reasons() const noexcept {
        const bool waits = !waiting_.empty() || !fins_.empty();
        return SharedWakeFlag::kRecords | (waits ? SharedWakeFlag::kRoom : 0);
    }
    [[nodiscard]] bool room_changed() const;
    bool wake_waiting();
    bool take(const RingReader::Record& record, Bytes scratch, std::size_t& gathered);
    [[nodiscard]] Slot* slot_of(const RingReader::Record& record);
    bool on_data(const RingReader::Record& record, Bytes scratch, std::size_t& gathered);
    bool on_open(const RingReader::Record& record);
    bool on_fin(const RingReader::Record& record);
    bool on_second_fin(const RingReader::Record& record);
    void deliver_large(const RingReader::Record& record, Bytes scratch);
    void deliver(std::uint16_t number, ConstBytes bytes);
    void flush(Bytes scratch, std::size_t& gathered);

    SharedMemory memory_;
    Layout layout_;
    Side side_;
    Owner& owner_;
    RingWriter writer_;
    RingReader reader_;
    SharedWakeFlag flag_;
    SlotTable slots_;
    std::vector<std::uint16_t> fins_;  // Slot::Fin::owed
    std::vector<Stream*> waiting_;     // for room or credit
    std::size_t unchecked_ = 0;        // of waiting_, from its front: since the last change
    std::uint64_t seen_tail_ = 0;      // the peer's words, as they were then
    std::uint32_t seen_grants_ = 0;
    std::uint32_t grants_ = 0;     // our own word: counts what was published
    std::uint32_t announced_ = 0;  // reasons(), by begin_sleep()
    std::uint16_t gathered_for_ = 0;
    Offer offer_;
    bool published_ = false;  // records, since the peer was notified last
    bool told_room_ = false;  // the tail, or credit
    bool new_fins_ = false;   // none of them was tried
    bool garbage_ = false;    // found where the link cannot be ended
    bool ended_ = false;
};

}  // namespace xsock::shm
