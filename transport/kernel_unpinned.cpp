// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/kernel_unpinned.hpp"

#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "transport/fork.hpp"
#include "transport/log.hpp"
#include "transport/stats.hpp"

namespace xsock {
namespace {

using kernel::Unpinned;

// Of this process: a forked child begins anew.
std::atomic<std::uint64_t> counts[kernel::kUnpinnedReasons];

void forget_counts() {
    for (auto& count : counts) count.store(0, std::memory_order_relaxed);
}

/// Bytes that this process may lock; RLIM_INFINITY.
rlim_t memlock() noexcept {
    rlimit limit{};
    return getrlimit(RLIMIT_MEMLOCK, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

Unpinned reason_of(int error) noexcept {
    switch (error) {
        case ENOMEM:
            return memlock() != RLIM_INFINITY ? Unpinned::memlock : Unpinned::other;
        case E2BIG:
            return Unpinned::too_long;
        case EOPNOTSUPP:
            return Unpinned::file;
        default:
            return Unpinned::other;
    }
}

void tell(Unpinned reason, const UnpinnedRegion& region) noexcept {
    char why[192];
    switch (reason) {
        case Unpinned::memlock:
            std::snprintf(why, sizeof why,
                          "%llu bytes may be locked (RLIMIT_MEMLOCK); raise that by ulimit -l, "
                          "limits.conf(5) or LimitMEMLOCK= of systemd",
                          static_cast<unsigned long long>(memlock()));
            break;
        case Unpinned::too_long:
            std::snprintf(why, sizeof why, "XSOCK_KERNEL_PIN permits %llu bytes",
                          static_cast<unsigned long long>(region.most_bytes));
            break;
        case Unpinned::file:
            std::snprintf(why, sizeof why, "it is memory of a file or a device");
            break;
        case Unpinned::other:
        case Unpinned::kCount:
            std::snprintf(why, sizeof why, "%s", std::strerror(region.error));
            break;
    }
    log(LogLevel::warn, kernel::name_of(kernel::Reason::pinning),
        "a region of %llu bytes is not pinned: %s. Writes to it, and to others that meet this, are "
        "placed at user level",
        static_cast<unsigned long long>(region.bytes), why);
}

}  // namespace

void report_unpinned(const UnpinnedRegion& region) noexcept {
    static std::once_flag once;
    std::call_once(once, [] { call_in_child(forget_counts); });
    const Unpinned reason = reason_of(region.error);
    count_unpinned(reason);
    auto& count = counts[static_cast<std::size_t>(reason)];
    if (count.fetch_add(1, std::memory_order_relaxed) == 0) tell(reason, region);
}

std::uint64_t unpinned_regions(Unpinned reason) noexcept {
    const auto index = static_cast<std::size_t>(reason);
    return index < kernel::kUnpinnedReasons ? counts[index].load(std::memory_order_relaxed) : 0;
}

}  // namespace xsock
