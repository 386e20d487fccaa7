// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "base/memory_table.hpp"

#include <cerrno>
#include <limits>
#include <new>

#include "base/memory_table_impl.hpp"
#include "base/random.hpp"

namespace xsock {
namespace {

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

// As they were given. Under the table's lock.
RegionAttr attributes(const Slot& s) noexcept {
    const std::uint32_t access = s.rights.load(std::memory_order_relaxed) & kAllAccess;
    return {
        .address = reinterpret_cast<std::byte*>(
            static_cast<std::uintptr_t>(s.address.load(std::memory_order_relaxed))),
        .length = s.length.load(std::memory_order_relaxed),
        .access = access,
        .pd = s.pd.load(std::memory_order_relaxed),
        .only_qp = s.only_qp.load(std::memory_order_relaxed),
        .first_to = (access & kZeroBased) != 0 ? s.first_to.load(std::memory_order_relaxed) : 0};
}

}  // namespace

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

std::uint32_t MemoryTable::Impl::choose_stag() const noexcept {
    for (;;) {
        const std::uint32_t stag = random_u32();
        if (stag != 0 && windows.count(stag & kWindowRange) == 0 && find(stag) == nullptr) {
            return stag;
        }
    }
}

std::uint32_t MemoryTable::Impl::take_slot() {
    if (free_slot != StagTable::kNone) {
        const std::uint32_t index = free_slot;
        free_slot = static_cast<std::uint32_t>(slot(index).address.load(std::memory_order_relaxed));
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

Result<void> MemoryTable::Impl::make(std::uint32_t stag, const RegionAttr& attr,
                                     std::uint32_t rights, std::uint32_t region) {
    const std::size_t count = regions.load(std::memory_order_relaxed);
    if (count >= max_regions) return Error{ENOMEM, "too many memory regions"};
    std::uint32_t index;
    try {
        table.reserve();
        index = take_slot();
    } catch (const std::bad_alloc&) {
        return Error{ENOMEM, "no memory for a memory region"};
    }
    Slot& s = slot(index);
    fill(s, attr);
    s.region = region;
    s.windows = 0;
    s.rights.store(rights, std::memory_order_release);
    s.stag.store(stag, std::memory_order_release);
    table.insert(stag, index);
    regions.store(count + 1, std::memory_order_relaxed);
    return {};
}

bool MemoryTable::Impl::revoke(Slot* s) noexcept {
    if (s == nullptr || s->windows != 0) return false;
    const std::uint32_t before = s->rights.fetch_and(~kValid, std::memory_order_seq_cst);
    if ((before & kValid) == 0) return false;
    if ((before & kOffered) != 0) [[unlikely]]
        mirror->revoke(s->stag.load(std::memory_order_relaxed));
    if (Slot* const region = find(s->region)) --region->windows;
    return true;
}

MemoryTable::MemoryTable(Epochs& epochs, std::size_t max_regions)
    : impl_(std::make_unique<Impl>(epochs, max_regions)) {}

MemoryTable::~MemoryTable() = default;

Result<std::uint32_t> MemoryTable::add(const RegionAttr& attr) {
    if (const Error error = check(attr); error.code != 0) return error;
    std::lock_guard lock(impl_->mutex);
    const std::uint32_t stag = impl_->choose_stag();
    if (auto made = impl_->make(stag, attr, attr.access | kValid, 0); !made) return made.error();
    return stag;
}

Result<void> MemoryTable::remove(std::uint32_t stag) {
    std::uint32_t index;
    {
        std::lock_guard lock(impl_->mutex);
        index = impl_->table.find(stag);
        if (index == StagTable::kNone) return Error{ENOENT, "no such memory region"};
        Slot& s = impl_->slot(index);
        if (s.windows != 0) return Error{EBUSY, "a memory window is bound to the region"};
        (void)impl_->revoke(&s);
        impl_->table.erase(stag);
    }
    impl_->epochs.wait_for_readers();
    Slot& s = impl_->slot(index);
    // (Between the two sections the slot is nobody's but ours.)
    if ((s.rights.load(std::memory_order_relaxed) & kOffered) != 0) impl_->mirror->release(stag);

    std::lock_guard lock(impl_->mutex);
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
        slot = impl_->find(stag);
        if (slot == nullptr) return Error{ENOENT, "no such memory region"};
        if (slot->windows != 0) return Error{EBUSY, "a memory window is bound to the region"};
        slot->rights.fetch_and(~kValid, std::memory_order_seq_cst);
    }
    impl_->epochs.wait_for_readers();
    if ((slot->rights.load(std::memory_order_relaxed) & kOffered) != 0) {
        impl_->mirror->release(stag);
    }
    fill(*slot, attr);
    // A reader of a part of the former meaning must not find the slot valid at the end.
    impl_->epochs.wait_for_readers();
    slot->rights.store(attr.access | kValid, std::memory_order_seq_cst);
    return {};
}

bool MemoryTable::invalidate(std::uint32_t stag) noexcept {
    std::lock_guard lock(impl_->mutex);
    return impl_->revoke(impl_->find(stag));
}

void MemoryTable::set_mirror(MemoryMirror& mirror) noexcept {
    std::lock_guard lock(impl_->mutex);
    impl_->mirror = &mirror;
}

bool MemoryTable::offer(std::uint32_t stag) noexcept {
    std::lock_guard lock(impl_->mutex);
    Slot* const s = impl_->find(stag);
    if (s == nullptr || impl_->mirror == nullptr) return false;
    const std::uint32_t rights = s->rights.load(std::memory_order_relaxed);
    if ((rights & (kValid | kIsWindow | kOffered | kRemoteWrite)) != (kValid | kRemoteWrite)) {
        return false;
    }
    s->rights.fetch_or(kOffered, std::memory_order_relaxed);
    impl_->mirror->begin(stag, attributes(*s));
    return true;
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
    const Slot* const found = impl_->find(stag);
    if (found == nullptr) return Error{ENOENT, "no such memory region"};
    return attributes(*found);
}

std::size_t MemoryTable::size() const noexcept {
    return impl_->regions.load(std::memory_order_relaxed);
}

}  // namespace xsock
