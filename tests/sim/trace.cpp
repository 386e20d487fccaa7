// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "tests/sim/trace.hpp"

#include <cstdarg>
#include <cstdio>

namespace xsock::sim {

bool verbose = false;

void fail(const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Failure(text);
}

void trace_line(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    va_end(arguments);
    std::putchar('\n');
}

}  // namespace xsock::sim
