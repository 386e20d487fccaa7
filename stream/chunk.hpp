// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory for stream bytes between a program and its wire: what send() has left, what recv() has not
// asked for. Its owner provides it (ChunkSource); a ByteStream queues it. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/bytes.hpp"

namespace xsock::stream {

/// The front of a piece of memory; its bytes lie right behind it.
struct alignas(64) Chunk {
    Chunk* next = nullptr;
    std::uint32_t capacity = 0;        ///< bytes at data()
    std::uint32_t begin = 0, end = 0;  ///< of them, in use
    bool filling = false;              ///< a sender copies into it behind `end`
    bool urgent_last = false;          ///< on its way out: nothing is appended any more

    [[nodiscard]] std::byte* data() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
    [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
    [[nodiscard]] std::size_t room() const noexcept { return capacity - end; }
    [[nodiscard]] ConstBytes bytes() noexcept { return {data() + begin, size()}; }
};
static_assert(sizeof(Chunk) == 64);

/// Gives memory and takes it back; may be called under locks that must not be held for long.
class ChunkSource {
  public:
    /// At least `bytes`, with begin and end 0; null: there is no memory.
    virtual Chunk* take(std::size_t bytes) noexcept = 0;
    virtual void give(Chunk* chunk) noexcept = 0;

  protected:
    ~ChunkSource() = default;
};

/// Chunks in the order of the stream.
class ChunkQueue {
  public:
    [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
    [[nodiscard]] Chunk* first() const noexcept { return first_; }
    [[nodiscard]] Chunk* last() const noexcept { return last_; }
    void push(Chunk* chunk) noexcept {
        chunk->next = nullptr;
        (last_ != nullptr ? last_->next : first_) = chunk;
        last_ = chunk;
    }
    void push_front(Chunk* chunk) noexcept {
        chunk->next = first_;
        first_ = chunk;
        if (last_ == nullptr) last_ = chunk;
    }
    /// @pre it is not empty
    Chunk* pop() noexcept {
        Chunk* const chunk = first_;
        first_ = chunk->next;
        if (first_ == nullptr) last_ = nullptr;
        chunk->next = nullptr;
        return chunk;
    }

  private:
    Chunk* first_ = nullptr;
    Chunk* last_ = nullptr;
};

}  // namespace xsock::stream
