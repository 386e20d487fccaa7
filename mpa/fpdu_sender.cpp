// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/fpdu_sender.hpp"

#include <algorithm>
#include <array>
#include <new>

#include "base/assert.hpp"
#include "base/crc32c.hpp"
#include "base/fault.hpp"
#include "mpa/fpdu.hpp"

namespace xsock::mpa {
namespace {

constexpr std::size_t kMaxIov = 512;  // well under IOV_MAX, and a marker grid of two 64 KiB FPDUs
constexpr std::size_t kMaxFpdus = 1024;
constexpr std::size_t kMaxBatchOctets = std::size_t{1} << 30;
constexpr std::size_t kMaxPad = 3;
/// Up to here an FPDU is copied together and its CRC computed in one go; beyond, copying and CRC in
/// one pass over each piece are faster (measured: equal at 512, 25 % at 1428).
constexpr std::size_t kTwoPassOctets = 512;
/// Around a ULPDU.
constexpr std::size_t kAround = MPA_LENGTH_OCTETS + kMaxPad + MPA_CRC_OCTETS;
constexpr std::size_t kSmallUlpdu = kTwoPassOctets - kAround;
constexpr std::size_t kSmallRun = 64;

/// Puts the length before a ULPDU and the PAD behind it. @return size of the FPDU
std::size_t frame(std::byte* fpdu, std::size_t ulpdu_length) noexcept {
    store_be16(fpdu, static_cast<std::uint16_t>(ulpdu_length));
    // The PAD, and what the CRC overwrites.
    store_le32(fpdu + MPA_LENGTH_OCTETS + ulpdu_length, 0);
    return fpdu_octets(ulpdu_length);
}

/// Ends the FPDU of `size` octets.
void seal(std::byte* fpdu, std::size_t size, bool crc) noexcept {
    std::byte* const trailer = fpdu + size - MPA_CRC_OCTETS;
    const ConstBytes covered(fpdu, size - MPA_CRC_OCTETS);
    store_le32(trailer, crc ? crc32c_finish(crc32c(kCrc32cInit, covered)) : 0);
}

}  // namespace

/// The bookkeeping of a batch. Lies in the tail of the scratch, aligned down to its own needs.
struct FpduSender::Ledger {
    struct iovec iov[kMaxIov];
    std::uint32_t fpdu_ends[kMaxFpdus];  // octets from the start of the batch
    std::uint32_t group_ends[kMaxIov];   // no group is without an iovec
};

/// Lays FPDUs out in scratch: the moving parts of one prepare().
class FpduSender::Layout {
  public:
    Layout(FpduSender& sender, Bytes scratch, const Limits& limits);

    /// May the largest FPDU that the Ulp could give still be laid out?
    [[nodiscard]] bool has_room() const noexcept;
    [[nodiscard]] std::size_t mulpdu() const noexcept { return mulpdu_; }
    void add(const UlpduOut& ulpdu);
    /// The same for small messages, laid out by the Ulp itself, up to kSmallRun of them: less means
    /// that add() is next, or that there is nothing more.
    std::size_t add_small(Ulp& ulp, std::size_t octet_budget);
    void finish();

  private:
    void begin_group_for(std::size_t ulpdu_length);
    void put_copied(const UlpduOut& ulpdu, std::size_t ulpdu_length);
    void put_in_pieces(const UlpduOut& ulpdu, std::size_t ulpdu_length, bool gather);

    void seal_small();
    void put_copy(const std::byte* from, std::size_t n);
    void put_reference(ConstBytes payload);
    void put_marker();
    void end_run();
    void end_group();
    void passed(std::size_t n) noexcept;

    FpduSender& sender_;
    Ledger& ledger_;
    const Limits& limits_;
    std::size_t mulpdu_;        // so that what must be copied always fits
    std::size_t worst_octets_;  // of scratch that one FPDU may take, markers not counted
    std::byte* at_;             // next free octet of scratch
    std::byte* run_;            // octets from here to at_ are not yet in an iovec
    std::byte* end_;
    std::byte* sealed_;  // small FPDUs from here to at_ have no CRC yet
    std::size_t group_octets_ = 0;
    // The FPDU being laid out by put_in_pieces().
    std::uint32_t register_ = kCrc32cInit;
    std::size_t since_length_ = 0;  // octets of stream since its ULPDU_Length, markers included
};

FpduSender::Layout::Layout(FpduSender& sender, Bytes scratch, const Limits& limits)
    : sender_(sender),
      ledger_(*sender.ledger_),
      limits_(limits),
      at_(scratch.data()),
      run_(at_),
      end_(reinterpret_cast<std::byte*>(&ledger_)),
      sealed_(at_) {
    // Half of it, so that an FPDU always fits into scratch that is still empty.
    const auto room = static_cast<std::size_t>(end_ - at_);
    mulpdu_ = std::min(limits.mulpdu, room / 2);
    worst_octets_ = fpdu_octets(mulpdu_) + kMaxPad;
}

bool FpduSender::Layout::has_room() const noexcept {
    const std::size_t markers =
        sender_.markers_.enabled() ? sender_.markers_.count_within(fpdu_octets(mulpdu_)) : 0;
    const std::size_t octets = worst_octets_ + markers * MPA_MARKER_OCTETS;
    // A run before the payload and one behind it; each marker may cut a payload in two.
    const std::size_t iovecs = 2 + kMaxSge + 2 * markers;
    return static_cast<std::size_t>(end_ - at_) >= octets && kMaxIov - sender_.iov_end_ > iovecs &&
           sender_.fpdu_end_ < kMaxFpdus;
}

void FpduSender::Layout::add(const UlpduOut& ulpdu) {
    XSOCK_ASSERT(ulpdu.header_size <= kMaxUlpduHeader && ulpdu.payload_count <= kMaxSge);
    std::size_t payload = 0;
    for (std::size_t i = 0; i < ulpdu.payload_count; ++i) payload += ulpdu.payload[i].size();
    const std::size_t length = ulpdu.header_size + payload;
    XSOCK_ASSERT(length <= mulpdu_);

    if (limits_.group_octets != 0) begin_group_for(length);
    seal_small();
    const std::size_t before = sender_.octets_;
    const bool copied = payload <= limits_.copy_limit || ulpdu.unstable;
    if (copied && !sender_.markers_.enabled()) {
        put_copied(ulpdu, length);
    } else {
        put_in_pieces(ulpdu, length, !copied);
    }
    sealed_ = at_;
    group_octets_ += sender_.octets_ - before;
    ledger_.fpdu_ends[sender_.fpdu_end_++] = static_cast<std::uint32_t>(sender_.octets_);
}

std::size_t FpduSender::Layout::add_small(Ulp& ulp, std::size_t octet_budget) {
    if (sender_.markers_.enabled() || limits_.group_octets != 0) return 0;
    std::array<std::uint16_t, kSmallRun> sizes;
    const UlpduRun run{.room = {at_, std::min(static_cast<std::size_t>(end_ - at_), octet_budget)},
                       .before = MPA_LENGTH_OCTETS,
                       .align = 4,
                       .after = MPA_CRC_OCTETS,
                       .most = std::min({kSmallUlpdu, limits_.copy_limit, mulpdu_}),
                       .sizes = std::span(sizes).first(
                           std::min<std::size_t>(kSmallRun, kMaxFpdus - sender_.fpdu_end_))};
    const std::size_t n = ulp.tx_run(run);
    std::byte* at = at_;
    auto octets = static_cast<std::uint32_t>(sender_.octets_);
    std::uint32_t* end = ledger_.fpdu_ends + sender_.fpdu_end_;
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t size = frame(at, sizes[i]);
        at += size;
        octets += static_cast<std::uint32_t>(size);
        *end++ = octets;
    }
    group_octets_ += octets - sender_.octets_;
    sender_.octets_ = octets;
    sender_.fpdu_end_ += static_cast<std::uint32_t>(n);
    at_ = at;
    return n;
}

/// Their CRCs, all together: by now their octets have left the processor's store buffer, from which
/// they would come back only slowly, and it computes several at the same time.
void FpduSender::Layout::seal_small() {
    while (sealed_ != at_) {
        const std::size_t size = fpdu_octets(load_be16(sealed_));
        const auto octets = static_cast<std::size_t>(at_ - sealed_);
        if (sender_.crc_ && side_by_side(sealed_, octets, size)) {
            std::array<std::uint32_t, kCrc32cLanes> crcs;
            const std::size_t covered = size - MPA_CRC_OCTETS;
            crc32c_lanes(sealed_, size, covered, crcs);
            for (const std::uint32_t crc : crcs) {
                store_le32(sealed_ + covered, crc);
                sealed_ += size;
            }
            continue;
        }
        seal(sealed_, size, sender_.crc_);
        sealed_ += size;
    }
}

void FpduSender::Layout::finish() {
    seal_small();
    end_run();
    end_group();
}

void FpduSender::Layout::begin_group_for(std::size_t ulpdu_length) {
    std::size_t octets = fpdu_octets(ulpdu_length);
    if (sender_.markers_.enabled()) {
        octets += sender_.markers_.count_within(octets) * MPA_MARKER_OCTETS;
    }
    if (group_octets_ + octets <= limits_.group_octets) return;
    end_run();
    end_group();
}

/// The common case: no markers, and all of it in scratch.
void FpduSender::Layout::put_copied(const UlpduOut& ulpdu, std::size_t ulpdu_length) {
    const std::size_t size = fpdu_octets(ulpdu_length);
    const bool fused = sender_.crc_ && size > kTwoPassOctets;
    std::byte* const fpdu = at_;
    store_be16(fpdu, static_cast<std::uint16_t>(ulpdu_length));
    std::byte* to = fpdu + MPA_LENGTH_OCTETS;
    std::memcpy(to, ulpdu.header.data(), ulpdu.header_size);
    to += ulpdu.header_size;

    std::uint32_t reg = kCrc32cInit;
    if (fused) reg = crc32c(reg, {fpdu, static_cast<std::size_t>(to - fpdu)});
    for (std::size_t i = 0; i < ulpdu.payload_count; ++i) {
        const ConstBytes payload = ulpdu.payload[i];
        if (payload.empty()) continue;
        const fault::Touch touch(0, payload.data(), payload.size());
        if (fused) {
            reg = crc32c_copy(reg, to, payload.data(), payload.size());
        } else {
            std::memcpy(to, payload.data(), payload.size());
        }
        to += payload.size();
    }
    std::byte* const trailer = fpdu + size - MPA_CRC_OCTETS;
    const auto pad = static_cast<std::size_t>(trailer - to);
    store_le32(to, 0);  // the PAD, and what the CRC overwrites
    if (sender_.crc_) {
        reg = fused ? crc32c(reg, {to, pad})
                    : crc32c(reg, {fpdu, static_cast<std::size_t>(trailer - fpdu)});
        store_le32(trailer, crc32c_finish(reg));
    } else {
        store_le32(trailer, 0);
    }
    at_ += size;
    sender_.octets_ += size;
}

/// Any FPDU, with markers wherever the grid has them.
void FpduSender::Layout::put_in_pieces(const UlpduOut& ulpdu, std::size_t ulpdu_length,
                                       bool gather) {
    static constexpr std::byte kPad[kMaxPad] = {};
    std::byte length[MPA_LENGTH_OCTETS];
    store_be16(length, static_cast<std::uint16_t>(ulpdu_length));

    register_ = kCrc32cInit;
    since_length_ = 0;
    put_copy(length, sizeof length);
    put_copy(ulpdu.header.data(), ulpdu.header_size);
    for (std::size_t i = 0; i < ulpdu.payload_count; ++i) {
        const ConstBytes payload = ulpdu.payload[i];
        if (payload.empty()) continue;
        if (gather) {
            put_reference(payload);
        } else {
            const fault::Touch touch(0, payload.data(), payload.size());
            put_copy(payload.data(), payload.size());
        }
    }
    put_copy(kPad, fpdu_pad(ulpdu_length));

    // A marker directly before the CRC is covered by it; the CRC itself is never split.
    if (sender_.markers_.until_next() == 0) put_marker();
    store_le32(at_, sender_.crc_ ? crc32c_finish(register_) : 0);
    at_ += MPA_CRC_OCTETS;
    passed(MPA_CRC_OCTETS);
}

void FpduSender::Layout::put_copy(const std::byte* from, std::size_t n) {
    while (n != 0) {
        const std::size_t free_octets = sender_.markers_.until_next();
        if (free_octets == 0) {
            put_marker();
            continue;
        }
        const std::size_t piece = std::min(n, free_octets);
        if (sender_.crc_) {
            register_ = crc32c_copy(register_, at_, from, piece);
        } else {
            std::memcpy(at_, from, piece);
        }
        at_ += piece;
        from += piece;
        n -= piece;
        passed(piece);
    }
}

void FpduSender::Layout::put_reference(ConstBytes payload) {
    sender_.gathers_ = true;
    while (!payload.empty()) {
        const std::size_t free_octets = sender_.markers_.until_next();
        if (free_octets == 0) {
            put_marker();
            continue;
        }
        const ConstBytes piece = payload.first(std::min(payload.size(), free_octets));
        if (sender_.crc_) {
            const fault::Touch touch(0, piece.data(), piece.size());
            register_ = crc32c(register_, piece);
        }
        end_run();
        ledger_.iov[sender_.iov_end_++] = {const_cast<std::byte*>(piece.data()), piece.size()};
        payload = payload.subspan(piece.size());
        passed(piece.size());
    }
}

void FpduSender::Layout::put_marker() {
    const auto marker = marker_octets(since_length_);
    std::memcpy(at_, marker.data(), marker.size());
    if (sender_.crc_) register_ = crc32c(register_, marker);
    at_ += marker.size();
    sender_.markers_.pass_marker();
    sender_.octets_ += marker.size();
    // One before the length belongs to this FPDU, yet nothing is counted from it.
    if (since_length_ != 0) since_length_ += marker.size();
}

/// Gives the scratch octets laid out since the last iovec one of their own.
void FpduSender::Layout::end_run() {
    if (at_ == run_) return;
    ledger_.iov[sender_.iov_end_++] = {run_, static_cast<std::size_t>(at_ - run_)};
    run_ = at_;
}

void FpduSender::Layout::end_group() {
    if (group_octets_ == 0) return;
    ledger_.group_ends[sender_.group_end_++] = sender_.iov_end_;
    group_octets_ = 0;
}

void FpduSender::Layout::passed(std::size_t n) noexcept {
    sender_.markers_.advance(n);
    sender_.octets_ += n;
    since_length_ += n;
}

TxBatch FpduSender::prepare(Ulp& ulp, Bytes scratch, const Limits& limits) {
    XSOCK_ASSERT(pending() == 0 && scratch.size() >= kMinTxScratch);
    XSOCK_ASSERT(limits.mulpdu <= MPA_ULPDU_MAX);
    // Laid out aside and taken over whole: a fault on the way (base/fault.hpp) leaves no half.
    FpduSender next(crc_, markers_);
    next.separate_groups_ = limits.group_octets != 0;
    const auto scratch_end = reinterpret_cast<std::uintptr_t>(scratch.data() + scratch.size());
    const std::size_t slack = scratch_end % alignof(Ledger);
    next.ledger_ = new (scratch.data() + scratch.size() - slack - sizeof(Ledger)) Ledger;

    Layout layout(next, scratch, limits);
    const std::size_t budget = std::min(limits.octet_budget, kMaxBatchOctets);
    UlpduOut ulpdu;
    bool small = true;  // not behind a short run: what comes next is not a small one, or nothing
    while (next.octets_ < budget && layout.has_room()) {
        if (small) {
            const std::size_t n = layout.add_small(ulp, budget - next.octets_);
            small = n == kSmallRun;
            if (n > 0) continue;
        }
        small = true;
        ulpdu.header_size = 0;
        ulpdu.payload_count = 0;
        ulpdu.unstable = false;
        if (!ulp.tx_next(layout.mulpdu(), ulpdu)) break;
        layout.add(ulpdu);
    }
    layout.finish();
    *this = next;
    return remainder();
}

std::size_t FpduSender::lay_out_lone(Ulp& ulp, Bytes frame) const {
    if (markers_.enabled() || frame.size() <= kAround) return 0;
    const std::size_t length =
        ulp.tx_lone(frame.subspan(MPA_LENGTH_OCTETS, frame.size() - kAround));
    if (length == 0) return 0;
    const std::size_t size = mpa::frame(frame.data(), length);
    seal(frame.data(), size, crc_);
    return size;
}

TxBatch FpduSender::remainder() {
    if (pending() == 0) return {};
    // Group ends are indices into what is offered, so they move with its beginning.
    for (std::uint32_t g = group_begin_; g != group_end_; ++g) {
        ledger_->group_ends[g] -= iov_begin_ - groups_shifted_;
    }
    groups_shifted_ = iov_begin_;
    return {.iov = {ledger_->iov + iov_begin_, iov_end_ - iov_begin_},
            .group_ends = {ledger_->group_ends + group_begin_, group_end_ - group_begin_},
            .octets = pending(),
            .separate_groups = separate_groups_};
}

void FpduSender::move(const std::byte* from, std::size_t n, std::byte* to) noexcept {
    for (std::uint32_t i = iov_begin_; i != iov_end_; ++i) {
        struct iovec& v = ledger_->iov[i];
        const auto offset =
            reinterpret_cast<std::uintptr_t>(v.iov_base) - reinterpret_cast<std::uintptr_t>(from);
        if (offset < n) v.iov_base = to + offset;
    }
}

void FpduSender::commit(Ulp& ulp, std::size_t n) {
    XSOCK_ASSERT(n <= pending());
    committed_ += n;
    if (pending() == 0) {
        ulp.tx_done_all(fpdu_end_ - fpdu_begin_);
        drop();
        return;
    }
    while (n != 0) {
        struct iovec& v = ledger_->iov[iov_begin_];
        const std::size_t taken = std::min(n, v.iov_len);
        v.iov_base = static_cast<std::byte*>(v.iov_base) + taken;
        v.iov_len -= taken;
        n -= taken;
        if (v.iov_len == 0) ++iov_begin_;
    }
    while (ledger_->group_ends[group_begin_] + groups_shifted_ <= iov_begin_) ++group_begin_;
    while (ledger_->fpdu_ends[fpdu_begin_] <= committed_) {
        ++fpdu_begin_;
        ulp.tx_done();
    }
}

}  // namespace xsock::mpa
