// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a process weighs.
#pragma once

#include <unistd.h>

#include <cstdio>

#include "bench/pair.hpp"

namespace xsock::bench {

/// What a process has in KiB, as /proc/self/status says.
struct Weight {
    double anonymous = 0;  ///< that really is there
    double shared = 0;     ///< pages of shared memory that it has touched
    double tables = 0;     ///< page tables
};

inline Weight weigh() {
    std::FILE* file = std::fopen("/proc/self/status", "re");
    if (file == nullptr) fail_errno("/proc/self/status");
    Weight weight;
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr) {
        unsigned long kib = 0;
        if (std::sscanf(line, "RssAnon: %lu kB", &kib) == 1)
            weight.anonymous = static_cast<double>(kib);
        if (std::sscanf(line, "RssShmem: %lu kB", &kib) == 1)
            weight.shared = static_cast<double>(kib);
        if (std::sscanf(line, "VmPTE: %lu kB", &kib) == 1) weight.tables = static_cast<double>(kib);
    }
    std::fclose(file);
    if (weight.anonymous == 0) fail("no RssAnon in /proc/self/status");
    return weight;
}

inline double resident_kib() { return weigh().anonymous; }

/// Time for the library to put aside what only a busy connection needs.
inline void wait_until_quiet() { usleep(200'000); }

}  // namespace xsock::bench
