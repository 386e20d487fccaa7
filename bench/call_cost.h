/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a call costs more in one library than in another, in one process: called in turn, in short
 * rounds, so that what the machine does meanwhile meets both alike.
 */
#ifndef XSOCK_BENCH_CALL_COST_H
#define XSOCK_BENCH_CALL_COST_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CALLS_PER_ROUND = 200 };

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double round_of(void (*call)(void*), void* function) {
    const double begin = now_ns();
    int i;
    for (i = 0; i < CALLS_PER_ROUND; i++) call(function);
    return (now_ns() - begin) / CALLS_PER_ROUND;
}

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

/* Nanoseconds per call: libc's, and the median of the differences. */
struct result {
    double libc, more;
};

static struct result measure(void (*call)(void*), void* real, void* ours, int rounds) {
    double* const base = malloc((size_t)rounds * sizeof *base);
    double* const more = malloc((size_t)rounds * sizeof *more);
    struct result r = {0, 0};
    int i;
    if (base == NULL || more == NULL) exit(1);
    for (i = 0; i < rounds; i++) {
        /* Each first as often as the other. */
        const double a = i % 2 ? 0 : round_of(call, real);
        const double b = round_of(call, ours);
        base[i] = i % 2 ? round_of(call, real) : a;
        more[i] = b - base[i];
    }
    qsort(base, (size_t)rounds, sizeof *base, ascending);
    qsort(more, (size_t)rounds, sizeof *more, ascending);
    r.libc = base[rounds / 2];
    r.more = more[rounds / 2];
    free(base);
    free(more);
    return r;
}

static void* find(void* library, const char* name) {
    void* const found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(1);
    }
    return found;
}

#endif /* XSOCK_BENCH_CALL_COST_H */
