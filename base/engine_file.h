/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How the thin libraries (libxsock.so, the preload library, the drop-in verbs libraries) find the
 * file of the engine and get its table. Each has a copy of this; the engine is one object for the
 * whole process.
 */
#ifndef XSOCK_BASE_ENGINE_FILE_H
#define XSOCK_BASE_ENGINE_FILE_H

#include <stddef.h>

/* One line on stderr, at once: every call of the program is about to fail because of this. `detail`
 * may be NULL. */
void xsock_engine_complain(const char* what, const char* detail);

/* Opens libxsock-engine.so with a scope of its own, and asks it for its table.
 *
 * places  `count` paths, from where the file lies that `self` is in; the first that exists is taken
 * error   ELIBACC (not found, cannot be loaded) or ELIBBAD (without a table), when it failed
 * @return the table, of a version that the caller has to check; NULL after a line on stderr. Any
 * thread; not from a signal handler. */
const void* xsock_engine_load(const void* self, const char* const* places, size_t count,
                              int* error);

#endif /* XSOCK_BASE_ENGINE_FILE_H */
