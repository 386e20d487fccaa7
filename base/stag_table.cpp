// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/stag_table.hpp"

#include <utility>

namespace xsock {
namespace {

constexpr std::size_t kFirstTable = 256;

}  // namespace

StagTable::StagTable() : newest_(std::make_unique<Table>(kFirstTable)), table_(newest_.get()) {}

// Into the first tombstone on its way, or the empty entry that ends it.
void StagTable::insert(Table& t, std::uint32_t stag, std::uint32_t index) noexcept {
    std::size_t i = stag;
    while (t.entries[i & t.mask].load(std::memory_order_relaxed) > kTombstone) ++i;
    std::atomic<std::uint64_t>& place = t.entries[i & t.mask];
    if (place.load(std::memory_order_relaxed) == kEmpty) ++t.used;
    place.store(std::uint64_t{stag} << 32 | index, std::memory_order_release);
}

void StagTable::erase(std::uint32_t stag) noexcept {
    Table& t = *newest_;
    std::size_t i = stag;
    while (stag_of(t.entries[i & t.mask].load(std::memory_order_relaxed)) != stag) ++i;
    t.entries[i & t.mask].store(kTombstone, std::memory_order_seq_cst);
    if (t.entries[(i + 1) & t.mask].load(std::memory_order_relaxed) != kEmpty) return;
    for (; t.entries[i & t.mask].load(std::memory_order_relaxed) == kTombstone; --i) {
        t.entries[i & t.mask].store(kEmpty, std::memory_order_seq_cst);
        --t.used;
    }
}

// Tombstones count as load. They cannot make the table grow for ever: the emptier it is, the more
// of them vanish at once in erase().
void StagTable::reserve() {
    const std::size_t capacity = newest_->mask + 1;
    if ((newest_->used + 1) * 2 <= capacity) return;
    auto larger = std::make_unique<Table>(2 * capacity);
    for (std::size_t i = 0; i < capacity; ++i) {
        const std::uint64_t entry = newest_->entries[i].load(std::memory_order_relaxed);
        if (entry > kTombstone) insert(*larger, stag_of(entry), index_of(entry));
    }
    larger->outgrown = std::move(newest_);
    newest_ = std::move(larger);
    table_.store(newest_.get(), std::memory_order_seq_cst);
}

}  // namespace xsock
