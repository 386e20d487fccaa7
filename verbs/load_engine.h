/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How both drop-in libraries come to the engine. Each has a copy of this; the engine is one object
 * for the whole process.
 */
#ifndef XSOCK_VERBS_LOAD_ENGINE_H
#define XSOCK_VERBS_LOAD_ENGINE_H

#include "verbs/table.h"

/* The table, or NULL with errno set, after a sentence on stderr the first time. Any thread. */
const struct xsock_verbs* xsock_verbs_load(void);

/* Waits until `fd` is readable, `timeout_ms` at most (-1: no limit); a cancellation point. 0; 1:
 * the time is up; or -1 with errno: EAGAIN when the program has made the descriptor non-blocking,
 * and EINTR after a signal, unless all handlers of the process have SA_RESTART. */
int xsock_verbs_wait_readable(int fd, int timeout_ms);
/* The same, whether O_NONBLOCK is set or not. */
int xsock_verbs_sleep(int fd, int timeout_ms);

/* No thread is cancelled inside the engine: unwinding would end the process there. */
int xsock_verbs_hold_cancellation(void);
void xsock_verbs_release_cancellation(const int* state);

/* A function of the lists in table.h, as the libraries export it. */
#define XSOCK_VERBS_FUNCTION(prefix, type, name, failed, parameters, arguments) \
    __attribute__((visibility("default"))) type prefix##name parameters {       \
        __attribute__((unused, cleanup(xsock_verbs_release_cancellation)))      \
        const int cancel_state_ = xsock_verbs_hold_cancellation();              \
        const struct xsock_verbs* const engine_ = xsock_verbs_load();           \
        if (engine_ == NULL) return failed;                                     \
        return engine_->prefix##name arguments;                                 \
    }

#endif /* XSOCK_VERBS_LOAD_ENGINE_H */
