// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One direction of a TCP connection as a capture shows it -> its bytes in order. Retransmissions
// and overlaps are taken once, segments that came early wait for their turn; what never comes is
// reported as a gap. Bounded: one that holds too much gives up on what is missing.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/bytes.hpp"

namespace xsock::decode {

class StreamSink {
  public:
    /// The next bytes of the stream. @param packet where they were  @param starts_segment they are
    /// the first of a TCP segment
    virtual void stream_bytes(ConstBytes bytes, std::uint64_t packet, bool starts_segment) = 0;
    /// The next `bytes` bytes of the stream are missing. @param packet after which
    virtual void stream_gap(std::uint64_t bytes, std::uint64_t packet) = 0;

  protected:
    ~StreamSink() = default;
};

/// Memory that all connections share, for segments that wait and FPDUs that are incomplete.
struct ReassemblyBudget {
    std::int64_t bytes_left = std::int64_t{64} * 1024 * 1024;  ///< below 0 by a segment at most
    /// For incomplete FPDUs; below 0 by their first bytes at most.
    std::int64_t unit_bytes_left = std::int64_t{256} * 1024 * 1024;
};

class TcpDirection {
  public:
    explicit TcpDirection(ReassemblyBudget& budget) : budget_(&budget) {}

    /// A SYN: the stream begins behind it.
    void begin(std::uint32_t sequence) {
        next_ = sequence + 1;
        known_ = from_the_start_ = true;
    }
    /// A SYN was seen.
    [[nodiscard]] bool from_the_start() const noexcept { return from_the_start_; }
    [[nodiscard]] bool begun() const noexcept { return known_; }
    /// Where the stream goes on. @pre begun()
    [[nodiscard]] std::uint32_t next() const noexcept { return next_; }

    /// A segment. `bytes_on_wire` >= captured.size(); what was not captured is a gap.
    void add(std::uint32_t sequence, ConstBytes captured, std::size_t bytes_on_wire,
             std::uint64_t packet, StreamSink& sink);
    /// No more segments: what waits is given with the gaps before it.
    void finish(StreamSink& sink);

    [[nodiscard]] std::uint64_t retransmitted() const noexcept { return retransmitted_; }
    [[nodiscard]] std::uint64_t early() const noexcept { return early_; }
    [[nodiscard]] std::uint64_t missing() const noexcept { return missing_; }

  private:
    struct Waiting {
        std::vector<std::byte> captured;
        std::size_t bytes_on_wire = 0;
        std::uint64_t packet = 0;
    };

    void give(ConstBytes captured, std::size_t bytes_on_wire, std::uint64_t packet, bool start,
              StreamSink& sink);
    void take_waiting(StreamSink& sink, bool over_gaps);

    ReassemblyBudget* budget_;
    bool known_ = false, from_the_start_ = false;
    std::uint32_t next_ = 0;                    // sequence number
    std::uint64_t offset_ = 0;                  // of next_ in the stream
    std::map<std::uint64_t, Waiting> waiting_;  // by offset
    std::size_t waiting_bytes_ = 0;
    std::uint64_t retransmitted_ = 0, early_ = 0, missing_ = 0;
};

}  // namespace xsock::decode
