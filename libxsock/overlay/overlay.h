/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the wrappers share: entering the engine with a socket, and leaving it.
 *
 * Most wrappers are one line, OVERLAY_CALL: one comparison and a jump to libc when no descriptor
 * has a handle, one load more when some have. What lies behind the question is a function of its
 * own, so that the way past it needs no stack. The engine's answer is the program's, unless it says
 * that the call is libc's after all.
 */
#ifndef XSOCK_OVERLAY_OVERLAY_H
#define XSOCK_OVERLAY_OVERLAY_H

#include <errno.h>
#include <pthread.h>

#include "libxsock/engine/engine_open.h"
#include "libxsock/overlay/fd_table.h"
#include "libxsock/overlay/libc_real.h"

/* Sanitizer builds have the engine linked in, and its calls of libc come through these wrappers. */
#ifdef XSOCK_ENGINE_LINKED
#define XSOCK_ENGINE_CALLS_US 1
#else
#define XSOCK_ENGINE_CALLS_US 0
#endif

/* What a thread does. */
enum overlay_state {
    OVERLAY_OUTSIDE = 0,
    OVERLAY_INSIDE = 1, /* a part of the overlay, or of the engine below it */
    OVERLAY_CALL = 2,   /* the engine alone */
    OVERLAY_REST = 3    /* which lets signals in, and holds no lock (transport/at_rest.hpp) */
};

struct overlay_call {
    struct fd_handle* handle;
    uint32_t generation;
    int cancel_state;
    int before; /* an enum overlay_state */
};

/* Inside, the thread cannot be cancelled: unwinding must not go through the engine. A call on a
 * DDPMODE descriptor from a signal handler that interrupted such a call is EDEADLK, unless that was
 * at rest.
 * @return 1: call the engine, then overlay_leave(); 0: the call is libc's; -1: errno is set */
int overlay_enter(struct overlay_call* call, int fd);
/* 1: the result is the program's; 0: the call is libc's; errno stays. -1: the call would be libc's,
 * but `fd` was closed in another thread meanwhile and may be any file's now; errno is EBADF. */
int overlay_leave(struct overlay_call* call, int fd, long result);

/* For a part of the engine that has no point of cancellation: the thread's state of it stays, which
 * two locked operations would change. Between the two overlay_stay() makes it an overlay_enter(),
 * and overlay_leave() follows. */
int overlay_enter_briefly(struct overlay_call* call, int fd);
void overlay_stay(struct overlay_call* call);
void overlay_leave_briefly(struct overlay_call* call);

/* In between, to sleep outside the engine: the thread may be cancelled there, and its signal
 * handlers may use sockets. Nothing is held but the handle. The two are a pair in one block, as
 * pthread_cleanup_push() is; errno stays. */
#define OVERLAY_SLEEP_BEGIN(call)                  \
    overlay_end((call)->before);                   \
    pthread_cleanup_push(overlay_give_back, call); \
    pthread_setcancelstate((call)->cancel_state, NULL);
#define OVERLAY_SLEEP_END(call)                               \
    do {                                                      \
        const int saved_ = errno;                             \
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL); \
        errno = saved_;                                       \
    } while (0);                                              \
    pthread_cleanup_pop(0);                                   \
    overlay_go_on();
void overlay_give_back(void* call);

#define OVERLAY(type, fd, call)                                            \
    do {                                                                   \
        struct overlay_call call_;                                         \
        int entered_;                                                      \
        if (!fd_has(fd)) break;                                            \
        entered_ = overlay_enter(&call_, fd);                              \
        if (entered_ < 0) return -1;                                       \
        if (entered_ > 0) {                                                \
            const struct xsock_engine* const engine = xsock_engine_opened; \
            struct xsock_socket* const sock = call_.handle->sock;          \
            (void)engine;                                                  \
            const type result_ = call;                                     \
            entered_ = overlay_leave(&call_, fd, (long)result_);           \
            if (entered_ > 0) return result_;                              \
            if (entered_ < 0) return -1;                                   \
        }                                                                  \
    } while (0)

/* libc's `name` if it is known and `special` is not; else `slow`, which finds it. */
#define OVERLAY_UNLESS(special, name, arguments, slow)                           \
    do {                                                                         \
        libc_##name##_fn* const real_ = (libc_##name##_fn*)atomic_load_explicit( \
            &libc_real[LIBC_##name], memory_order_relaxed);                      \
        if (XSOCK_UNLIKELY((special) || real_ == NULL)) return slow arguments;   \
        return real_ arguments;                                                  \
    } while (0)

/* Defines overlay_NAME: `call` on a DDPMODE descriptor, libc's function on any other. */
#define OVERLAY_CALL(result, name, parameters, arguments, fd, call)  \
    static __attribute__((noinline)) result name##_slow parameters { \
        OVERLAY(result, fd, call);                                   \
        return LIBC(name) arguments;                                 \
    }                                                                \
    result overlay_##name parameters { OVERLAY_UNLESS(fd_has(fd), name, arguments, name##_slow); }

/* As overlay_enter() without a handle: OVERLAY_CALL from now on. Returns what overlay_end() needs;
 * -1 with EDEADLK. */
int overlay_begin_call(void);
/* In a forked child. */
void overlay_forked(void);
/* OVERLAY_CALL again, behind a sleep. */
void overlay_go_on(void);
/* For socket_on_rest(). */
int overlay_rest(int state);
/* The thread is inside the engine, or in a part of the overlay that a signal handler must not enter
 * again. */
int overlay_inside(void);
/* Brackets such a part. Returns what overlay_end() needs. */
int overlay_begin(void);
void overlay_end(int before);

/* 1: `fd` is a DDPMODE socket (not an epoll set). */
int overlay_is_socket(int fd);
/* As socket_started(): 1: start-up has begun on it; 2: in our parent process, before fork(). */
int overlay_started(int fd);
/* Sets errno to `error`: a call is refused that would give a started one to another process. */
void overlay_refuse(int fd, int error);
/* A descriptor that the engine opened for itself; the program's loops over all numbers must leave
 * it open. */
int overlay_engine_owns(int fd);
/* What is queued is sent, for as long as exit would wait. In the process that queued it only. */
void overlay_drain(void);
/* The same, and all connections end in good order. */
void overlay_end_connections(void);

/* How a plain descriptor came to be, which decides the MPA role when it turns to DDPMODE later. */
void overlay_hint(int fd, int hint);
int overlay_hint_of(int fd);
/* A number that the kernel has just given out: also, it is in no epoll set. */
void overlay_hint_fresh(int fd, int hint);
/* What the kernel's accept() has brought; connect() has been called on a plain descriptor, with
 * that result. errno stays. */
int overlay_note_accepted(int fd);
void overlay_note_connected(int fd, int result);
/* What the kernel's recvmsg() has brought: descriptors among it are numbers of this process now. */
void overlay_note_rights(const struct msghdr* message);
/* 1 with EOPNOTSUPP: the message carries a started DDPMODE socket. */
int overlay_may_not_travel(const struct msghdr* message);
/* A plain descriptor is being added to an epoll set; whether that may have happened. */
void overlay_note_registered(int fd);
int overlay_may_be_registered(int fd);
/* In a forked child: locks that threads of the parent held are free, lists are whole. */
void overlay_wait_forked(void);
void overlay_stdio_forked(void);
void overlay_aio_forked(void);
/* `to` is about to be a duplicate of `from`: what stdout or stderr has buffered goes to the file
 * that is there, if one of them is a socket. Not where a thread is in the middle of a call on the
 * stream. */
void overlay_stdio_before(int from, int to);
/* The file of `fd` has changed: stdin, stdout or stderr follows. */
void overlay_stdio_follow(int fd);
/* `fd` has just got its handle: it goes on in the epoll sets that it was in. -1 with errno. */
int overlay_adopt_registrations(int fd);

#endif /* XSOCK_OVERLAY_OVERLAY_H */
