/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The functions behind ours: libc's, or those of another preloaded library that stands before it.
 * LIBC(read)(fd, buffer, count) calls the next `read` after this library's.
 *
 * Found when the library is loaded, all at once, because many of them may first be called from a
 * signal handler, and dlsym() takes a lock; a call before that (from a constructor that runs
 * earlier) looks up its own function. Allocates nothing: an allocator may be the caller.
 */
#ifndef XSOCK_OVERLAY_LIBC_REAL_H
#define XSOCK_OVERLAY_LIBC_REAL_H

#include <stdatomic.h>

#include "libxsock/overlay/libc_calls.h"

#define XSOCK_LIKELY(x) __builtin_expect(!!(x), 1)
#define XSOCK_UNLIKELY(x) __builtin_expect(!!(x), 0)

#define XSOCK_NO_ALIAS(alias, name)
#define XSOCK_NO_KEEP(name, words)

#define XSOCK_LIBC_INDEX(name, result, parameters, words) LIBC_##name,
enum libc_index { XSOCK_LIBC_CALLS(XSOCK_LIBC_INDEX, XSOCK_NO_ALIAS, XSOCK_NO_KEEP) LIBC_COUNT };

#define XSOCK_LIBC_TYPE(name, result, parameters, words) typedef result libc_##name##_fn parameters;
XSOCK_LIBC_CALLS(XSOCK_LIBC_TYPE, XSOCK_NO_ALIAS, XSOCK_NO_KEEP)

/* Ours, under the names of libc in the object file and under others in C, where libc's own
 * declarations stand. */
#define XSOCK_LIBC_DECLARE(name, result, parameters, words) \
    __attribute__((visibility("default"))) result overlay_##name parameters __asm__(#name);
XSOCK_LIBC_CALLS(XSOCK_LIBC_DECLARE, XSOCK_NO_ALIAS, XSOCK_NO_KEEP)

/* Beside the definition of overlay_NAME: exports it as ALIAS too. */
#define XSOCK_LIBC_ALIAS(alias_name, name)                                          \
    extern __typeof(overlay_##name) overlay_alias_##alias_name __asm__(#alias_name) \
        __attribute__((alias(#name), visibility("default")));

extern void* _Atomic libc_real[LIBC_COUNT];

/* Finds one, keeps it. NULL: this libc has no such function. */
void* libc_find(enum libc_index index);
/* Finds all. */
void libc_find_all(void);
/* What stands for a function that this libc lacks: -1 with ENOSYS. */
long libc_missing(void);

static inline void* libc_get(enum libc_index index) {
    void* const real = atomic_load_explicit(&libc_real[index], memory_order_relaxed);
    return XSOCK_LIKELY(real != NULL) ? real : libc_find(index);
}

#define LIBC(name) ((libc_##name##_fn*)libc_get(LIBC_##name))

#endif /* XSOCK_OVERLAY_LIBC_REAL_H */
