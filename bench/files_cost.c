/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What open() and stat() of other paths cost more under the preload that shows programs the files
 * of an RDMA device. Under `xsock run --roce`, so that there are such files:
 *
 *   xsock run --roce -- files_cost [--json] [--rounds N] LIBXSOCK-RDMA-FILES.SO
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/call_cost.h"
#include "bench/overlay_options.h"

static void call_open(void* f) {
    close(((int (*)(const char*, int, ...))f)("/dev/null", O_RDONLY));
}
static void call_open_missing(void* f) {
    ((int (*)(const char*, int, ...))f)("/dev/no-such-file", O_RDONLY);
}
static void call_stat(void* f) {
    struct stat s;
    ((int (*)(const char*, struct stat*))f)("/dev/null", &s);
}
static void call_stat_sys(void* f) {
    struct stat s;
    ((int (*)(const char*, struct stat*))f)("/sys/devices", &s);
}

static void call_stat_long(void* f) {
    struct stat s;
    ((int (*)(const char*, struct stat*))f)("/usr/share/common-licenses/GPL-2", &s);
}
static void call_stat_relative(void* f) {
    struct stat s;
    ((int (*)(const char*, struct stat*))f)("no-such-folder/and-no-such-file.c", &s);
}

static const struct {
    const char *what, *name;
    void (*call)(void* function);
} rows[] = {{"open and close", "open", call_open},
            {"open, missing", "open", call_open_missing},
            {"stat", "stat", call_stat},
            {"stat below /sys", "stat", call_stat_sys},
            {"stat below /usr", "stat", call_stat_long},
            {"stat, relative", "stat", call_stat_relative}};
enum { ROWS = sizeof rows / sizeof *rows };

int main(int argc, char** argv) {
    const struct overlay_options options =
        overlay_options(argc, argv, 5001, "files_cost",
                        "Nanoseconds that open() and stat() of other paths cost more under the "
                        "preload for an RDMA device's files.");
    void* const libc = dlopen("libc.so.6", RTLD_NOW);
    void* const preload = libc != NULL ? dlopen(options.path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (preload == NULL) {
        fprintf(stderr, "files_cost: %s\n", dlerror());
        return 1;
    }
    if (getenv("XSOCK_VERBS_TREE") == NULL) {
        fprintf(stderr, "files_cost: there are no files to show; start it by xsock run --roce\n");
        return 1;
    }
    if (!options.json) printf("%-16s %8s %10s\n", "ns per call", "libc", "preload");
    for (int i = 0; i < ROWS; i++) {
        const struct result r = measure(rows[i].call, find(libc, rows[i].name),
                                        find(preload, rows[i].name), options.rounds);
        if (options.json) {
            printf("%s{\"call\": \"%s\", \"libc_ns\": %.1f, \"more_ns\": %.2f}", i ? ", " : "[",
                   rows[i].what, r.libc, r.more);
        } else {
            printf("%-16s %8.1f %+10.2f\n", rows[i].what, r.libc, r.more);
        }
    }
    if (options.json) printf("]\n");
    return 0;
}
