// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/shared_ring.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/place.hpp"

namespace xsock {
namespace {

constexpr std::size_t kLine = SharedMemory::kLine;

/// Of a ring, so that records of control always find some.
constexpr std::size_t reserve_of(std::size_t allowed) noexcept {
    constexpr std::size_t kMost = std::size_t{64} << 10;
    return std::min(kMost, allowed / 16) & ~(kLine - 1);
}

/// The tail is told in steps of this: often enough for a lap of RingWriter::kFirstLap.
constexpr std::size_t kTailStep = std::size_t{8} << 10;

constexpr std::size_t less(std::size_t a, std::size_t b) noexcept { return a > b ? a - b : 0; }

}  // namespace

void SharedMemory::copy_out(std::size_t at, Bytes to) const {
    if (interposer_ != nullptr) [[unlikely]]
        return interposer_->copy_out(at, to);
    place(to.data(), checked(at, to.size()).data(), to.size());
    // What was copied is not to be read from the memory once more.
    __asm__ volatile("" ::: "memory");
}

void SharedMemory::copy_in(std::size_t at, ConstBytes from) const {
    if (interposer_ != nullptr) [[unlikely]]
        return interposer_->copy_in(at, from);
    if (!from.empty()) std::memcpy(checked(at, from.size()).data(), from.data(), from.size());
}

// ---- writing --------------------------------------------------------------

RingWriter::RingWriter(SharedMemory memory, const RingPlace& place) noexcept
    : memory_(memory), place_(place), allowed_(std::min(place.bytes, kFirstLap)) {
    XSOCK_ASSERT(std::has_single_bit(place.bytes) && place.at % kLine == 0);
}

void RingWriter::allow(std::size_t bytes) noexcept {
    XSOCK_ASSERT(bytes % kLine == 0 && bytes >= allowed_ && bytes <= place_.bytes);
    allowed_ = bytes;
}

std::array<RingWriter::Unused, 2> RingWriter::give_back(std::size_t page) noexcept {
    XSOCK_ASSERT(tail_ == head_ && std::has_single_bit(page));
    const std::size_t first = std::min(place_.bytes, kFirstLap);
    const std::size_t from = (first + page - 1) & ~(page - 1);
    const std::size_t polled = offset(head_) - place_.at;
    const std::size_t before = polled & ~(page - 1);
    const std::size_t behind = std::max(from, before + page);
    growing_ = false;
    allowed_ = first;
    return {Unused{from, less(before, from)}, Unused{behind, less(place_.bytes, behind)}};
}

/// False: it is as before. A tail only rises, and never beyond the head; each value that keeps to
/// that is safe, whatever the reader has read.
bool RingWriter::load_tail() {
    const std::uint64_t tail = memory_.load64(place_.tail_at);
    if (tail == tail_) return false;
    if (tail < tail_ || tail > head_ || tail % kLine != 0) {
        broken_ = true;
        return false;
    }
    tail_ = tail;
    return true;
}

bool RingWriter::drained() {
    static_cast<void>(load_tail());
    return !broken_ && tail_ == head_;
}

/// Sets first_. Behind each record a line is left: for the word that is zeroed, or for the record
/// that ends the lap.
std::size_t RingWriter::find_room(std::size_t least, Use use) {
    const auto reserve_in = [&](std::size_t lap) {
        return use == Use::data ? reserve_of(lap) : std::size_t{0};
    };
    const std::size_t mask = place_.bytes - 1;
    const auto head = static_cast<std::size_t>(head_ & mask);
    // A tail may lie where no record was.
    const std::size_t tail = std::min(static_cast<std::size_t>(tail_ & mask), allowed_);
    const auto answer = [&](std::uint64_t first, std::size_t bytes) {
        first_ = first;
        return bytes & ~(kLine - 1);
    };
    if ((head_ ^ tail_) > mask) {  // the reader is in the lap before
        for (;;) {
            const std::size_t end = std::min(tail, lap());
            const std::size_t bytes = less(less(end, head), kLine + reserve_in(lap()));
            if (bytes >= least) return answer(head_, bytes);
            if (growing_) return 0;
            growing_ = true;
        }
    }
    const std::size_t before = less(tail, kLine);
    for (;;) {
        const std::size_t reserve = reserve_in(lap());
        const std::size_t all = less(allowed_, head + kLine) + before;
        const std::size_t ahead = std::min(less(lap(), head + kLine), less(all, reserve));
        if (ahead >= least) return answer(head_, ahead);
        const std::size_t behind = std::min(less(before, reserve), lap() - kLine);
        if (behind >= least) return answer(next_lap(), behind);
        if (growing_) return 0;
        growing_ = true;
    }
}

std::size_t RingWriter::begin(std::size_t least, Use use) {
    left_ = 0;
    if (broken_) return 0;
    least = std::max(least, kLine);
    const bool was_growing = growing_;
    left_ = find_room(least, use);
    // Nothing is full before the tail was loaded.
    if (left_ == 0 || growing_ != was_growing) {
        growing_ = was_growing;
        static_cast<void>(load_tail());
        left_ = broken_ ? 0 : find_room(least, use);
    }
    cursor_ = first_;
    return left_;
}

void RingWriter::copy_in(std::size_t at, std::size_t split, ConstBytes from) const {
    const std::size_t record = offset(cursor_);
    if (split == 0) {
        XSOCK_ASSERT(record_extent(at + from.size(), 0) <= left_);
        memory_.copy_in(record + kRecordHeader + at, from);
        return;
    }
    XSOCK_ASSERT(at + from.size() <= split || at >= split);
    const std::size_t begin = at < split ? kRecordHeader + at : kLine + at - split;
    XSOCK_ASSERT(begin + from.size() <= left_);
    memory_.copy_in(record + begin, from);
}

void RingWriter::add(RecordHeader header, std::size_t body) {
    const std::size_t extent = record_extent(body, header.split);
    XSOCK_ASSERT(extent <= left_);
    header.length = static_cast<std::uint32_t>(kRecordHeader + body);
    const std::size_t at = offset(cursor_);
    const auto bytes = std::as_bytes(std::span(&header, 1));
    memory_.copy_in(at + sizeof header.length, bytes.subspan(sizeof header.length));
    if (cursor_ == first_) {
        first_word_ = header.length;
    } else {
        memory_.store32(at, header.length);
    }
    cursor_ += extent;
    left_ -= extent;
}

void RingWriter::publish() {
    if (cursor_ == first_) return;
    memory_.store32(offset(cursor_), 0);
    if (first_ == head_) {
        memory_.publish32(offset(head_), first_word_);
    } else {
        memory_.store32(offset(first_), first_word_);
        const RecordHeader wrap{.length = kRecordHeader, .kind = RecordKind::wrap};
        const auto bytes = std::as_bytes(std::span(&wrap, 1));
        memory_.copy_in(offset(head_) + sizeof wrap.length, bytes.subspan(sizeof wrap.length));
        memory_.publish32(offset(head_), wrap.length);
    }
    head_ = first_ = cursor_;
    left_ = 0;
}

// ---- reading --------------------------------------------------------------

/// The word was loaded; what else the header says is taken from the copy.
bool RingReader::take_header(std::uint32_t word, Record& record) const {
    const std::size_t at = offset();
    const std::size_t room = place_.at + place_.bytes - at;  // at least a line
    memory_.copy_out(at + sizeof word, Bytes(record.line_).subspan(sizeof word));
    std::memcpy(record.line_.data(), &word, sizeof word);
    // An enumerator by memcpy() would be one that the switch below does not know.
    const auto kind = std::to_integer<std::uint8_t>(record.line_[offsetof(RecordHeader, kind)]);
    if (word < kRecordHeader || kind < static_cast<std::uint8_t>(RecordKind::data) ||
        kind > static_cast<std::uint8_t>(RecordKind::wrap)) {
        return false;
    }
    std::memcpy(&record.header, record.line_.data(), sizeof record.header);
    const std::size_t split = record.header.split;
    if (word > room || split > std::min(record.body(), kFirstLineBody)) return false;
    record.rest_at_ = at + (split != 0 ? kLine : kRecordHeader + kFirstLineBody);
    // Behind a record there is a line, which ends the lap if nothing else does.
    const bool wraps = record.header.kind == RecordKind::wrap;
    return record_extent(record.body(), split) + (wraps ? 0 : kLine) <= room;
}

RingReader::Found RingReader::next(Record& record) {
    std::uint32_t word = memory_.load32(offset());
    if (word == 0) return Found::none;
    if (!take_header(word, record)) return Found::garbage;
    if (record.header.kind != RecordKind::wrap) return Found::record;
    // The lap ends; its successor begins with a record that was there before, in what the reader
    // had given back.
    const std::size_t end = offset() - place_.at;
    position_ = (position_ | (place_.bytes - 1)) + 1;
    if (end == 0) return Found::garbage;
    word = memory_.load32(offset());
    if (word == 0 || !take_header(word, record) || record.header.kind == RecordKind::wrap ||
        record_extent(record.body(), record.header.split) + kLine > end) {
        return Found::garbage;
    }
    return Found::record;
}

void RingReader::copy_body(const Record& record, std::size_t at, Bytes to) const {
    XSOCK_ASSERT(at <= record.body() && to.size() <= record.body() - at);
    const ConstBytes front = record.front();
    if (at < front.size()) {
        const ConstBytes piece = front.subspan(at, std::min(front.size() - at, to.size()));
        std::copy(piece.begin(), piece.end(), to.begin());
        at += piece.size();
        to = to.subspan(piece.size());
    }
    if (!to.empty()) memory_.copy_out(record.rest_at_ + (at - front.size()), to);
}

void RingReader::pop(const Record& record) noexcept {
    position_ += record_extent(record.body(), record.header.split);
}

bool RingReader::publish_tail(bool all) {
    const std::uint64_t since = position_ - published_;
    if (since == 0 || (!all && since < std::min(kTailStep, place_.bytes / 8))) return false;
    memory_.publish64(place_.tail_at, position_);
    published_ = position_;
    return true;
}

}  // namespace xsock
