// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Chunks for tests, counted: of exactly the size that was asked for, so that a sanitizer sees a
// byte beyond it, or of one of few sizes, as those of sockets are (libxsock/socket/buffer_pool).
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>

#include "stream/chunk.hpp"

namespace xsock::test {

class Memory final : public stream::ChunkSource {
  public:
    std::size_t chunks = 0;  ///< given out
    std::size_t bytes = 0;   ///< of them, with what a chunk itself takes
    bool none_left = false;
    bool rounds = false;  ///< of few sizes

    static std::size_t rounded(std::size_t n) {
        for (const std::size_t size : {384, 3968, 65'920}) {
            if (n <= size) return size;
        }
        return n;
    }

    stream::Chunk* take(std::size_t n) noexcept override {
        if (none_left) return nullptr;
        if (rounds) n = rounded(n);
        void* const memory = ::operator new (sizeof(stream::Chunk) + n, std::align_val_t{64});
        auto* const chunk = new (memory) stream::Chunk;
        chunk->capacity = static_cast<std::uint32_t>(n);
        ++chunks;
        bytes += sizeof(stream::Chunk) + n;
        return chunk;
    }
    void give(stream::Chunk* chunk) noexcept override {
        --chunks;
        bytes -= sizeof(stream::Chunk) + chunk->capacity;
        chunk->~Chunk();
        ::operator delete (chunk, std::align_val_t{64});
    }
};

}  // namespace xsock::test
