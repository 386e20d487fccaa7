// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a stream wants written next, and how much memory it needs to say so.
#pragma once

#include <sys/uio.h>  // struct iovec, a plain pair

#include <cstddef>
#include <cstdint>
#include <span>

namespace xsock::mpa {

/// Scratch that tx_prepare() needs at least; its tail holds the iovecs and the bookkeeping of the
/// batch (some 14 KiB), so that an idle stream owns none of it. 256 KiB makes good batches.
inline constexpr std::size_t kMinTxScratch = 192 * 1024;

/// What to write: iovecs, cut into groups. Toward a peer that is not xsock each group is one whole
/// number of FPDUs of at most EMSS octets (or one FPDU), to be sent as one MSG_EOR message;
/// toward xsock all is one group.
struct TxBatch {
    std::span<const struct iovec> iov;
    std::span<const std::uint32_t> group_ends;  ///< index into iov, one past each group's last
    std::size_t octets = 0;
    bool separate_groups = false;  ///< send each group by itself with MSG_EOR
};

}  // namespace xsock::mpa
