// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What a process weighs.
#pragma once

#include <unistd.h>

#include <cstdio>

#include "bench/pair.hpp"

namespace xsock::bench {

/// Anonymous memory that really is there, of this process.
inline double resident_kib() {
    std::FILE* file = std::fopen("/proc/self/status", "re");
    if (file == nullptr) fail_errno("/proc/self/status");
    char line[256];
    unsigned long kib = 0;
    while (std::fgets(line, sizeof line, file) != nullptr) {
        if (std::sscanf(line, "RssAnon: %lu kB", &kib) == 1) break;
    }
    std::fclose(file);
    if (kib == 0) fail("no RssAnon in /proc/self/status");
    return static_cast<double>(kib);
}

/// Time for the library to put aside what only a busy connection needs.
inline void wait_until_quiet() { usleep(200'000); }

}  // namespace xsock::bench
