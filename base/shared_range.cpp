// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The handler reads the list of ranges while other threads change it: entries are added, marked as
// free and used again, and never taken out.
#include "base/shared_range.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#include "base/assert.hpp"
#include "base/fault.hpp"
#include "base/page_size.hpp"

namespace xsock {

struct SharedRange::Entry {
    std::atomic<bool> taken{true};
    std::atomic<pid_t> process{0};  ///< whose range it is; 0: the rest is not valid
    std::atomic<std::uintptr_t> low{0};
    std::atomic<std::size_t> bytes{0};
    std::atomic<bool> lost{false};
    Entry* next = nullptr;  ///< never changes once it is in the list
};

struct SharedRanges {
    using Entry = SharedRange::Entry;
    static inline constinit std::atomic<Entry*> first{nullptr};

    static Entry* take() {
        for (Entry* entry = first.load(std::memory_order_acquire); entry != nullptr;
             entry = entry->next) {
            if (!entry->taken.exchange(true, std::memory_order_acquire)) return entry;
        }
        auto* const entry = new Entry;
        entry->next = first.load(std::memory_order_relaxed);
        while (!first.compare_exchange_weak(entry->next, entry, std::memory_order_release)) {
        }
        return entry;
    }
    static Entry* find(std::uintptr_t address) noexcept {
        const pid_t self = getpid();
        for (Entry* entry = first.load(std::memory_order_acquire); entry != nullptr;
             entry = entry->next) {
            if (entry->process.load(std::memory_order_acquire) == self &&
                address - entry->low.load(std::memory_order_relaxed) <
                    entry->bytes.load(std::memory_order_relaxed)) {
                return entry;
            }
        }
        return nullptr;
    }
};

namespace {

// Memory for the next range that is lost, of which the kernel has promised every page: where it
// promises no more than it has, the handler would get none just when it is needed. The first word
// is its size.
constinit std::atomic<std::size_t*> spare{nullptr};

void* map_zeroed(void* at, std::size_t bytes) noexcept {
    const int fixed = at != nullptr ? MAP_FIXED : 0;
    void* const memory =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    return memory != MAP_FAILED ? memory : nullptr;
}

void keep_spare(std::size_t bytes) noexcept {
    if (spare.load(std::memory_order_relaxed) != nullptr) return;
    auto* const memory = static_cast<std::size_t*>(map_zeroed(nullptr, bytes));
    if (memory == nullptr) return;
    *memory = bytes;
    std::size_t* none = nullptr;
    if (!spare.compare_exchange_strong(none, memory)) munmap(memory, bytes);
}

bool put_spare(void* at, std::size_t bytes) noexcept {
    std::size_t* const memory = spare.exchange(nullptr);
    if (memory == nullptr) return false;
    const std::size_t size = std::exchange(*memory, 0);
    if (size == bytes &&
        mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED) {
        return true;
    }
    munmap(memory, size);
    return false;
}

}  // namespace

SharedRange::SharedRange(Bytes memory) : entry_(SharedRanges::take()) {
    const auto low = reinterpret_cast<std::uintptr_t>(memory.data());
    XSOCK_ASSERT(low % page_size() == 0 && memory.size() % page_size() == 0);
    fault::install();
    keep_spare(memory.size());
    entry_->low.store(low, std::memory_order_relaxed);
    entry_->bytes.store(memory.size(), std::memory_order_relaxed);
    entry_->lost.store(false, std::memory_order_relaxed);
    entry_->process.store(getpid(), std::memory_order_release);
}

SharedRange::~SharedRange() {
    if (entry_ == nullptr) return;
    entry_->process.store(0, std::memory_order_release);
    entry_->taken.store(false, std::memory_order_release);
}

bool SharedRange::lost() const noexcept { return entry_->lost.load(std::memory_order_relaxed); }

bool SharedRange::replace(std::uintptr_t address) noexcept {
    const int saved_errno = errno;
    Entry* const entry = SharedRanges::find(address);
    bool replaced = false;
    if (entry != nullptr) {
        void* const at = reinterpret_cast<void*>(entry->low.load(std::memory_order_relaxed));
        const std::size_t bytes = entry->bytes.load(std::memory_order_relaxed);
        replaced = put_spare(at, bytes) || map_zeroed(at, bytes) != nullptr;
        if (replaced) entry->lost.store(true, std::memory_order_relaxed);
    }
    errno = saved_errno;
    return replaced;
}

}  // namespace xsock
