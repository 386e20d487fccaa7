// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Publishes the connections of this process to `xsock stat` (base/stats_page.hpp). A connection
// counts straight into its slot of the shared page, so that publishing costs the data path nothing.
// Where there is no page (XSOCK_STAT=off, no folder, no memory) or no slot left, the slot is memory
// of our own: nothing fails for want of statistics.
#pragma once

#include <cstdint>

#include "base/counters.hpp"
#include "base/stats_page.hpp"

namespace xsock {

/// A connection's slot, for as long as it lives. Made and ended by any thread; otherwise the
/// poller's.
class StatsEntry {
  public:
    /// Throws std::bad_alloc.
    StatsEntry();
    ~StatsEntry();
    StatsEntry(const StatsEntry&) = delete;
    StatsEntry& operator=(const StatsEntry&) = delete;

    /// Counters in the slot; the caller is their only writer.
    [[nodiscard]] Counters& counters() noexcept { return slot_->counters; }
    [[nodiscard]] StreamCounters& stream_counters() noexcept { return slot_->stream; }
    [[nodiscard]] std::uint64_t& tx_bytes() noexcept { return slot_->tx_bytes; }
    [[nodiscard]] std::uint64_t& rx_bytes() noexcept { return slot_->rx_bytes; }
    [[nodiscard]] std::uint64_t& placed_early() noexcept { return slot_->placed_early; }

    /// Replaces the description, except for opened_ns. Readers see the old one or the new one.
    void describe(const StatsDescription& description) noexcept;
    /// In a forked child: a thread of the parent may have held the lock over the slots.
    static void forget_lock() noexcept;
    /// True when other processes can see it.
    [[nodiscard]] bool listed() const noexcept { return index_ != kPrivate; }

  private:
    static constexpr std::uint32_t kPrivate = ~std::uint32_t{0};
    StatsSlot* slot_;
    std::uint32_t index_ = kPrivate;
    std::uint32_t pid_ = 0;  // of the process whose page it is
};

/// StatsHeader::startups_dropped. Any thread.
void count_startup_dropped() noexcept;

/// StatsHeader::unpinned. Any thread.
void count_unpinned(kernel::Unpinned reason) noexcept;

/// Copies at most size-1 bytes of `text` and a NUL.
template <std::size_t size>
void set_stats_text(char (&to)[size], const char* text) noexcept {
    std::size_t n = 0;
    while (n + 1 < size && text[n] != '\0') {
        to[n] = text[n];
        ++n;
    }
    to[n] = '\0';
}

}  // namespace xsock
