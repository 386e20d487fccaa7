// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A hash table from STag to the index of its slot: open addressing, one writer at a time, readers
// without locks. Tables only ever grow, by doubling, and an outgrown table is kept until the end,
// so that a reader may finish its look-up in it: all of them together are smaller than the current
// one.
//
// An entry, once written, stays at its place until it is removed: it never moves, so a reader that
// walks past it cannot miss it. A removed entry becomes a tombstone, or empty when the next one is
// empty: nothing further along can then depend on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace xsock {

class StagTable {
  public:
    static constexpr std::uint32_t kNone = ~0u;

    StagTable();

    /// Index that was inserted with `stag`; kNone: none was, or `stag` is 0. Any thread.
    [[nodiscard]] std::uint32_t find(std::uint32_t stag) const noexcept {
        if (stag == 0) return kNone;
        const Table& t = *table_.load(std::memory_order_acquire);
        for (std::size_t i = stag;; ++i) {
            const std::uint64_t entry = t.entries[i & t.mask].load(std::memory_order_seq_cst);
            if (entry == kEmpty) return kNone;
            if (stag_of(entry) == stag) return index_of(entry);
        }
    }

    /// Makes room for one more. Throws std::bad_alloc.
    void reserve();
    /// @pre reserve(); `stag` is not 0 and not in the table
    void insert(std::uint32_t stag, std::uint32_t index) noexcept { insert(*newest_, stag, index); }
    /// @pre it is in the table
    void erase(std::uint32_t stag) noexcept;

  private:
    // stag << 32 | slot index
    static constexpr std::uint64_t kEmpty = 0;
    static constexpr std::uint64_t kTombstone = 1;  // STag 0 is never given out

    struct Table {
        explicit Table(std::size_t capacity)
            : mask(capacity - 1),
              entries(std::make_unique<std::atomic<std::uint64_t>[]>(capacity)) {}

        const std::size_t mask;
        std::size_t used = 0;  // entries that are not empty
        const std::unique_ptr<std::atomic<std::uint64_t>[]> entries;
        std::unique_ptr<Table> outgrown;  // the one before, for readers still in it
    };

    static std::uint32_t stag_of(std::uint64_t entry) noexcept {
        return static_cast<std::uint32_t>(entry >> 32);
    }
    static std::uint32_t index_of(std::uint64_t entry) noexcept {
        return static_cast<std::uint32_t>(entry);
    }
    static void insert(Table& t, std::uint32_t stag, std::uint32_t index) noexcept;

    std::unique_ptr<Table> newest_;
    std::atomic<Table*> table_;
};

}  // namespace xsock
