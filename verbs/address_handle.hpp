// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Address handles: which host a datagram goes to, and by which address of ours. What is sent is
// copied with the route at the post, so that a handle may go as soon as the posts have returned.
#pragma once

#include <cstdint>

#include "verbs/datagram_frame.hpp"
#include "verbs/table.h"

namespace xsock::verbs {

struct Route {
    GidOctets own{}, peer{};  ///< addresses that go by address_of()
    std::uint8_t traffic_class = 0;
    std::uint32_t flow_label = 0;
};

struct Ah {
    ibv_ah base{};
    Route route;
    std::uint64_t number = 0;  ///< no other of the process has or had it

    static const Ah* of(const ibv_ah* ah) noexcept { return reinterpret_cast<const Ah*>(ah); }
};

GidOctets octets_of(const ibv_gid& gid) noexcept;

}  // namespace xsock::verbs
