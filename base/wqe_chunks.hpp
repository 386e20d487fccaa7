// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory of a send queue's entries. It grows with the most entries that were in use at once, up to
// the queue's depth, and is used again from its start: a connection with one request at a time
// keeps one chunk or two, however many requests it has made. Entries never move.
//
// One thread at a time posts (it holds the queue's lock), and the poller reads without a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/work.hpp"

namespace xsock {

class WqeChunks {
  public:
    static constexpr std::uint32_t kChunk = 2;  // entries

    /// @param depth of the queue: a power of two, at least kChunk
    explicit WqeChunks(std::uint32_t depth) noexcept : most_(depth / kChunk) {}
    ~WqeChunks();
    WqeChunks(const WqeChunks&) = delete;
    WqeChunks& operator=(const WqeChunks&) = delete;

    // -- posters --

    /// Entry `sequence`, the next, has memory in which nothing below `retired` is needed. False:
    /// extend() must be called. Only the first entry of a chunk needs to be asked for.
    [[nodiscard]] bool ready(std::uint64_t sequence, std::uint64_t retired) const noexcept {
        const Table* const table = table_.load(std::memory_order_relaxed);
        return table != nullptr && fits(*table, sequence, retired) &&
               table->chunk(sequence).entries != nullptr;
    }
    /// Makes that memory. False: there is none, and nothing has changed for the poller.
    [[nodiscard]] bool extend(std::uint64_t sequence, std::uint64_t retired) noexcept;
    /// Room for kMaxInline bytes of entry `sequence`, which stays for the next one there. Null: no
    /// memory.
    [[nodiscard]] std::byte* beside(std::uint64_t sequence) noexcept;

    // -- posters, and the poller --

    /// @pre it was posted and is not retired, or is being posted by the caller
    [[nodiscard]] SendWqe& at(std::uint64_t sequence) noexcept {
        return table_.load(std::memory_order_acquire)->chunk(sequence).entries[sequence % kChunk];
    }

  private:
    /// The newest table owns what it points to.
    struct Chunk {
        SendWqe* entries;
        std::byte* beside;  // made when first needed; only posters read it
    };
    /// Chunks lie behind it.
    struct Table {
        Table* smaller;      // the one before, which the poller may still read
        std::uint64_t mask;  // a power of two less one

        [[nodiscard]] std::uint64_t size() const noexcept { return mask + 1; }
        [[nodiscard]] Chunk& chunk(std::uint64_t sequence) const noexcept {
            auto* const chunks = reinterpret_cast<Chunk*>(const_cast<Table*>(this) + 1);
            return chunks[(sequence / kChunk) & mask];
        }
    };

    /// Below its full size no chunk has entries of two rounds, for these could not be told apart
    /// in a larger table.
    [[nodiscard]] bool fits(const Table& table, std::uint64_t sequence,
                            std::uint64_t retired) const noexcept {
        const std::uint64_t number = sequence / kChunk;
        return table.size() == most_ || number < table.size() ||
               (number - table.size() + 1) * kChunk <= retired;
    }
    [[nodiscard]] bool grow(std::uint64_t sequence) noexcept;

    const std::uint32_t most_;  // chunks
    std::atomic<Table*> table_{nullptr};
};

}  // namespace xsock
