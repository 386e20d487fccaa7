// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// How a world says what it does (--verbose) and what is wrong with it.
#pragma once

#include <stdexcept>
#include <string>

namespace xsock::sim {

/// The oracle disagrees with the stack. Ends the world; main() reports it with the seed.
class Failure : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

[[noreturn]] [[gnu::format(printf, 1, 2)]] void fail(const char* format, ...);

extern bool verbose;
void trace_line(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace xsock::sim

#define SIM_TRACE(...)                                                    \
    do {                                                                  \
        if (::xsock::sim::verbose) ::xsock::sim::trace_line(__VA_ARGS__); \
    } while (false)
