// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "shm/stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/assert.hpp"
#include "base/fault.hpp"
#include "base/place.hpp"
#include "shm/link.hpp"

namespace xsock::shm {
namespace {

constexpr std::size_t kLine = SharedMemory::kLine;
/// Payloads from here on begin on a line of their own.
constexpr std::size_t kSplitPayload = 1024;
constexpr std::size_t kTaggedHeader = 14;  // the shortest
/// ULPDUs up to this are written by the Ulp, many at a time; none of them is split.
constexpr std::size_t kSmallUlpdu = kSplitPayload - 1 + kTaggedHeader;
constexpr std::size_t kSmallBatch = 64;
/// Nothing is sent with less room, or less credit: what is left would cut messages into bits.
constexpr std::size_t kFloor = CreditPool::kLeast;
constexpr std::uint32_t kMostLines = CreditPool::kMost / kLine;
/// Of the ring, by the largest ULPDU of so many bytes.
constexpr std::size_t worst_extent(std::size_t ulpdu) noexcept {
    return kLine + record_extent(ulpdu, 0);
}
static_assert(kMulpdu + sizeof(std::uint64_t) <= Link::kScratch);

}  // namespace

// ---- life -----------------------------------------------------------------

Stream::Stream(Ulp& ulp, Owner& owner, CreditPool& credit)
    : ulp_(ulp),
      owner_(owner),
      pool_(credit),
      window_(static_cast<std::uint32_t>(credit.take_first() / kLine)),
      reserved_(window_) {
    status_.state = State::started;
}

Stream::~Stream() { leave(); }

void Stream::leave() {
    if (link_ != nullptr) link_->forget(*this);
    // The destructor may run beside the poller: nothing is left for it then.
    if (reserved_ != 0) pool_.give_back(std::size_t{std::exchange(reserved_, 0)} * kLine);
    status_.state = State::closed;
}

void Stream::attach(Link& link, std::uint16_t slot, std::uint32_t generation) {
    link_ = &link;
    slot_ = slot;
    generation_ = generation;
    grant();
    if (fin_ != Fin::none) link_->send_fin(slot_, fin_ == Fin::aborts);
    update_status();
    if (status_.tx_allowed) owner_.on_room();
}

void Stream::detach() noexcept {
    link_ = nullptr;
    update_status();
}

void Stream::keep(ConstBytes bytes) {
    if (early_ == nullptr) early_ = std::make_unique<std::vector<std::byte>>();
    early_->insert(early_->end(), bytes.begin(), bytes.end());
}

void Stream::end(StreamError why) {
    status_.stream_error = why;
    owner_.on_link_end(why);
}

void Stream::open(Opening how, const Negotiated& agreed, Time) {
    XSOCK_ASSERT(status_.state == State::started && how == Opening::first);
    agreed_ = agreed;
    agreed_.crc = agreed_.markers_tx = agreed_.markers_rx = false;
    awaits_rtr_ = !agreed.initiator && agreed.rtr != Rtr::none;
    status_.state = State::operational;
    ulp_.llp_established(agreed_);
    grant();
    update_status();
}

void Stream::lost() {
    if (std::exchange(status_.state, State::closed) == State::closed) return;
    ulp_.llp_closed(CloseKind::reset);
    update_status();
}

void Stream::finish(bool abort) {
    if (abort && (fin_ == Fin::none || dropped_)) return reset();
    if (fin_ == Fin::none) send_fin(Fin::orderly);
}

void Stream::reset() {
    if (fin_ != Fin::aborts) send_fin(Fin::aborts);
}

void Stream::send_fin(Fin how) {
    fin_ = how;
    if (link_ != nullptr) link_->send_fin(slot_, how == Fin::aborts);
    update_status();
}

void Stream::discard() {
    dropped_ |= received_ != consumed_;
    early_.reset();
    if (status_.state != State::operational) return;
    status_.state = State::failed;  // in which rx() drops
    in_ulpdu_ = false;
    consumed_ = received_;
    grant();
    update_status();
}

void Stream::tx_finished() noexcept { update_status(); }

void Stream::update_status() noexcept {
    const bool may = status_.state == State::operational || status_.state == State::failed;
    status_.tx_allowed =
        may && link_ != nullptr && fin_ == Fin::none && !awaits_rtr_ && blocked_ == Blocked::no;
}

// ---- reception ------------------------------------------------------------

bool Stream::receive(std::size_t extent) {
    received_ += static_cast<std::uint32_t>(extent / kLine);
    return static_cast<std::int32_t>(promised_ - received_) >= 0;
}

Llp::Rx Stream::rx(ConstBytes bytes, Time) {
    if (status_.state != State::operational) {
        // Dropped, but the peer's Terminate needs credit.
        if (Link::Offer* const offer = link_ != nullptr ? link_->offer_to(*this) : nullptr) {
            offer->at = offer->record->body();
        }
        consumed_ = received_;
        dropped_ = true;
        grant();
        return {.taken = bytes.size()};
    }
    Rx rx;
    while (rx.taken < bytes.size() && !rx.boundary) {
        const ConstBytes rest = bytes.subspan(rx.taken);
        if (!in_ulpdu_) {
            XSOCK_ASSERT(rest.size() >= sizeof frame_);
            std::memcpy(&frame_, rest.data(), sizeof frame_);
            const ConstBytes ulpdu = rest.subspan(sizeof frame_);
            rx.taken += sizeof frame_;
            in_ulpdu_ = true;
            left_ = frame_.bytes;
            if (ulpdu.size() < frame_.bytes) {
                ulp_.rx_begin(left_);
                continue;
            }
            const std::size_t n = ulp_.rx_ulpdu(ulpdu.first(frame_.bytes));
            rx.taken += n;
            left_ -= static_cast<std::uint32_t>(n);
            if (left_ != 0) break;  // no receive is posted for it
            end_ulpdu(rx);
            continue;
        }
        const Bytes target = ulp_.rx_target();
        const std::size_t n = std::min({target.size(), rest.size(), std::size_t{left_}});
        if (n == 0) break;
        {
            const fault::Touch touch(1, target.data(), n);
            place(target.data(), rest.data(), n);
        }
        ulp_.rx_advance(n);
        rx.taken += n;
        left_ -= static_cast<std::uint32_t>(n);
        if (left_ == 0) {
            ulp_.rx_end(true);
            end_ulpdu(rx);
        }
    }
    if (in_ulpdu_ && rx.taken == bytes.size() && take_rest()) {
        ulp_.rx_end(true);
        end_ulpdu(rx);
    }
    stalled_ |= in_ulpdu_;
    update_status();
    return rx;
}

/// What of the ULPDU in hand lies in the ring, to where it belongs. True: all of it has come.
bool Stream::take_rest() {
    Link::Offer* const offer = link_ != nullptr ? link_->offer_to(*this) : nullptr;
    if (offer == nullptr) return false;
    while (left_ != 0) {
        const Bytes target = ulp_.rx_target();
        const std::size_t n = std::min(target.size(), std::size_t{left_});
        if (n == 0) return false;
        {
            const fault::Touch touch(1, target.data(), n);
            link_->take_offered(*offer, target.first(n));
        }
        ulp_.rx_advance(n);
        left_ -= static_cast<std::uint32_t>(n);
    }
    return true;
}

void Stream::end_ulpdu(Rx& rx) {
    in_ulpdu_ = false;
    consumed_ += static_cast<std::uint32_t>(frame_.extent / kLine);
    rx.boundary = std::exchange(awaits_rtr_, false);
    grant();
}

void Stream::rx_eof(Time) {
    if (status_.state == State::started || (status_.state == State::operational && !in_ulpdu_)) {
        ulp_.llp_closed(CloseKind::peer_finished);
    } else if (status_.state == State::operational) {
        status_.state = State::failed;
        status_.stream_error = StreamError::mpa_connection_lost;
        ulp_.llp_failed(StreamError::mpa_connection_lost);
    }
    update_status();
}

// ---- credit ---------------------------------------------------------------

/// Lets the peer send as much as the window has, once what it may still send is not plenty. A
/// program that is slow need not have so much in memory.
void Stream::grant() {
    if (link_ == nullptr || status_.state == State::started) return;
    if (reserved_ != window_) [[unlikely]]
        release_credit();
    const bool first = std::exchange(first_grant_, false);
    const std::uint32_t least = std::max<std::uint32_t>(kFloor / kLine, window_ / 2);
    if (!first && promised_ - received_ >= least) return;
    if (std::exchange(stalled_, false)) {
        window_ = least;
    } else if (!first && reserved_ == window_) {
        window_ += static_cast<std::uint32_t>(pool_.grow(std::size_t{window_} * kLine) / kLine);
        reserved_ = window_;
    }
    if (promised_ - consumed_ >= window_) return;
    promised_ = consumed_ + window_;
    link_->publish_credit(*this, promised_);
}

/// The window has shrunk: what was promised beyond it goes back to the pool as the peer uses it.
void Stream::release_credit() noexcept {
    const std::uint32_t needed = std::max(window_, promised_ - consumed_);
    if (needed >= reserved_) return;
    pool_.give_back(std::size_t{reserved_ - needed} * kLine);
    reserved_ = needed;
}

/// Before the peer's first grant there is no word of this generation.
bool Stream::load_credit() {
    const std::uint64_t word = link_->credit_of(*this);
    if (static_cast<std::uint32_t>(word >> 32) != generation_) {
        return granted_ - sent_ >= kFloor / kLine;
    }
    const auto lines = static_cast<std::uint32_t>(word);
    if (lines - granted_ > kMostLines || lines - sent_ > kMostLines) {
        link_->fail();
        return false;
    }
    granted_ = lines;
    return granted_ - sent_ >= kFloor / kLine;
}

bool Stream::may_go_on() { return blocked_ != Blocked::credit || load_credit(); }

void Stream::block(Blocked by) {
    blocked_ = by;
    link_->wait_for_room(*this);
}

void Stream::unblock() {
    blocked_ = Blocked::no;
    update_status();
    if (status_.tx_allowed) owner_.on_room();
}

// ---- transmission ---------------------------------------------------------

TxBatch Stream::tx_prepare(Bytes, std::size_t byte_budget, Time) {
    bool more = status_.tx_allowed;
    for (std::size_t used = 0; more && used < byte_budget;) {
        used += fill(byte_budget - used, more);
    }
    update_status();
    return {};
}

/// Bytes of records that may be written now; 0: blocked.
std::size_t Stream::room() {
    const bool grant_may_be_new = granted_ == kFirstLines || granted_ - sent_ < kFloor / kLine;
    if (grant_may_be_new && !load_credit()) {
        block(Blocked::credit);
        return 0;
    }
    const std::size_t room = link_->writer_.begin(kFloor, RingWriter::Use::data);
    if (room == 0) block(Blocked::room);
    return std::min(room, std::size_t{granted_ - sent_} * kLine);
}

/// One batch. @return bytes of the ring that it took
std::size_t Stream::fill(std::size_t byte_budget, bool& more) {
    more = false;
    const std::size_t limit = room();
    if (limit == 0) return 0;
    // Room is kept for one that is described behind the small ones.
    const std::size_t kept = std::min(worst_extent(kMulpdu), limit - kFloor / 2);
    std::array<std::uint16_t, kSmallBatch> sizes;
    UlpduOut described;
    const UlpduBatch batch{
        .room = link_->writer_.room().first(std::min(limit - kept, std::max(byte_budget, kFloor))),
        .before = kRecordHeader,
        .align = kLine,
        .after = 0,
        .small = kSmallUlpdu,
        .sizes = sizes,
        .mulpdu = std::min(kMulpdu, kept - kLine - kRecordHeader),
        .described = &described};
    const UlpdusGiven given = ulp_.tx_fill(batch);
    std::size_t bytes = write_small(batch.sizes.first(given.small));
    if (given.described) bytes += write(described);
    if (bytes == 0) return 0;
    link_->writer_.publish();
    link_->on_published();
    sent_ += static_cast<std::uint32_t>(bytes / kLine);
    ulp_.tx_done(static_cast<std::uint32_t>(given.small + (given.described ? 1 : 0)));
    more = given.described ? given.more : given.small == sizes.size();
    return bytes;
}

/// ULPDUs that the Ulp has written.
std::size_t Stream::write_small(std::span<const std::uint16_t> sizes) {
    RingWriter& writer = link_->writer_;
    std::size_t bytes = 0;
    for (const std::uint16_t size : sizes) {
        writer.room_written(kRecordHeader + size);
        writer.add({.slot = slot_, .generation = generation_}, size);
        bytes += record_extent(size, 0);
    }
    return bytes;
}

/// One that it has described.
std::size_t Stream::write(const UlpduOut& ulpdu) {
    RingWriter& writer = link_->writer_;
    const std::size_t size = ulpdu.size();
    const bool large = size - ulpdu.header_size >= kSplitPayload;
    XSOCK_ASSERT(size <= kMulpdu && (!large || ulpdu.header_size <= kFirstLineBody));
    const auto split = static_cast<std::uint8_t>(large ? ulpdu.header_size : 0);
    writer.copy_in(0, split, ConstBytes(ulpdu.header).first(ulpdu.header_size));
    std::size_t at = ulpdu.header_size;
    for (std::size_t i = 0; i < ulpdu.payload_count; ++i) {
        const ConstBytes piece = ulpdu.payload[i];
        const fault::Touch touch(0, piece.data(), piece.size());
        writer.copy_in(at, split, piece);
        at += piece.size();
    }
    writer.add({.split = split, .slot = slot_, .generation = generation_}, size);
    return record_extent(size, split);
}

}  // namespace xsock::shm
