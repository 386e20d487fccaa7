// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What DDP and RDMAP do with ULPDUs, as far as Writes, Read Responses, Atomic Requests and Sends
// matter for the memory of ModuleModel: below it stands the FPDU receiver, or the module's records.
// What they would refuse is left out in silence.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/bytes.hpp"
#include "include/xsock/iwarp.h"
#include "tests/support/silent_ulp.hpp"
#include "tests/unit/ddp_kernel/module_model.hpp"

namespace xsock::test {

/// A tagged segment that goes to memory.
struct TaggedSegment {
    static constexpr std::size_t kPayload = sizeof(ddp_tagged);

    /// None where DDP or RDMAP would object, or nothing is to be stored.
    static bool parse(ConstBytes ulpdu, TaggedSegment& out) {
        if (ulpdu.size() <= kPayload) return false;
        const auto control = std::to_integer<unsigned>(ulpdu[0]);
        const auto rdmap = std::to_integer<unsigned>(ulpdu[1]);
        constexpr unsigned kReserved = 0x3c;
        if ((control & (DDP_FLAG_TAGGED | kReserved | DDP_VERSION_MASK)) !=
            (DDP_FLAG_TAGGED | DDP_VERSION)) {
            return false;
        }
        const unsigned opcode = rdmap & RDMAP_OPCODE_MASK;
        if ((rdmap & RDMAP_VERSION_MASK) != RDMAP_VERSION) return false;
        if (opcode != RDMAP_WRITE && opcode != RDMAP_READ_RESPONSE) return false;
        out = {.response = opcode == RDMAP_READ_RESPONSE,
               .stag = load_be32(&ulpdu[2]),
               .offset = load_be64(&ulpdu[6]),
               .bytes = ulpdu.size() - kPayload};
        return true;
    }
    [[nodiscard]] bool fits(std::size_t size) const {
        return offset <= size && bytes <= size - offset;
    }

    bool response = false;
    std::uint32_t stag = 0;
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
};

class PlacingUlp final : public SilentUlp {
  public:
    static constexpr std::size_t kAtomic = 128;  ///< where in the region Atomic Requests count

    /// `to_atomics`: the region is open to Atomic Requests.
    PlacingUlp(std::vector<std::byte>& region, std::vector<std::byte>& sink, bool to_atomics)
        : other(region.size()), region_(region), sink_(sink), to_atomics_(to_atomics) {}

    std::size_t rx_ulpdu(ConstBytes ulpdu) override {
        take(ulpdu);
        return ulpdu.size();
    }
    void rx_begin(std::size_t n) override {
        ulpdu_.assign(n, std::byte{0});
        have_ = 0;
    }
    Bytes rx_target() override { return Bytes(ulpdu_).subspan(have_); }
    void rx_advance(std::size_t n) override { have_ += n; }
    void rx_end(bool intact) override {
        if (intact) take(ulpdu_);
    }
    void rx_placed(const PlacedWrites& writes) override {
        placed += writes.segments;
        if (writes.messages > (writes.last_ended ? 1u : 0u)) message_over_ = true;
        add_to_message(writes.last_bytes, writes.last_ended);
    }
    void rx_placed_response(ConstBytes, std::size_t) override { ++placed; }

    std::vector<std::byte> other;     ///< memory of STags that the module never knows
    std::uint64_t placed = 0;         ///< segments that the LLP has placed
    std::uint64_t written = 0;        ///< and those that were stored here
    std::uint64_t message_bytes = 0;  ///< of the last Write, of all its segments
    unsigned sends = 0;
    std::function<void(unsigned)> on_send;

  private:
    void add_to_message(std::uint64_t bytes, bool last) {
        message_bytes = (message_over_ ? 0 : message_bytes) + bytes;
        message_over_ = last;
    }
    void take(ConstBytes ulpdu) {
        if (ulpdu.size() < 2) return;
        if ((ulpdu[0] & std::byte{DDP_FLAG_TAGGED}) != std::byte{0}) return store(ulpdu);
        const auto opcode = std::to_integer<unsigned>(ulpdu[1]) & RDMAP_OPCODE_MASK;
        if (opcode == RDMAP_ATOMIC_REQUEST && to_atomics_) {
            store_be64(&region_[kAtomic], load_be64(&region_[kAtomic]) + 1);
        }
        if (opcode == RDMAP_SEND) on_send(sends++);
    }
    void store(ConstBytes ulpdu) {
        TaggedSegment segment;
        if (!TaggedSegment::parse(ulpdu, segment)) return;
        std::vector<std::byte>& to = memory_of(segment);
        if (!segment.fits(to.size())) return;
        const ConstBytes payload = ulpdu.subspan(TaggedSegment::kPayload);
        std::copy(payload.begin(), payload.end(),
                  to.begin() + static_cast<std::ptrdiff_t>(segment.offset));
        ++written;
        if (!segment.response) {
            const bool last = (ulpdu[0] & std::byte{DDP_FLAG_LAST}) != std::byte{0};
            add_to_message(segment.bytes, last);
        }
    }
    std::vector<std::byte>& memory_of(const TaggedSegment& segment) {
        if (segment.response) return segment.stag == ModuleModel::kSinkStag ? sink_ : other;
        return segment.stag == ModuleModel::kStag ? region_ : other;
    }

    std::vector<std::byte>& region_;
    std::vector<std::byte>& sink_;
    bool to_atomics_;
    std::vector<std::byte> ulpdu_;
    std::size_t have_ = 0;
    bool message_over_ = true;
};

}  // namespace xsock::test
