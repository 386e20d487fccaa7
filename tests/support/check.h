/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* CHECK(condition): where it does not hold, the program of a test in C ends and says where. */
#ifndef XSOCK_TESTS_SUPPORT_CHECK_H
#define XSOCK_TESTS_SUPPORT_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (condition) break;                                                                \
        fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #condition, errno, \
                strerror(errno));                                                            \
        exit(1);                                                                             \
    } while (0)

#endif /* XSOCK_TESTS_SUPPORT_CHECK_H */
