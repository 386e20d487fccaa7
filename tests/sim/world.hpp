// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One world: two programs, their connections, virtual time. Runs to its end on one thread; all that
// happens follows from the options and their seed.
#pragma once

#include <cstdint>

#include "tests/sim/mutant.hpp"
#include "tests/sim/options.hpp"

namespace xsock::sim {

struct Result {
    std::uint64_t steps = 0;
    std::uint64_t bytes = 0;  ///< of TCP stream
    std::uint64_t operations = 0;
    std::uint64_t messages = 0;  ///< delivered
    Time ended_at = 0;
    unsigned established = 0, failed = 0;  ///< ends
    unsigned linked = 0;                   ///< of the established, those over a link
};

/// Throws Failure when the oracle disagrees.
Result run_world(const Options& options, Mutant mutant);

}  // namespace xsock::sim
