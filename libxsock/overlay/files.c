/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What makes, shares, changes and closes descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libxsock/overlay/overlay.h"

/* The slot is emptied first: once the kernel has closed the number, another thread may get it. */
static __attribute__((noinline)) int close_slowly(int fd) {
    if (fd_has(fd)) {
        struct fd_handle* const handle = fd_take(fd);
        const int result = LIBC(close)(fd);
        fd_put(handle);
        return result;
    }
    /* (where this is the engine's own call, it may) */
    if (!XSOCK_ENGINE_CALLS_US && overlay_engine_owns(fd) && fd_table_owner() == FD_OWNER_SELF) {
        errno = EBADF;
        return -1;
    }
    return LIBC(close)(fd);
}

int overlay_close(int fd) { OVERLAY_UNLESS(fd_any(), close, (fd), close_slowly); }
XSOCK_LIBC_ALIAS(__close, close)

/* No open descriptor is at or above it: the soft limit may have been lowered, but hardly below what
 * the engine, which likes high numbers, began with. */
static unsigned beyond_all(void) {
    enum { AT_LEAST = 1 << 16 };
    const unsigned limit = atomic_load(&fd_table.limit);
    struct rlimit files = {0, 0};
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur >= limit) return limit;
    return files.rlim_cur > AT_LEAST ? (unsigned)files.rlim_cur : AT_LEAST;
}

/* The numbers from `first` to `last` but for those that are the engine's, range by range. */
static int close_around_the_engine(unsigned first, unsigned last, int flags) {
    const unsigned end = beyond_all();
    unsigned begin = first;
    unsigned at;
    int result = 0;
    for (at = first; at <= last && at < end; at++) {
        if (!overlay_engine_owns((int)at)) continue;
        if (begin < at) result |= LIBC(close_range)(begin, at - 1, flags);
        begin = at + 1;
    }
    if (begin <= last) result |= LIBC(close_range)(begin, last, flags);
    return result;
}

int overlay_close_range(unsigned first, unsigned last, int flags) {
    if (!fd_any() || first > last || (flags & CLOSE_RANGE_CLOEXEC) ||
        fd_table_owner() != FD_OWNER_SELF) {
        return LIBC(close_range)(first, last, flags);
    }
    fd_forget_range(first, last);
    return close_around_the_engine(first, last, flags);
}

void overlay_closefrom(int first) {
    if (fd_any() && fd_table_owner() == FD_OWNER_SELF) {
        const unsigned from = first < 0 ? 0 : (unsigned)first;
        fd_forget_range(from, ~0u);
        close_around_the_engine(from, ~0u, 0);
        return;
    }
    LIBC(closefrom)(first);
}

/* ---- dup and its like -------------------------------------------------------------------------
 * A new descriptor is plain until it shares a handle: whatever stale slot its number had (closed by
 * a way that passed us by) is emptied. */
static int duplicated(int fd, int copy) {
    struct fd_handle* handle;
    if (copy < 0) return copy;
    handle = fd_has(fd) ? fd_get(fd) : NULL;
    if (handle == NULL) {
        fd_forget(copy);
        if (copy > STDERR_FILENO) atomic_store_explicit(&fd_duplicated, 1, memory_order_relaxed);
        return copy;
    }
    if (fd_table_owner() == FD_OWNER_SELF && fd_share(copy, handle) != 0) {
        LIBC(close)(copy);
        errno = EMFILE;
        copy = -1;
    }
    fd_put(handle);
    return copy;
}

/* A started socket must not get a number that outlives exec: the new program would write plain
 * octets into its stream. In a child that is what duplicates are made for. */
static int refuse_handing_on(int fd) {
    const int started = fd_has(fd) ? overlay_started(fd) : 0;
    if (started == 0 || (started == 1 && fd_table_owner() == FD_OWNER_SELF)) return 0;
    errno = EPERM;
    return 1;
}

int overlay_dup(int fd) {
    if (refuse_handing_on(fd)) return -1;
    return duplicated(fd, LIBC(dup)(fd));
}

typedef int replace_fn(int fd, int to, int flags);

/* Until the kernel has replaced it `to` is what it was: another thread that sends must not find it
 * plain, and write into the stream of a started socket. */
static int duplicate_over(replace_fn* real, int fd, int to, int flags) {
    if (fd == to) return real(fd, to, flags); /* dup2: nothing happens; dup3: EINVAL */
    if (refuse_handing_on(fd)) return -1;
    if (overlay_engine_owns(to) && fd_table_owner() == FD_OWNER_SELF) {
        errno = EBUSY;
        return -1;
    }
    return duplicated(fd, real(fd, to, flags));
}

static int real_dup2(int fd, int to, int flags) {
    (void)flags;
    return LIBC(dup2)(fd, to);
}
static int real_dup3(int fd, int to, int flags) { return LIBC(dup3)(fd, to, flags); }

int overlay_dup2(int fd, int to) { return duplicate_over(real_dup2, fd, to, 0); }
XSOCK_LIBC_ALIAS(__dup2, dup2)

int overlay_dup3(int fd, int to, int flags) { return duplicate_over(real_dup3, fd, to, flags); }

/* ---- fcntl and ioctl --------------------------------------------------------------------------
 */
static int fcntl_handled(libc_fcntl_fn* real, int fd, int command, void* argument) {
    switch (command) {
        case F_DUPFD:
        case F_DUPFD_CLOEXEC:
            if (refuse_handing_on(fd)) return -1;
            return duplicated(fd, real(fd, command, argument));
        case F_SETFD:
            if (!((long)argument & FD_CLOEXEC) && overlay_started(fd)) {
                errno = EPERM;
                return -1;
            }
            break;
        case F_GETFL:
        case F_SETFL:
            OVERLAY(int, fd, engine->sock_fcntl(sock, fd, command, (long)argument));
            break;
        default:
            break;
    }
    return real(fd, command, argument);
}

static __attribute__((noinline)) int fcntl_slowly(int fd, int command, void* argument) {
    return fcntl_handled(LIBC(fcntl), fd, command, argument);
}

static __attribute__((noinline)) int fcntl64_slowly(int fd, int command, void* argument) {
    return fcntl_handled(LIBC(fcntl64), fd, command, argument);
}

static inline int duplicates(int command) {
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC;
}

int overlay_fcntl(int fd, int command, void* argument) {
    OVERLAY_UNLESS(fd_has(fd) || duplicates(command), fcntl, (fd, command, argument), fcntl_slowly);
}
XSOCK_LIBC_ALIAS(__fcntl, fcntl)

int overlay_fcntl64(int fd, int command, void* argument) {
    OVERLAY_UNLESS(fd_has(fd) || duplicates(command), fcntl64, (fd, command, argument),
                   fcntl64_slowly);
}

static __attribute__((noinline)) int ioctl_slowly(int fd, unsigned long request, void* argument) {
    if (fd_has(fd)) {
        if (request == FIONCLEX && overlay_started(fd)) {
            errno = EPERM;
            return -1;
        }
        OVERLAY(int, fd, engine->sock_ioctl(sock, fd, request, argument));
    }
    return LIBC(ioctl)(fd, request, argument);
}

int overlay_ioctl(int fd, unsigned long request, void* argument) {
    OVERLAY_UNLESS(fd_has(fd), ioctl, (fd, request, argument), ioctl_slowly);
}
