/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * syscall(): programs that call the kernel by number through libc. A number that the list of
 * libc_calls.h has a name for goes to the engine when a descriptor of the call has a handle: for
 * poll and select any of those named, for epoll the set. Every other call is the kernel's, with the
 * program's own arguments. Either way result, errno and what is written back are the kernel's, not
 * those of libc's function of the name, and the call is no cancellation point, as syscall() is
 * none.
 *
 * Other numbers, and all before the first handle, go straight on by a jump: a frame of ours would
 * be returned through twice by a clone that shares memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/policy.h"
#include "libxsock/overlay/raw_wait.h"
#include "libxsock/overlay/wait.h"

/* One function for each number. 1: *result is the program's; 0: the kernel is asked, with the
 * arguments that are in `a` then. Cancellation is disabled meanwhile. */
#define RAW(name) static int raw_##name(long* a, long* result)

/* Those with a handle at a[at] go to the wrapper. */
#define RAW_WITH_HANDLE(name, at, call)    \
    RAW(name) {                            \
        if (!fd_has((int)a[at])) return 0; \
        *result = call;                    \
        return 1;                          \
    }

/* Those whose wrapper keeps account of plain descriptors too, and is no cancellation point. */
#define RAW_ALWAYS(name, call) \
    RAW(name) {                \
        *result = call;        \
        return 1;              \
    }

/* ---- data ---------------------------------------------------------------------------------------
 */
RAW_WITH_HANDLE(read, 0, overlay_read((int)a[0], (void*)a[1], (size_t)a[2]))
RAW_WITH_HANDLE(write, 0, overlay_write((int)a[0], (const void*)a[1], (size_t)a[2]))

RAW_WITH_HANDLE(readv, 0, overlay_readv((int)a[0], (const struct iovec*)a[1], (int)a[2]))
RAW_WITH_HANDLE(writev, 0, overlay_writev((int)a[0], (const struct iovec*)a[1], (int)a[2]))

/* The offset is split into two words, low and high, of which a 64-bit kernel takes the low one. */
static off64_t offset_of(const long* a) {
    return sizeof(long) == sizeof(off64_t) ? a[3]
                                           : (off64_t)((uint64_t)a[4] << 32 | (unsigned long)a[3]);
}

RAW_WITH_HANDLE(preadv2, 0,
                overlay_preadv64v2((int)a[0], (const struct iovec*)a[1], (int)a[2], offset_of(a),
                                   (int)a[5]))
RAW_WITH_HANDLE(pwritev2, 0,
                overlay_pwritev64v2((int)a[0], (const struct iovec*)a[1], (int)a[2], offset_of(a),
                                    (int)a[5]))
RAW_WITH_HANDLE(recvfrom, 0,
                overlay_recvfrom((int)a[0], (void*)a[1], (size_t)a[2], (int)a[3],
                                 (struct sockaddr*)a[4], (socklen_t*)a[5]))
RAW_WITH_HANDLE(sendto, 0,
                overlay_sendto((int)a[0], (const void*)a[1], (size_t)a[2], (int)a[3],
                               (const struct sockaddr*)a[4], (socklen_t)a[5]))
RAW_WITH_HANDLE(recvmsg, 0, overlay_recvmsg((int)a[0], (struct msghdr*)a[1], (int)a[2]))
RAW_WITH_HANDLE(recvmmsg, 0,
                overlay_recvmmsg((int)a[0], (struct mmsghdr*)a[1], (unsigned)a[2], (int)a[3],
                                 (struct timespec*)a[4]))

/* Over a plain socket a started one must not travel. */
RAW(sendmsg) {
    struct msghdr message;
    if (fd_has((int)a[0])) {
        *result = overlay_sendmsg((int)a[0], (const struct msghdr*)a[1], (int)a[2]);
        return 1;
    }
    if (xsock_engine_opened->socket_copy(&message, (const void*)a[1], sizeof message) != 0 ||
        !overlay_may_not_travel(&message)) {
        return 0;
    }
    *result = -1;
    return 1;
}

RAW(sendmmsg) {
    const unsigned count = (unsigned)a[2];
    const struct mmsghdr* const messages = (const struct mmsghdr*)a[1];
    unsigned i;
    if (fd_has((int)a[0])) {
        *result = overlay_sendmmsg((int)a[0], (struct mmsghdr*)a[1], count, (int)a[3]);
        return 1;
    }
    for (i = 0; i < count && i < IOV_MAX; i++) {
        struct mmsghdr message;
        if (xsock_engine_opened->socket_copy(&message, &messages[i], sizeof message) != 0) break;
        if (!overlay_may_not_travel(&message.msg_hdr)) continue;
        if (i > 0) {
            a[2] = (long)i; /* those before it go, as with one that the kernel refuses */
            return 0;
        }
        *result = -1;
        return 1;
    }
    return 0;
}

RAW(sendfile) {
    if (!fd_has((int)a[0]) && !fd_has((int)a[1])) return 0;
    *result = overlay_sendfile((int)a[0], (int)a[1], (off_t*)a[2], (size_t)a[3]);
    return 1;
}

RAW(splice) {
    if (!fd_has((int)a[0]) && !fd_has((int)a[2])) return 0;
    *result = overlay_splice((int)a[0], (off64_t*)a[1], (int)a[2], (off64_t*)a[3], (size_t)a[4],
                             (unsigned)a[5]);
    return 1;
}

/* ---- a socket's life ----------------------------------------------------------------------------
 */
RAW_ALWAYS(socket, overlay_socket((int)a[0], (int)a[1], (int)a[2]))
RAW_ALWAYS(socketpair, overlay_socketpair((int)a[0], (int)a[1], (int)a[2], (int*)a[3]))
RAW_ALWAYS(listen, overlay_listen((int)a[0], (int)a[1]))
RAW_WITH_HANDLE(accept, 0, overlay_accept((int)a[0], (struct sockaddr*)a[1], (socklen_t*)a[2]))
RAW_WITH_HANDLE(accept4, 0,
                overlay_accept4((int)a[0], (struct sockaddr*)a[1], (socklen_t*)a[2], (int)a[3]))
RAW_WITH_HANDLE(connect, 0,
                overlay_connect((int)a[0], (const struct sockaddr*)a[1], (socklen_t)a[2]))
RAW_WITH_HANDLE(shutdown, 0, overlay_shutdown((int)a[0], (int)a[1]))
RAW_ALWAYS(getsockopt,
           overlay_getsockopt((int)a[0], (int)a[1], (int)a[2], (void*)a[3], (socklen_t*)a[4]))
RAW_ALWAYS(setsockopt,
           overlay_setsockopt((int)a[0], (int)a[1], (int)a[2], (const void*)a[3], (socklen_t)a[4]))

/* ---- descriptors --------------------------------------------------------------------------------
 */
RAW_ALWAYS(close, overlay_close((int)a[0]))
RAW_ALWAYS(close_range, overlay_close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]))
RAW_ALWAYS(dup, overlay_dup((int)a[0]))
RAW_ALWAYS(dup3, overlay_dup3((int)a[0], (int)a[1], (int)a[2]))
#ifdef SYS_dup2
RAW_ALWAYS(dup2, overlay_dup2((int)a[0], (int)a[1]))
#endif

/* (libc's function asks the kernel in another way for F_GETOWN, and waits for a lock as a
 * cancellation point) */
RAW(fcntl) {
    if (!fd_has((int)a[0]) && (int)a[1] != F_DUPFD && (int)a[1] != F_DUPFD_CLOEXEC) return 0;
    *result = overlay_fcntl((int)a[0], (int)a[1], (void*)a[2]);
    return 1;
}
RAW_WITH_HANDLE(ioctl, 0, overlay_ioctl((int)a[0], (unsigned long)a[1], (void*)a[2]))

/* ---- readiness: raw_wait.c ----------------------------------------------------------------------
 */
RAW_ALWAYS(epoll_create1, overlay_epoll_create1((int)a[0]))
#ifdef SYS_epoll_create
RAW_ALWAYS(epoll_create, overlay_epoll_create((int)a[0]))
#endif

/* ---- which number ------------------------------------------------------------------------------
 */
#define RAW_CALLS_EVERYWHERE(F)                                                                  \
    F(read)                                                                                      \
    F(write)                                                                                     \
    F(readv)                                                                                     \
    F(writev)                                                                                    \
    F(preadv2)                                                                                   \
    F(pwritev2)                                                                                  \
    F(recvfrom) F(sendto) F(recvmsg) F(sendmsg) F(recvmmsg) F(sendmmsg) F(sendfile) F(splice)    \
        F(socket) F(socketpair) F(listen) F(accept) F(accept4) F(connect) F(shutdown)            \
            F(getsockopt) F(setsockopt) F(close) F(close_range) F(dup) F(dup3) F(fcntl) F(ioctl) \
                F(ppoll) F(pselect6) F(epoll_create1) F(epoll_ctl) F(epoll_pwait) F(epoll_pwait2)

/* Those that later architectures do without. */
#ifdef SYS_poll
#define RAW_POLL(F) F(poll)
#else
#define RAW_POLL(F)
#endif
#ifdef SYS_select
#define RAW_SELECT(F) F(select)
#else
#define RAW_SELECT(F)
#endif
#ifdef SYS_epoll_wait
#define RAW_EPOLL_WAIT(F) F(epoll_wait)
#else
#define RAW_EPOLL_WAIT(F)
#endif
#ifdef SYS_epoll_create
#define RAW_EPOLL_CREATE(F) F(epoll_create)
#else
#define RAW_EPOLL_CREATE(F)
#endif
#ifdef SYS_dup2
#define RAW_DUP2(F) F(dup2)
#else
#define RAW_DUP2(F)
#endif
#define RAW_CALLS(F)        \
    RAW_CALLS_EVERYWHERE(F) \
    RAW_POLL(F) RAW_SELECT(F) RAW_EPOLL_WAIT(F) RAW_EPOLL_CREATE(F) RAW_DUP2(F)

#define RAW_IS_ONE(name) case SYS_##name:
#define RAW_CALL(name) \
    case SYS_##name:   \
        return raw_##name(a, result);

static inline int is_one(long number) {
    switch (number) {
        RAW_CALLS(RAW_IS_ONE)
        return 1;
        default:
            return 0;
    }
}

static int before_the_kernel(long number, long* a, long* result) {
    switch (number) {
        RAW_CALLS(RAW_CALL)
        default:
            return 0;
    }
}

/* What the wrappers keep account of when the kernel has answered; errno stays. */
static long after_the_kernel(long number, const long* a, long result) {
    switch (number) {
        case SYS_accept:
        case SYS_accept4:
            return overlay_note_accepted((int)result);
        case SYS_connect:
            overlay_note_connected((int)a[0], (int)result);
            return result;
        case SYS_recvmsg:
            if (result >= 0) overlay_note_rights((const struct msghdr*)a[1]);
            return result;
        case SYS_recvmmsg: {
            long i;
            for (i = 0; i < result; i++) overlay_note_rights(&((struct mmsghdr*)a[1])[i].msg_hdr);
            return result;
        }
#ifdef SYS_epoll_wait
        case SYS_epoll_wait:
#endif
        case SYS_epoll_pwait:
        case SYS_epoll_pwait2:
            return raw_epoll_after(number, a, result);
        default:
            return result;
    }
}

static __attribute__((noinline)) long syscall_slow(long number, long a, long b, long c, long d,
                                                   long e, long f) {
    long arguments[6] = {a, b, c, d, e, f};
    const int ours = fd_any() && !(XSOCK_ENGINE_CALLS_US && overlay_inside());
    int known = 0;
    long result;
    if (ours) {
        int cancel_state;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
        known = before_the_kernel(number, arguments, &result);
        pthread_setcancelstate(cancel_state, NULL);
    }
    if (known) return result;
    result = LIBC(syscall)(number, arguments[0], arguments[1], arguments[2], arguments[3],
                           arguments[4], arguments[5]);
    return ours ? after_the_kernel(number, arguments, result) : result;
}

/* The same for a number that is none of these, when libc's own has still to be found. */
static __attribute__((noinline)) long syscall_first(long number, long a, long b, long c, long d,
                                                    long e, long f) {
    return LIBC(syscall)(number, a, b, c, d, e, f);
}

/* A ring would carry the program's bytes past us. Under the policy of the byte-stream mode the
 * kernel has none: programs go on by epoll. */
static int is_without_rings(long number) {
    return XSOCK_UNLIKELY(policy_wanted) && number == SYS_io_uring_setup && !overlay_inside();
}

long overlay_syscall(long number, long a, long b, long c, long d, long e, long f) {
    if (is_without_rings(number)) {
        errno = ENOSYS;
        return -1;
    }
    if (XSOCK_UNLIKELY(fd_any()) && is_one(number)) {
        return syscall_slow(number, a, b, c, d, e, f);
    }
    OVERLAY_UNLESS(0, syscall, (number, a, b, c, d, e, f), syscall_first);
}
