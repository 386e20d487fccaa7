// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A simulated TCP connection: two byte streams in virtual time, with bounded buffers, delay,
// stalls, segments cut anywhere, half-close, reset, and bytes that arrive damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/bytes.hpp"
#include "tests/sim/rng.hpp"

namespace xsock::sim {

/// How one direction behaves.
struct PipeOptions {
    std::size_t capacity = 65536;  ///< bytes written and not yet read; more is refused
    std::size_t segment_max = 1460;
    Time delay = 10'000;
    Time jitter = 0;
    unsigned stall_percent = 0;  ///< of the segments
    Time stall = 0;
    std::vector<std::uint64_t> flips = {};  ///< offsets of bytes that arrive with one bit wrong
};

class Pipe {
  public:
    Pipe(PipeOptions options, std::uint64_t seed) : options_(std::move(options)), rng_(seed) {}

    /// Takes what there is room for. @pre !finished()
    std::size_t write(ConstBytes bytes, Time now);
    void finish(Time now);
    [[nodiscard]] bool finished() const noexcept { return finished_; }
    [[nodiscard]] std::size_t room() const noexcept { return options_.capacity - held_; }

    /// Bytes that have arrived, at most out.size() of them.
    std::size_t read(Bytes out, Time now);
    [[nodiscard]] bool readable(Time now) const noexcept;
    /// FIN is the next thing.
    [[nodiscard]] bool at_end(Time now) const noexcept;
    /// When the next segment arrives; kNever when none is under way.
    [[nodiscard]] Time next_arrival() const noexcept;
    void drop();

    [[nodiscard]] std::uint64_t written() const noexcept { return written_; }
    [[nodiscard]] std::uint64_t taken() const noexcept { return taken_; }
    /// Offset of the first damaged byte that was written; ~0: none.
    [[nodiscard]] std::uint64_t first_damage() const noexcept { return first_damage_; }
    [[nodiscard]] bool damage_taken() const noexcept { return taken_ > first_damage_; }

  private:
    struct Segment {
        Time at;
        std::vector<std::byte> bytes;  // empty: FIN
        std::size_t used = 0;
    };
    Time arrival(Time now);

    PipeOptions options_;
    Rng rng_;
    std::deque<Segment> segments_;
    std::size_t held_ = 0;
    Time last_arrival_ = 0;
    std::uint64_t written_ = 0, taken_ = 0;
    std::uint64_t first_damage_ = ~std::uint64_t{0};
    bool finished_ = false;
};

}  // namespace xsock::sim
