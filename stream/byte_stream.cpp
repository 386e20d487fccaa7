// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "stream/byte_stream.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/assert.hpp"

namespace xsock::stream {
namespace {

/// A first send of so many bytes gets a small chunk: nearly always it goes at once, alone.
constexpr std::size_t kSmallSend = 256;
/// Payloads of at most so many bytes move to the last chunk where it has room: so what waits to be
/// read takes little more than twice the memory of its bytes, however it was cut.
constexpr std::size_t kMovedPayload = 32 * 1024;

}  // namespace

ByteStream::ByteStream(Wire& wire, ChunkSource& source, const StreamLimits& limits)
    : wire_(wire), source_(source), limits_(limits) {
    wire_.set_room(limits_.receive_bytes);
}

ByteStream::~ByteStream() {
    give_all(tx_.chunks);
    give_all(rx_.chunks);
}

void ByteStream::give_all(ChunkQueue& chunks) noexcept {
    while (!chunks.empty()) source_.give(chunks.pop());
}

// ---- the program sends --------------------------------------------------------

std::size_t ByteStream::send_room() const noexcept {
    if (tx_.state != SendHalf::State::open || error_ != StreamError::none) return 0;
    return tx_.queued < limits_.send_bytes ? limits_.send_bytes - tx_.queued : 0;
}

/// Bytes of a chunk that becomes a message of the largest size.
std::size_t ByteStream::chunk_limit() const noexcept {
    return wire_.header_bytes() + wire_.payload_limit();
}

bool ByteStream::is_full(const Chunk& chunk) const noexcept {
    return chunk.urgent_last || chunk.size() >= wire_.payload_limit();
}

/// The chunk that the next bytes go to; null: no memory.
Chunk* ByteStream::tail_for(std::size_t bytes) {
    Chunk* const tail = tx_.chunks.last();
    const std::size_t header = wire_.header_bytes();
    if (tail != nullptr && !is_full(*tail)) {
        if (tail->room() >= std::min(bytes, wire_.payload_limit() - tail->size())) return tail;
        if (tail == tx_.chunks.first()) {
            if (Chunk* const larger = grow(tail, bytes)) return larger;
        } else if (tail->room() > 0) {
            return tail;
        }
    }
    const bool alone = tx_.chunks.empty();
    // One urgent byte behind another is often all that there is.
    const bool small = bytes <= kSmallSend && (alone || tail->urgent_last);
    const std::size_t wanted = alone ? std::min(header + bytes, chunk_limit()) : chunk_limit();
    Chunk* chunk = source_.take(small ? header + kSmallSend : wanted);
    if (chunk == nullptr) return nullptr;
    chunk->begin = chunk->end = static_cast<std::uint32_t>(header);
    tx_.chunks.push(chunk);
    return chunk;
}

/// More follows a small send that has not gone: the bytes move to a chunk for a large message.
/// @pre `tail` is the only one
Chunk* ByteStream::grow(Chunk* tail, std::size_t bytes) {
    const std::size_t limit = chunk_limit();
    Chunk* const larger = tail->capacity < limit ? source_.take(limit) : nullptr;
    if (larger == nullptr) return tail->room() > 0 && bytes > 0 ? tail : nullptr;
    std::memcpy(larger->data() + tail->begin, tail->data() + tail->begin, tail->size());
    larger->begin = tail->begin;
    larger->end = tail->end;
    source_.give(tx_.chunks.pop());
    tx_.chunks.push(larger);
    return larger;
}

Bytes ByteStream::send_prepare(std::size_t bytes) {
    XSOCK_ASSERT(send_room() > 0);
    tx_.payload_limit = wire_.payload_limit();
    Chunk* const chunk = tail_for(bytes);
    if (chunk == nullptr) return {};
    chunk->filling = true;
    const std::size_t n =
        std::min({bytes, send_room(), chunk->room(), wire_.payload_limit() - chunk->size()});
    return {chunk->data() + chunk->end, n};
}

void ByteStream::send_commit(std::size_t bytes, bool more, Time now) {
    Chunk* const chunk = tx_.chunks.last();
    XSOCK_ASSERT(chunk != nullptr && chunk->filling);
    chunk->filling = false;
    chunk->end += static_cast<std::uint32_t>(bytes);
    const bool begins = tx_.waiting == 0 || tx_.held;
    tx_.waiting += bytes;
    tx_.queued += bytes;
    if (tx_.due || bytes == 0) return;  // of none the program's memory was not there
    // What can follow is little: the program may be told that there is no room, and its peer would
    // wait for what is here.
    if (send_room() < limits_.send_bytes / 2) more = false;
    tx_.held = more && begins;
    if (tx_.held) {
        if (tx_.gather_at == kNever) tx_.gather_at = now + limits_.hold;
    } else if (nodelay_ && !more) {
        tx_.due = true;
    } else if (!begins) {
        return;
    } else if (now >= tx_.quiet_until) {
        tx_.due = true;
        tx_.quiet_until = now + limits_.gather;
    } else {
        tx_.gather_at = now + limits_.gather;
    }
}

// One mark at a time: an earlier one that was not announced yet is an ordinary byte now.
void ByteStream::mark_urgent() {
    Chunk* const chunk = tx_.chunks.last();
    XSOCK_ASSERT(chunk != nullptr && chunk->size() > 0);
    const bool behind = tx_.urgent != nullptr && tx_.urgent_announced;
    Chunk*& mark = behind ? tx_.newer_urgent : tx_.urgent;
    if (mark != nullptr) mark->urgent_last = false;
    mark = chunk;
    chunk->urgent_last = true;
    if (!behind) tx_.urgent_ahead = tx_.waiting;
    tx_.due = true;
}

void ByteStream::flush() noexcept {
    if (holds()) {
        tx_.quiet_until = 0;
    } else {
        push();
    }
}

void ByteStream::push() noexcept {
    tx_.quiet_until = 0;
    if (tx_.waiting > 0) tx_.due = true;
}

void ByteStream::set_nodelay(bool on) noexcept {
    nodelay_ = on;
    if (on) push();
}

void ByteStream::finish() noexcept {
    if (tx_.state != SendHalf::State::open) return;
    tx_.state = SendHalf::State::finishing;
    tx_.due = true;
}

bool ByteStream::abort() noexcept {
    if (tx_.state != SendHalf::State::finished || error_ != StreamError::none) return false;
    tx_.abort = true;
    return true;
}

bool ByteStream::waits_for_credit() const noexcept {
    return data_is_due() && !wire_.may_send_data();
}

// ---- what goes out ------------------------------------------------------------

bool ByteStream::data_is_due() const noexcept {
    Chunk* const first = tx_.chunks.first();
    if (first == nullptr || first->filling || first->size() == 0) return false;
    return tx_.due || is_full(*first) || first != tx_.chunks.last();
}

/// An urgent byte is near enough, and the peer does not know of it yet.
bool ByteStream::announces_urgent() const noexcept {
    return tx_.urgent != nullptr && !tx_.urgent_announced && tx_.urgent_ahead <= kMaxUrgentAhead;
}

bool ByteStream::tx(TxMessage& out) {
    if (error_ != StreamError::none) return false;
    const bool data = data_is_due() && wire_.may_send_data();
    if (put_control(out, data)) return true;
    // An answer may have taken the credit.
    if (!data || !wire_.may_send_data() || !fit_first()) return false;
    put_data(out);
    return true;
}

/// What was sent ahead of start-up may be more than the peer takes in a message: the first part of
/// it becomes a chunk of its own. False: no memory.
bool ByteStream::fit_first() {
    Chunk* const whole = tx_.chunks.first();
    const std::size_t limit = wire_.payload_limit(), header = wire_.header_bytes();
    if (whole->size() <= limit) return true;
    Chunk* const part = source_.take(header + limit);
    if (part == nullptr) {
        error_ = StreamError::local_catastrophic;
        return false;
    }
    part->begin = static_cast<std::uint32_t>(header);
    part->end = static_cast<std::uint32_t>(header + limit);
    std::memcpy(part->data() + header, whole->data() + whole->begin, limit);
    whole->begin += static_cast<std::uint32_t>(limit);
    tx_.chunks.push_front(part);
    return true;
}

bool ByteStream::put_control(TxMessage& out, bool data_follows) {
    Wishes wishes;
    wishes.data_follows = data_follows;
    // Not ahead of bytes that the program is just adding.
    const bool filling = !tx_.chunks.empty() && tx_.chunks.last()->filling;
    wishes.finish = tx_.state == SendHalf::State::finishing && tx_.waiting == 0 && !filling;
    wishes.abort = tx_.abort;
    wishes.urgent_pending = announces_urgent() && !data_follows;
    const Wishes asked = wishes;
    if (!wire_.put_control(wishes, out.control)) return false;
    if (asked.finish && !wishes.finish) tx_.state = SendHalf::State::finished;
    if (asked.abort && !wishes.abort) tx_.abort = false;
    if (asked.urgent_pending && !wishes.urgent_pending) tx_.urgent_announced = true;
    out.bytes = out.control.bytes();
    out.chunk = nullptr;
    out.kind = out.control.kind;
    out.invalidate_stag = out.control.invalidate_stag;
    return true;
}

void ByteStream::put_data(TxMessage& out) {
    Chunk* const chunk = tx_.chunks.pop();
    const std::size_t bytes = chunk->size(), header = wire_.header_bytes();
    UrgentMarks marks{announces_urgent(), chunk == tx_.urgent};
    if (marks.pending) tx_.urgent_announced = true;
    tx_.urgent_ahead -= std::min(tx_.urgent_ahead, bytes);
    if (marks.present) end_mark();
    tx_.waiting -= bytes;
    if (tx_.waiting == 0) {
        tx_.due = false;
        tx_.gather_at = kNever;
    }
    out.kind = wire_.put_data(bytes, marks, {chunk->data() + chunk->begin - header, header});
    out.bytes = {chunk->data() + chunk->begin - header, header + bytes};
    out.chunk = chunk;
    out.invalidate_stag = 0;
}

/// The urgent byte was sent; the next one, if there is one, is to be announced.
void ByteStream::end_mark() noexcept {
    tx_.urgent = std::exchange(tx_.newer_urgent, nullptr);
    tx_.urgent_announced = false;
    tx_.urgent_ahead = 0;
    if (tx_.urgent == nullptr) return;
    Chunk* chunk = tx_.chunks.first();
    for (; chunk != tx_.urgent; chunk = chunk->next) tx_.urgent_ahead += chunk->size();
    tx_.urgent_ahead += chunk->size();
}

void ByteStream::tx_done(Chunk* chunk) {
    XSOCK_ASSERT(chunk->size() <= tx_.queued);
    tx_.queued -= chunk->size();
    source_.give(chunk);
}

// ---- time ---------------------------------------------------------------------

Time ByteStream::next_timeout() const noexcept {
    return tx_.waiting > 0 && !tx_.due ? tx_.gather_at : kNever;
}

bool ByteStream::on_time(Time now) noexcept {
    if (now < next_timeout()) return false;
    tx_.due = true;
    // Sends have come faster than they went: the next ones are gathered again.
    tx_.quiet_until = now + limits_.gather;
    return true;
}

// ---- what comes in --------------------------------------------------------------

RxNews ByteStream::rx(Chunk* chunk) {
    RxNews news;
    if (error_ != StreamError::none) return news;
    const Arrival arrival = wire_.rx(chunk->bytes());
    if (arrival.error != StreamError::none || arrival.aborted) {
        error_ = arrival.aborted ? StreamError::stream_aborted : arrival.error;
        return news;
    }
    news.finished = arrival.finished;
    if (arrival.finished) rx_.finished = true;
    if (arrival.urgent.pending) {
        news.urgent = !std::exchange(urgent_.announced, true);
    }
    if (arrival.payload.empty()) return news;
    if (rx_.closed) {
        news.unwanted = true;
        return news;
    }
    const std::byte last = arrival.payload.back();
    if (!append(arrival.payload)) {
        chunk->begin = static_cast<std::uint32_t>(arrival.payload.data() - chunk->data());
        rx_.chunks.push(chunk);
        news.kept = true;
    }
    rx_.bytes += arrival.payload.size();
    news.data = true;
    if (arrival.urgent.present) {
        if (!urgent_.announced) news.urgent = true;
        set_mark(rx_.at + rx_.bytes - 1, last);
    }
    announce_room();
    return news;
}

void ByteStream::set_receive_limit(std::size_t bytes) {
    limits_.receive_bytes = bytes;
    announce_room();
}

void ByteStream::announce_room() {
    wire_.set_room(static_cast<std::int64_t>(limits_.receive_bytes) -
                   static_cast<std::int64_t>(rx_.bytes));
}

/// Behind what lies in the last chunk, if it has room. A reader may copy from there meanwhile.
bool ByteStream::append(ConstBytes payload) {
    Chunk* const last = rx_.chunks.last();
    if (last == nullptr || payload.size() > kMovedPayload || last->room() < payload.size()) {
        return false;
    }
    std::memcpy(last->data() + last->end, payload.data(), payload.size());
    last->end += static_cast<std::uint32_t>(payload.size());
    return true;
}

void ByteStream::on_eof() {
    // Behind its DisConn the peer has closed: what is sent to it from now on meets a reset, as TCP.
    if (error_ == StreamError::none && !rx_.finished) error_ = StreamError::stream_truncated;
}

void ByteStream::on_lost() {
    const bool in_order = rx_.finished && tx_.state == SendHalf::State::finished;
    if (error_ == StreamError::none && !in_order) error_ = StreamError::stream_truncated;
}

// ---- the program receives ---------------------------------------------------------

bool ByteStream::at_mark() const noexcept {
    return urgent_.state >= UrgentMark::State::there && urgent_.at == rx_.at && rx_.bytes > 0;
}

/// Bytes in front of those that a read begins with: an urgent one that is not inline.
std::size_t ByteStream::hole() const noexcept { return at_mark() && !urgent_.is_inline ? 1 : 0; }

std::size_t ByteStream::readable() const noexcept {
    if (urgent_.state < UrgentMark::State::there) return rx_.bytes;
    const std::uint64_t ahead = urgent_.at - rx_.at;  // never passed: see drop()
    if (ahead == 0) return rx_.bytes - hole();
    return ahead < rx_.bytes ? static_cast<std::size_t>(ahead) : rx_.bytes;
}

std::size_t ByteStream::peek(std::size_t bytes, std::span<ConstBytes> out,
                             std::size_t from) const noexcept {
    std::size_t skip = hole() + from, pieces = 0;
    std::size_t left = std::min(bytes, readable() - std::min(from, readable()));
    for (Chunk* chunk = rx_.chunks.first(); left > 0 && pieces < out.size(); chunk = chunk->next) {
        ConstBytes piece = chunk->bytes();
        const std::size_t passed = std::min(skip, piece.size());
        skip -= passed;
        piece = piece.subspan(passed);
        piece = piece.first(std::min(left, piece.size()));
        if (piece.empty()) continue;
        left -= piece.size();
        out[pieces++] = piece;
    }
    return pieces;
}

void ByteStream::consume(std::size_t bytes) {
    XSOCK_ASSERT(bytes <= readable());
    drop(hole() + bytes);
    announce_room();
}

void ByteStream::drop(std::size_t bytes) {
    for (std::size_t left = bytes; left > 0;) {
        Chunk* const first = rx_.chunks.first();
        const std::size_t n = std::min(left, first->size());
        first->begin += static_cast<std::uint32_t>(n);
        left -= n;
        if (first->size() == 0) source_.give(rx_.chunks.pop());
    }
    rx_.bytes -= bytes;
    rx_.at += bytes;
    if (urgent_.state >= UrgentMark::State::there && rx_.at > urgent_.at) {
        urgent_.state = UrgentMark::State::none;
    }
}

bool ByteStream::close_receiving() {
    rx_.closed = true;
    const bool some = rx_.bytes > 0;
    drop(rx_.bytes);
    return some;
}

// ---- urgent bytes -------------------------------------------------------------------

ByteStream::Urgent ByteStream::urgent() const noexcept {
    if (urgent_.is_inline) return Urgent::none;
    switch (urgent_.state) {
        case UrgentMark::State::none:
        case UrgentMark::State::taken:
            return urgent_.announced ? Urgent::awaited : Urgent::none;
        case UrgentMark::State::there:
            return Urgent::there;
    }
    return Urgent::none;
}

/// A newer mark replaces an older one, whose byte becomes an ordinary one; as in Linux not where
/// the program was to read on behind it.
void ByteStream::set_mark(std::uint64_t at, std::byte value) {
    const std::size_t passed = hole();
    urgent_.state = UrgentMark::State::there;
    urgent_.announced = false;
    urgent_.at = at;
    urgent_.value = value;
    if (passed > 0 && rx_.at != at) drop(passed);
}

}  // namespace xsock::stream
