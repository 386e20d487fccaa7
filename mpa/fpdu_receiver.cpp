// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "mpa/fpdu_receiver.hpp"

#include <algorithm>
#include <array>

#include "base/fault.hpp"
#include "base/place.hpp"
#include "mpa/fpdu.hpp"

namespace xsock::mpa {
namespace {

/// FPDUs that lie wholly in the input, up to this size, have their CRC checked before anything is
/// placed: two passes, yet the second finds the octets in the first-level cache, and each copy is
/// a plain one (measured: 53 against 80 ns at 1428 octets of payload; equal from 4096 on).
constexpr std::size_t kCheckFirstBytes = 4096;

/// Octets at `fpdu`, of `size` that there are, which are FPDUs like the first, of `bytes`, with
/// CRCs that hold: one, several, or none.
std::size_t intact(const std::byte* fpdu, std::size_t size, std::size_t bytes) noexcept {
    const std::size_t covered = bytes - MPA_CRC_OCTETS;
    if (equal_length_run(fpdu, size, bytes)) {
        std::array<std::uint32_t, kCrc32cLanes> crcs;
        crc32c_lanes(fpdu, bytes, covered, crcs);
        std::uint32_t wrong = 0;
        for (std::size_t i = 0; i < crcs.size(); ++i) {
            wrong |= crcs[i] ^ load_le32(fpdu + i * bytes + covered);
        }
        if (wrong == 0) return kCrc32cLanes * bytes;
    }
    const std::uint32_t crc = crc32c_finish(crc32c(kCrc32cInit, {fpdu, covered}));
    return crc == load_le32(fpdu + covered) ? bytes : 0;
}

}  // namespace

/// What is left of the octets given.
struct FpduReceiver::Input {
    const std::byte* at;
    const std::byte* end;
    [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(end - at); }
};

std::size_t FpduReceiver::consume(ConstBytes bytes, Ulp& ulp) {
    Input in{bytes.data(), bytes.data() + bytes.size()};
    while (in.at != in.end && stream_error_ == StreamError::none) {
        if (step_ == Step::length && held_count_ == 0 && !markers_.enabled()) {
            take_whole_fpdus(in, ulp);
            if (in.at == in.end) break;
        }
        // By its multiples of four octets an FPDU meets markers only before its length, inside its
        // ULPDU and before its CRC (RFC 5044 §4.3); here they are looked for everywhere.
        const std::size_t limit = std::min(in.size(), markers_.until_next());
        if (limit == 0) {
            if (!take_marker(in)) break;
            continue;
        }
        switch (step_) {
            case Step::length:
                take_length(in, limit, ulp);
                break;
            case Step::ulpdu:
                if (!take_ulpdu(in, limit, ulp)) return bytes.size() - in.size();
                break;
            case Step::pad:
                take_pad(in, limit);
                break;
            case Step::crc:
                take_crc(in, limit, ulp);
                break;
        }
    }
    return bytes.size() - in.size();
}

/// The common case, made short: FPDUs without markers that lie wholly in the input. Stops at the
/// first that is large, incomplete or broken, and leaves it to the steps below.
void FpduReceiver::take_whole_fpdus(Input& in, Ulp& ulp) {
    const std::byte* checked = in.at;  // up to here the CRCs hold
    while (in.size() >= MPA_LENGTH_OCTETS) {
        const std::byte* const fpdu = in.at;
        const std::size_t length = load_be16(fpdu);
        const std::size_t bytes = fpdu_octets(length);
        if (bytes > in.size() || (crc_ && bytes > kCheckFirstBytes)) return;
        if (crc_ && fpdu == checked) {
            checked += intact(fpdu, in.size(), bytes);
            if (fpdu == checked) return;
        }
        const std::size_t taken = ulp.rx_ulpdu({fpdu + MPA_LENGTH_OCTETS, length});
        if (taken != length) {
            suspend(fpdu, MPA_LENGTH_OCTETS + taken, length - taken);
            in.at += MPA_LENGTH_OCTETS + taken;
            return;
        }
        in.at += bytes;
        delivered_any_ = true;
    }
}

/// Leaves an FPDU whose first `covered` octets were consumed to the steps below.
void FpduReceiver::suspend(const std::byte* fpdu, std::size_t covered, std::size_t left) {
    step_ = Step::ulpdu;
    left_ = static_cast<std::uint32_t>(left);
    pad_ = static_cast<std::uint8_t>(fpdu_pad(load_be16(fpdu)));
    register_ = crc_ ? crc32c(kCrc32cInit, {fpdu, covered}) : kCrc32cInit;
}

bool FpduReceiver::take_marker(Input& in) {
    while (marker_count_ < marker_.size()) {
        if (in.at == in.end) return true;
        marker_[marker_count_++] = *in.at++;
    }
    marker_count_ = 0;
    markers_.pass_marker();
    // Between FPDUs since_length_ is 0, and the marker belongs to the FPDU that follows.
    if (marker_fpduptr(marker_.data()) != (since_length_ & 0xfffcu)) {
        stream_error_ = StreamError::mpa_marker;
        return false;
    }
    if (crc_) register_ = crc32c(register_, marker_);
    if (since_length_ != 0) since_length_ += MPA_MARKER_OCTETS;
    return true;
}

/// Takes octets until so many of them are held; true once they are.
bool FpduReceiver::hold(Input& in, std::size_t limit, std::size_t octets) {
    for (; limit != 0 && held_count_ < octets; --limit) {
        held_[held_count_++] = *in.at++;
        passed(1);
    }
    return held_count_ == octets;
}

void FpduReceiver::take_length(Input& in, std::size_t limit, Ulp& ulp) {
    if (!hold(in, limit, MPA_LENGTH_OCTETS)) return;
    held_count_ = 0;
    if (crc_) register_ = crc32c(register_, {held_.data(), MPA_LENGTH_OCTETS});
    left_ = load_be16(held_.data());
    pad_ = static_cast<std::uint8_t>(fpdu_pad(left_));
    step_ = left_ != 0 ? Step::ulpdu : Step::pad;
    ulp.rx_begin(left_);
}

bool FpduReceiver::take_ulpdu(Input& in, std::size_t limit, Ulp& ulp) {
    const Bytes target = ulp.rx_target();
    if (target.empty()) return false;
    const std::size_t n = std::min({target.size(), limit, std::size_t{left_}});
    {
        const fault::Touch touch(1, target.data(), n);
        if (crc_) {
            register_ = crc32c_copy(register_, target.data(), in.at, n);
        } else {
            place(target.data(), in.at, n);
        }
    }
    ulp.rx_advance(n);
    in.at += n;
    passed(n);
    left_ -= static_cast<std::uint32_t>(n);
    if (left_ == 0) step_ = pad_ != 0 ? Step::pad : Step::crc;
    return true;
}

void FpduReceiver::take_pad(Input& in, std::size_t limit) {
    const std::size_t n = std::min<std::size_t>(limit, pad_);
    if (crc_) register_ = crc32c(register_, {in.at, n});
    in.at += n;
    passed(n);
    pad_ = static_cast<std::uint8_t>(pad_ - n);
    if (pad_ == 0) step_ = Step::crc;
}

void FpduReceiver::take_crc(Input& in, std::size_t limit, Ulp& ulp) {
    if (!hold(in, limit, MPA_CRC_OCTETS)) return;
    const bool intact = !crc_ || crc32c_finish(register_) == load_le32(held_.data());
    if (intact) {
        end_fpdu();
    } else {
        stream_error_ = StreamError::mpa_crc;
    }
    ulp.rx_end(intact);
}

std::uint64_t FpduReceiver::skip_fpdu(std::size_t ulpdu_length) noexcept {
    const std::size_t octets = fpdu_octets(ulpdu_length);
    const std::size_t all = octets + markers_.count_within(octets) * MPA_MARKER_OCTETS;
    skip(all);
    return all;
}

void FpduReceiver::passed(std::size_t n) noexcept {
    since_length_ += static_cast<std::uint32_t>(n);
    markers_.advance(n);
}

/// Ready for the next FPDU.
void FpduReceiver::end_fpdu() noexcept {
    step_ = Step::length;
    held_count_ = 0;
    since_length_ = 0;
    register_ = kCrc32cInit;
    delivered_any_ = true;
}

}  // namespace xsock::mpa
