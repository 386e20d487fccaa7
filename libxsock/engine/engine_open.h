/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Opening the engine, once for each library that has a copy of this (libxsock.so, the preload
 * library, the two drop-in verbs libraries); the engine is one object for the whole process. It
 * lies beside the library that opens it, or in xsock/ below that (the drop-in libraries: in the
 * folder above), and is loaded with a scope of its own: its libuv and libstdc++ are not the
 * program's, and a program that never needs it never loads it
 * (docs/architecture.md, *The engine is a library of its own*).
 */
#ifndef XSOCK_ENGINE_OPEN_H
#define XSOCK_ENGINE_OPEN_H

#include <stddef.h>

#include "libxsock/engine/engine_table.h"

extern const struct xsock_engine* xsock_engine_opened;

/* NULL with errno: ELIBACC (not found, cannot be loaded), ELIBBAD (of another version). Says why on
 * stderr, once. Any thread; not from a signal handler. */
const struct xsock_engine* xsock_engine_open_slow(void);

static inline const struct xsock_engine* xsock_engine_open(void) {
    const struct xsock_engine* const engine =
        __atomic_load_n(&xsock_engine_opened, __ATOMIC_ACQUIRE);
    return __builtin_expect(engine != NULL, 1) ? engine : xsock_engine_open_slow();
}

/* One line on stderr, at once: every call of the program is about to fail because of this. `detail`
 * may be NULL. */
void xsock_engine_print_error(const char* what, const char* detail);

#endif /* XSOCK_ENGINE_OPEN_H */
