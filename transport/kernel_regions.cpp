// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/kernel_regions.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include "include/xsock/ddp_uapi.h"
#include "transport/clock.hpp"
#include "transport/kernel_unpinned.hpp"
#include "transport/uv_loop.hpp"

namespace xsock {
namespace {

ddp_region region_of(std::uint32_t stag, const RegionAttr& attr) noexcept {
    ddp_region region{};
    region.address = reinterpret_cast<std::uintptr_t>(attr.address);
    region.length = attr.length;
    region.first_to = (attr.access & kZeroBased) != 0 ? attr.first_to : region.address;
    region.stag = stag;
    region.pd = attr.pd;
    region.qp = attr.only_qp;
    region.rights = DDP_RIGHT_WRITE;
    region.flags = DDP_REGION_HIDDEN;
    if ((attr.access & kRemoteAtomic) != 0) region.rights |= DDP_RIGHT_ATOMIC;
    return region;
}

}  // namespace

KernelRegions::KernelRegions(KernelCalls& calls, MemoryTable& table, Limits limits)
    : calls_(calls), table_(table), limits_(limits) {}

void KernelRegions::stop() noexcept {
    {
        const Lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    const Lock lock(mutex_);
    domain_ = -1;
}

void KernelRegions::open(int domain) {
    const Lock lock(mutex_);
    domain_ = domain;
}

std::uint64_t KernelRegions::refusals() const noexcept {
    const Lock lock(mutex_);
    return refusals_;
}

KernelRegions::Entry* KernelRegions::find(std::uint32_t stag) noexcept {
    const auto found = entries_.find(stag);
    return found != entries_.end() ? &found->second : nullptr;
}

int KernelRegions::control(unsigned long request, std::uint32_t stag) noexcept {
    ddp_stag argument{};
    argument.stag = stag;
    return -calls_.control(domain_, request, &argument);
}

// ---- the table --------------------------------------------------------------

void KernelRegions::begin(std::uint32_t stag, const RegionAttr& attr) noexcept {
    const Lock lock(mutex_);
    try {
        entries_[stag] = Entry{.attr = attr};
    } catch (const std::bad_alloc&) {
        // It is never pinned.
    }
}

void KernelRegions::wait_pinning(std::uint32_t stag, Lock& lock) noexcept {
    changed_.wait(lock, [&] {
        const Entry* const entry = find(stag);
        return entry == nullptr || entry->state != State::pinning;
    });
}

void KernelRegions::revoke(std::uint32_t stag) noexcept {
    const Lock lock(mutex_);
    Entry* const entry = find(stag);
    if (entry == nullptr) return;
    entry->revoked = true;  // what is being pinned is hidden, and is never shown
    if (entry->held && entry->state != State::pinning) control(DDP_IOC_REVOKE, stag);
}

void KernelRegions::release(std::uint32_t stag) noexcept {
    Lock lock(mutex_);
    wait_pinning(stag, lock);
    Entry* const entry = find(stag);
    if (entry == nullptr) return;
    if (entry->held) control(DDP_IOC_RELEASE, stag);
    entries_.erase(stag);
}

// ---- pinning ----------------------------------------------------------------

/// The module's part of pin_entry(): takes a stale region back, gives it anew, and shows it if it
/// has not been revoked meanwhile. The lock is not held while pages are pinned or unpinned.
/// @return errno; 0: it is the module's, and shown
int KernelRegions::give(std::uint32_t stag, Entry& entry, Lock& lock) noexcept {
    entry.state = State::pinning;
    const bool stale = entry.held;
    ddp_region region = region_of(stag, entry.attr);
    lock.unlock();
    if (stale) control(DDP_IOC_RELEASE, stag);
    const int error = -calls_.control(domain_, DDP_IOC_REGION, &region);
    lock.lock();
    entry.held = error == 0;
    if (!entry.held) return error;
    if (!entry.revoked) return control(DDP_IOC_SHOW, stag);
    lock.unlock();
    control(DDP_IOC_RELEASE, stag);
    lock.lock();
    entry.held = false;
    return ENOENT;
}

/// @return errno; 0: it is pinned. The entry stays meanwhile: release() waits
int KernelRegions::pin_entry(std::uint32_t stag, Entry& entry, Lock& lock) noexcept {
    if (domain_ < 0) return ENODEV;
    const int error = entry.attr.length > limits_.region_bytes ? E2BIG
                      : entry.attr.length == 0                 ? EINVAL
                                                               : give(stag, entry, lock);
    entry.state = error == 0 ? State::pinned : State::refused;
    if (error != 0 && !entry.revoked) refuse(entry, error);
    changed_.notify_all();
    return error;
}

/// It is told of once, however often it is tried again.
void KernelRegions::refuse(Entry& entry, int error) noexcept {
    ++refusals_;
    if (entry.told) return;
    entry.told = true;
    report_unpinned(
        {.bytes = entry.attr.length, .error = error, .most_bytes = limits_.region_bytes});
}

void KernelRegions::queue(std::uint32_t stag, Entry& entry, Lock& lock) noexcept {
    if (entry.attr.length <= limits_.inline_bytes || entry.attr.length > limits_.region_bytes) {
        pin_entry(stag, entry, lock);
        return;
    }
    try {
        if (limits_.threads && !thread_.joinable()) {
            thread_ = UvLoop::start_thread("xsock-pin", [this] { run(); });
        }
        if (thread_.joinable()) {
            queue_.push_back(stag);
            entry.state = State::queued;
            changed_.notify_all();
            return;
        }
    } catch (const std::bad_alloc&) {
        // as if there were no thread
    }
    entry.state = State::refused;
    refuse(entry, EAGAIN);
}

void KernelRegions::want(std::uint32_t stag, Time now) noexcept {
    Lock lock(mutex_);
    Entry* entry = find(stag);
    if (entry == nullptr) {
        lock.unlock();
        if (!table_.offer(stag)) return;
        lock.lock();
        entry = find(stag);
        if (entry == nullptr) return;
    }
    if (entry->revoked || entry->state == State::queued || entry->state == State::pinning) return;
    if (now < entry->next_try) return;
    if (entry->state == State::pinned && control(DDP_IOC_CHECK, stag) != ESTALE) {
        entry->next_try = time_after(now, entry->pause);
        return;
    }
    if (entry->state != State::idle) entry->pause = std::min(2 * entry->pause, kLongestPause);
    entry->next_try = time_after(now, entry->pause);
    queue(stag, *entry, lock);
}

Result<void> KernelRegions::pin(std::uint32_t stag) {
    const bool offered = table_.offer(stag);
    Lock lock(mutex_);
    wait_pinning(stag, lock);
    Entry* const entry = find(stag);
    if (entry != nullptr && entry->state == State::pinned) return {};
    if (entry == nullptr) return Error{offered ? ENOMEM : ENOENT, "no region that peers write"};
    if (const int error = pin_entry(stag, *entry, lock); error != 0) {
        return Error{error, "the kernel module is required, and the region cannot be pinned"};
    }
    return {};
}

void KernelRegions::run() noexcept {
    Lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
        if (stop_) return;
        const std::uint32_t stag = queue_.front();
        queue_.pop_front();
        Entry* const entry = find(stag);
        if (entry != nullptr && entry->state == State::queued && !entry->revoked) {
            pin_entry(stag, *entry, lock);
        }
    }
}

}  // namespace xsock
