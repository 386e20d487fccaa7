// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Memory windows: the entries of a MemoryTable whose STags the program chooses.
#include <cerrno>
#include <new>
#include <utility>

#include "base/memory_table_impl.hpp"

namespace xsock {

Result<std::uint32_t> MemoryTable::reserve_window() {
    std::lock_guard lock(impl_->mutex);
    for (;;) {
        const std::uint32_t stag = impl_->choose_stag(), range = stag & kWindowRange;
        bool taken = range == 0;
        for (std::uint32_t key = 0; key <= ~kWindowRange && !taken; ++key) {
            taken = impl_->find(range | key) != nullptr;
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
    if (impl_->windows.count(stag & kWindowRange) == 0) return Error{EINVAL, "no such window"};
    if (impl_->find(stag) != nullptr) return Error{EEXIST, "the window has this key already"};
    return impl_->make(stag, attr, attr.access | kIsWindow, region);
}

bool MemoryTable::bind(std::uint32_t stag) noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    std::lock_guard lock(impl_->mutex);
    Slot* const window = impl_->find(stag);
    if (window == nullptr) return false;
    Slot& s = *window;
    const std::uint32_t rights = s.rights.load(relaxed);
    Slot* const found = impl_->find(s.region);
    if ((rights & (kValid | kWasBound)) != 0 || found == nullptr) return false;
    Slot& region = *found;
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
    impl_->revoke(impl_->find(std::exchange(range->second, stag)));
    ++region.windows;
    s.rights.store(rights | kWasBound | kValid, std::memory_order_seq_cst);
    return true;
}

void MemoryTable::unbind(std::uint32_t stag) noexcept {
    std::lock_guard lock(impl_->mutex);
    const auto range = impl_->windows.find(stag & kWindowRange);
    if (range == impl_->windows.end()) return;
    impl_->revoke(impl_->find(std::exchange(range->second, 0)));
}

void MemoryTable::abandon(std::uint32_t stag) noexcept {
    std::lock_guard lock(impl_->mutex);
    Slot* const s = impl_->find(stag);
    if (s == nullptr || (s->rights.load(std::memory_order_relaxed) & kIsWindow) == 0) return;
    impl_->revoke(s);
    s->rights.fetch_or(kWasBound, std::memory_order_relaxed);
}

bool MemoryTable::revoked(std::uint32_t stag) const noexcept {
    std::lock_guard lock(impl_->mutex);
    const Slot* const s = impl_->find(stag);
    return s != nullptr &&
           (s->rights.load(std::memory_order_relaxed) & (kWasBound | kValid)) == kWasBound;
}

}  // namespace xsock
