// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What two processes have agreed on: all that a link in shared memory consists of.
#pragma once

#include <cstdint>

#include "shm/layout.hpp"
#include "shm/offer.hpp"
#include "transport/shm_memory.hpp"

namespace xsock {

struct MadeLink {
    ShmMemory memory;
    shm::Layout layout;
    shm::Side side;
    /// Connected to the peer (SOCK_SEQPACKET, non-blocking, internal); nothing was sent on it
    /// behind the hello's answer. To be closed by what takes the link.
    int socket;
    std::uint64_t id;  ///< the same at both ends
    shm::Key peer;     ///< the listener of the other end
};

}  // namespace xsock
