// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Sits in the seam between mpa::Stream and ddp::Stream. Checks that both keep the contract of
// base/ulp.hpp, and is where most sabotage happens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ulp.hpp"
#include "include/xsock/iwarp.h"
#include "tests/sim/sabotage.hpp"
#include "tests/sim/trace.hpp"

namespace xsock::sim {

class Tap final : public Ulp {
  public:
    Tap(Ulp& above, Sabotage sabotage) : above_(above), sabotage_(sabotage) {}

    bool tx_next(std::size_t mulpdu, UlpduOut& out) override {
        if (!above_.tx_next(mulpdu, out)) return false;
        std::size_t octets = out.header_size;
        for (std::size_t i = 0; i < out.payload_count; ++i) octets += out.payload[i].size();
        if (octets > mulpdu) fail("a ULPDU of %zu octets, where %zu are the limit", octets, mulpdu);
        ++given_;
        if (sabotage_ == Sabotage::early_completion) {
            above_.tx_done();
            ++done_;
        }
        return true;
    }
    void tx_done() override {
        if (sabotage_ == Sabotage::early_completion) return;
        if (++done_ > given_) fail("more ULPDUs done than given");
        above_.tx_done();
    }
    void tx_done_all(std::uint32_t n) override {
        if (sabotage_ == Sabotage::early_completion) return;
        if ((done_ += n) > given_) fail("more ULPDUs done than given");
        above_.tx_done_all(n);
    }
    // Every other message goes the short ways.
    std::size_t tx_run(const UlpduRun& run) override {
        if (sabotage_ != Sabotage::none || ++small_asked_ % 2 == 0) return 0;
        const std::size_t n = above_.tx_run(run);
        if (n > run.sizes.size()) fail("%zu ULPDUs in a run of %zu", n, run.sizes.size());
        std::size_t octets = 0;
        for (const std::uint16_t size : run.sizes.first(n)) {
            if (size > run.most) fail("a ULPDU of %zu octets in a run", std::size_t{size});
            octets += run.octets(size);
        }
        if (octets > run.room.size()) fail("a run of %zu octets is too long", octets);
        given_ += n;
        return n;
    }
    Bytes rx_whole(ConstBytes ulpdu) override {
        if (in_ulpdu_) fail("a ULPDU begins inside another");
        if (over_) fail("a ULPDU begins after reception was over");
        if (sabotage_ != Sabotage::none || ++whole_asked_ % 2 == 0) return {};
        const Bytes target = above_.rx_whole(ulpdu);
        if (target.size() > ulpdu.size()) fail("a target longer than the ULPDU");
        return target;
    }
    void rx_whole_done() override { above_.rx_whole_done(); }
    bool tx_intact() override { return above_.tx_intact(); }

    void rx_begin(std::size_t ulpdu_length) override {
        if (in_ulpdu_) fail("a ULPDU begins inside another");
        if (over_) fail("a ULPDU begins after reception was over");
        in_ulpdu_ = true;
        length_ = ulpdu_length;
        have_ = 0;
        last_ = nullptr;
        copy_.clear();
        above_.rx_begin(ulpdu_length);
    }
    Bytes rx_target() override {
        if (!in_ulpdu_) fail("a target is asked for between ULPDUs");
        Bytes target = above_.rx_target();
        if (target.size() > length_ - have_) fail("a target longer than what is left");
        const bool tagged = !copy_.empty() && (copy_[0] & std::byte{0x80}) != std::byte{0};
        lost_ = sabotage_ == Sabotage::lose_write && tagged && have_ >= 14 &&
                (copy_[1] & std::byte{15}) == std::byte{0};
        if (!lost_) return given_target_ = target;
        nowhere_.resize(target.size());
        return given_target_ = nowhere_;
    }
    void rx_advance(std::size_t n) override {
        if (n > given_target_.size()) fail("more octets than were asked for");
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
        if (sabotage_ == Sabotage::ignore_crc) intact = true;
        if (sabotage_ == Sabotage::flip_after_crc && last_ != nullptr) *last_ ^= std::byte{4};
        above_.rx_end(intact);
        if (sabotage_ == Sabotage::deliver_twice && intact && length_ > 0) again();
    }

    void llp_established(const Negotiated& negotiated) override {
        if (established_) fail("established twice");
        established_ = true;
        above_.llp_established(negotiated);
    }
    void llp_failed(Violation violation) override {
        if (failed_) fail("the LLP failed twice");
        failed_ = over_ = true;
        above_.llp_failed(violation);
    }
    void llp_closed(CloseKind kind) override {
        over_ = true;
        above_.llp_closed(kind);
    }
    void llp_nudge() override { above_.llp_nudge(); }

    [[nodiscard]] bool established() const noexcept { return established_; }

  private:
    /// Changes one octet of what was just stored, if the sabotage is about it.
    void garble(std::size_t n) {
        const bool untagged = copy_.size() > 18 && (copy_[0] & std::byte{0x80}) == std::byte{0};
        if (!untagged) return;
        const auto opcode = std::to_integer<unsigned>(copy_[1] & std::byte{15});
        std::size_t at = 0;
        if (sabotage_ == Sabotage::garble_atomic && opcode == RDMAP_ATOMIC_REQUEST) {
            at = 18 + offsetof(rdmap_atomic_request, operand) + 7;
        } else if (sabotage_ == Sabotage::garble_immediate && (opcode & 0xe) == RDMAP_IMMEDIATE) {
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
    Sabotage sabotage_;
    std::uint64_t given_ = 0, done_ = 0, small_asked_ = 0, whole_asked_ = 0;
    bool in_ulpdu_ = false, established_ = false, failed_ = false, over_ = false, lost_ = false;
    std::size_t length_ = 0, have_ = 0;
    Bytes given_target_;
    std::byte* last_ = nullptr;
    std::vector<std::byte> copy_;  // of the ULPDU so far
    std::vector<std::byte> nowhere_;
};

}  // namespace xsock::sim
