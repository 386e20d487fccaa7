/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "verbs/load_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#include "libxsock/engine/engine_open.h"

static const struct xsock_verbs* verbs;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void accept_table(void) {
    const struct xsock_engine* const engine = xsock_engine_open();

    if (engine->verbs == NULL || engine->verbs->table_version != XSOCK_VERBS_VERSION ||
        engine->verbs->table_size != sizeof(struct xsock_verbs)) {
        xsock_engine_print_error(
            "libibverbs.so.1, librdmacm.so.1 and libxsock-engine.so are of different versions; "
            "reinstall them together",
            NULL);
        return;
    }
    __atomic_store_n(&verbs, engine->verbs, __ATOMIC_RELEASE);
}

const struct xsock_verbs* xsock_verbs_load(void) {
    const struct xsock_verbs* table = __atomic_load_n(&verbs, __ATOMIC_ACQUIRE);
    if (__builtin_expect(table != NULL, 1)) return table;
    /* After a shortage it tries again. */
    if (xsock_engine_open() == NULL) return NULL;
    pthread_once(&once, accept_table);
    if (verbs == NULL) errno = ELIBBAD;
    return verbs;
}

/* rdma-core waits in read(), which the kernel goes on with after a handler that has SA_RESTART
 * (those of signal() have it: perftest's alarm); poll() it never does. The kernel does not tell
 * which handler ran. */
static int every_handler_restarts(void) {
    struct sigaction action;
    int signal;

    for (signal = 1; signal < NSIG; ++signal) {
        /* Those of faults do not come from outside; the engine has some, sanitizers and reporters
         * of crashes have more. */
        if (signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL ||
            signal == SIGTRAP || signal == SIGSYS || signal == SIGABRT) {
            continue;
        }
        if (sigaction(signal, NULL, &action) != 0) continue;
        if ((action.sa_flags & SA_SIGINFO) == 0 &&
            (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN)) {
            continue;
        }
        if ((action.sa_flags & SA_RESTART) == 0) return 0;
    }
    return 1;
}

int xsock_verbs_wait_readable(int fd, int timeout_ms) {
    const int flags = fcntl(fd, F_GETFL);

    if (flags < 0) return -1;
    if (flags & O_NONBLOCK) {
        errno = EAGAIN;
        return -1;
    }
    return xsock_verbs_sleep(fd, timeout_ms);
}

int xsock_verbs_sleep(int fd, int timeout_ms) {
    struct pollfd p = {fd, POLLIN, 0};
    int n;

    do {
        n = poll(&p, 1, timeout_ms);
    } while (n < 0 && errno == EINTR && every_handler_restarts());
    return n < 0 ? -1 : n == 0;
}

int xsock_verbs_hold_cancellation(void) {
    int state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}

void xsock_verbs_release_cancellation(const int* state) {
    int ignored;

    pthread_setcancelstate(*state, &ignored);
}
