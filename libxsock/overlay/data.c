/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What moves bytes. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/policy.h"

/* ---- receiving --------------------------------------------------------------------------------
 */
/* Of zero bytes a read is over before the kernel asks the socket (sock_read_iter()): 0, and no
 * message is taken. recv() of zero bytes takes one. */
OVERLAY_CALL(ssize_t, read, (int fd, void* buffer, size_t count), (fd, buffer, count), fd,
             count == 0 ? 0 : engine->socket_recv(sock, fd, buffer, count, 0))
XSOCK_LIBC_ALIAS(__read, read)

OVERLAY_CALL(ssize_t, recv, (int fd, void* buffer, size_t count, int flags),
             (fd, buffer, count, flags), fd, engine->socket_recv(sock, fd, buffer, count, flags))

/* Like TCP: a caller that asks for the sender's address gets none. */
static ssize_t no_address(ssize_t n, const struct sockaddr* address, socklen_t* length) {
    if (n >= 0 && address != NULL && length != NULL) *length = 0;
    return n;
}

OVERLAY_CALL(ssize_t, recvfrom,
             (int fd, void* buffer, size_t count, int flags, struct sockaddr* address,
              socklen_t* length),
             (fd, buffer, count, flags, address, length), fd,
             no_address(engine->socket_recv(sock, fd, buffer, count, flags), address, length))

/* The fortified forms. A buffer smaller than what is asked for ends the process, in libc. */
ssize_t overlay___read_chk(int fd, void* buffer, size_t count, size_t size) {
    if (fd_has(fd) && count <= size) return overlay_read(fd, buffer, count);
    return LIBC(__read_chk)(fd, buffer, count, size);
}

ssize_t overlay___recv_chk(int fd, void* buffer, size_t count, size_t size, int flags) {
    if (fd_has(fd) && count <= size) return overlay_recv(fd, buffer, count, flags);
    return LIBC(__recv_chk)(fd, buffer, count, size, flags);
}

ssize_t overlay___recvfrom_chk(int fd, void* buffer, size_t count, size_t size, int flags,
                               struct sockaddr* address, socklen_t* length) {
    if (fd_has(fd) && count <= size) {
        return overlay_recvfrom(fd, buffer, count, flags, address, length);
    }
    return LIBC(__recvfrom_chk)(fd, buffer, count, size, flags, address, length);
}

/* The kernel says EINVAL, and checks nothing else. */
static int too_many(int count) { return count < 0 || count > IOV_MAX; }

/* 1: the buffers have no room at all; -1: EFAULT. */
static int no_room(const struct iovec* iov, int count) {
    int i;
    for (i = 0; i < count; i++) {
        struct iovec one;
        if (xsock_engine_opened->socket_copy(&one, &iov[i], sizeof one) != 0) return -1;
        if (one.iov_len != 0) return 0;
    }
    return 1;
}

/* A flag of a later kernel asks for something that cannot be given: EOPNOTSUPP, as from a kernel
 * that does not know it. */
enum { KNOWN_RWF = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND };
static int socket_flags(int rwf) { return rwf & RWF_NOWAIT ? MSG_DONTWAIT : 0; }

static int unknown_flags(int rwf) {
    if ((rwf & ~KNOWN_RWF) == 0) return 0;
    errno = EOPNOTSUPP;
    return 1;
}

static ssize_t recv_iov(struct xsock_socket* sock, int fd, const struct iovec* iov, int count,
                        int rwf) {
    struct msghdr message = {.msg_iov = (struct iovec*)iov, .msg_iovlen = (size_t)count};
    int empty;
    if (too_many(count)) return XSOCK_PASS;
    empty = no_room(iov, count);
    if (empty != 0) return empty < 0 ? -1 : 0;
    if (unknown_flags(rwf)) return -1;
    return xsock_engine_opened->socket_recvmsg(sock, fd, &message, socket_flags(rwf));
}

OVERLAY_CALL(ssize_t, readv, (int fd, const struct iovec* iov, int count), (fd, iov, count), fd,
             recv_iov(sock, fd, iov, count, 0))

/* preadv2() and pwritev2() with offset -1 use the file's own position, which a socket can do. */
OVERLAY_CALL(ssize_t, preadv2, (int fd, const struct iovec* iov, int count, off_t at, int flags),
             (fd, iov, count, at, flags), fd,
             at == -1 ? recv_iov(sock, fd, iov, count, flags) : XSOCK_PASS)
OVERLAY_CALL(ssize_t, preadv64v2,
             (int fd, const struct iovec* iov, int count, off64_t at, int flags),
             (fd, iov, count, at, flags), fd,
             at == -1 ? recv_iov(sock, fd, iov, count, flags) : XSOCK_PASS)

/* ---- descriptors that travel in messages of other sockets ---------------------------------------
 * A started socket cannot: the bytes of its stream are the engine's, and the receiving process has
 * no engine with them.
 * What has not started travels as the plain TCP socket that it is. */
typedef int each_fd(int fd);

static int any_right(const struct msghdr* message, each_fd* is) {
    struct msghdr copy = *message; /* CMSG_NXTHDR wants it writable */
    struct cmsghdr* c;
    for (c = CMSG_FIRSTHDR(&copy); c != NULL; c = CMSG_NXTHDR(&copy, c)) {
        size_t i;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        if (c->cmsg_len < CMSG_LEN(0)) continue;
        for (i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            if (is(fd)) return 1;
        }
    }
    return 0;
}

/* Mostly another process's socket. One of this process has got another number, as by dup(). */
static int note_received(int fd) {
    fd_forget(fd);
    overlay_hint_fresh(fd, XSOCK_HINT_NONE);
    if (!fd_join(fd)) policy_handed_on(fd);
    return 0;
}

void overlay_note_rights(const struct msghdr* message) {
    const int saved = errno;
    if ((fd_any() || policy_wanted) && message->msg_controllen != 0)
        any_right(message, note_received);
    errno = saved;
}

static int note_travelled(int fd) {
    struct fd_handle* const handle = fd_get(fd);
    if (handle != NULL) atomic_store_explicit(&handle->travelled, 1, memory_order_relaxed);
    fd_put(handle);
    return 0;
}

static int refuse_started(int fd) {
    if (!overlay_started(fd)) return 0;
    overlay_refuse(fd, EOPNOTSUPP);
    return 1;
}

int overlay_may_not_travel(const struct msghdr* message) {
    if (!fd_any() || message == NULL || message->msg_controllen == 0 ||
        message->msg_control == NULL) {
        return 0;
    }
    if (any_right(message, refuse_started)) return 1;
    any_right(message, note_travelled);
    return 0;
}

static __attribute__((noinline)) ssize_t recvmsg_slow(int fd, struct msghdr* message, int flags) {
    ssize_t n;
    OVERLAY(ssize_t, fd, engine->socket_recvmsg(sock, fd, message, flags));
    n = LIBC(recvmsg)(fd, message, flags);
    if (n >= 0) overlay_note_rights(message);
    return n;
}

ssize_t overlay_recvmsg(int fd, struct msghdr* message, int flags) {
    OVERLAY_UNLESS(fd_any() || policy_wanted, recvmsg, (fd, message, flags), recvmsg_slow);
}

int overlay_recvmmsg(int fd, struct mmsghdr* messages, unsigned count, int flags,
                     struct timespec* timeout) {
    int n, i;
    OVERLAY(int, fd, engine->socket_recvmmsg(sock, fd, messages, count, flags, timeout));
    n = LIBC(recvmmsg)(fd, messages, count, flags, timeout);
    for (i = 0; i < n; i++) overlay_note_rights(&messages[i].msg_hdr);
    return n;
}

/* ---- sending ------------------------------------------------------------------------------------
 */
/* Nonzero: the result is the program's; 0: the call is libc's. Most small sends on a byte stream
 * only add to what is gathered, which is done before anything else is tried. */
static int send_to_engine(int fd, const void* buffer, size_t count, int flags, ssize_t* result) {
    struct overlay_call call;
    int entered = fd_has(fd) ? overlay_enter_briefly(&call, fd) : 0;
    *result = -1;
    if (entered <= 0) return entered;
    if ((flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL)) == 0 &&
        xsock_engine_opened->socket_append(call.handle->sock, buffer, count)) {
        overlay_leave_briefly(&call);
        *result = (ssize_t)count;
        return 1;
    }
    overlay_stay(&call);
    *result = xsock_engine_opened->socket_send(call.handle->sock, fd, buffer, count, flags);
    entered = overlay_leave(&call, fd, (long)*result);
    if (entered < 0) *result = -1;
    return entered;
}

static __attribute__((noinline)) ssize_t write_slow(int fd, const void* buffer, size_t count) {
    ssize_t n;
    return send_to_engine(fd, buffer, count, 0, &n) ? n : LIBC(write)(fd, buffer, count);
}
ssize_t overlay_write(int fd, const void* buffer, size_t count) {
    OVERLAY_UNLESS(fd_has(fd), write, (fd, buffer, count), write_slow);
}
XSOCK_LIBC_ALIAS(__write, write)

static __attribute__((noinline)) ssize_t send_slow(int fd, const void* buffer, size_t count,
                                                   int flags) {
    ssize_t n;
    return send_to_engine(fd, buffer, count, flags, &n) ? n : LIBC(send)(fd, buffer, count, flags);
}
ssize_t overlay_send(int fd, const void* buffer, size_t count, int flags) {
    OVERLAY_UNLESS(fd_has(fd), send, (fd, buffer, count, flags), send_slow);
}
XSOCK_LIBC_ALIAS(__send, send)

/* A send that connects: what connect() does for the policy and the summary. */
static int begin_fast_open(int fd, int flags, const void* address, socklen_t length) {
    if ((flags & MSG_FASTOPEN) == 0 || address == NULL) return 0;
    return policy_fast_open(fd, address, length);
}

static ssize_t end_fast_open(int fd, int flags, ssize_t sent) {
    if ((flags & MSG_FASTOPEN) != 0) overlay_note_connected(fd, sent >= 0 ? 0 : -1);
    return sent;
}

static __attribute__((noinline)) ssize_t sendto_slow(int fd, const void* buffer, size_t count,
                                                     int flags, const struct sockaddr* address,
                                                     socklen_t length) {
    ssize_t n;
    if (send_to_engine(fd, buffer, count, flags, &n)) return n;
    if (begin_fast_open(fd, flags, address, length) != 0) return -1;
    return end_fast_open(fd, flags, LIBC(sendto)(fd, buffer, count, flags, address, length));
}

ssize_t overlay_sendto(int fd, const void* buffer, size_t count, int flags,
                       const struct sockaddr* address, socklen_t length) {
    OVERLAY_UNLESS(fd_has(fd) || (flags & MSG_FASTOPEN) != 0, sendto,
                   (fd, buffer, count, flags, address, length), sendto_slow);
}

static ssize_t send_iov(struct xsock_socket* sock, int fd, const struct iovec* iov, int count,
                        int rwf) {
    const struct msghdr message = {.msg_iov = (struct iovec*)iov, .msg_iovlen = (size_t)count};
    if (too_many(count)) return XSOCK_PASS;
    if (unknown_flags(rwf)) return -1;
    return xsock_engine_opened->socket_sendmsg(sock, fd, &message, socket_flags(rwf));
}

OVERLAY_CALL(ssize_t, writev, (int fd, const struct iovec* iov, int count), (fd, iov, count), fd,
             send_iov(sock, fd, iov, count, 0))
OVERLAY_CALL(ssize_t, pwritev2, (int fd, const struct iovec* iov, int count, off_t at, int flags),
             (fd, iov, count, at, flags), fd,
             at == -1 ? send_iov(sock, fd, iov, count, flags) : XSOCK_PASS)
OVERLAY_CALL(ssize_t, pwritev64v2,
             (int fd, const struct iovec* iov, int count, off64_t at, int flags),
             (fd, iov, count, at, flags), fd,
             at == -1 ? send_iov(sock, fd, iov, count, flags) : XSOCK_PASS)

static __attribute__((noinline)) ssize_t sendmsg_slow(int fd, const struct msghdr* message,
                                                      int flags) {
    OVERLAY(ssize_t, fd, engine->socket_sendmsg(sock, fd, message, flags));
    if (overlay_may_not_travel(message)) return -1;
    if ((flags & MSG_FASTOPEN) != 0 && message != NULL &&
        begin_fast_open(fd, flags, message->msg_name, message->msg_namelen) != 0) {
        return -1;
    }
    return end_fast_open(fd, flags, LIBC(sendmsg)(fd, message, flags));
}

ssize_t overlay_sendmsg(int fd, const struct msghdr* message, int flags) {
    OVERLAY_UNLESS(fd_any() || (flags & MSG_FASTOPEN) != 0, sendmsg, (fd, message, flags),
                   sendmsg_slow);
}

/* Messages before the one that may not travel are sent, as the kernel does with a bad one. */
int overlay_sendmmsg(int fd, struct mmsghdr* messages, unsigned count, int flags) {
    OVERLAY(int, fd, engine->socket_sendmmsg(sock, fd, messages, count, flags));
    if (fd_any()) {
        unsigned i;
        for (i = 0; i < count; i++) {
            if (!overlay_may_not_travel(&messages[i].msg_hdr)) continue;
            if (i == 0) return -1;
            count = i;
        }
    }
    return LIBC(sendmmsg)(fd, messages, count, flags);
}
