// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Where one direction of an MPA stream may be cut so that each piece is a whole start-up frame, a
// whole extension frame or a whole FPDU: dissectors find FPDUs best when a TCP segment begins with
// one. Reads lengths only and assumes nothing it need not: a stream that is no MPA is cut
// anywhere. Used by Capture.
#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.hpp"
#include "mpa/marker.hpp"

namespace xsock {

class FrameCutter {
  public:
    /// Adds bytes of the stream.
    void add(ConstBytes bytes) { pending_.insert(pending_.end(), bytes.begin(), bytes.end()); }
    /// The next whole piece; empty: it is not complete yet. Valid until add() or the next call.
    /// @param markers  this direction has markers: the M bit of the other direction's start-up
    /// frame
    [[nodiscard]] ConstBytes next(bool markers);
    /// What is left, complete or not. Valid until add().
    [[nodiscard]] ConstBytes rest();

    /// The start-up frame passed; then: what its M bit asks of the other direction.
    [[nodiscard]] bool started() const noexcept { return phase_ != Phase::startup; }
    [[nodiscard]] bool asks_for_markers() const noexcept { return asks_for_markers_; }

  private:
    enum class Phase : unsigned char { startup, extension, fpdus, unknown };

    [[nodiscard]] std::size_t startup_bytes();
    [[nodiscard]] std::size_t extension_bytes();
    [[nodiscard]] std::size_t fpdu_bytes_at_front();

    Phase phase_ = Phase::startup;
    bool asks_for_markers_ = false;
    bool grid_made_ = false;
    mpa::MarkerGrid grid_{false};
    std::vector<std::byte> pending_;
    std::size_t taken_ = 0;  // of pending_
};

}  // namespace xsock
