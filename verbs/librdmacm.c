/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * librdmacm.so.1: the exported functions of the real library, with its soname and symbol versions
 * (librdmacm.map), each a call through the engine's table. rsockets are in rsocket.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>

#include "verbs/load_engine.h"

#define EXPORT __attribute__((visibility("default")))

XSOCK_RDMA_FUNCTIONS(XSOCK_VERBS_FUNCTION)

EXPORT int rdma_get_cm_event(struct rdma_event_channel* channel, struct rdma_cm_event** event) {
    const struct xsock_verbs* const engine = xsock_verbs_load();

    if (engine == NULL) return -1;
    for (;;) {
        const int state = xsock_verbs_hold_cancellation();
        const int error = engine->verbs_try_cm_event(channel, event);
        xsock_verbs_release_cancellation(&state);
        if (error == 0) return 0;
        if (error == EINVAL) {
            /* The channel is gone. A thread that waits in a loop may come here at the end of a
             * program that has destroyed it (rping, which then exits with an error): it is told
             * when the others have had the time to end the process. */
            poll(NULL, 0, 1000);
            errno = error;
            return -1;
        }
        if (error != EAGAIN) {
            errno = error;
            return -1;
        }
        if (xsock_verbs_wait_readable(channel->fd, -1) != 0) return -1;
    }
}

/* ---- operations that a synchronous id (one without a channel) waits for ---- */

/* After `begun`, the result of an operation. A cancellation point. */
static int finish(const struct xsock_verbs* engine, struct rdma_cm_id* id, int begun) {
    if (begun != 0) return begun;
    for (;;) {
        const int state = xsock_verbs_hold_cancellation();
        const int error = engine->verbs_try_complete(id);
        xsock_verbs_release_cancellation(&state);
        if (error == 0) return 0;
        if (error != EAGAIN) {
            errno = error;
            return -1;
        }
        if (xsock_verbs_wait_readable(id->channel->fd, -1) != 0 && errno != EINTR) return -1;
    }
}

#define WAITING_FUNCTION(prefix, type, name, failed, parameters, arguments)                   \
    static type begin_##name(const struct xsock_verbs* engine, XSOCK_VERBS_LIST parameters) { \
        __attribute__((unused, cleanup(xsock_verbs_release_cancellation)))                    \
        const int cancel_state_ = xsock_verbs_hold_cancellation();                            \
        return engine->prefix##name arguments;                                                \
    }                                                                                         \
    EXPORT type prefix##name parameters {                                                     \
        const struct xsock_verbs* const engine_ = xsock_verbs_load();                         \
        if (engine_ == NULL) return failed;                                                   \
        return finish(engine_, id, begin_##name(engine_, XSOCK_VERBS_LIST arguments));        \
    }
#define XSOCK_VERBS_LIST(...) __VA_ARGS__
XSOCK_RDMA_WAITING_FUNCTIONS(WAITING_FUNCTION)

EXPORT int rdma_create_ep(struct rdma_cm_id** id, struct rdma_addrinfo* res, struct ibv_pd* pd,
                          struct ibv_qp_init_attr* attr) {
    const struct xsock_verbs* const engine = xsock_verbs_load();
    struct rdma_cm_id* made = NULL;
    int error;

    if (engine == NULL) return -1;
    if (id == NULL || res == NULL) {
        errno = EINVAL;
        return -1;
    }
    error = engine->verbs_begin_ep(&made, res);
    if (error != 0) {
        errno = error;
        return -1;
    }
    if (!(res->ai_flags & RAI_PASSIVE) &&
        (rdma_resolve_addr(made, res->ai_src_addr, res->ai_dst_addr, 2000) != 0 ||
         rdma_resolve_route(made, 2000) != 0)) {
        error = errno;
    } else {
        error = engine->verbs_finish_ep(made, res, pd, attr);
    }
    if (error != 0) {
        engine->rdma_destroy_id(made);
        errno = error;
        return -1;
    }
    *id = made;
    return 0;
}

EXPORT void rdma_destroy_ep(struct rdma_cm_id* id) {
    if (id == NULL) return;
    if (id->qp != NULL) rdma_destroy_qp(id);
    if (id->srq != NULL) rdma_destroy_srq(id);
    rdma_destroy_id(id);
}

EXPORT int rdma_get_request(struct rdma_cm_id* listen, struct rdma_cm_id** id) {
    const struct xsock_verbs* const engine = xsock_verbs_load();

    if (engine == NULL) return -1;
    if (listen == NULL || id == NULL) {
        errno = EINVAL;
        return -1;
    }
    for (;;) {
        const int state = xsock_verbs_hold_cancellation();
        const int error = engine->verbs_try_request(listen, id);
        xsock_verbs_release_cancellation(&state);
        if (error == 0) return 0;
        if (error != EAGAIN) {
            errno = error;
            return -1;
        }
        if (xsock_verbs_wait_readable(listen->channel->fd, -1) != 0) return -1;
    }
}

/* ---- words, and what an iWARP device does not have ---- */

EXPORT const char* rdma_event_str(enum rdma_cm_event_type event) {
    static const char* const texts[] = {
        [RDMA_CM_EVENT_ADDR_RESOLVED] = "RDMA_CM_EVENT_ADDR_RESOLVED",
        [RDMA_CM_EVENT_ADDR_ERROR] = "RDMA_CM_EVENT_ADDR_ERROR",
        [RDMA_CM_EVENT_ROUTE_RESOLVED] = "RDMA_CM_EVENT_ROUTE_RESOLVED",
        [RDMA_CM_EVENT_ROUTE_ERROR] = "RDMA_CM_EVENT_ROUTE_ERROR",
        [RDMA_CM_EVENT_CONNECT_REQUEST] = "RDMA_CM_EVENT_CONNECT_REQUEST",
        [RDMA_CM_EVENT_CONNECT_RESPONSE] = "RDMA_CM_EVENT_CONNECT_RESPONSE",
        [RDMA_CM_EVENT_CONNECT_ERROR] = "RDMA_CM_EVENT_CONNECT_ERROR",
        [RDMA_CM_EVENT_UNREACHABLE] = "RDMA_CM_EVENT_UNREACHABLE",
        [RDMA_CM_EVENT_REJECTED] = "RDMA_CM_EVENT_REJECTED",
        [RDMA_CM_EVENT_ESTABLISHED] = "RDMA_CM_EVENT_ESTABLISHED",
        [RDMA_CM_EVENT_DISCONNECTED] = "RDMA_CM_EVENT_DISCONNECTED",
        [RDMA_CM_EVENT_DEVICE_REMOVAL] = "RDMA_CM_EVENT_DEVICE_REMOVAL",
        [RDMA_CM_EVENT_MULTICAST_JOIN] = "RDMA_CM_EVENT_MULTICAST_JOIN",
        [RDMA_CM_EVENT_MULTICAST_ERROR] = "RDMA_CM_EVENT_MULTICAST_ERROR",
        [RDMA_CM_EVENT_ADDR_CHANGE] = "RDMA_CM_EVENT_ADDR_CHANGE",
        [RDMA_CM_EVENT_TIMEWAIT_EXIT] = "RDMA_CM_EVENT_TIMEWAIT_EXIT",
    };
    const unsigned index = (unsigned)event;
    return index < sizeof texts / sizeof *texts ? texts[index] : "UNKNOWN EVENT";
}

static int refuse(void) {
    errno = EOPNOTSUPP;
    return -1;
}

EXPORT int rdma_join_multicast(struct rdma_cm_id* id, struct sockaddr* address, void* context) {
    (void)id, (void)address, (void)context;
    return refuse();
}
EXPORT int rdma_join_multicast_ex(struct rdma_cm_id* id, struct rdma_cm_join_mc_attr_ex* attr,
                                  void* context) {
    (void)id, (void)attr, (void)context;
    return refuse();
}
EXPORT int rdma_leave_multicast(struct rdma_cm_id* id, struct sockaddr* address) {
    (void)id, (void)address;
    return refuse();
}
