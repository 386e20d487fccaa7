// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "transport/memory_access.hpp"

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"
#include "base/fault.hpp"

namespace xsock {
namespace {

constexpr QpNum kNoQp = 0;

}  // namespace

WcStatus MemoryAccess::gather(std::span<const Sge> from, Bytes to) noexcept {
    for (const Sge& sge : from) {
        if (sge.length == 0) continue;
        XSOCK_ASSERT(sge.length <= to.size());
        if (!memory_.check_local(sge.lkey, pd_, kNoQp, sge.address, sge.length, false)) {
            return WcStatus::local_protection_error;
        }
        const bool whole = fault::guard([&] {
            const fault::Touch touch(0, sge.address, sge.length);
            std::memcpy(to.data(), sge.address, sge.length);
        });
        if (!whole) return WcStatus::local_protection_error;
        to = to.subspan(sge.length);
    }
    return WcStatus::success;
}

WcStatus MemoryAccess::scatter(ConstBytes from, std::span<const Sge> to) noexcept {
    for (const Sge& sge : to) {
        if (from.empty()) break;
        const std::size_t bytes = std::min<std::size_t>(sge.length, from.size());
        if (bytes == 0) continue;
        if (!memory_.check_local(sge.lkey, pd_, kNoQp, sge.address, bytes, true)) {
            return WcStatus::local_protection_error;
        }
        const bool whole = fault::guard([&] {
            const fault::Touch touch(1, sge.address, bytes);
            std::memcpy(sge.address, from.data(), bytes);
        });
        if (!whole) return WcStatus::local_protection_error;
        from = from.subspan(bytes);
    }
    XSOCK_ASSERT(from.empty());
    return WcStatus::success;
}

}  // namespace xsock
