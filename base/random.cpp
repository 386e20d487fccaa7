// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/random.hpp"

#include <sys/mman.h>
#include <sys/random.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <new>

#include "base/assert.hpp"
#include "base/once.hpp"

namespace xsock {
namespace {

void fill(void* to, std::size_t bytes) noexcept {
    auto* at = static_cast<std::byte*>(to);
    while (bytes != 0) {
        const ssize_t got = getrandom(at, bytes, 0);
        XSOCK_ASSERT(got > 0 || errno == EINTR);  // predictable numbers are worse than none
        if (got <= 0) continue;
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
}

std::uint32_t fetch_one() noexcept {
    std::uint32_t number;
    fill(&number, sizeof number);
    return number;
}

// One page of numbers for the whole process. A forked child finds it wiped (MADV_WIPEONFORK), and
// all zeros are a valid state: nothing left, not busy. So no number is given out twice, and a fork
// while another thread was in here leaves no lock behind.
struct Batch {
    std::atomic<bool> busy;
    std::uint32_t left;
    std::array<std::uint32_t, 1022> numbers;
};
static_assert(sizeof(Batch) == 4096);

// Null where the kernel cannot wipe on fork: then every number is fetched by itself.
Batch* map_batch() noexcept {
    void* page =
        mmap(nullptr, sizeof(Batch), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    if (madvise(page, sizeof(Batch), MADV_WIPEONFORK) != 0) {
        munmap(page, sizeof(Batch));
        return nullptr;
    }
    madvise(page, sizeof(Batch), MADV_DONTDUMP);
    return new (page) Batch{};
}

}  // namespace

std::uint32_t random_u32() noexcept {
    static constinit Once<Batch*> mapped;
    Batch* const batch = mapped.get(map_batch);
    // A thread that finds it in use does not wait: the system call takes no longer.
    if (batch == nullptr || batch->busy.exchange(true, std::memory_order_acquire)) {
        return fetch_one();
    }
    if (batch->left == 0) {
        fill(batch->numbers.data(), sizeof batch->numbers);
        batch->left = static_cast<std::uint32_t>(batch->numbers.size());
    }
    std::uint32_t& slot = batch->numbers[--batch->left];
    const std::uint32_t number = slot;
    slot = 0;  // memory that is read later tells nothing of earlier STags
    __asm__ volatile("" ::: "memory");
    batch->busy.store(false, std::memory_order_release);
    return number;
}

}  // namespace xsock
