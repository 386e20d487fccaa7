/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the programs that measure inside a guest share. */
#pragma once

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xsock/xsock.h>

/* Begins the line of fail(): the program, and what it is doing. */
static const char* g_subject = "bench";

static void fail(const char* format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char* format, ...) {
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "%s: ", g_subject);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, " (%s)\n", strerror(errno));
    va_end(arguments);
    exit(1);
}

static inline double now_us(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Attributes of an end whose two queues are made the first time. */
static inline struct xsock_ep_attr attributes_with(struct xsock_cq** send_cq,
                                                   struct xsock_cq** recv_cq, unsigned depth) {
    XSOCK_INIT(xsock_ep_attr, attr);

    if (*send_cq == NULL) {
        *send_cq = xsock_cq_create(NULL);
        *recv_cq = xsock_cq_create(NULL);
    }
    if (*send_cq == NULL || *recv_cq == NULL) fail("xsock_cq_create");
    attr.send_cq = *send_cq;
    attr.recv_cq = *recv_cq;
    attr.ird = attr.ord = depth;
    return attr;
}
