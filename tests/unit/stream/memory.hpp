// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Chunks for tests: memory of exactly the size that was asked for, counted.
#pragma once

#include <new>

#include "stream/chunk.hpp"

namespace xsock::test {

class Memory final : public stream::ChunkSource {
  public:
    std::size_t chunks = 0;  ///< given out
    std::size_t bytes = 0;   ///< of them
    bool none_left = false;

    stream::Chunk* take(std::size_t n) noexcept override {
        if (none_left) return nullptr;
        void* const memory = ::operator new (sizeof(stream::Chunk) + n, std::align_val_t{64});
        auto* const chunk = new (memory) stream::Chunk;
        chunk->capacity = static_cast<std::uint32_t>(n);
        ++chunks;
        bytes += n;
        return chunk;
    }
    void give(stream::Chunk* chunk) noexcept override {
        --chunks;
        bytes -= chunk->capacity;
        chunk->~Chunk();
        ::operator delete (chunk, std::align_val_t{64});
    }
};

}  // namespace xsock::test
