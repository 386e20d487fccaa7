/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * libxsock.so: the public functions, each a call through the engine's table. The libc names that
 * the library exports too are in overlay/.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>

#include "libxsock/engine/engine_open.h"
#include "libxsock/overlay/fd_table.h"
#include "libxsock/overlay/libc_real.h"
#include "libxsock/overlay/shared.h"

#define QUICK_CALL(type, name, failed, parameters, arguments)          \
    XSOCK_API type xsock_##name parameters {                           \
        const struct xsock_engine* const engine = xsock_engine_open(); \
        if (engine == NULL) return failed;                             \
        return engine->name arguments;                                 \
    }

/* Unwinding must not go through the engine. */
#define CALL(type, name, failed, parameters, arguments)                \
    XSOCK_API type xsock_##name parameters {                           \
        const struct xsock_engine* engine;                             \
        type answer = failed;                                          \
        int cancel_state;                                              \
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state); \
        engine = xsock_engine_open();                                  \
        if (engine != NULL) answer = engine->name arguments;           \
        pthread_setcancelstate(cancel_state, NULL);                    \
        return answer;                                                 \
    }

/* The one place where a thread is cancelled: asleep, or before the call has begun. */
static void end_sleep(void* sleep) { xsock_engine_opened->sleep_end(sleep); }

static void sleep_in_poll(struct xsock_sleep* sleep, int cancel_state) {
    int n;
    pthread_cleanup_push(end_sleep, sleep);
    if (sleep->taken == 0) pthread_setcancelstate(cancel_state, NULL);
    n = LIBC(poll)(sleep->fds, sleep->count, sleep->timeout_ms);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cleanup_pop(0);
    if (n > 0) return;
    for (n = 0; n < (int)sleep->count; n++) sleep->fds[n].revents = 0;
}

#define SLEEPING_CALL(type, name, failed, parameters, with_sleep, arguments) \
    XSOCK_API type xsock_##name parameters {                                 \
        const struct xsock_engine* engine;                                   \
        struct xsock_sleep sleep;                                            \
        int cancel_state;                                                    \
        type answer = failed;                                                \
        pthread_testcancel();                                                \
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);       \
        engine = xsock_engine_open();                                        \
        sleep.asleep = sleep.begun = sleep.taken = 0;                        \
        if (engine != NULL) answer = engine->name arguments;                 \
        while (sleep.asleep) {                                               \
            sleep_in_poll(&sleep, cancel_state);                             \
            answer = engine->name arguments;                                 \
        }                                                                    \
        pthread_setcancelstate(cancel_state, NULL);                          \
        return answer;                                                       \
    }

#ifdef XSOCK_ENGINE_LINKED /* without engine/uncancelled.c */
XSOCK_QUICK_FUNCTIONS(CALL)
#else
XSOCK_QUICK_FUNCTIONS(QUICK_CALL)
#endif
XSOCK_FUNCTIONS(CALL)
XSOCK_SLEEPING_FUNCTIONS(SLEEPING_CALL)

/* The descriptor may be in the table of the preload library. */
XSOCK_API struct xsock_ep* xsock_fd_endpoint(int fd, struct xsock_cq* send_cq,
                                             struct xsock_cq* recv_cq) {
    const struct xsock_overlay* const overlay = overlay_first();
    struct fd_handle* handle;
    struct xsock_ep* ep = NULL;
    int saved, cancel_state;
    if (xsock_engine_open() == NULL) return NULL;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    handle = overlay->get(fd);
    if (handle == NULL || XSOCK_IS_SET(handle->sock)) {
        errno = fcntl(fd, F_GETFD) < 0 ? EBADF : ENOTCONN;
    } else {
        ep = xsock_engine_opened->socket_endpoint(handle->sock, fd, send_cq, recv_cq);
    }
    saved = errno;
    overlay->put(handle);
    pthread_setcancelstate(cancel_state, NULL);
    errno = saved;
    return ep;
}

/* Needs no engine: reading what a peer sent. */
XSOCK_API void xsock_key_read(const struct xsock_key* key, struct xsock_remote* remote) {
    const uint8_t* o = key->bytes;
    int i;

    memset(remote, 0, sizeof *remote);
    for (i = 0; i < 8; i++) remote->to = remote->to << 8 | o[i];
    for (i = 8; i < 16; i++) remote->length = remote->length << 8 | o[i];
    for (i = 16; i < 20; i++) remote->stag = remote->stag << 8 | o[i];
    for (i = 20; i < 24; i++) remote->access = remote->access << 8 | o[i];
}
