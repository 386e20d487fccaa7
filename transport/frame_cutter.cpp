// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/frame_cutter.hpp"

#include <algorithm>

#include "include/xsock/iwarp.h"
#include "mpa/extension_frame.hpp"
#include "mpa/fpdu.hpp"

namespace xsock {

ConstBytes FrameCutter::next(bool markers) {
    if (taken_ == pending_.size()) {
        pending_.clear();
        taken_ = 0;
        return {};
    }
    std::size_t n = 0;
    switch (phase_) {
        case Phase::startup:
            n = startup_bytes();
            break;
        case Phase::extension:
            n = extension_bytes();
            if (phase_ == Phase::extension) break;
            [[fallthrough]];
        case Phase::fpdus:
            if (!grid_made_) grid_ = mpa::MarkerGrid(markers);
            grid_made_ = true;
            n = fpdu_bytes_at_front();
            break;
        case Phase::unknown:
            n = pending_.size() - taken_;
            break;
    }
    if (n == 0 || n > pending_.size() - taken_) {
        // Kept at the front, so that the buffer does not creep.
        pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(taken_));
        taken_ = 0;
        return {};
    }
    const ConstBytes piece = ConstBytes(pending_).subspan(taken_, n);
    taken_ += n;
    if (phase_ == Phase::startup) {
        const auto flags = std::to_integer<unsigned>(piece[offsetof(mpa_frame, flags)]);
        asks_for_markers_ = (flags & MPA_FLAG_MARKERS) != 0;
        phase_ = (flags & MPA_FLAG_REJECT) != 0       ? Phase::unknown
                 : (flags & MPA_FLAG_EXTENSIONS) != 0 ? Phase::extension
                                                      : Phase::fpdus;
    } else if (phase_ == Phase::extension) {
        phase_ = Phase::fpdus;
    } else if (phase_ == Phase::fpdus && grid_.enabled()) {
        for (std::size_t left = n; left != 0;) {
            if (grid_.until_next() == 0) {
                grid_.pass_marker();
                left -= std::min<std::size_t>(left, MPA_MARKER_OCTETS);
                continue;
            }
            const std::size_t step = std::min(left, grid_.until_next());
            grid_.advance(step);
            left -= step;
        }
    }
    return piece;
}

ConstBytes FrameCutter::rest() {
    const ConstBytes all = ConstBytes(pending_).subspan(taken_);
    taken_ = pending_.size();
    return all;
}

/// Bytes of the start-up frame at the front; 0: not known yet.
std::size_t FrameCutter::startup_bytes() {
    const std::size_t have = pending_.size() - taken_;
    const std::byte* const frame = pending_.data() + taken_;
    const std::size_t key = std::min<std::size_t>(have, MPA_KEY_OCTETS);
    const bool is_mpa = std::memcmp(frame, MPA_KEY_REQUEST, key) == 0 ||
                        std::memcmp(frame, MPA_KEY_REPLY, key) == 0;
    if (is_mpa && have < sizeof(mpa_frame)) return 0;
    const std::size_t private_data = is_mpa ? load_be16(frame + offsetof(mpa_frame, pd_length)) : 0;
    if (!is_mpa || private_data > MPA_PD_MAX) {
        phase_ = Phase::unknown;
        return have;
    }
    return sizeof(mpa_frame) + private_data;
}

/// Bytes of the extension frame at the front, which has no markers; 0: not known yet. If FPDUs
/// begin without one (a Request asks for the exchange, and the Reply may decline it), their phase
/// begins.
std::size_t FrameCutter::extension_bytes() {
    if (pending_.size() - taken_ < mpa::kExtensionPeekBytes) return 0;
    const std::byte* const front = pending_.data() + taken_;
    if (mpa::looks_like_extension_frame(front)) return mpa::extension_frame_bytes(front);
    phase_ = Phase::fpdus;
    return 0;
}

/// Bytes of the FPDU at the front, markers and a marker before it included; 0: not known yet.
std::size_t FrameCutter::fpdu_bytes_at_front() {
    const std::size_t have = pending_.size() - taken_;
    const std::size_t marker = grid_.until_next() == 0 ? MPA_MARKER_OCTETS : 0;
    if (have < marker + MPA_LENGTH_OCTETS) return 0;
    const std::size_t bytes = mpa::fpdu_octets(load_be16(pending_.data() + taken_ + marker));
    return bytes + MPA_MARKER_OCTETS * grid_.count_within(bytes);
}

}  // namespace xsock
