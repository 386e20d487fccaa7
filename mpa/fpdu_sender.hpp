// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ULPDUs -> octets of the full-operation phase (RFC 5044 §4), many FPDUs at a time. Used by
// mpa::Stream, one for each stream.
//
// Headers, trailers, markers and small payloads are laid out in the caller's scratch, where
// neighbours share an iovec; larger payloads are gathered from where they lie. The iovecs and the
// ends of the FPDUs are kept in the tail of the same scratch, so that an idle sender is small.
//
// The first large FPDUs on an idle path are short, and each is a batch of its own: while one is
// copied into TCP, and the peer reads and checks it, the CRC of the next is computed. Batches
// double as long as more is waiting, for then system calls cost more than waiting does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/ulp.hpp"
#include "mpa/marker.hpp"
#include "mpa/tx_batch.hpp"

namespace xsock::mpa {

class FpduSender {
  public:
    struct Limits {
        std::size_t mulpdu = 0;
        std::size_t group_bytes = 0;  ///< whole FPDUs of at most this make a group; 0: one group
        /// Not 0: TCP cuts a group behind each so many octets, so that it goes on where FPDUs end
        /// there, and group_bytes is the same.
        std::size_t segment_bytes = 0;
        std::size_t copy_limit = 4096;  ///< payloads up to this are copied
        std::size_t byte_budget = 0;    ///< no further FPDU is begun once this is reached
        bool ramp = false;              ///< on an idle path, short FPDUs and batches first
    };

    FpduSender(bool crc, bool markers) : crc_(crc), markers_(markers) {}

    /// Pulls ULPDUs from `ulp` and lays them out. @pre pending() == 0,
    /// scratch.size() >= kMinTxScratch, limits.mulpdu <= 65535.
    TxBatch prepare(Ulp& ulp, Bytes scratch, const Limits& limits);
    /// Lays out in `frame` the one FPDU that there is to send, if it is small (UlpduBatch::single,
    /// which may give another ahead of it) and there are no markers, and answers its octets; else
    /// 0. It is pending from now on. What is not written of it at once must be kept.
    /// @pre pending() == 0
    [[nodiscard]] std::size_t prepare_single(Ulp& ulp, Bytes frame);
    /// Makes what is in `frame` a batch in `scratch`. @pre prepare_single() gave it last,
    /// scratch.size() >= kMinTxScratch
    void keep_single(ConstBytes frame, Bytes scratch);
    /// What of the last batch is not yet committed.
    TxBatch remainder();
    /// `n` more octets were written. @pre n <= pending()
    void commit(Ulp& ulp, std::size_t n);
    /// Program memory [from, from + n) now lies at `to`, with the same octets: what the batch still
    /// refers to follows it.
    void move(const std::byte* from, std::size_t n, std::byte* to) noexcept;
    /// Something was received. If all had been sent before, the peer may have waited for it, and
    /// the path is idle; in a stream of one direction it is not, however fast TCP takes it.
    void heard() noexcept {
        if (sent_all_ && pending() == 0) ramp_ = 0;
    }
    /// Forgets the batch: nothing of it will be written any more.
    void drop() noexcept { *this = FpduSender(*this, Empty{}); }

    [[nodiscard]] std::size_t pending() const noexcept { return bytes_ - committed_; }
    /// The batch refers to program memory, rather than holding copies of it only.
    [[nodiscard]] bool gathers() const noexcept { return gathers_; }

  private:
    struct BatchState;
    class FpduWriter;

    struct Empty {};
    FpduSender(const FpduSender& of, Empty)
        : crc_(of.crc_), sent_all_(of.sent_all_), ramp_(of.ramp_), markers_(of.markers_) {}
    void place_batch_state(Bytes scratch);
    [[nodiscard]] std::size_t large_budget(const Limits& limits) const noexcept;

    bool crc_;
    bool sent_all_ = true;   // the Ulp had no more behind the last batch
    std::uint8_t ramp_ = 0;  // large batches since the path was idle, as far as it matters
    bool separate_groups_ = false;
    bool gathers_ = false;
    MarkerGrid markers_;
    // The batch under way. Counters of iovecs, groups and FPDUs count from its beginning.
    BatchState* batch_ = nullptr;  // in the caller's scratch
    std::uint32_t iov_begin_ = 0, iov_end_ = 0;
    std::uint32_t group_begin_ = 0, group_end_ = 0;
    std::uint32_t groups_shifted_ = 0;  // iovecs that group_ends were last counted from
    std::uint32_t fpdu_begin_ = 0, fpdu_end_ = 0;
    std::size_t bytes_ = 0, committed_ = 0;
};

}  // namespace xsock::mpa
