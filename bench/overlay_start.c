/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How much later a process ends that does nothing, with the overlay preloaded: /bin/true, with and
 * without in turn. Prints milliseconds: the median without, and of the differences of neighbours.
 *
 *   overlay_start [--json] [--rounds N] LIBXSOCK-PRELOAD.SO
 */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "bench/overlay_options.h"

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + (double)t.tv_nsec / 1e6;
}

static double start(char* const* envp) {
    char* const argv[] = {"true", NULL};
    const double begin = now_ms();
    pid_t child;
    int status;
    if (posix_spawn(&child, "/bin/true", NULL, NULL, argv, envp) != 0 ||
        waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "overlay_start: /bin/true failed\n");
        exit(1);
    }
    return now_ms() - begin;
}

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

int main(int argc, char** argv) {
    char preload[4096];
    char* with[] = {preload, NULL};
    char* without[] = {NULL};
    double *base, *more;
    struct overlay_options options;
    int i;

    options = overlay_options(argc, argv, 501, "overlay_start",
                              "Milliseconds that /bin/true takes longer under the libc overlay.");
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", options.path);
    base = calloc((size_t)options.rounds, sizeof *base);
    more = calloc((size_t)options.rounds, sizeof *more);
    if (base == NULL || more == NULL) return 1;
    start(with), start(without); /* both are in the page cache now */
    for (i = 0; i < options.rounds; i++) {
        const double first = start(i % 2 ? with : without);
        const double second = start(i % 2 ? without : with);
        base[i] = i % 2 ? second : first;
        more[i] = i % 2 ? first - second : second - first;
    }
    qsort(base, (size_t)options.rounds, sizeof *base, ascending);
    qsort(more, (size_t)options.rounds, sizeof *more, ascending);
    printf(options.json ? "{\"without_ms\": %.3f, \"more_ms\": %.3f}\n"
                        : "/bin/true %.3f ms, under the overlay %+.3f ms\n",
           base[options.rounds / 2], more[options.rounds / 2]);
    free(base);
    free(more);
    return 0;
}
