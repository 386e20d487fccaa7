/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A socket's life, from socket() to shutdown(), and the options that turn it to DDPMODE. */
#include <errno.h>
#include <linux/sockios.h>
#include <unistd.h>

#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/policy.h"
#include "libxsock/overlay/summary.h"

/* A number that the kernel has just given out: plain, whatever it was before. */
static int fresh(int fd, int hint) {
    if (fd < 0) return fd;
    fd_forget(fd);
    overlay_hint_fresh(fd, hint);
    return fd;
}

int overlay_socket(int domain, int type, int protocol) {
    const int fd = fresh(LIBC(socket)(domain, type, protocol), XSOCK_HINT_NONE);
    if (fd >= 0) summary_socket(domain, type);
    return fd;
}

int overlay_socketpair(int domain, int type, int protocol, int* fds) {
    const int result = LIBC(socketpair)(domain, type, protocol, fds);
    if (result == 0) {
        fresh(fds[0], XSOCK_HINT_NONE);
        fresh(fds[1], XSOCK_HINT_NONE);
    }
    return result;
}

int overlay_bind(int fd, const struct sockaddr* address, socklen_t length) {
    return LIBC(bind)(fd, address, length);
}

int overlay_listen(int fd, int backlog) {
    const int again = summary_may_be_wanted() && summary_listens(fd);
    int result;
    if (!fd_has(fd) && policy_listen(fd) != 0) return -1;
    if (fd_has(fd) && !again) summary_count(SUMMARY_LISTENING, fd);
    OVERLAY(int, fd, engine->socket_listen(sock, fd, backlog));
    result = LIBC(listen)(fd, backlog);
    if (result == 0 && !again) summary_count(SUMMARY_LISTENING, fd);
    return result;
}

/* What accept4() has brought: a descriptor, and a handle if it is not plain already. */
static int keep_accepted(int fd, struct xsock_socket* sock) {
    if (fd < 0) return fd;
    fresh(fd, XSOCK_HINT_ACCEPTED);
    summary_count(SUMMARY_ACCEPTED, fd);
    if (sock == NULL) return fd;
    summary_count(SUMMARY_WANTED, fd);
    if (fd_install(fd, sock) != 0) {
        const int saved = errno;
        const int before = overlay_begin();
        LIBC(close)(fd);
        xsock_engine_opened->socket_unref(sock, -1);
        overlay_end(before);
        errno = saved;
        return -1;
    }
    return fd;
}

/* As socket_accept of the engine, where accept() may take as long as it likes. */
static int accept_outside(struct overlay_call* call, int fd, struct sockaddr* address,
                          socklen_t* length, int flags, struct xsock_socket** accepted) {
    int taken;
    OVERLAY_SLEEP_BEGIN(call)
    taken = LIBC(accept4)(fd, address, length, flags);
    OVERLAY_SLEEP_END(call)
    if (taken < 0) return taken;
    return xsock_engine_opened->socket_keep_accepted(call->handle->sock, taken, flags, accepted);
}

/* 1: *result is the program's. */
static int accept_on_sock(int fd, struct sockaddr* address, socklen_t* length, int flags,
                          int* result) {
    struct overlay_call call;
    struct xsock_socket* accepted = NULL;
    const int entered = overlay_enter(&call, fd);
    *result = -1;
    if (entered <= 0) return entered;
    if (xsock_engine_opened->socket_accept_waits(call.handle->sock, fd)) {
        *result = accept_outside(&call, fd, address, length, flags, &accepted);
    } else {
        *result = xsock_engine_opened->socket_accept(call.handle->sock, fd, address, length, flags,
                                                     &accepted);
    }
    switch (overlay_leave(&call, fd, *result)) {
        case 0:
            return 0;
        case -1:
            *result = -1;
            return 1;
        default:
            *result = keep_accepted(*result, accepted);
            return 1;
    }
}

/* What the kernel's accept() has brought, of a listener that is plain by the policy or not. */
static int keep_plain(int fd, int by_policy) {
    if (fd >= 0 && by_policy) summary_plain("policy-tcp");
    return keep_accepted(fd, NULL);
}

int overlay_accept(int fd, struct sockaddr* address, socklen_t* length) {
    const int by_policy = policy_accept(fd);
    int result;
    if (fd_has(fd) && accept_on_sock(fd, address, length, 0, &result)) return result;
    return keep_plain(LIBC(accept)(fd, address, length), by_policy);
}

int overlay_accept4(int fd, struct sockaddr* address, socklen_t* length, int flags) {
    const int by_policy = policy_accept(fd);
    int result;
    if (fd_has(fd) && accept_on_sock(fd, address, length, flags, &result)) return result;
    return keep_plain(LIBC(accept4)(fd, address, length, flags), by_policy);
}

int overlay_note_accepted(int fd) { return keep_accepted(fd, NULL); }

/* Once for each socket: programs call connect() again to learn what became of it. */
static void note_connecting(int fd) {
    if (overlay_hint_of(fd) == XSOCK_HINT_CONNECTED) return;
    overlay_hint(fd, XSOCK_HINT_CONNECTED);
    summary_count(SUMMARY_CONNECTED, fd);
}

void overlay_note_connected(int fd, int result) {
    if (result == 0 || errno == EINPROGRESS || errno == EINTR) note_connecting(fd);
}

int overlay_connect(int fd, const struct sockaddr* address, socklen_t length) {
    int result;
    if (!fd_has(fd) && policy_connect(fd, address, length) != 0) return -1;
    if (fd_has(fd)) note_connecting(fd);
    OVERLAY(int, fd, engine->socket_connect(sock, fd, address, length));
    result = LIBC(connect)(fd, address, length);
    overlay_note_connected(fd, result);
    return result;
}
XSOCK_LIBC_ALIAS(__connect, connect)

OVERLAY_CALL(int, shutdown, (int fd, int how), (fd, how), fd,
             engine->socket_shutdown(sock, fd, how))

int overlay_getsockname(int fd, struct sockaddr* address, socklen_t* length) {
    return LIBC(getsockname)(fd, address, length);
}

int overlay_getpeername(int fd, struct sockaddr* address, socklen_t* length) {
    return LIBC(getpeername)(fd, address, length);
}

int overlay_sockatmark(int fd) {
    int answer = 0;
    if (!overlay_is_socket(fd)) return LIBC(sockatmark)(fd);
    return overlay_ioctl(fd, SIOCATMARK, &answer) == 0 ? answer : -1;
}

/* ---- options ------------------------------------------------------------------------------------
 * The first one at SOL_XSOCK makes the handle. One that fails at once leaves no trace. */
static int first_option(int fd) {
    const struct xsock_engine* const engine = xsock_engine_open();
    struct xsock_socket* sock;
    int before;
    int result;
    if (engine == NULL) return -1;
    if (overlay_inside()) {
        errno = EDEADLK;
        return -1;
    }
    if (atomic_load_explicit(&fd_duplicated, memory_order_relaxed) && fd_join(fd)) return 0;
    engine->socket_on_rest(overlay_rest);
    before = overlay_begin();
    sock = engine->socket_open(fd, overlay_hint_of(fd));
    overlay_end(before);
    if (sock == NULL) return -1;
    result = fd_install(fd, sock);
    if (result != 0) {
        const int saved = errno;
        engine->socket_unref(sock, -1);
        errno = saved;
        return -1;
    }
    fd_install_duplicates(fd);
    if (overlay_adopt_registrations(fd) != 0) {
        const int saved = errno;
        struct fd_handle* const handle = fd_get(fd);
        if (handle != NULL) fd_forget_all_of(fd, handle);
        fd_put(handle);
        errno = saved;
        return -1;
    }
    summary_count(SUMMARY_WANTED, fd);
    for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) overlay_stdio_follow(fd);
    return 0;
}

static __attribute__((noinline)) int setsockopt_slow(int fd, int level, int name, const void* value,
                                                     socklen_t length) {
    int mode_switched_off = 0; /* by DDPMODE 0, for which XSOCK_PLAIN is the answer */
    if (XSOCK_UNLIKELY(level == SOL_XSOCK) && !fd_has(fd) && first_option(fd) != 0) return -1;
    OVERLAY(int, fd,
            mode_switched_off = engine->socket_setsockopt(sock, fd, level, name, value, length));
    if (level == SOL_XSOCK && mode_switched_off == XSOCK_PLAIN) return 0;
    /* (the kernel knows no such level: what it says of another kind of descriptor is right) */
    return LIBC(setsockopt)(fd, level, name, value, length);
}

int overlay_setsockopt(int fd, int level, int name, const void* value, socklen_t length) {
    OVERLAY_UNLESS(level == SOL_XSOCK || fd_has(fd), setsockopt, (fd, level, name, value, length),
                   setsockopt_slow);
}

static __attribute__((noinline)) int getsockopt_slow(int fd, int level, int name, void* value,
                                                     socklen_t* length) {
    if (XSOCK_UNLIKELY(level == SOL_XSOCK) && !fd_has(fd) && first_option(fd) != 0) return -1;
    OVERLAY(int, fd, engine->socket_getsockopt(sock, fd, level, name, value, length));
    return LIBC(getsockopt)(fd, level, name, value, length);
}

int overlay_getsockopt(int fd, int level, int name, void* value, socklen_t* length) {
    OVERLAY_UNLESS(level == SOL_XSOCK || fd_has(fd), getsockopt, (fd, level, name, value, length),
                   getsockopt_slow);
}
