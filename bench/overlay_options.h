/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What overlay_cost, overlay_start and files_cost share: their command line. */
#ifndef XSOCK_BENCH_OVERLAY_OPTIONS_H
#define XSOCK_BENCH_OVERLAY_OPTIONS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct overlay_options {
    const char* path; /* of the preload */
    int json, rounds;
};

static void overlay_usage(FILE* out, const char* name, const char* what) {
    fprintf(out, "usage: %s [--json] [--rounds N] PRELOAD.SO\n\n%s\n", name, what);
    exit(out == stderr ? 2 : 0);
}

/* `what` says in --help what the program measures. Does not return where the words are wrong. */
static struct overlay_options overlay_options(int argc, char** argv, int rounds, const char* name,
                                              const char* what) {
    struct overlay_options options = {NULL, 0, rounds};
    int i;
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) overlay_usage(stdout, name, what);
        if (strcmp(argv[i], "--json") == 0) {
            options.json = 1;
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            options.rounds = atoi(argv[++i]);
        } else if (argv[i][0] != '-' && options.path == NULL) {
            options.path = argv[i];
        } else {
            overlay_usage(stderr, name, what);
        }
    }
    if (options.path == NULL || options.rounds < 1) overlay_usage(stderr, name, what);
    return options;
}

#endif /* XSOCK_BENCH_OVERLAY_OPTIONS_H */
