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
constexpr std::size_t kMaxBatchBytes = std::size_t{1} << 30;
constexpr std::size_t kMaxPad = 3;
/// Up to here the Ulp writes an FPDU's octets together and its CRC is computed in one go; beyond,
/// copying and CRC in one pass over each piece are faster (measured: equal at 512, 25 % at 1428).
constexpr std::size_t kSmallFpdu = 512;
constexpr std::size_t kSmallUlpdu = kSmallFpdu - MPA_LENGTH_OCTETS - kMaxPad - MPA_CRC_OCTETS;
constexpr std::size_t kSmallBatch = 64;
/// Payload of the first large batch on an idle path, and of the second; the others double.
constexpr std::size_t kFirstBatch = std::size_t{32} * 1024;
constexpr std::uint8_t kRampEnd = 8;      // 1 MiB
constexpr std::size_t kUlpduHeader = 18;  // of most
constexpr std::size_t kMaxSingle = 2;     // FPDUs of prepare_single()

/// Puts the length before a ULPDU and the PAD behind it. @return size of the FPDU
std::size_t frame(std::byte* fpdu, std::size_t ulpdu_length) noexcept {
    store_be16(fpdu, static_cast<std::uint16_t>(ulpdu_length));
    // The PAD, and what the CRC overwrites.
    store_le32(fpdu + MPA_LENGTH_OCTETS + ulpdu_length, 0);
    return fpdu_octets(ulpdu_length);
}

/// Ends the FPDU of `size` octets.
void write_crc(std::byte* fpdu, std::size_t size, bool crc) noexcept {
    std::byte* const trailer = fpdu + size - MPA_CRC_OCTETS;
    const ConstBytes covered(fpdu, size - MPA_CRC_OCTETS);
    store_le32(trailer, crc ? crc32c_finish(crc32c(kCrc32cInit, covered)) : 0);
}

}  // namespace

/// The bookkeeping of a batch. Lies in the tail of the scratch, aligned down to its own needs.
struct FpduSender::BatchState {
    struct iovec iov[kMaxIov];
    std::uint32_t fpdu_ends[kMaxFpdus];  // octets from the start of the batch
    std::uint32_t group_ends[kMaxIov];   // no group is without an iovec
};

/// Lays FPDUs out in scratch: the moving parts of one prepare().
class FpduSender::FpduWriter {
  public:
    FpduWriter(FpduSender& sender, Bytes scratch, const Limits& limits);

    /// May the largest FPDU that the Ulp could give still be laid out?
    [[nodiscard]] bool has_room() const noexcept;
    /// Pulls ULPDUs, about `byte_budget` bytes of them. False: there are no more.
    bool fill(Ulp& ulp, std::size_t byte_budget);
    /// Whether the last of them is a large one.
    [[nodiscard]] bool ends_large() const noexcept { return ends_large_; }
    void finish();

  private:
    void begin_group_for(std::size_t ulpdu_length);
    void add_small(std::span<const std::uint16_t> ulpdu_lengths);
    void add(const UlpduOut& ulpdu);
    void write_small_crc();
    void put_copy(const std::byte* from, std::size_t n);
    void put_reference(ConstBytes payload);
    void put_marker();
    void end_run();
    void end_group();
    void passed(std::size_t n) noexcept;

    FpduSender& sender_;
    BatchState& batch_;
    const Limits& limits_;
    std::size_t mulpdu_;       // so that what must be copied always fits
    std::size_t worst_bytes_;  // of scratch that one FPDU may take, markers not counted
    std::byte* at_;            // next free octet of scratch
    std::byte* run_;           // octets from here to at_ are not yet in an iovec
    std::byte* end_;
    std::byte* crc_at_;  // small FPDUs from here to at_ have no CRC yet
    std::size_t group_bytes_ = 0;
    bool ends_large_ = false;
    UlpduOut ulpdu_;
    // The FPDU being laid out by add().
    std::uint32_t register_ = kCrc32cInit;
    std::size_t since_length_ = 0;  // octets of stream since its ULPDU_Length, markers included
};

FpduSender::FpduWriter::FpduWriter(FpduSender& sender, Bytes scratch, const Limits& limits)
    : sender_(sender),
      batch_(*sender.batch_),
      limits_(limits),
      at_(scratch.data()),
      run_(at_),
      end_(reinterpret_cast<std::byte*>(&batch_)),
      crc_at_(at_) {
    // Half of it, so that an FPDU always fits into scratch that is still empty.
    const auto room = static_cast<std::size_t>(end_ - at_);
    mulpdu_ = std::min(limits.mulpdu, room / 2);
    worst_bytes_ = fpdu_octets(mulpdu_) + kMaxPad;
}

bool FpduSender::FpduWriter::has_room() const noexcept {
    const std::size_t markers =
        sender_.markers_.enabled() ? sender_.markers_.count_within(fpdu_octets(mulpdu_)) : 0;
    const std::size_t bytes = worst_bytes_ + markers * MPA_MARKER_OCTETS;
    // A run before the payload and one behind it; each marker may cut a payload in two. Small ones
    // may each begin a group.
    const std::size_t iovecs = 2 + kMaxSge + 2 * markers + kSmallBatch;
    return static_cast<std::size_t>(end_ - at_) >= bytes && kMaxIov - sender_.iov_end_ > iovecs &&
           sender_.fpdu_end_ < kMaxFpdus;
}

bool FpduSender::FpduWriter::fill(Ulp& ulp, std::size_t byte_budget) {
    std::array<std::uint16_t, kSmallBatch> sizes;
    // Each has room behind it for one that is described. Markers would have to go between.
    const std::size_t room = static_cast<std::size_t>(end_ - at_) - worst_bytes_;
    const std::size_t most = std::min<std::size_t>(kSmallBatch, kMaxFpdus - sender_.fpdu_end_ - 1);
    const UlpduBatch batch{.room = {at_, std::min(room, byte_budget)},
                           .before = MPA_LENGTH_OCTETS,
                           .align = 4,
                           .after = MPA_CRC_OCTETS,
                           .small = std::min({kSmallUlpdu, limits_.copy_limit, mulpdu_}),
                           .sizes = std::span(sizes).first(sender_.markers_.enabled() ? 0 : most),
                           .mulpdu = mulpdu_,
                           .described = &ulpdu_};
    const UlpdusGiven given = ulp.tx_fill(batch);
    const std::span<const std::uint16_t> small = batch.sizes.first(given.small);
    if (limits_.group_bytes == 0) {
        add_small(small);
    } else {
        for (const std::uint16_t& size : small) {
            begin_group_for(size);
            add_small({&size, 1});
        }
    }
    ends_large_ = given.described;
    if (!given.described) return given.small != 0 && given.small == batch.sizes.size();
    add(ulpdu_);
    return given.more;
}

/// ULPDUs that the Ulp has written at at_.
void FpduSender::FpduWriter::add_small(std::span<const std::uint16_t> ulpdu_lengths) {
    std::byte* at = at_;
    auto bytes = static_cast<std::uint32_t>(sender_.bytes_);
    std::uint32_t* end = batch_.fpdu_ends + sender_.fpdu_end_;
    for (const std::uint16_t length : ulpdu_lengths) {
        const std::size_t size = frame(at, length);
        at += size;
        bytes += static_cast<std::uint32_t>(size);
        *end++ = bytes;
    }
    group_bytes_ += bytes - sender_.bytes_;
    sender_.bytes_ = bytes;
    sender_.fpdu_end_ += static_cast<std::uint32_t>(ulpdu_lengths.size());
    at_ = at;
}

/// Their CRCs, all together: by now their octets have left the processor's store buffer, from which
/// they would come back late, and it computes several at the same time.
void FpduSender::FpduWriter::write_small_crc() {
    while (crc_at_ != at_) {
        const std::size_t size = fpdu_octets(load_be16(crc_at_));
        const auto bytes = static_cast<std::size_t>(at_ - crc_at_);
        if (sender_.crc_ && equal_length_run(crc_at_, bytes, size)) {
            std::array<std::uint32_t, kCrc32cLanes> crcs;
            const std::size_t covered = size - MPA_CRC_OCTETS;
            crc32c_lanes(crc_at_, size, covered, crcs);
            for (const std::uint32_t crc : crcs) {
                store_le32(crc_at_ + covered, crc);
                crc_at_ += size;
            }
            continue;
        }
        write_crc(crc_at_, size, sender_.crc_);
        crc_at_ += size;
    }
}

void FpduSender::FpduWriter::finish() {
    write_small_crc();
    end_run();
    end_group();
}

void FpduSender::FpduWriter::begin_group_for(std::size_t ulpdu_length) {
    std::size_t bytes = fpdu_octets(ulpdu_length);
    if (sender_.markers_.enabled()) {
        bytes += sender_.markers_.count_within(bytes) * MPA_MARKER_OCTETS;
    }
    const std::size_t before =
        limits_.segment_bytes != 0 ? group_bytes_ % limits_.segment_bytes : group_bytes_;
    if (before + bytes <= limits_.group_bytes) return;
    end_run();
    end_group();
}

/// Any ULPDU: piece by piece, with markers wherever the grid has them.
void FpduSender::FpduWriter::add(const UlpduOut& ulpdu) {
    XSOCK_ASSERT(ulpdu.header_size <= kMaxUlpduHeader && ulpdu.payload_count <= kMaxSge);
    const std::size_t ulpdu_length = ulpdu.size();
    const std::size_t payload_bytes = ulpdu_length - ulpdu.header_size;
    XSOCK_ASSERT(ulpdu_length <= mulpdu_);

    if (limits_.group_bytes != 0) begin_group_for(ulpdu_length);
    write_small_crc();
    const std::size_t before = sender_.bytes_;
    // Without a CRC there is nothing that a payload which changes has to match.
    const bool copied = payload_bytes <= limits_.copy_limit || (ulpdu.unstable && sender_.crc_);
    std::array<std::byte, MPA_LENGTH_OCTETS + kMaxUlpduHeader> header;
    store_be16(header.data(), static_cast<std::uint16_t>(ulpdu_length));
    std::memcpy(header.data() + MPA_LENGTH_OCTETS, ulpdu.header.data(), kMaxUlpduHeader);

    register_ = kCrc32cInit;
    since_length_ = 0;
    put_copy(header.data(), MPA_LENGTH_OCTETS + ulpdu.header_size);
    for (std::size_t i = 0; i < ulpdu.payload_count; ++i) {
        const ConstBytes payload = ulpdu.payload[i];
        if (payload.empty()) continue;
        if (copied) {
            const fault::Touch touch(0, payload.data(), payload.size());
            put_copy(payload.data(), payload.size());
        } else {
            put_reference(payload);
        }
    }
    static constexpr std::byte kPad[kMaxPad] = {};
    put_copy(kPad, fpdu_pad(ulpdu_length));

    // A marker directly before the CRC is covered by it; the CRC itself is never split.
    if (sender_.markers_.until_next() == 0) put_marker();
    store_le32(at_, sender_.crc_ ? crc32c_finish(register_) : 0);
    at_ += MPA_CRC_OCTETS;
    passed(MPA_CRC_OCTETS);
    crc_at_ = at_;
    group_bytes_ += sender_.bytes_ - before;
    batch_.fpdu_ends[sender_.fpdu_end_++] = static_cast<std::uint32_t>(sender_.bytes_);
}

void FpduSender::FpduWriter::put_copy(const std::byte* from, std::size_t n) {
    while (n != 0) {
        const std::size_t free_bytes = sender_.markers_.until_next();
        if (free_bytes == 0) {
            put_marker();
            continue;
        }
        const std::size_t piece = std::min(n, free_bytes);
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

void FpduSender::FpduWriter::put_reference(ConstBytes payload) {
    sender_.gathers_ = true;
    while (!payload.empty()) {
        const std::size_t free_bytes = sender_.markers_.until_next();
        if (free_bytes == 0) {
            put_marker();
            continue;
        }
        const ConstBytes piece = payload.first(std::min(payload.size(), free_bytes));
        if (sender_.crc_) {
            const fault::Touch touch(0, piece.data(), piece.size());
            register_ = crc32c(register_, piece);
        }
        end_run();
        batch_.iov[sender_.iov_end_++] = {const_cast<std::byte*>(piece.data()), piece.size()};
        payload = payload.subspan(piece.size());
        passed(piece.size());
    }
}

void FpduSender::FpduWriter::put_marker() {
    const auto marker = marker_octets(since_length_);
    std::memcpy(at_, marker.data(), marker.size());
    if (sender_.crc_) register_ = crc32c(register_, marker);
    at_ += marker.size();
    sender_.markers_.pass_marker();
    sender_.bytes_ += marker.size();
    // One before the length belongs to this FPDU, yet nothing is counted from it.
    if (since_length_ != 0) since_length_ += marker.size();
}

/// Gives the scratch octets laid out since the last iovec one of their own.
void FpduSender::FpduWriter::end_run() {
    if (at_ == run_) return;
    batch_.iov[sender_.iov_end_++] = {run_, static_cast<std::size_t>(at_ - run_)};
    run_ = at_;
}

void FpduSender::FpduWriter::end_group() {
    if (group_bytes_ == 0) return;
    batch_.group_ends[sender_.group_end_++] = sender_.iov_end_;
    group_bytes_ = 0;
}

void FpduSender::FpduWriter::passed(std::size_t n) noexcept {
    sender_.markers_.advance(n);
    sender_.bytes_ += n;
    since_length_ += n;
}

TxBatch FpduSender::prepare(Ulp& ulp, Bytes scratch, const Limits& limits) {
    XSOCK_ASSERT(pending() == 0 && scratch.size() >= kMinTxScratch);
    XSOCK_ASSERT(limits.mulpdu <= MPA_ULPDU_MAX);
    // Laid out aside and taken over whole: a fault on the way (base/fault.hpp) leaves no half.
    FpduSender next(*this, Empty{});
    next.separate_groups_ = limits.group_bytes != 0;
    next.place_batch_state(scratch);

    const std::size_t budget = std::min(limits.byte_budget, kMaxBatchBytes);
    const std::size_t large = large_budget(limits);
    Limits ramped = limits;
    ramped.mulpdu = std::min(limits.mulpdu, large);
    FpduWriter writer(next, scratch, ramped);
    bool more = true;
    while (more && next.bytes_ < budget && writer.has_room()) {
        more = writer.fill(ulp, budget - next.bytes_);
        if (writer.ends_large() && next.bytes_ >= large) break;
    }
    next.sent_all_ = !more;
    if (writer.ends_large() && ramp_ < kRampEnd) ++next.ramp_;
    writer.finish();
    *this = next;
    return remainder();
}

/// Where a batch ends that has a large FPDU.
std::size_t FpduSender::large_budget(const Limits& limits) const noexcept {
    if (!limits.ramp || ramp_ == kRampEnd) return kMaxBatchBytes;
    return (kFirstBatch << (ramp_ == 0 ? 0 : ramp_ - 1)) + kUlpduHeader;
}

void FpduSender::place_batch_state(Bytes scratch) {
    const auto scratch_end = reinterpret_cast<std::uintptr_t>(scratch.data() + scratch.size());
    const std::size_t slack = scratch_end % alignof(BatchState);
    batch_ = new (scratch.data() + scratch.size() - slack - sizeof(BatchState)) BatchState;
}

std::size_t FpduSender::prepare_single(Ulp& ulp, Bytes frame) {
    XSOCK_ASSERT(pending() == 0);
    if (markers_.enabled()) return 0;
    std::array<std::uint16_t, kMaxSingle> lengths;
    const UlpdusGiven given = ulp.tx_fill({.room = frame,
                                           .before = MPA_LENGTH_OCTETS,
                                           .align = 4,
                                           .after = MPA_CRC_OCTETS,
                                           .small = kSmallUlpdu,
                                           .sizes = lengths,
                                           .single = true});
    for (; fpdu_end_ != given.small; ++fpdu_end_) {
        std::byte* const at = frame.data() + bytes_;
        const std::size_t size = mpa::frame(at, lengths[fpdu_end_]);
        write_crc(at, size, crc_);
        bytes_ += size;
    }
    return bytes_;
}

void FpduSender::keep_single(ConstBytes frame, Bytes scratch) {
    XSOCK_ASSERT(fpdu_end_ <= kMaxSingle && committed_ == 0 && frame.size() == bytes_);
    place_batch_state(scratch);
    std::memcpy(scratch.data(), frame.data(), frame.size());
    batch_->iov[0] = {scratch.data(), frame.size()};
    std::uint32_t end = 0;
    for (std::uint32_t i = 0; i != fpdu_end_; ++i) {
        end += static_cast<std::uint32_t>(fpdu_octets(load_be16(frame.data() + end)));
        batch_->fpdu_ends[i] = end;
    }
    batch_->group_ends[0] = iov_end_ = group_end_ = 1;
}

TxBatch FpduSender::remainder() {
    if (pending() == 0) return {};
    // Group ends are indices into what is offered, so they move with its beginning.
    for (std::uint32_t g = group_begin_; g != group_end_; ++g) {
        batch_->group_ends[g] -= iov_begin_ - groups_shifted_;
    }
    groups_shifted_ = iov_begin_;
    return {.iov = {batch_->iov + iov_begin_, iov_end_ - iov_begin_},
            .group_ends = {batch_->group_ends + group_begin_, group_end_ - group_begin_},
            .bytes = pending(),
            .separate_groups = separate_groups_};
}

void FpduSender::move(const std::byte* from, std::size_t n, std::byte* to) noexcept {
    for (std::uint32_t i = iov_begin_; i != iov_end_; ++i) {
        struct iovec& v = batch_->iov[i];
        const auto offset =
            reinterpret_cast<std::uintptr_t>(v.iov_base) - reinterpret_cast<std::uintptr_t>(from);
        if (offset < n) v.iov_base = to + offset;
    }
}

void FpduSender::commit(Ulp& ulp, std::size_t n) {
    XSOCK_ASSERT(n <= pending());
    committed_ += n;
    if (pending() == 0) {
        ulp.tx_done(fpdu_end_ - fpdu_begin_);
        drop();
        return;
    }
    while (n != 0) {
        struct iovec& v = batch_->iov[iov_begin_];
        const std::size_t taken = std::min(n, v.iov_len);
        v.iov_base = static_cast<std::byte*>(v.iov_base) + taken;
        v.iov_len -= taken;
        n -= taken;
        if (v.iov_len == 0) ++iov_begin_;
    }
    while (batch_->group_ends[group_begin_] + groups_shifted_ <= iov_begin_) ++group_begin_;
    const std::uint32_t done_before = fpdu_begin_;
    while (batch_->fpdu_ends[fpdu_begin_] <= committed_) ++fpdu_begin_;
    if (fpdu_begin_ != done_before) ulp.tx_done(fpdu_begin_ - done_before);
}

}  // namespace xsock::mpa
