/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Preloaded into node: makes os.getPriority(pid) of three invented processes a way for a script to
 * run the engine inside node, without an addon. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "tests/system/host_loopback.h"

enum { EXCHANGE = 1000000001, BEGIN = 1000000002, END = 1000000003, WELL = 7 };

static pthread_t thread;
static atomic_int stop;
static atomic_int rounds;

static int say(const char* wrong) {
    if (wrong == NULL) return WELL;
    fprintf(stderr, "host_shim: %s: %s\n", wrong, strerror(errno));
    return 1;
}

static void* run(void* unused) {
    const char* wrong = NULL;

    (void)unused;
    while (wrong == NULL && !atomic_load(&stop)) {
        wrong = loopback_exchange(50);
        atomic_fetch_add(&rounds, 1);
    }
    return (void*)wrong;
}

__attribute__((visibility("default"))) int getpriority(__priority_which_t which, id_t who) {
    int (*real)(__priority_which_t, id_t);
    void* wrong;

    switch (who) {
        case EXCHANGE:
            return say(loopback_exchange(200));
        case BEGIN:
            return pthread_create(&thread, NULL, run, NULL) == 0 ? WELL : 1;
        case END:
            atomic_store(&stop, 1);
            pthread_join(thread, &wrong);
            return say(atomic_load(&rounds) > 0 ? wrong : "no round");
    }
    *(void**)&real = dlsym(RTLD_NEXT, "getpriority");
    return real(which, who);
}
