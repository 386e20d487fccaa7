/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What libxsock.so asks of the preload library when a process has both. Each exports one object of
 * this name, and the first in the order of loading is the one whose wrappers the program meets: its
 * table counts. The other's stays empty.
 */
#ifndef XSOCK_OVERLAY_SHARED_H
#define XSOCK_OVERLAY_SHARED_H

#include <stdint.h>

#include "include/xsock/xsock.h"

struct fd_handle;

struct xsock_overlay {
    uint32_t version; /* XSOCK_OVERLAY_VERSION */
    uint32_t size;
    /* As fd_get() and fd_put(). */
    struct fd_handle* (*get)(int fd);
    void (*put)(struct fd_handle* handle);
};
#define XSOCK_OVERLAY_VERSION 1u

extern const struct xsock_overlay xsock_overlay __attribute__((visibility("default")));

/* The first in the process; ours when the other is of another version. */
const struct xsock_overlay* overlay_first(void);
/* Whether that is this copy. */
int overlay_is_first(void);

#endif /* XSOCK_OVERLAY_SHARED_H */
