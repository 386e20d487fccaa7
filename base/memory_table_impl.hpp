// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What is behind a MemoryTable: the slots of its regions and windows, and the table that leads to
// them. Private to memory_table.cpp and memory_window.cpp.
//
// Three things keep a reader from ever reaching memory under an STag that is not its own:
// - revocation clears kValid in the slot, and a reader reads it last; both sequentially
//   consistent, as base/epoch.cpp wants it;
// - a slot is filled anew only after wait_for_readers(), so inside a section it does not change
//   while the reader uses it;
// - the slot carries its STag, for readers that come through an outgrown table or from outside a
//   section.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "base/memory_table.hpp"
#include "base/stag_table.hpp"

namespace xsock {

inline constexpr std::uint32_t kAllAccess =
    kLocalWrite | kRemoteWrite | kRemoteRead | kZeroBased | kRemoteAtomic | kWindows;
inline constexpr std::uint32_t kValid = 1u << 31;
inline constexpr std::uint32_t kIsWindow = 1u << 30;  // serves peers only, not as an lkey
inline constexpr std::uint32_t kWasBound = 1u << 29;
inline constexpr std::uint32_t kOffered = 1u << 28;  // the mirror knows it
static_assert((kAllAccess & (kValid | kIsWindow | kWasBound | kOffered)) == 0);

// Readers read slots while others write them; hence every field is atomic.
struct Slot {
    std::atomic<std::uint64_t> address{0};  // while free: index of the next free slot
    std::atomic<std::uint64_t> length{0};
    std::atomic<std::uint32_t> stag{0};    // 0: free
    std::atomic<std::uint32_t> rights{0};  // Access, and kValid until revoked
    std::atomic<std::uint32_t> pd{0};
    std::atomic<std::uint32_t> only_qp{0};
    std::atomic<std::uint64_t> first_to{0};  // TO of the byte at `address`
    // Under the table's mutex:
    std::uint32_t region = 0;   // of a window: the STag that it is bound to part of, else 0
    std::uint32_t windows = 0;  // valid windows that are bound to it
};
static_assert(sizeof(Slot) == 48);

inline constexpr std::uint32_t kFirstChunk = 64;
inline constexpr std::uint32_t kWindowRange = 0xffffff00;

// What a region permits, read from its slot at one moment.
struct Region {
    std::uint64_t address, length, first_to;
    std::uint32_t rights;
    PdId pd;
    QpNum only_qp;

    bool belongs_to(PdId p, QpNum qp) const noexcept {
        return pd == p && (only_qp == 0 || only_qp == qp);
    }
};

/// What no region may be.
Error check(const RegionAttr& attr) noexcept;

struct MemoryTable::Impl {
    Impl(Epochs& e, std::size_t max)
        : epochs(e), max_regions(std::min<std::size_t>(max, 1u << 30)) {}

    ~Impl() {
        for (auto& chunk : chunks) delete[] chunk.load(std::memory_order_relaxed);
    }

    // Chunk k holds kFirstChunk << k slots, so that few pointers reach many and none ever moves.
    static unsigned chunk_of(std::uint32_t index) noexcept {
        const auto width = static_cast<unsigned>(std::bit_width(index / kFirstChunk + 1));
        XSOCK_ASSERT(width != 0);  // index + 1 does not wrap: there are at most 2^24 slots
        return width - 1;
    }
    Slot& slot(std::uint32_t index) const noexcept {
        const unsigned k = chunk_of(index);
        Slot* const chunk = chunks[k].load(std::memory_order_acquire);
        return chunk[index - kFirstChunk * ((1u << k) - 1)];
    }

    // The slot of `stag`, valid or not; null: there is none. Any thread.
    Slot* find(std::uint32_t stag) const noexcept {
        const std::uint32_t index = table.find(stag);
        return index == StagTable::kNone ? nullptr : &slot(index);
    }

    // False: no such STag, or revoked.
    bool look_up(std::uint32_t stag, Region& region) const noexcept {
        const Slot* const found = find(stag);
        if (found == nullptr) return false;
        const Slot& s = *found;
        region.address = s.address.load(std::memory_order_acquire);
        region.length = s.length.load(std::memory_order_acquire);
        region.first_to = s.first_to.load(std::memory_order_acquire);
        region.pd = s.pd.load(std::memory_order_acquire);
        region.only_qp = s.only_qp.load(std::memory_order_acquire);
        if (s.stag.load(std::memory_order_seq_cst) != stag) return false;
        region.rights = s.rights.load(std::memory_order_seq_cst);
        return region.rights & kValid;
    }

    // -- under mutex (memory_table.cpp) --

    // An STag that may be given out.
    std::uint32_t choose_stag() const noexcept;
    // Makes an entry of a window that is bound to part of `region`, or of a region. ENOMEM.
    Result<void> make(std::uint32_t stag, const RegionAttr& attr, std::uint32_t rights,
                      std::uint32_t region);
    // Index of a free slot. Throws std::bad_alloc.
    std::uint32_t take_slot();
    // Ends a slot's validity, and its region has a window less. False: it was not valid, or windows
    // are bound to it.
    bool revoke(Slot* s) noexcept;

    Epochs& epochs;
    const std::size_t max_regions;
    MemoryMirror* mirror = nullptr;  // never called where no slot has kOffered
    mutable std::mutex mutex;        // writers; never held while waiting for readers
    StagTable table;
    std::array<std::atomic<Slot*>, 26> chunks{};
    std::unordered_map<std::uint32_t, std::uint32_t> windows;  // reserved range -> STag last bound
    std::uint32_t free_slot = StagTable::kNone;
    std::uint32_t slots_made = 0;
    std::atomic<std::size_t> regions{0};  // between add() and the end of remove()
};

}  // namespace xsock
