// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How far the send queue of a Stream was sent, and which source is next.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/assert.hpp"
#include "base/ulp.hpp"
#include "ddp_user/acknowledge.hpp"
#include "ddp_user/cursor.hpp"
#include "ddp_user/rnr.hpp"

namespace xsock::ddp {

/// What was given to the LLP and is not yet its promise, oldest first. Batches of equal kind share
/// an entry, so that a large message or a burst of small ones takes one or two.
class TxLog {
  public:
    enum class Kind : std::uint8_t { send_queue, response, unposted, terminate };
    struct Batch {
        Kind kind = Kind::unposted;
        bool last = false;  // each ULPDU of the batch ends its message
        std::uint16_t ulpdus = 0;
    };

    /// No further ULPDU can be noted: the LLP must finish some first.
    [[nodiscard]] bool full() const noexcept { return size_ == kBatches; }
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

    /// @pre !full(), ulpdus <= kMost
    void push(Kind kind, bool last, std::uint32_t ulpdus = 1) noexcept {
        if (size_ > 0) {
            Batch& newest = batches_[(head_ + size_ - 1u) % kBatches];
            if (newest.kind == kind && newest.last == last && ulpdus + newest.ulpdus <= kMost) {
                newest.ulpdus = static_cast<std::uint16_t>(newest.ulpdus + ulpdus);
                return;
            }
        }
        XSOCK_ASSERT(!full() && ulpdus <= kMost);
        batches_[(head_ + size_++) % kBatches] = {kind, last, static_cast<std::uint16_t>(ulpdus)};
    }
    /// The oldest batch, at most `most` ULPDUs of it.
    Batch pop(std::uint32_t most) noexcept {
        XSOCK_ASSERT(!empty());
        Batch& oldest = batches_[head_];
        const auto ulpdus =
            static_cast<std::uint16_t>(std::min<std::uint32_t>(most, oldest.ulpdus));
        const Batch taken{oldest.kind, oldest.last, ulpdus};
        oldest.ulpdus = static_cast<std::uint16_t>(oldest.ulpdus - ulpdus);
        if (oldest.ulpdus == 0) {
            head_ = static_cast<std::uint8_t>((head_ + 1u) % kBatches);
            --size_;
        }
        return taken;
    }
    void clear() noexcept { size_ = 0; }

  private:
    static constexpr std::uint8_t kBatches = 16;
    static constexpr std::uint16_t kMost = 0xffff;  // ULPDUs of one
    std::array<Batch, kBatches> batches_{};
    std::uint8_t head_ = 0;
    std::uint8_t size_ = 0;
};

/// Entries [retired, sent) of the send queue are the LLP's, [sent, next) are given, `next` is being
/// segmented or the next to start.
struct TxState {
    enum class Source : std::uint8_t { none, send_queue, response };

    TxState(std::uint64_t first, std::uint32_t first_msn, std::uint32_t depth)
        : next(first), sent(first), send_msn(first_msn), acks(first, depth) {}

    TxLog log;
    Source under_way = Source::none;  // a message whose first segment was given, not its last
    Source previous = Source::response;
    Rtr rtr = Rtr::none;  // still to be sent, before anything else
    bool probe = false;
    bool held = false;  // no work request starts: hold_sends()

    std::uint64_t next;
    std::uint64_t sent;
    std::uint32_t offset = 0;  // octets of entry `next` given
    Cursor cursor;
    bool immediate_due = false;  // of its message: the Write was given, the Immediate Data not
    std::uint32_t send_msn;

    bool acknowledged = false;  // set_acknowledged()
    bool finishing = false;     // nothing more will be posted
    AckRequests acks;
    RnrRetries rnr;

    /// Behind the last entry of which something was given.
    [[nodiscard]] std::uint64_t begun() const noexcept {
        return next + (under_way == Source::send_queue ? 1 : 0);
    }
    /// Entry `next` was given in full.
    void finish_entry() noexcept {
        ++next;
        offset = 0;
        cursor = {};
        immediate_due = false;
        under_way = Source::none;
    }
    /// Nothing more is sent; all entries up to `retired` have completed.
    void end(std::uint64_t retired) noexcept {
        log.clear();
        under_way = Source::none;
        rtr = Rtr::none;
        probe = false;
        next = sent = retired;
    }
};

}  // namespace xsock::ddp
