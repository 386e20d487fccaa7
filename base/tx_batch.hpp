// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a lower layer wants written next.
#pragma once

#include <sys/uio.h>  // struct iovec, a plain pair

#include <cstddef>
#include <cstdint>
#include <span>

namespace xsock {

/// What to write: iovecs, cut into groups. Toward a peer that is not xsock each group is one whole
/// number of FPDUs of at most EMSS bytes (or one FPDU), to be sent as one MSG_EOR message;
/// toward xsock all is one group.
struct TxBatch {
    std::span<const struct iovec> iov;
    std::span<const std::uint32_t> group_ends;  ///< index into iov, one past each group's last
    std::size_t bytes = 0;
    bool separate_groups = false;  ///< send each group by itself with MSG_EOR
};

}  // namespace xsock
