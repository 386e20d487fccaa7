// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Stands in for base/random.cpp: the linker takes this one and leaves the archive's alone. STags
// are as unpredictable as ever to the peer, yet the same in each run of a seed.
#include "base/random.hpp"

#include "tests/sim/random.hpp"
#include "tests/sim/rng.hpp"

namespace xsock {
namespace {
sim::Rng source(1);
}

namespace sim {
void seed_stags(std::uint64_t seed) { source = Rng(seed); }
}  // namespace sim

std::uint32_t random_u32() noexcept { return static_cast<std::uint32_t>(source.next()); }

}  // namespace xsock
