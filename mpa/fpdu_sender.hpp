// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// ULPDUs -> octets of the full-operation phase (RFC 5044 §4), many FPDUs at a time. Used by
// mpa::Stream, one for each stream.
//
// Headers, trailers, markers and small payloads are laid out in the caller's scratch, where
// neighbours share an iovec; larger payloads are gathered from where they lie. The iovecs and the
// ends of the FPDUs are kept in the tail of the same scratch, so that an idle sender is small.
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
        std::size_t group_bytes = 0;    ///< whole FPDUs of at most this make a group; 0: one group
        std::size_t copy_limit = 4096;  ///< payloads up to this are copied
        std::size_t byte_budget = 0;    ///< no further FPDU is begun once this is reached
    };

    FpduSender(bool crc, bool markers) : crc_(crc), markers_(markers) {}

    /// Pulls ULPDUs from `ulp` and lays them out. @pre pending() == 0,
    /// scratch.size() >= kMinTxScratch, limits.mulpdu <= 65535.
    TxBatch prepare(Ulp& ulp, Bytes scratch, const Limits& limits);
    /// Lays out in `frame` the one FPDU that there is to send, if it is small (UlpduBatch::single)
    /// and there are no markers, and answers its octets; else 0. It is pending from now on. What is
    /// not written of it at once must be kept. @pre pending() == 0
    [[nodiscard]] std::size_t prepare_single(Ulp& ulp, Bytes frame);
    /// Makes the FPDU in `frame` a batch in `scratch`. @pre prepare_single() gave it last,
    /// scratch.size() >= kMinTxScratch
    void keep_single(ConstBytes frame, Bytes scratch);
    /// What of the last batch is not yet committed.
    TxBatch remainder();
    /// `n` more octets were written. @pre n <= pending()
    void commit(Ulp& ulp, std::size_t n);
    /// Program memory [from, from + n) now lies at `to`, with the same octets: what the batch still
    /// refers to follows it.
    void move(const std::byte* from, std::size_t n, std::byte* to) noexcept;
    /// Forgets the batch: nothing of it will be written any more.
    void drop() noexcept { *this = FpduSender(crc_, markers_); }

    [[nodiscard]] std::size_t pending() const noexcept { return bytes_ - committed_; }
    /// The batch refers to program memory, rather than holding copies of it only.
    [[nodiscard]] bool gathers() const noexcept { return gathers_; }

  private:
    struct BatchState;
    class FpduWriter;

    FpduSender(bool crc, MarkerGrid markers) : crc_(crc), markers_(markers) {}
    void place_batch_state(Bytes scratch);

    bool crc_;
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
