// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#pragma once

#include <cstdint>

namespace xsock::sim {
/// What xsock::random_u32() answers from now on follows from `seed`.
void seed_stags(std::uint64_t seed);
}  // namespace xsock::sim
