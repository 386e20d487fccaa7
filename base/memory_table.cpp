// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
//
// Three things keep a reader from ever reaching memory under an STag that is not its own:
// - revocation clears kValid in the slot, and a reader looks at it last; both sequentially
//   consistent, as base/epoch.cpp wants it;
// - a slot is filled anew only after wait_for_readers(), so inside a section it does not change
//   under the reader's hands;
// - the slot carries its STag, for readers that come through an outgrown table or from outside a
//   section.
//
// A hash entry, once written, stays at its place until it is removed: it never moves, so a reader
// that walks past it cannot miss it. A removed entry becomes a tombstone, or empty when the next
// one is empty: nothing further along can then depend on it.
#include "base/memory_table.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <limits>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "base/random.hpp"

namespace xsock {

namespace {

constexpr std::uint32_t kAllAccess =
    kLocalWrite | kRemoteWrite | kRemoteRead | kZeroBased | kRemoteAtomic | kWindows;
constexpr std::uint32_t kValid = 1u << 31;
constexpr std::uint32_t kIsWindow = 1u << 30;  // serves peers only, not as an lkey
constexpr std::uint32_t kWasBound = 1u << 29;
static_assert((kAllAccess & (kValid | kIsWindow | kWasBound)) == 0);

// Readers look at slots while others write them; hence every field is atomic.
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

struct Table {
    // stag << 32 | slot index
    static constexpr std::uint64_t kEmpty = 0;
    static constexpr std::uint64_t kTombstone = 1;  // STag 0 is never given out

    explicit Table(std::size_t capacity)
        : mask(capacity - 1), entries(std::make_unique<std::atomic<std::uint64_t>[]>(capacity)) {}

    static std::uint32_t stag(std::uint64_t entry) noexcept {
        return static_cast<std::uint32_t>(entry >> 32);
    }
    static std::uint32_t index(std::uint64_t entry) noexcept {
        return static_cast<std::uint32_t>(entry);
    }

    const std::size_t mask;
    std::size_t used = 0;  // entries that are not empty; under the table's mutex
    const std::unique_ptr<std::atomic<std::uint64_t>[]> entries;
    std::unique_ptr<Table> outgrown;  // the one before, for readers still in it
};

constexpr std::size_t kFirstTable = 256;
constexpr std::uint32_t kFirstChunk = 64;
constexpr std::uint32_t kNoSlot = ~0u;
constexpr std::uint32_t kWindowRange = 0xffffff00;

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

}  // namespace

struct MemoryTable::Impl {
    Impl(Epochs& e, std::size_t max)
        : epochs(e),
          max_regions(std::min<std::size_t>(max, 1u << 30)),
          newest(std::make_unique<Table>(kFirstTable)),
          table(newest.get()) {}

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

    // Index of the slot of `stag`, valid or not; kNoSlot: there is none. Any thread.
    std::uint32_t find(std::uint32_t stag) const noexcept {
        if (stag == 0) return kNoSlot;
        const Table& t = *table.load(std::memory_order_acquire);
        for (std::size_t i = stag;; ++i) {
            const std::uint64_t entry = t.entries[i & t.mask].load(std::memory_order_seq_cst);
            if (entry == Table::kEmpty) return kNoSlot;
            if (Table::stag(entry) == stag) return Table::index(entry);
        }
    }

    // False: no such STag, or revoked.
    bool look_up(std::uint32_t stag, Region& region) const noexcept {
        const std::uint32_t index = find(stag);
        if (index == kNoSlot) return false;
        const Slot& s = slot(index);
        region.address = s.address.load(std::memory_order_acquire);
        region.length = s.length.load(std::memory_order_acquire);
        region.first_to = s.first_to.load(std::memory_order_acquire);
        region.pd = s.pd.load(std::memory_order_acquire);
        region.only_qp = s.only_qp.load(std::memory_order_acquire);
        if (s.stag.load(std::memory_order_seq_cst) != stag) return false;
        region.rights = s.rights.load(std::memory_order_seq_cst);
        return region.rights & kValid;
    }

    // -- under mutex --

    // An STag that may be given out, and where it belongs.
    std::uint32_t choose_stag(std::atomic<std::uint64_t>*& place) const noexcept {
        for (;;) {
            const std::uint32_t stag = random_u32();
            if (stag == 0 || windows.count(stag & kWindowRange) != 0) continue;
            place = place_for(*newest, stag);
            if (place != nullptr) return stag;
        }
    }

    // Index of a slot for a new entry. Throws std::bad_alloc.
    std::uint32_t make_room() {
        grow_if_half_full();
        return take_slot();
    }

    // A slot is no longer valid: its region has a window less.
    void unbound(Slot& s) noexcept {
        const std::uint32_t index = s.region != 0 ? find(s.region) : kNoSlot;
        if (index != kNoSlot) --slot(index).windows;
    }

    // False: it was not valid, or windows are bound to it.
    bool revoke(std::uint32_t stag) noexcept {
        const std::uint32_t index = find(stag);
        if (index == kNoSlot) return false;
        Slot& s = slot(index);
        if (s.windows != 0) return false;
        if ((s.rights.fetch_and(~kValid, std::memory_order_seq_cst) & kValid) == 0) return false;
        unbound(s);
        return true;
    }

    // Where a new entry for `stag` belongs: the first tombstone on its way, or the empty entry that
    // ends it. Null: the STag is there already.
    static std::atomic<std::uint64_t>* place_for(Table& t, std::uint32_t stag) noexcept {
        std::atomic<std::uint64_t>* place = nullptr;
        for (std::size_t i = stag;; ++i) {
            std::atomic<std::uint64_t>& at = t.entries[i & t.mask];
            const std::uint64_t entry = at.load(std::memory_order_relaxed);
            if (Table::stag(entry) == stag) return nullptr;
            if (place == nullptr && entry <= Table::kTombstone) place = &at;
            if (entry == Table::kEmpty) return place;
        }
    }

    static void insert(Table& t, std::atomic<std::uint64_t>& place, std::uint32_t stag,
                       std::uint32_t index) noexcept {
        if (place.load(std::memory_order_relaxed) == Table::kEmpty) ++t.used;
        place.store(std::uint64_t{stag} << 32 | index, std::memory_order_release);
    }

    static void erase(Table& t, std::uint32_t stag) noexcept {
        std::size_t i = stag;
        while (Table::stag(t.entries[i & t.mask].load(std::memory_order_relaxed)) != stag) ++i;
        t.entries[i & t.mask].store(Table::kTombstone, std::memory_order_seq_cst);
        if (t.entries[(i + 1) & t.mask].load(std::memory_order_relaxed) != Table::kEmpty) return;
        for (; t.entries[i & t.mask].load(std::memory_order_relaxed) == Table::kTombstone; --i) {
            t.entries[i & t.mask].store(Table::kEmpty, std::memory_order_seq_cst);
            --t.used;
        }
    }

    // Tombstones count as load. They cannot make the table grow for ever: the emptier it is, the
    // more of them vanish at once in erase().
    void grow_if_half_full() {
        Table& old = *newest;
        const std::size_t capacity = old.mask + 1;
        if ((old.used + 1) * 2 <= capacity) return;
        auto larger = std::make_unique<Table>(2 * capacity);
        for (std::size_t i = 0; i < capacity; ++i) {
            const std::uint64_t entry = old.entries[i].load(std::memory_order_relaxed);
            if (entry <= Table::kTombstone) continue;
            const std::uint32_t stag = Table::stag(entry);
            insert(*larger, *place_for(*larger, stag), stag, Table::index(entry));
        }
        larger->outgrown = std::move(newest);
        newest = std::move(larger);
        table.store(newest.get(), std::memory_order_seq_cst);
    }

    std::uint32_t take_slot() {
        if (free_slot != kNoSlot) {
            const std::uint32_t index = free_slot;
            free_slot =
                static_cast<std::uint32_t>(slot(index).address.load(std::memory_order_relaxed));
            return index;
        }
        const std::uint32_t index = slots_made;
        const unsigned k = chunk_of(index);
        if (chunks[k].load(std::memory_order_relaxed) == nullptr) {
            chunks[k].store(new Slot[std::size_t{kFirstChunk} << k], std::memory_order_release);
        }
        ++slots_made;
        return index;
    }

    Epochs& epochs;
    const std::size_t max_regions;
    mutable std::mutex mutex;  // writers; never held while waiting for readers
    std::unique_ptr<Table> newest;
    std::atomic<Table*> table;
    std::array<std::atomic<Slot*>, 26> chunks{};
    std::unordered_map<std::uint32_t, std::uint32_t> windows;  // reserved range -> STag last bound
    std::uint32_t free_slot = kNoSlot;
    std::uint32_t slots_made = 0;
    std::atomic<std::size_t> regions{0};  // between add() and the end of remove()
};

MemoryTable::MemoryTable(Epochs& epochs, std::size_t max_regions)
    : impl_(std::make_unique<Impl>(epochs, max_regions)) {}

MemoryTable::~MemoryTable() = default;

namespace {

// What no region may be.
Error check(const RegionAttr& attr) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(attr.address);
    if (attr.length > std::numeric_limits<std::uintptr_t>::max() - address) {
        return {EINVAL, "a region that wraps the address space"};
    }
    if (attr.length > std::numeric_limits<std::uint64_t>::max() - attr.first_to) {
        return {EINVAL, "a region that wraps the space of tagged offsets"};
    }
    if (attr.access & ~kAllAccess) return {EINVAL, "an unknown access right"};
    return {};
}

// Everything but what makes it valid. Release: a reader outside a section that came by the slot's
// former STag and reads one of these also sees that this STag is gone, and gives up.
void fill(Slot& s, const RegionAttr& attr) noexcept {
    const auto address = reinterpret_cast<std::uintptr_t>(attr.address);
    s.address.store(address, std::memory_order_release);
    s.length.store(attr.length, std::memory_order_release);
    s.first_to.store((attr.access & kZeroBased) != 0 ? attr.first_to : address,
                     std::memory_order_release);
    s.pd.store(attr.pd, std::memory_order_release);
    s.only_qp.store(attr.only_qp, std::memory_order_release);
}

}  // namespace

Result<std::uint32_t> MemoryTable::add(const RegionAttr& attr) {
    if (const Error error = check(attr); error.code != 0) return error;

    std::lock_guard lock(impl_->mutex);
    const std::size_t regions = impl_->regions.load(std::memory_order_relaxed);
    if (regions >= impl_->max_regions) return Error{ENOMEM, "too many memory regions"};
    std::uint32_t index;
    try {
        index = impl_->make_room();
    } catch (const std::bad_alloc&) {
        return Error{ENOMEM, "no memory for a memory region"};
    }
    std::atomic<std::uint64_t>* place = nullptr;
    const std::uint32_t stag = impl_->choose_stag(place);

    Slot& s = impl_->slot(index);
    fill(s, attr);
    s.region = s.windows = 0;
    s.rights.store(attr.access | kValid, std::memory_order_release);
    s.stag.store(stag, std::memory_order_release);
    Impl::insert(*impl_->newest, *place, stag, index);
    impl_->regions.store(regions + 1, std::memory_order_relaxed);
    return stag;
}

Result<std::uint32_t> MemoryTable::reserve_window() {
    std::lock_guard lock(impl_->mutex);
    for (;;) {
        std::atomic<std::uint64_t>* place = nullptr;
        const std::uint32_t stag = impl_->choose_stag(place), range = stag & kWindowRange;
        bool taken = range == 0;
        for (std::uint32_t key = 0; key <= ~kWindowRange && !taken; ++key) {
            taken = impl_->find(range | key) != kNoSlot;
        }
        if (taken) continue;
        try {
            impl_->windows.emplace(range, 0);
        } catch (const std::bad_alloc&) {
            return Error{ENOMEM, "no memory for a memory window"};
        }
        return stag;
    }
}

void MemoryTable::release_window(std::uint32_t stag) noexcept {
    std::lock_guard lock(impl_->mutex);
    impl_->windows.erase(stag & kWindowRange);
}

Result<void> MemoryTable::prepare_window(std::uint32_t stag, const RegionAttr& attr,
                                         std::uint32_t region) {
    if (const Error error = check(attr); error.code != 0) return error;
    std::lock_guard lock(impl_->mutex);
    const std::size_t regions = impl_->regions.load(std::memory_order_relaxed);
    if (regions >= impl_->max_regions) return Error{ENOMEM, "too many memory regions"};
    if (impl_->windows.count(stag & kWindowRange) == 0) return Error{EINVAL, "no such window"};
    if (impl_->find(stag) != kNoSlot) return Error{EEXIST, "the window has this key already"};
    std::uint32_t index;
    try {
        index = impl_->make_room();
    } catch (const std::bad_alloc&) {
        return Error{ENOMEM, "no memory for a memory window"};
    }
    Slot& s = impl_->slot(index);
    fill(s, attr);
    s.region = region;
    s.windows = 0;
    s.rights.store(attr.access | kIsWindow, std::memory_order_release);
    s.stag.store(stag, std::memory_order_release);
    Impl::insert(*impl_->newest, *Impl::place_for(*impl_->newest, stag), stag, index);
    impl_->regions.store(regions + 1, std::memory_order_relaxed);
    return {};
}

bool MemoryTable::bind(std::uint32_t stag) noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    std::lock_guard lock(impl_->mutex);
    const std::uint32_t index = impl_->find(stag);
    if (index == kNoSlot) return false;
    Slot& s = impl_->slot(index);
    const std::uint32_t rights = s.rights.load(relaxed);
    const std::uint32_t found = s.region != 0 ? impl_->find(s.region) : kNoSlot;
    if ((rights & (kValid | kWasBound)) != 0 || found == kNoSlot) return false;
    Slot& region = impl_->slot(found);
    const std::uint32_t permitted = region.rights.load(relaxed);
    const std::uint64_t offset = s.address.load(relaxed) - region.address.load(relaxed);
    const std::uint64_t size = region.length.load(relaxed);
    if ((permitted & kValid) == 0 || (permitted & kWindows) == 0 ||
        ((rights & (kRemoteWrite | kRemoteAtomic)) != 0 && (permitted & kLocalWrite) == 0) ||
        s.pd.load(relaxed) != region.pd.load(relaxed) || offset > size ||
        s.length.load(relaxed) > size - offset) {
        return false;
    }
    const auto range = impl_->windows.find(stag & kWindowRange);
    if (range == impl_->windows.end()) return false;
    impl_->revoke(std::exchange(range->second, stag));
    ++region.windows;
    s.rights.store(rights | kWasBound | kValid, std::memory_order_seq_cst);
    return true;
}

void MemoryTable::unbind(std::uint32_t stag) noexcept {
    std::lock_guard lock(impl_->mutex);
    const auto range = impl_->windows.find(stag & kWindowRange);
    if (range != impl_->windows.end()) impl_->revoke(std::exchange(range->second, 0));
}

void MemoryTable::abandon(std::uint32_t stag) noexcept {
    std::lock_guard lock(impl_->mutex);
    const std::uint32_t index = impl_->find(stag);
    if (index == kNoSlot) return;
    Slot& s = impl_->slot(index);
    if ((s.rights.load(std::memory_order_relaxed) & kIsWindow) == 0) return;
    impl_->revoke(stag);
    s.rights.fetch_or(kWasBound, std::memory_order_relaxed);
}

bool MemoryTable::revoked(std::uint32_t stag) const noexcept {
    std::lock_guard lock(impl_->mutex);
    const std::uint32_t index = impl_->find(stag);
    if (index == kNoSlot) return false;
    const std::uint32_t rights = impl_->slot(index).rights.load(std::memory_order_relaxed);
    return (rights & kWasBound) != 0 && (rights & kValid) == 0;
}

Result<void> MemoryTable::remove(std::uint32_t stag) {
    std::uint32_t index;
    {
        std::lock_guard lock(impl_->mutex);
        index = impl_->find(stag);
        if (index == kNoSlot) return Error{ENOENT, "no such memory region"};
        Slot& s = impl_->slot(index);
        if (s.windows != 0) return Error{EBUSY, "a memory window is bound to the region"};
        if (s.rights.fetch_and(~kValid, std::memory_order_seq_cst) & kValid) impl_->unbound(s);
        Impl::erase(*impl_->newest, stag);
    }
    impl_->epochs.wait_for_readers();

    std::lock_guard lock(impl_->mutex);
    Slot& s = impl_->slot(index);
    s.stag.store(0, std::memory_order_seq_cst);
    s.address.store(impl_->free_slot, std::memory_order_release);
    impl_->free_slot = index;
    impl_->regions.store(impl_->regions.load(std::memory_order_relaxed) - 1,
                         std::memory_order_relaxed);
    return {};
}

Result<void> MemoryTable::replace(std::uint32_t stag, const RegionAttr& attr) {
    if (const Error error = check(attr); error.code != 0) return error;
    Slot* slot = nullptr;
    {
        std::lock_guard lock(impl_->mutex);
        const std::uint32_t index = impl_->find(stag);
        if (index == kNoSlot) return Error{ENOENT, "no such memory region"};
        slot = &impl_->slot(index);
        if (slot->windows != 0) return Error{EBUSY, "a memory window is bound to the region"};
        slot->rights.fetch_and(~kValid, std::memory_order_seq_cst);
    }
    impl_->epochs.wait_for_readers();
    fill(*slot, attr);
    // A reader of a part of the former meaning must not find the slot valid at the end.
    impl_->epochs.wait_for_readers();
    slot->rights.store(attr.access | kValid, std::memory_order_seq_cst);
    return {};
}

bool MemoryTable::invalidate(std::uint32_t stag) noexcept {
    std::lock_guard lock(impl_->mutex);
    return impl_->revoke(stag);
}

MemoryTable::Found MemoryTable::check_remote(std::uint32_t stag, PdId pd, QpNum qp, Right right,
                                             std::uint64_t to,
                                             std::uint64_t length) const noexcept {
    const bool read = right != Right::remote_write;
    Region r;
    if (!impl_->look_up(stag, r)) {
        return {read ? StreamError::read_stag_invalid : StreamError::tagged_stag_invalid};
    }
    if (!r.belongs_to(pd, qp)) {
        return {read ? StreamError::read_stag_not_associated
                     : StreamError::tagged_stag_not_associated};
    }
    const std::uint32_t wanted = right == Right::remote_read ? kRemoteRead : kRemoteAtomic;
    if (read && !(r.rights & wanted)) return {StreamError::read_access};
    if (length > std::numeric_limits<std::uint64_t>::max() - to) {
        return {read ? StreamError::read_to_wrap : StreamError::tagged_to_wrap};
    }
    if (to < r.first_to || to - r.first_to > r.length || length > r.length - (to - r.first_to)) {
        return {read ? StreamError::read_bounds : StreamError::tagged_bounds};
    }
    if (!read && !(r.rights & kRemoteWrite)) return {StreamError::write_access};
    return {StreamError::none, reinterpret_cast<std::byte*>(
                                   static_cast<std::uintptr_t>(r.address + (to - r.first_to)))};
}

bool MemoryTable::check_local(std::uint32_t lkey, PdId pd, QpNum qp, const std::byte* address,
                              std::uint64_t length, bool write) const noexcept {
    if (length == 0) return true;
    Region r;
    if (!impl_->look_up(lkey, r) || !r.belongs_to(pd, qp)) return false;
    if ((r.rights & kIsWindow) != 0 || (write && !(r.rights & kLocalWrite))) return false;
    const std::uint64_t at = reinterpret_cast<std::uintptr_t>(address);
    return at >= r.address && at - r.address <= r.length && length <= r.length - (at - r.address);
}

StreamError MemoryTable::check_invalidate(std::uint32_t stag, PdId pd, QpNum qp) const noexcept {
    Region r;
    if (!impl_->look_up(stag, r)) return StreamError::invalidate_stag_invalid;
    // RFC 5040 §8.1 item 7: never an STag that several streams may use.
    if (r.pd != pd || r.only_qp == 0 || r.only_qp != qp)
        return StreamError::invalidate_not_permitted;
    return StreamError::none;
}

Result<RegionAttr> MemoryTable::query(std::uint32_t stag) const {
    std::lock_guard lock(impl_->mutex);
    const std::uint32_t index = impl_->find(stag);
    if (index == kNoSlot) return Error{ENOENT, "no such memory region"};
    const Slot& s = impl_->slot(index);
    const std::uint32_t access = s.rights.load(std::memory_order_relaxed) & kAllAccess;
    return RegionAttr{
        .address = reinterpret_cast<std::byte*>(
            static_cast<std::uintptr_t>(s.address.load(std::memory_order_relaxed))),
        .length = s.length.load(std::memory_order_relaxed),
        .access = access,
        .pd = s.pd.load(std::memory_order_relaxed),
        .only_qp = s.only_qp.load(std::memory_order_relaxed),
        .first_to = (access & kZeroBased) != 0 ? s.first_to.load(std::memory_order_relaxed) : 0};
}

std::size_t MemoryTable::size() const noexcept {
    return impl_->regions.load(std::memory_order_relaxed);
}

}  // namespace xsock
