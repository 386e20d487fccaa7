/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Makes one call fail: the n-th of a name in a phase. The calls are those that the library makes of
 * libc, allocations and system calls; they are reached by its import tables (GOT), since a
 * preloaded library is not: the engine is opened with RTLD_DEEPBIND. What the test calls itself is
 * untouched. Counts are shared with processes that are forked later.
 */
#ifndef XSOCK_TESTS_FAULT_POINTS_H
#define XSOCK_TESTS_FAULT_POINTS_H

enum { FAULT_NAMES_MAX = 64 };

enum fault_phase { PHASE_OFF, PHASE_START, PHASE_TRAFFIC, PHASE_CLOSE, PHASE_COUNT };
extern const char* const phase_names[PHASE_COUNT];

/* name: index; nth from 1; error: the errno that the call fails with. */
struct fault_point {
    enum fault_phase phase;
    int name, nth, error;
};

/* Once, before anything else: redirects the libraries that are loaded, and from then on those that
 * they load. Needs LD_BIND_NOW=1. */
void fault_points_open(void);

/* Forgets all counts; with a point, that call of this process and its children will fail. `tells`:
 * where it was made goes to standard error. */
void fault_points_arm(const struct fault_point* point, int tells);
/* From here on this process's calls count as this phase's; those of PHASE_OFF never fail. */
void fault_points_phase(enum fault_phase phase);
/* How often the name was called in the phase since fault_points_arm(). */
int fault_points_count(enum fault_phase phase, int name);
/* Whether the point has been reached. */
int fault_points_hit(void);
/* This thread's callers, innermost first, to standard error. Async-signal-safe. */
void fault_points_print_stack(void);

/* NULL behind the last. */
const char* fault_name(int name);
/* The errors that a call may fail with; 0 behind the last. */
const int* fault_errors(int name);

#endif /* XSOCK_TESTS_FAULT_POINTS_H */
