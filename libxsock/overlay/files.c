/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What makes, shares, changes and closes descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libxsock/overlay/fork.h"
#include "libxsock/overlay/overlay.h"

/* The order of the steps is fd_table.h's. A thread that was cancelled in between would leave the
 * connection open for good. */
static __attribute__((noinline)) int close_slow(int fd) {
    if (fd_has(fd) && fd_table_is_ours()) {
        int cancel_state;
        int result;
        struct fd_handle* handle;
        const uint32_t generation = atomic_load_explicit(&fork_generation, memory_order_relaxed);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
        handle = fd_begin_close(fd);
        result = LIBC(close)(fd);
        overlay_stdio_follow(fd);
        /* (the child of a signal handler's fork has counted its slots anew) */
        if (generation == atomic_load_explicit(&fork_generation, memory_order_relaxed)) {
            fd_end_close(handle);
        }
        pthread_setcancelstate(cancel_state, NULL);
        return result;
    }
    /* (where this is the engine's own call, it may) */
    if (!XSOCK_ENGINE_CALLS_US && overlay_engine_owns(fd) && fd_table_is_ours()) {
        errno = EBADF;
        return -1;
    }
    return LIBC(close)(fd);
}

int overlay_close(int fd) { OVERLAY_UNLESS(fd_any(), close, (fd), close_slow); }
XSOCK_LIBC_ALIAS(__close, close)

/* No open descriptor is at or above it: the soft limit may have been lowered, but hardly below what
 * the engine, which takes high numbers, began with. */
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

static int close_handles(unsigned first, unsigned last, int flags) {
    const uint32_t generation = atomic_load_explicit(&fork_generation, memory_order_relaxed);
    struct fd_handle* const handles = fd_begin_close_range(first, last);
    const int result = close_around_the_engine(first, last, flags);
    int fd;
    for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) overlay_stdio_follow(fd);
    if (generation == atomic_load_explicit(&fork_generation, memory_order_relaxed)) {
        fd_end_close_range(handles);
    }
    return result;
}

int overlay_close_range(unsigned first, unsigned last, int flags) {
    if (!fd_any() || first > last || (flags & ~CLOSE_RANGE_UNSHARE) != 0 || !fd_table_is_ours()) {
        return LIBC(close_range)(first, last, flags);
    }
    /* What is replaced below must not be in a table that other threads go on with. */
    if ((flags & CLOSE_RANGE_UNSHARE) != 0 && unshare(CLONE_FILES) != 0) return -1;
    return close_handles(first, last, flags);
}

void overlay_closefrom(int first) {
    if (fd_any() && fd_table_is_ours()) {
        close_handles(first < 0 ? 0 : (unsigned)first, ~0u, 0);
        return;
    }
    LIBC(closefrom)(first);
}

/* ---- dup and its like -------------------------------------------------------------------------
 */

/* A TCP socket, or an epoll set, which is one of the files without a type (as eventfds are); errno
 * stays. Copies of log files, pipes and terminals would make each socket's first option a search of
 * all descriptors. */
static int may_become_ours(int fd) {
    const int error = errno;
    struct stat status;
    int protocol = IPPROTO_TCP;
    socklen_t size = sizeof protocol;
    int may = 1; /* closed meanwhile, or one that these are refused for */
    if (fstat(fd, &status) == 0) {
        may = (status.st_mode & S_IFMT) == 0;
        if (S_ISSOCK(status.st_mode)) {
            (void)LIBC(getsockopt)(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size);
            may = protocol == IPPROTO_TCP;
        }
    }
    errno = error;
    return may;
}

/* A new descriptor is plain until it shares a handle: whatever stale slot its number had (closed by
 * a call that did not come through the overlay) is emptied. The caller looks for a handle behind
 * this; a thread that makes one later finds the flag, and searches. */
static void begin_plain(int copy) {
    fd_forget(copy);
    if (!atomic_load_explicit(&fd_duplicated, memory_order_relaxed) && may_become_ours(copy)) {
        atomic_store(&fd_duplicated, 1);
    }
    atomic_thread_fence(memory_order_seq_cst);
}

/* Asked before the kernel makes a copy of `fd`: another thread may close that at any time, and the
 * copy of a started socket must not be left without a handle then. */
struct copying {
    struct fd_handle* handle; /* with a reference, or NULL */
    uint32_t generation;      /* of the process, which a signal handler may fork meanwhile */
    uint32_t closings;
};

static struct copying begin_copying(int fd) {
    struct copying c;
    c.generation = atomic_load_explicit(&fork_generation, memory_order_relaxed);
    c.handle = fd_has(fd) ? fd_get(fd) : NULL;
    c.closings = fd_closings();
    return c;
}

static int end_copying_with(const struct copying* c, int result) {
    if (c->generation == atomic_load_explicit(&fork_generation, memory_order_relaxed)) {
        fd_put(c->handle);
    }
    return result;
}

static int share(int copy, struct fd_handle* handle) {
    if (!fd_table_is_ours()) return copy;
    if (fd_share(copy, handle) == 0) {
        overlay_stdio_follow(copy);
        return copy;
    }
    LIBC(close)(copy);
    errno = EMFILE;
    return -1;
}

/* `replaced`: the copy has a number that the program named, and counts on: should it be one of what
 * another thread was closing, it stays open, and answers EBADF. */
static int end_copying(struct copying c, int fd, int copy, int replaced) {
    if (copy < 0) return end_copying_with(&c, -1);
    if (XSOCK_UNLIKELY(fd_closed_while_copied(copy, c.closings))) {
        fd_forget(copy);
        if (!replaced) LIBC(close)(copy);
        errno = EBADF;
        return end_copying_with(&c, -1);
    }
    if (c.handle == NULL || !fd_is_of(fd, copy, c.handle)) {
        /* Turned to DDPMODE meanwhile, or closed and given out again? */
        end_copying_with(&c, 0);
        begin_plain(copy);
        c.generation = atomic_load_explicit(&fork_generation, memory_order_relaxed);
        c.handle = fd_has(fd) ? fd_get(fd) : NULL;
        if (c.handle == NULL || !fd_is_of(fd, copy, c.handle)) {
            overlay_stdio_follow(copy);
            return end_copying_with(&c, copy);
        }
    }
    return end_copying_with(&c, share(copy, c.handle));
}

/* A started socket must not get a number that outlives exec: the new program would write plain
 * bytes into its stream. In a child that is what duplicates are made for. */
static int refuse_handing_on(int fd) {
    const int started = fd_has(fd) ? overlay_started(fd) : 0;
    if (started == 0 || (started == 1 && fd_table_is_ours())) return 0;
    overlay_refuse(fd, EPERM);
    return 1;
}

int overlay_dup(int fd) {
    struct copying c;
    if (refuse_handing_on(fd)) return -1;
    c = begin_copying(fd);
    return end_copying(c, fd, LIBC(dup)(fd), 0);
}

typedef int replace_fn(int fd, int to, int flags);

/* Until the kernel has replaced it `to` is what it was: another thread that sends must not find it
 * plain, and write into the stream of a started socket. */
static int duplicate_over(replace_fn* real, int fd, int to, int flags) {
    struct copying c;
    if (fd == to) return real(fd, to, flags); /* dup2: nothing happens; dup3: EINVAL */
    if (refuse_handing_on(fd)) return -1;
    if (overlay_engine_owns(to) && fd_table_is_ours()) {
        errno = EBUSY;
        return -1;
    }
    overlay_stdio_before(fd, to);
    c = begin_copying(fd);
    return end_copying(c, fd, real(fd, to, flags), 1);
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
    struct copying c;
    switch (command) {
        case F_DUPFD:
        case F_DUPFD_CLOEXEC:
            if (refuse_handing_on(fd)) return -1;
            c = begin_copying(fd);
            return end_copying(c, fd, real(fd, command, argument), 0);
        case F_SETFD:
            if (!((long)argument & FD_CLOEXEC) && overlay_started(fd)) {
                overlay_refuse(fd, EPERM);
                return -1;
            }
            break;
        case F_GETFL:
        case F_SETFL:
            OVERLAY(int, fd, engine->socket_fcntl(sock, fd, command, (long)argument));
            break;
        default:
            break;
    }
    return real(fd, command, argument);
}

static __attribute__((noinline)) int fcntl_slow(int fd, int command, void* argument) {
    return fcntl_handled(LIBC(fcntl), fd, command, argument);
}

static __attribute__((noinline)) int fcntl64_slow(int fd, int command, void* argument) {
    return fcntl_handled(LIBC(fcntl64), fd, command, argument);
}

static inline int duplicates(int command) {
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC;
}

int overlay_fcntl(int fd, int command, void* argument) {
    OVERLAY_UNLESS(fd_has(fd) || duplicates(command), fcntl, (fd, command, argument), fcntl_slow);
}
XSOCK_LIBC_ALIAS(__fcntl, fcntl)

int overlay_fcntl64(int fd, int command, void* argument) {
    OVERLAY_UNLESS(fd_has(fd) || duplicates(command), fcntl64, (fd, command, argument),
                   fcntl64_slow);
}

static __attribute__((noinline)) int ioctl_slow(int fd, unsigned long request, void* argument) {
    if (fd_has(fd)) {
        if (request == FIONCLEX && overlay_started(fd)) {
            overlay_refuse(fd, EPERM);
            return -1;
        }
        OVERLAY(int, fd, engine->socket_ioctl(sock, fd, request, argument));
    }
    return LIBC(ioctl)(fd, request, argument);
}

int overlay_ioctl(int fd, unsigned long request, void* argument) {
    OVERLAY_UNLESS(fd_has(fd), ioctl, (fd, request, argument), ioctl_slow);
}
