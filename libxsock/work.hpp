// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Gather and scatter lists from the C API to ours, and receives.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/work.hpp"
#include "include/xsock/xsock.h"
#include "libxsock/objects.hpp"

namespace xsock::api {

static_assert(XSOCK_MAX_SGE == kMaxSge);
static_assert(XSOCK_MAX_INLINE <= kInlineInWqe && XSOCK_MAX_INLINE <= kMaxInline);

class SgeList {
  public:
    SgeList() noexcept {}  // clearing it would cost more than a post

    /// False when there are too many or the list is missing.
    bool assign(const xsock_sge* from, std::uint32_t count) noexcept {
        if (count > kMaxSge || (count > 0 && from == nullptr)) return false;
        for (std::uint32_t i = 0; i < count; ++i) {
            sges_[i] = {static_cast<std::byte*>(from[i].address), from[i].length, from[i].lkey};
        }
        count_ = count;
        return true;
    }
    [[nodiscard]] std::span<const Sge> span() const noexcept { return {sges_.data(), count_}; }

  private:
    union {
        std::array<Sge, kMaxSge> sges_;
    };
    std::size_t count_ = 0;
};

/// Posts a receive to a Qp or an Srq.
template <typename Queue>
int post_receive(Queue& queue, std::uint64_t wr_id, const xsock_sge* sge, std::uint32_t count) {
    return guarded(-1, [&] {
        SgeList list;
        if (!list.assign(sge, count)) return fail(EINVAL);
        return finish(queue.post_recv({.wr_id = wr_id, .sges = list.span()}));
    });
}

}  // namespace xsock::api
