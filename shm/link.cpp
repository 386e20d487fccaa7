// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "shm/link.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.hpp"

namespace xsock::shm {
namespace {

/// Small records are copied and handed on many at a time; a larger one's payload goes from the ring
/// to where it belongs.
constexpr std::size_t kGatherMost = 1100;
constexpr std::size_t kCheckedPerCycle = 64;
constexpr std::byte kFinAborts{1};

}  // namespace

Link::Link(SharedMemory memory, const Layout& layout, Side side, Owner& owner)
    : memory_(memory),
      layout_(layout),
      side_(side),
      owner_(owner),
      writer_(memory, layout.ring_of(side)),
      reader_(memory, layout.ring_of(other(side))),
      flag_(memory, layout.wake_at(side), layout.wake_at(other(side))),
      slots_(layout.slots, side) {
    XSOCK_ASSERT(memory.bytes().size() >= layout.bytes());
}

Link::~Link() {
    for (std::size_t i = 0; i < slots_.end(); ++i) {
        const Slot& slot = slots_.at(static_cast<std::uint16_t>(i));
        if (slot.stream != nullptr) slot.stream->detach();
    }
}

// ---- connections ----------------------------------------------------------

bool Link::open(Stream& stream, std::uint64_t token) {
    if (ended_ || garbage_) return false;
    const auto number = slots_.take();
    if (!number) return false;
    if (!put_control(RecordKind::open, *number, std::as_bytes(std::span(&token, 1)))) {
        slots_.close(*number);
        return false;
    }
    Slot& slot = slots_.at(*number);
    slot.stream = &stream;
    stream.attach(*this, *number, slot.generation);
    return true;
}

bool Link::put_control(RecordKind kind, std::uint16_t number, ConstBytes body) {
    if (writer_.begin(record_extent(body.size(), 0), RingWriter::Use::control) == 0) {
        garbage_ |= writer_.broken();
        return false;
    }
    writer_.copy_in(0, 0, body);
    writer_.add({.kind = kind, .slot = number, .generation = slots_.at(number).generation},
                body.size());
    writer_.publish();
    published_ = true;
    return true;
}

/// A FIN of a slot that is open. Later, if there is no room.
void Link::send_fin(std::uint16_t number, bool abort) {
    Slot& slot = slots_.at(number);
    const bool useless = slot.aborts || slot.fin_received || !abort;
    if (slot.fin != Slot::Fin::none && useless) return;
    slot.aborts = abort;
    if (slot.fin == Slot::Fin::owed) return;
    slot.fin = Slot::Fin::owed;
    if (!put_fin(number)) fins_.push_back(number);
}

bool Link::put_fin(std::uint16_t number) {
    const std::byte body = slots_.at(number).aborts ? kFinAborts : std::byte{0};
    if (!put_control(RecordKind::fin, number, {&body, 1})) return false;
    slots_.at(number).fin = Slot::Fin::sent;
    check_free(number);
    return true;
}

void Link::check_free(std::uint16_t number) {
    Slot& slot = slots_.at(number);
    if (!slot.open || slot.fin != Slot::Fin::sent || !slot.fin_received) return;
    if (slot.stream != nullptr) forget(*slot.stream);
    slots_.close(number);
}

/// The stream has nothing to do with the link any more. Its FIN, if it is owed, is published by
/// poll(): this is also said where shared memory must not be touched.
void Link::forget(Stream& stream) {
    Slot& slot = slots_.at(stream.slot());
    slot.stream = nullptr;
    if (slot.fin == Slot::Fin::none) {
        slot.fin = Slot::Fin::owed;
        slot.aborts = true;
        fins_.push_back(stream.slot());
        new_fins_ = true;
    }
    const auto at = std::find(waiting_.begin(), waiting_.end(), &stream);
    if (at != waiting_.end()) {
        if (static_cast<std::size_t>(at - waiting_.begin()) < unchecked_) --unchecked_;
        waiting_.erase(at);
    }
    stream.detach();
}

// ---- room and credit ------------------------------------------------------

std::uint64_t Link::credit_of(const Stream& stream) const {
    return memory_.load64(layout_.credit_at(stream.slot(), other(side_)));
}

/// The credit first, then the word that says that there is some.
void Link::publish_credit(const Stream& stream, std::uint32_t lines) {
    memory_.publish64(layout_.credit_at(stream.slot(), side_),
                      std::uint64_t{stream.generation()} << 32 | lines);
    memory_.publish32(layout_.grants_at(side_), ++grants_);
    told_room_ = true;
}

bool Link::room_changed() const {
    const Side peer = other(side_);
    return memory_.load64(layout_.tail_at(peer)) != seen_tail_ ||
           memory_.load32(layout_.grants_at(peer)) != seen_grants_;
}

/// What waits has found no room after these words were loaded last, so each change of it changes
/// them once more.
bool Link::wake_waiting() {
    if (waiting_.empty() && fins_.empty()) return false;
    if (room_changed()) {
        const Side peer = other(side_);
        seen_tail_ = memory_.load64(layout_.tail_at(peer));
        seen_grants_ = memory_.load32(layout_.grants_at(peer));
        unchecked_ = waiting_.size();
    }
    new_fins_ = false;
    while (!fins_.empty()) {
        const std::uint16_t number = fins_.back();
        fins_.pop_back();
        if (put_fin(number)) continue;
        fins_.push_back(number);
        break;
    }
    bool any = false;
    for (std::size_t n = 0; n < kCheckedPerCycle && unchecked_ != 0 && !garbage_; ++n) {
        const std::size_t at = --unchecked_;
        Stream& stream = *waiting_[at];
        if (!stream.may_go_on()) continue;
        waiting_[at] = waiting_.back();
        waiting_.pop_back();
        any = true;
        stream.unblock();
    }
    return any;
}

// ---- a poll cycle ---------------------------------------------------------

bool Link::poll(Bytes scratch, std::size_t byte_budget) {
    XSOCK_ASSERT(scratch.size() >= kScratch);
    if (ended_) return false;
    bool busy = wake_waiting();
    std::size_t gathered = 0;
    RingReader::Record record;
    for (std::size_t used = 0; used < byte_budget && !ended_ && !garbage_;) {
        const auto found = reader_.next(record);
        if (found == RingReader::Found::none) break;
        garbage_ |= found == RingReader::Found::garbage || !take(record, scratch, gathered);
        if (garbage_) break;
        used += record_extent(record.body(), record.header.split);
        reader_.pop(record);
        told_room_ |= reader_.publish_tail(false);
        busy = true;
    }
    // What came before the garbage was sound.
    flush(scratch, gathered);
    garbage_ |= writer_.broken();
    if (garbage_) end(StreamError::shm_garbage);
    return busy;
}

bool Link::end_cycle(bool idle) {
    if (ended_) return false;
    told_room_ |= reader_.publish_tail(idle);
    const std::uint32_t events =
        (published_ ? SharedWakeFlag::kRecords : 0) | (told_room_ ? SharedWakeFlag::kRoom : 0);
    published_ = told_room_ = false;
    return events != 0 && flag_.should_notify(events);
}

bool Link::begin_sleep() {
    if (ended_) return true;
    announced_ = reasons();
    flag_.begin_sleep(announced_);
    const bool quiet = !garbage_ && !new_fins_ && unchecked_ == 0 && !reader_.waits();
    if (quiet && !((announced_ & SharedWakeFlag::kRoom) != 0 && room_changed())) return true;
    end_sleep();
    return false;
}

void Link::end_sleep() {
    if (ended_) return;
    announced_ = 0;
    flag_.end_sleep();
}

/// False: it is garbage.
bool Link::take(const RingReader::Record& record, Bytes scratch, std::size_t& gathered) {
    switch (record.header.kind) {
        case RecordKind::data:
            return on_data(record, scratch, gathered);
        case RecordKind::open:
            flush(scratch, gathered);
            return on_open(record);
        case RecordKind::fin:
            flush(scratch, gathered);
            return on_fin(record);
        case RecordKind::wrap:
            break;
    }
    return false;
}

/// Null: it is not open, not with this generation, or the peer has finished it.
Slot* Link::slot_of(const RingReader::Record& record) {
    if (!slots_.exists(record.header.slot)) return nullptr;
    Slot& slot = slots_.at(record.header.slot);
    const bool valid =
        slot.open && slot.generation == record.header.generation && !slot.fin_received;
    return valid ? &slot : nullptr;
}

bool Link::on_data(const RingReader::Record& record, Bytes scratch, std::size_t& gathered) {
    const Slot* const slot = slot_of(record);
    const std::size_t body = record.body();
    if (slot == nullptr || body > kMulpdu) return false;
    if (slot->stream == nullptr) {
        send_fin(record.header.slot, true);
        return true;
    }
    const std::size_t extent = record_extent(body, record.header.split);
    if (!slot->stream->receive(extent)) return false;
    if (body > kGatherMost) {
        flush(scratch, gathered);
        deliver_large(record, scratch);
        return true;
    }
    const Stream::Frame frame{static_cast<std::uint32_t>(body), static_cast<std::uint32_t>(extent)};
    if (gathered_for_ != record.header.slot || scratch.size() - gathered < sizeof frame + body) {
        flush(scratch, gathered);
    }
    gathered_for_ = record.header.slot;
    std::memcpy(scratch.data() + gathered, &frame, sizeof frame);
    gathered += sizeof frame;
    reader_.copy_body(record, 0, scratch.subspan(gathered, body));
    gathered += body;
    return true;
}

/// The front of the body, which is ours, and then the rest: from the ring, as far as the stream
/// takes it now.
void Link::deliver_large(const RingReader::Record& record, Bytes scratch) {
    const ConstBytes front = record.front();
    const std::uint16_t number = record.header.slot;
    const Stream::Frame frame{
        static_cast<std::uint32_t>(record.body()),
        static_cast<std::uint32_t>(record_extent(record.body(), record.header.split))};
    std::memcpy(scratch.data(), &frame, sizeof frame);
    std::copy(front.begin(), front.end(), scratch.begin() + sizeof frame);
    offer_ = {.record = &record, .slot = number, .at = front.size()};
    deliver(number, scratch.first(sizeof frame + front.size()));
    offer_.record = nullptr;
    // What it cannot take now must not hold up the others.
    if (offer_.at == record.body() || slots_.at(number).stream == nullptr) return;
    const Bytes rest = scratch.first(record.body() - offer_.at);
    reader_.copy_body(record, offer_.at, rest);
    deliver(number, rest);
}

void Link::flush(Bytes scratch, std::size_t& gathered) {
    if (gathered != 0) deliver(gathered_for_, scratch.first(gathered));
    gathered = 0;
}

void Link::deliver(std::uint16_t number, ConstBytes bytes) {
    Stream* const stream = slots_.at(number).stream;
    if (stream == nullptr) return;
    if (stream->state() == Llp::State::started) return stream->keep(bytes);
    if (stream->has_early()) stream->owner_.on_rx(stream->take_early());
    if (slots_.at(number).stream == stream) stream->owner_.on_rx(bytes);
}

Link::Offer* Link::offer_to(const Stream& stream) noexcept {
    return offer_.record != nullptr && offer_.slot == stream.slot() ? &offer_ : nullptr;
}

void Link::take_offered(Offer& offer, Bytes to) const {
    reader_.copy_body(*offer.record, offer.at, to);
    offer.at += to.size();
}

bool Link::on_open(const RingReader::Record& record) {
    const auto [number, generation] = std::pair(record.header.slot, record.header.generation);
    std::uint64_t token = 0;
    if (!slots_.exists(number) || !slots_.peer_may_open(number, generation) ||
        record.header.split != 0 || record.body() != sizeof token) {
        return false;
    }
    std::memcpy(&token, record.front().data(), sizeof token);
    slots_.open(number, generation);
    Stream* const stream = owner_.on_open(token);
    if (stream == nullptr) {
        send_fin(number, true);
        return true;
    }
    slots_.at(number).stream = stream;
    stream->attach(*this, number, generation);
    return true;
}

bool Link::on_fin(const RingReader::Record& record) {
    if (record.body() != 1 || record.header.split != 0) return false;
    const bool aborts = (record.front()[0] & kFinAborts) == kFinAborts;
    Slot* const slot = slot_of(record);
    if (slot == nullptr) return aborts && on_second_fin(record);
    slot->fin_received = true;
    slot->abort_received = aborts;
    if (slot->stream != nullptr) slot->stream->owner_.on_fin(aborts);
    check_free(record.header.slot);
    return true;
}

/// One that aborts, behind one that did not. Ours may have freed the slot meanwhile.
bool Link::on_second_fin(const RingReader::Record& record) {
    const std::uint16_t number = record.header.slot;
    if (!slots_.exists(number)) return false;
    Slot& slot = slots_.at(number);
    if (slot.generation != record.header.generation) {
        return slots_.was_before(number, record.header.generation);
    }
    if (std::exchange(slot.abort_received, true)) return false;
    if (slot.stream != nullptr) slot.stream->owner_.on_fin(true);
    return true;
}

// ---- the end --------------------------------------------------------------

void Link::end(StreamError why) {
    if (ended_) return;
    ended_ = true;
    waiting_.clear();
    fins_.clear();
    unchecked_ = 0;
    for (std::size_t i = 0; i < slots_.end(); ++i) {
        Slot& slot = slots_.at(static_cast<std::uint16_t>(i));
        Stream* const stream = slot.stream;
        slot = {.generation = slot.generation};
        if (stream == nullptr) continue;
        stream->detach();
        stream->end(why);
    }
}

}  // namespace xsock::shm
