/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Opening the engine, once per process and thin library. It lies beside the library that opens it,
 * or in xsock/ below that, and is loaded with a scope of its own: its libuv and libstdc++ are not
 * the program's, and a program that never needs it never loads it (docs/threading.md).
 */
#ifndef XSOCK_ENGINE_OPEN_H
#define XSOCK_ENGINE_OPEN_H

#include <stddef.h>

#include "libxsock/engine_table.h"

extern const struct xsock_engine* xsock_engine_opened;

/* NULL with errno: ELIBACC (not found, cannot be loaded), ELIBBAD (of another version). Says why on
 * stderr, once. Any thread; not from a signal handler. */
const struct xsock_engine* xsock_engine_open_slowly(void);

static inline const struct xsock_engine* xsock_engine_open(void) {
    const struct xsock_engine* const engine =
        __atomic_load_n(&xsock_engine_opened, __ATOMIC_ACQUIRE);
    return __builtin_expect(engine != NULL, 1) ? engine : xsock_engine_open_slowly();
}

#endif /* XSOCK_ENGINE_OPEN_H */
