// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The pages behind the ring that this process writes: allocated before the ring uses them, so that
// a machine without memory makes a ring small and not a link end, and given back once the ring was
// hardly used for a while. The first lap needs no permission; each process manages its own ring.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/shared_ring.hpp"

namespace xsock {

class RingMemory {
  public:
    /// What is allocated at a time: some 20 µs of a poll cycle.
    static constexpr std::size_t kStep = std::size_t{64} << 10;
    /// How long a ring is not written to before its pages are given back, and how long one that was
    /// refused memory stays as it is.
    static constexpr Time kIdle = kSecond;

    /// @param ring the memory of the writer's ring; both outlive this
    RingMemory(Bytes ring, RingWriter& writer) noexcept : ring_(ring), writer_(writer) {}

    /// The ring was full: allocates memory for the next step. Where the system has none, the ring
    /// stays as it is for kIdle.
    /// @pre the writer wants more
    void grow(Time now) noexcept;
    /// It has more than at first: check_idle() is due every kIdle.
    [[nodiscard]] bool has_grown() const noexcept {
        return writer_.allowed() > RingWriter::kFirstLap;
    }
    /// Gives back what was allocated, if nothing was written since the last call and the reader has
    /// everything.
    void check_idle() noexcept;

  private:
    Bytes ring_;
    RingWriter& writer_;
    std::uint64_t seen_ = 0;  // the writer's position, by check_idle()
    Time try_from_ = 0;       // no memory until then
};

}  // namespace xsock
