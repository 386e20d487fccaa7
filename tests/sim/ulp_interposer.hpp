// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sits in the seam between mpa::Stream and ddp::Stream. Forwards every call, checks that both keep
// the contract of base/ulp.hpp, and is where most faults are injected.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/fault.hpp"
#include "base/ulp.hpp"
#include "include/xsock/iwarp.h"
#include "tests/sim/mutant.hpp"
#include "tests/sim/trace.hpp"

namespace xsock::sim {

class UlpInterposer final : public Ulp {
  public:
    UlpInterposer(Ulp& above, Mutant mutant) : above_(above), mutant_(mutant) {}

    // Every other batch is described ULPDU by ULPDU, so that both ways meet in one world.
    UlpdusGiven tx_fill(const UlpduBatch& asked) override {
        if (asked.single && done_ != given_) fail("a message by itself, with others on their way");
        UlpduBatch batch = asked;
        if (!batch.single && ++batches_ % 2 == 0) batch.sizes = {};
        const UlpdusGiven given = above_.tx_fill(batch);
        if (given.small > batch.sizes.size()) {
            fail("%zu ULPDUs where there is room for %zu", given.small, batch.sizes.size());
        }
        std::size_t bytes = 0;
        for (const std::uint16_t size : batch.sizes.first(given.small)) {
            if (size > batch.small) fail("a small ULPDU of %zu bytes", std::size_t{size});
            bytes += batch.bytes(size);
        }
        if (bytes > batch.room.size()) fail("%zu bytes, more than there is room", bytes);
        if (given.described && (batch.single || batch.described->size() > batch.mulpdu)) {
            fail("a ULPDU of %zu bytes is described", batch.described->size());
        }
        const Mutant garbles = batch.single ? Mutant::garble_single : Mutant::garble_batch;
        if (given.small != 0 && mutant_ == garbles) {
            garble_payload(batch.room.subspan(batch.before, batch.sizes[0]));
        }
        mangle_given(batch, given);
        const auto n = static_cast<std::uint32_t>(given.small + (given.described ? 1 : 0));
        given_ += n;
        if (n != 0 && mutant_ == Mutant::early_completion) {
            above_.tx_done(n);
            done_ += n;
        }
        return given;
    }
    void tx_done(std::uint32_t n) override {
        if (mutant_ == Mutant::early_completion) return;
        if ((done_ += n) > given_) fail("more ULPDUs done than given");
        above_.tx_done(n);
    }
    bool tx_intact() override { return above_.tx_intact(); }

    // Every other ULPDU that is whole goes in steps.
    std::size_t rx_ulpdu(ConstBytes ulpdu) override {
        if (++whole_asked_ % 2 == 0) return in_steps(ulpdu);
        check_begin(ulpdu.size());
        copy_.assign(ulpdu.begin(), ulpdu.end());
        garble_ulpdu();
        have_ = above_.rx_ulpdu(copy_);
        if (have_ > length_) fail("more bytes taken than there are");
        in_ulpdu_ = have_ != length_;
        copy_.resize(have_);
        return have_;
    }

    void rx_begin(std::size_t ulpdu_length) override {
        check_begin(ulpdu_length);
        above_.rx_begin(ulpdu_length);
    }
    Bytes rx_target() override {
        if (!in_ulpdu_) fail("a target is asked for between ULPDUs");
        Bytes target = above_.rx_target();
        if (target.size() > length_ - have_) fail("a target longer than what is left");
        const bool tagged = !copy_.empty() && (copy_[0] & std::byte{0x80}) != std::byte{0};
        lost_ = mutant_ == Mutant::lose_write && tagged && have_ >= 14 &&
                (copy_[1] & std::byte{15}) == std::byte{0};
        if (!lost_) return given_target_ = target;
        nowhere_.resize(target.size());
        return given_target_ = nowhere_;
    }
    void rx_advance(std::size_t n) override {
        if (n > given_target_.size()) fail("more bytes than were asked for");
        copy_.insert(copy_.end(), given_target_.begin(),
                     given_target_.begin() + static_cast<std::ptrdiff_t>(n));
        garble(n);
        if (have_ >= 18 && n > 0 && !lost_) last_ = given_target_.data() + n - 1;
        have_ += n;
        above_.rx_advance(n);
    }
    void rx_end(bool intact) override {
        if (!in_ulpdu_ || have_ != length_) fail("a ULPDU ends before it is complete");
        in_ulpdu_ = false;
        if (mutant_ == Mutant::ignore_crc) intact = true;
        if (mutant_ == Mutant::flip_after_crc && last_ != nullptr) *last_ ^= std::byte{4};
        above_.rx_end(intact);
        if (mutant_ == Mutant::deliver_twice && intact && length_ > 0) again();
    }

    void rx_placed(const PlacedWrites& writes) override {
        check_between();
        if (writes.segments == 0 || writes.messages > writes.segments ||
            writes.last_bytes > writes.bytes) {
            fail("a run of Writes that cannot be");
        }
        if (mutant_ != Mutant::forget_placed) above_.rx_placed(writes);
    }
    void rx_placed_response(ConstBytes header, std::size_t bytes) override {
        check_between();
        if (header.size() != sizeof(ddp_tagged)) fail("a header of %zu bytes", header.size());
        above_.rx_placed_response(header, bytes);
    }

    void llp_established(const Negotiated& negotiated) override {
        if (established_) fail("established twice");
        established_ = true;
        Negotiated told = negotiated;
        if (mutant_ == Mutant::beside_unannounced) told.features |= MPA_FEATURE_SEND_IMMEDIATE;
        above_.llp_established(told);
    }
    void llp_failed(StreamError stream_error) override {
        if (failed_) fail("the LLP failed twice");
        failed_ = over_ = true;
        above_.llp_failed(stream_error);
    }
    void llp_closed(CloseKind kind) override {
        over_ = true;
        above_.llp_closed(kind);
    }
    void llp_probe() override { above_.llp_probe(); }

    [[nodiscard]] bool established() const noexcept { return established_; }

  private:
    void check_between() const {
        if (in_ulpdu_) fail("something was placed inside a ULPDU");
        if (over_) fail("something was placed after reception was over");
    }
    void check_begin(std::size_t ulpdu_length) {
        if (in_ulpdu_) fail("a ULPDU begins inside another");
        if (over_) fail("a ULPDU begins after reception was over");
        in_ulpdu_ = true;
        length_ = ulpdu_length;
        have_ = 0;
        last_ = nullptr;
        copy_.clear();
    }
    std::size_t in_steps(ConstBytes ulpdu) {
        rx_begin(ulpdu.size());
        while (have_ < length_) {
            const Bytes target = rx_target();
            if (target.empty()) return have_;
            {
                const fault::Touch touch(1, target.data(), target.size());
                std::copy_n(ulpdu.begin() + static_cast<std::ptrdiff_t>(have_), target.size(),
                            target.begin());
            }
            rx_advance(target.size());
        }
        rx_end(true);
        return length_;
    }

    /// Changes the last byte of a ULPDU, if it has payload.
    static void garble_payload(Bytes ulpdu) {
        if (ulpdu.size() > 18) ulpdu.back() ^= std::byte{1};
    }
    /// Of what leaves: one message more is told of, or the question is taken out.
    void mangle_given(const UlpduBatch& batch, const UlpdusGiven& given) const {
        if (mutant_ != Mutant::ack_ahead && mutant_ != Mutant::ack_mute) return;
        std::size_t at = 0;
        for (const std::uint16_t size : batch.sizes.first(given.small)) {
            mangle_header(batch.room.data() + at + batch.before);
            at += batch.bytes(size);
        }
        if (given.described) mangle_header(batch.described->header.data());
    }
    void mangle_header(std::byte* header) const {
        if (mutant_ == Mutant::ack_mute) {
            header[1] &= ~std::byte{RDMAP_ACK_REQUEST};
        } else if (header[1] == std::byte{RDMAP_VERSION | RDMAP_ACKNOWLEDGE}) {
            store_be32(header + 2, (load_be32(header + 2) + 1) & RDMAP_ACKNOWLEDGE_MASK);
        }
    }
    /// Changes what rx_ulpdu() is given.
    void garble_ulpdu() {
        if (copy_.size() <= 18) return;
        const bool write =
            (copy_[0] >> 7) == std::byte{1} && (copy_[1] & std::byte{15}) == std::byte{0};
        if (mutant_ == Mutant::garble_complete) garble_payload(copy_);
        // A Write lands eight bytes off.
        if (mutant_ == Mutant::garble_header && write) copy_[13] ^= std::byte{8};
    }
    /// Changes one byte of what was just stored, if the mutant is about it.
    void garble(std::size_t n) {
        if (mutant_ == Mutant::garble_beside && have_ <= 5 && have_ + n > 5 && copy_.size() > 5 &&
            (copy_[1] & std::byte{14}) == std::byte{RDMAP_SEND_IMMEDIATE}) {
            given_target_[5 - have_] ^= std::byte{1};
        }
        const bool untagged = copy_.size() > 18 && (copy_[0] & std::byte{0x80}) == std::byte{0};
        if (!untagged) return;
        const auto opcode = std::to_integer<unsigned>(copy_[1] & std::byte{15});
        std::size_t at = 0;
        if (mutant_ == Mutant::garble_atomic && opcode == RDMAP_ATOMIC_REQUEST) {
            at = 18 + offsetof(rdmap_atomic_request, operand) + 7;
        } else if (mutant_ == Mutant::garble_immediate && (opcode & 0xe) == RDMAP_IMMEDIATE) {
            at = 18 + 5;
        }
        if (at >= have_ && at < have_ + n) given_target_[at - have_] ^= std::byte{1};
    }

    void again() {
        const std::vector<std::byte> ulpdu = copy_;
        above_.rx_begin(ulpdu.size());
        for (std::size_t at = 0; at < ulpdu.size();) {
            const Bytes target = above_.rx_target();
            if (target.empty()) return;
            std::copy_n(ulpdu.begin() + static_cast<std::ptrdiff_t>(at), target.size(),
                        target.begin());
            at += target.size();
            above_.rx_advance(target.size());
        }
        above_.rx_end(true);
    }

    Ulp& above_;
    Mutant mutant_;
    std::uint64_t given_ = 0, done_ = 0, batches_ = 0, whole_asked_ = 0;
    bool in_ulpdu_ = false, established_ = false, failed_ = false, over_ = false, lost_ = false;
    std::size_t length_ = 0, have_ = 0;
    Bytes given_target_;
    std::byte* last_ = nullptr;
    std::vector<std::byte> copy_;  // of the ULPDU so far
    std::vector<std::byte> nowhere_;
};

}  // namespace xsock::sim
