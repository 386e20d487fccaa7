// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory for messages between a program and its sockets in DDPMODE: what recv() has not asked for
// yet, what send() has left behind. One pool for the process; an idle socket holds a small buffer
// or none. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace xsock::sockets {

struct alignas(64) Buffer {
    Buffer* next = nullptr;      ///< the holder's
    std::uint32_t capacity = 0;  ///< bytes at data()
    std::uint32_t length = 0;    ///< bytes of the message
    std::uint32_t reserved = 0;  ///< bytes that the holder has set aside for it
    std::uint8_t size_class = 0;
    /// The message lies in the memory of a blocked send(); this stands for it in the queue.
    bool is_zero_copy = false;
    std::atomic<std::uint8_t> zero_copy_state{0};  ///< 0: borrowed; 1 + WcStatus: given back

    [[nodiscard]] std::byte* data() noexcept {
        return reinterpret_cast<std::byte*>(this) + sizeof(Buffer);
    }
};
static_assert(sizeof(Buffer) == 64);

/// A buffer of at least `bytes`; null when there is no memory.
[[nodiscard]] Buffer* take_buffer(std::size_t bytes) noexcept;
void give_buffer(Buffer* buffer) noexcept;
/// Whether the buffer is small enough for a socket to keep while it is idle.
[[nodiscard]] bool small(const Buffer& buffer) noexcept;

struct GiveBuffer {
    void operator()(Buffer* buffer) const noexcept { give_buffer(buffer); }
};
using BufferPtr = std::unique_ptr<Buffer, GiveBuffer>;

/// In a forked child: locks are free, and what other threads held is lost.
void renew_buffer_pool() noexcept;

}  // namespace xsock::sockets
