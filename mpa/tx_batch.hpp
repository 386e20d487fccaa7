// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How much memory a stream needs to say what it wants written next.
#pragma once

#include <cstddef>

#include "base/tx_batch.hpp"

namespace xsock::mpa {

/// Scratch that tx_prepare() needs at least; its tail holds the iovecs and the bookkeeping of the
/// batch (some 14 KiB), so that an idle stream owns none of it. 256 KiB makes good batches.
inline constexpr std::size_t kMinTxScratch = 192 * 1024;

}  // namespace xsock::mpa
