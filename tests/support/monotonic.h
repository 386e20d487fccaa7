/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The monotonic clock in milliseconds, for tests in C. */
#ifndef XSOCK_TESTS_SUPPORT_MONOTONIC_H
#define XSOCK_TESTS_SUPPORT_MONOTONIC_H

#include <time.h>

static inline long long monotonic_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

#endif /* XSOCK_TESTS_SUPPORT_MONOTONIC_H */
