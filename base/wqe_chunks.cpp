// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/wqe_chunks.hpp"

#include <algorithm>
#include <memory>
#include <new>

namespace xsock {

WqeChunks::~WqeChunks() {
    Table* table = table_.load(std::memory_order_acquire);
    if (table == nullptr) return;
    for (std::uint64_t i = 0; i < table->size(); ++i) {
        delete[] table->chunk(i * kChunk).entries;
        delete[] table->chunk(i * kChunk).beside;
    }
    while (table != nullptr) {
        Table* const smaller = table->smaller;
        ::operator delete(table);
        table = smaller;
    }
}

bool WqeChunks::extend(std::uint64_t sequence, std::uint64_t retired) noexcept {
    const Table* const table = table_.load(std::memory_order_relaxed);
    const bool enough = table != nullptr && fits(*table, sequence, retired);
    if (!enough && !grow(sequence)) return false;
    Chunk& chunk = table_.load(std::memory_order_relaxed)->chunk(sequence);
    if (chunk.entries == nullptr) chunk.entries = new (std::nothrow) SendWqe[kChunk];
    return chunk.entries != nullptr;
}

/// Twice as many chunks. Those that there are keep the entries that they have: `sequence` begins a
/// chunk, and the ones before it fill the table.
bool WqeChunks::grow(std::uint64_t sequence) noexcept {
    Table* const smaller = table_.load(std::memory_order_relaxed);
    const std::uint64_t before = smaller != nullptr ? smaller->size() : 0;
    const std::uint64_t size = smaller != nullptr ? before * 2 : 1;
    void* const memory = ::operator new(sizeof(Table) + size * sizeof(Chunk), std::nothrow);
    if (memory == nullptr) return false;
    auto* const table = new (memory) Table{smaller, size - 1};
    std::uninitialized_value_construct_n(reinterpret_cast<Chunk*>(table + 1), size);
    const std::uint64_t oldest = sequence - std::min(sequence, before * kChunk);
    for (std::uint64_t i = oldest; i < sequence; i += kChunk) table->chunk(i) = smaller->chunk(i);
    table_.store(table, std::memory_order_release);
    return true;
}

std::byte* WqeChunks::beside(std::uint64_t sequence) noexcept {
    std::byte*& room = table_.load(std::memory_order_relaxed)->chunk(sequence).beside;
    if (room == nullptr) room = new (std::nothrow) std::byte[kChunk * kMaxInline];
    return room != nullptr ? room + sequence % kChunk * kMaxInline : nullptr;
}

}  // namespace xsock
