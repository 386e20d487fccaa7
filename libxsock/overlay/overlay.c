/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Entering and leaving the engine, and what is asked about descriptors. */
#include "libxsock/overlay/overlay.h"

#include <errno.h>
#include <pthread.h>

#include "libxsock/overlay/fork.h"
#include "libxsock/overlay/summary.h"

/* One word in the static block: found without a call. */
static __thread int inside __attribute__((tls_model("initial-exec")));

int overlay_inside(void) { return inside; }

int overlay_begin(void) {
    const int before = inside;
    inside = OVERLAY_INSIDE;
    return before;
}

static int may_enter(void) { return inside == OVERLAY_OUTSIDE || inside == OVERLAY_REST; }

int overlay_begin_call(void) {
    const int before = inside;
    if (!may_enter()) {
        errno = EDEADLK;
        return -1;
    }
    inside = OVERLAY_CALL;
    return before;
}

void overlay_go_on(void) { inside = OVERLAY_CALL; }

/* What a handler has forked at rest, and may never return from, holds nothing. */
void overlay_forked(void) {
    if (inside == OVERLAY_REST) inside = OVERLAY_OUTSIDE;
}

int overlay_rest(int state) {
    const int before = inside;
    if (state >= 0) {
        inside = state;
    } else if (state == -1 && before == OVERLAY_CALL) {
        inside = OVERLAY_REST;
    }
    return before;
}

void overlay_end(int before) {
    inside = before;
    if (!before) fd_put_deferred();
}

int overlay_enter_briefly(struct overlay_call* call, int fd) {
    struct fd_handle* const handle = fd_get(fd);
    if (handle == NULL) return 0;
    if (XSOCK_IS_SET(handle->sock)) {
        fd_put(handle);
        return 0;
    }
    if (XSOCK_UNLIKELY(!may_enter())) {
        fd_put(handle);
        if (XSOCK_ENGINE_CALLS_US) return 0;
        errno = EDEADLK;
        return -1;
    }
    call->handle = handle;
    call->generation = atomic_load_explicit(&fork_generation, memory_order_relaxed);
    call->before = inside;
    inside = OVERLAY_CALL;
    return 1;
}

void overlay_stay(struct overlay_call* call) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &call->cancel_state);
}

int overlay_enter(struct overlay_call* call, int fd) {
    const int entered = overlay_enter_briefly(call, fd);
    if (entered > 0) overlay_stay(call);
    return entered;
}

/* Before its number may be another's. */
static void note_plain(int fd, struct fd_handle* handle) {
    const int before = overlay_begin();
    if (!atomic_load(&handle->plain)) xsock_engine_opened->socket_note_plain(handle->sock, fd);
    overlay_end(before);
}

void overlay_leave_briefly(struct overlay_call* call) {
    inside = call->before;
    if (XSOCK_LIKELY(call->generation ==
                     atomic_load_explicit(&fork_generation, memory_order_relaxed))) {
        fd_put(call->handle);
    }
    if (XSOCK_LIKELY(!inside)) fd_put_deferred();
}

int overlay_leave(struct overlay_call* call, int fd, long result) {
    int saved = errno;
    int answer = result != XSOCK_PLAIN && result != XSOCK_PASS;
    inside = call->before;
    if (XSOCK_UNLIKELY(result == XSOCK_PLAIN)) {
        summary_mode(call->handle);
        note_plain(fd, call->handle);
        if (!fd_forget_all_of(fd, call->handle)) {
            saved = EBADF;
            answer = -1;
        }
    }
    overlay_leave_briefly(call);
    pthread_setcancelstate(call->cancel_state, NULL);
    errno = saved;
    return answer;
}

void overlay_give_back(void* argument) {
    const struct overlay_call* const call = argument;
    if (call->generation == atomic_load_explicit(&fork_generation, memory_order_relaxed)) {
        fd_put(call->handle);
    }
}

int overlay_is_socket(int fd) {
    struct fd_handle* const handle = fd_get(fd);
    const int is = handle != NULL && !XSOCK_IS_SET(handle->sock);
    fd_put(handle);
    return is;
}

int overlay_started(int fd) {
    struct fd_handle* const handle = fd_get(fd);
    int started = 0;
    if (handle != NULL && !XSOCK_IS_SET(handle->sock)) {
        started = xsock_engine_opened->socket_started(handle->sock);
    }
    fd_put(handle);
    return started;
}

void overlay_refuse(int fd, int error) {
    struct fd_handle* const handle = fd_get(fd);
    if (handle != NULL && !XSOCK_IS_SET(handle->sock) && !inside) {
        const int before = overlay_begin();
        xsock_engine_opened->socket_refuse(handle->sock, fd);
        overlay_end(before);
    }
    fd_put(handle);
    errno = error;
}

int overlay_engine_owns(int fd) { return fd_any() && xsock_engine_opened->socket_owns(fd); }

void overlay_drain(void) {
    int before;
    if (!fd_any() || inside || !fd_table_is_ours()) return;
    before = overlay_begin();
    xsock_engine_opened->socket_drain(-1);
    overlay_end(before);
}

void overlay_end_connections(void) {
    int before;
    /* Without fork_detect() there was never a handle, nor a policy. */
    if (xsock_engine_opened == NULL || !may_enter() || atomic_load(&fork_page) == NULL) return;
    if (fork_shares_memory()) return;
    before = overlay_begin();
    xsock_engine_opened->socket_exit();
    overlay_end(before);
}

/* ---- hints ------------------------------------------------------------------------------------
 * A byte for each descriptor. Pages of it exist once they are written. */
static _Atomic unsigned char hints[1 << 20];

enum { HINT_REGISTERED = 0x80 }; /* beside one of enum xsock_socket_hint */

static unsigned char hints_of(int fd) {
    return atomic_load_explicit(&hints[fd], memory_order_relaxed);
}

void overlay_hint_fresh(int fd, int hint) {
    if ((size_t)fd < sizeof hints) {
        atomic_store_explicit(&hints[fd], (unsigned char)hint, memory_order_relaxed);
    }
}

void overlay_hint(int fd, int hint) {
    if ((size_t)fd < sizeof hints) overlay_hint_fresh(fd, hint | (hints_of(fd) & HINT_REGISTERED));
}

int overlay_hint_of(int fd) {
    if ((size_t)fd >= sizeof hints) return XSOCK_HINT_NONE;
    return hints_of(fd) & ~HINT_REGISTERED;
}

void overlay_note_registered(int fd) {
    if ((size_t)fd < sizeof hints && (hints_of(fd) & HINT_REGISTERED) == 0) {
        overlay_hint_fresh(fd, hints_of(fd) | HINT_REGISTERED);
    }
}

int overlay_may_be_registered(int fd) {
    return (size_t)fd >= sizeof hints || (hints_of(fd) & HINT_REGISTERED) != 0;
}
