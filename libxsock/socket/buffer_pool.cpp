// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "libxsock/socket/buffer_pool.hpp"

#include <array>
#include <mutex>
#include <new>

#include "base/spin_lock.hpp"

namespace xsock::sockets {
namespace {

struct SizeClass {
    std::size_t capacity;
    std::uint32_t keep;  // buffers at most that wait to be used again
};
// Large ones are kept for their pages: touching 1 MiB of fresh memory costs as much as moving it.
constexpr std::array<SizeClass, 4> kClasses{
    {{448, 1024}, {4096 - 64, 256}, {65536 + 448, 64}, {(1 << 20), 16}}};
constexpr auto kNoClass = static_cast<std::uint8_t>(kClasses.size());

struct FreeList {
    SpinLock lock;
    Buffer* first = nullptr;
    std::uint32_t count = 0;
};
std::array<FreeList, kClasses.size()> free_lists;

std::uint8_t class_of(std::size_t bytes) noexcept {
    std::uint8_t n = 0;
    while (n < kNoClass && kClasses[n].capacity < bytes) ++n;
    return n;
}

}  // namespace

Buffer* take_buffer(std::size_t bytes) noexcept {
    const std::uint8_t n = class_of(bytes);
    if (n != kNoClass) {
        FreeList& list = free_lists[n];
        const std::lock_guard hold(list.lock);
        if (Buffer* const buffer = list.first) {
            list.first = buffer->next;
            --list.count;
            buffer->next = nullptr;
            return buffer;
        }
    }
    const std::size_t capacity = n != kNoClass ? kClasses[n].capacity : bytes;
    void* const memory =
        ::operator new (sizeof(Buffer) + capacity, std::align_val_t{64}, std::nothrow);
    if (memory == nullptr) return nullptr;
    auto* const buffer = new (memory) Buffer;
    buffer->capacity = static_cast<std::uint32_t>(capacity);
    buffer->size_class = n;
    return buffer;
}

void give_buffer(Buffer* buffer) noexcept {
    if (buffer == nullptr) return;
    if (buffer->size_class != kNoClass) {
        FreeList& list = free_lists[buffer->size_class];
        const std::lock_guard hold(list.lock);
        if (list.count < kClasses[buffer->size_class].keep) {
            buffer->next = list.first;
            list.first = buffer;
            ++list.count;
            return;
        }
    }
    buffer->~Buffer();
    ::operator delete (buffer, std::align_val_t{64});
}

bool small(const Buffer& buffer) noexcept { return buffer.size_class <= 1; }

// Another thread may have been at work on a list, so that it cannot be used; it stays reachable,
// for leak checkers.
void renew_buffer_pool() noexcept {
    static std::array<Buffer* volatile, kClasses.size()> abandoned;
    for (std::size_t n = 0; n < free_lists.size(); ++n) {
        abandoned[n] = free_lists[n].first;
        new (&free_lists[n]) FreeList;
    }
}

}  // namespace xsock::sockets
