// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a DDP stream counts. Plain numbers with one writer, the poller; they may lie in memory that
// other processes read (base/stats_page.hpp).
#pragma once

#include <cstdint>

namespace xsock {

struct Counters {
    std::uint64_t tx_messages[16] = {};  ///< by RDMAP opcode
    std::uint64_t rx_messages[16] = {};
    std::uint64_t tx_payload_bytes = 0, rx_payload_bytes = 0;
    std::uint64_t tx_segments = 0, rx_segments = 0;
};

}  // namespace xsock
