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

/// What a byte stream counts above that; of connections of other kinds all are 0.
struct StreamCounters {
    std::uint64_t tx_bytes = 0, rx_bytes = 0;  ///< of the program: taken from it, and for it
    std::uint64_t sends_gathered = 0;          ///< sends that went with earlier ones
    std::uint64_t credit_waits = 0;            ///< times that bytes began to wait for the peer's
};

}  // namespace xsock
