/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the overlay does in a forked child, in one place. It needs its own handlers: a child may
 * have to be told before the engine is loaded, and _Fork() and clone() run no handlers at all.
 */
#ifndef XSOCK_OVERLAY_FORK_H
#define XSOCK_OVERLAY_FORK_H

#include <stdatomic.h>
#include <stdint.h>

/* Grows in a forked child, where the references of calls under way are not counted any more. A call
 * whose thread's own signal handler forked goes on there: it must not give its references back. */
extern _Atomic uint32_t fork_generation;

/* Forks that this process, or a parent up to the fork, has made. What it had then may be open in
 * two processes. A child of vfork() counts when it executes a program; _Fork() and clone() are not
 * counted. */
extern _Atomic uint32_t fork_count;

/* From now on a child of fork() is renewed: locks are free, counts are its own. Any number of
 * calls.
 */
void fork_watch(void);

/* From now on fork_notice() sees a child of _Fork() or clone() too. -1: no memory. Any number of
 * calls, one at a time. */
int fork_detect(void);

/* What the kernel clears in a forked child. NULL before fork_detect(). */
extern _Atomic uint32_t* _Atomic fork_page;
void fork_renew(void);
/* Renews the process if it is a child that no handler told. @pre fork_detect() */
static inline void fork_notice(void) {
    const _Atomic uint32_t* const page = atomic_load_explicit(&fork_page, memory_order_relaxed);
    if (__builtin_expect(atomic_load_explicit(page, memory_order_acquire) == 0, 0)) fork_renew();
}

/* 1: this process uses the memory of another, whose the table is (vfork). @pre fork_detect() */
int fork_shares_memory(void);

#endif /* XSOCK_OVERLAY_FORK_H */
