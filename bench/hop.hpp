// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How long a cache line takes from one processor to another. A virtual machine may change between
// states that differ tenfold in this, within seconds, and what goes through shared memory follows.
#pragma once

namespace xsock::bench {

/// Nanoseconds one way, between the two processors that the ends of a sample are pinned to: the
/// mean over 400 round trips of a word. 0 where there is one processor only. Takes less than 1 ms.
double hop_ns();

}  // namespace xsock::bench
