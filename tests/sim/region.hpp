// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A registered region as the oracle sees it: what it held at some moment, and every Write that was
// posted since. Writes of one stream are placed in order, so each byte holds either what the last
// Write known to be complete left there, or what a later one brings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.hpp"

namespace xsock::sim {

class Region {
  public:
    std::uint32_t stag = 0;
    std::byte* address = nullptr;
    std::size_t length = 0;
    std::uint32_t access = 0;
    std::uint64_t first_to = 0;
    bool only_qp = false;
    bool usable = true;      ///< operations may still name it
    bool registered = true;  ///< between add() and remove()
    bool window_open = false;
    bool window = false;       ///< a memory window: part of another region
    bool foreign = false;      ///< of another domain or connection: no peer may reach it
    unsigned reads = 0;        ///< Reads and atomics posted and not completed
    unsigned atomics = 0;      ///< posted so far
    bool closing_op = false;   ///< an invalidation was posted
    bool invalidated = false;  ///< and has completed

    void begin() { applied_.assign(address, address + length); }

    /// A Write, or an atomic operation that must leave `data`, was posted: entry `sequence` of its
    /// send queue.
    void on_write(std::uint64_t sequence, std::size_t offset, ConstBytes data) {
        writes_.push_back({sequence, offset, {data.begin(), data.end()}});
    }
    /// All Writes before entry `sequence` have been placed.
    void apply_before(std::uint64_t sequence);
    /// Nothing is under way.
    [[nodiscard]] bool quiet() const noexcept {
        return applied_writes_ == writes_.size() && reads == 0;
    }

    /// What a Read posted now must find at least: all Writes posted so far.
    [[nodiscard]] std::vector<std::byte> expected(std::size_t offset, std::size_t n) const;
    /// Could the region have held `bytes` at `offset`, some time between now and when `base`,
    /// which knew all Writes before `sequence`, was its content?
    [[nodiscard]] bool explains(ConstBytes bytes, ConstBytes base, std::size_t offset,
                                std::uint64_t sequence) const;
    /// Fails if the memory holds what no Write explains.
    void check(const char* whose) const;

  private:
    struct Posted {
        std::uint64_t sequence;
        std::size_t offset;
        std::vector<std::byte> data;
    };
    std::vector<std::byte> applied_;  // after writes_[0, applied_writes_)
    std::size_t applied_writes_ = 0;
    std::vector<Posted> writes_;
};

}  // namespace xsock::sim
