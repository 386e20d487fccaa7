/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From descriptor to descriptor, which the kernel does inside: sendfile() and splice(). With a byte
 * stream that the engine carries, the bytes go through a buffer here. What is read is sent, in
 * steps of some KiB; a file's position, a pipe and the stream have moved by what the call says.
 *
 * A message socket cannot (EOPNOTSUPP), and what is plain is the kernel's.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "libxsock/overlay/overlay.h"

enum {
    BUFFER = 16 << 10,
    MOST = 0x7ffff000 /* of one call: the kernel's MAX_RW_COUNT */
};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static ssize_t no(int error) {
    errno = error;
    return -1;
}

static int may_read(int flags) {
    return (flags & O_ACCMODE) == O_RDONLY || (flags & O_ACCMODE) == O_RDWR;
}

static int may_write(int flags) {
    return (flags & O_ACCMODE) == O_WRONLY || (flags & O_ACCMODE) == O_RDWR;
}

/* The flags of an open file; -1 with EBADF, also for one of O_PATH. */
static int flags_of(int fd) {
    const int flags = LIBC(fcntl)(fd, F_GETFL, NULL);
    return flags >= 0 && (flags & O_PATH) != 0 ? (int)no(EBADF) : flags;
}

/* A step of a call has failed with errno, or ended, behind others that moved so many bytes. */
static ssize_t partly(struct xsock_socket* sock, size_t moved, ssize_t otherwise) {
    if (moved == 0) return otherwise;
    if (otherwise < 0 && errno != EINTR) xsock_engine_opened->socket_keep_error(sock, errno);
    return (ssize_t)moved;
}

/* ---- sendfile -----------------------------------------------------------------------------------
 */
/* off_t and off64_t differ on 32-bit machines. */
static int load_offset(off64_t* to, const void* from, size_t size) {
    off_t narrow;
    if (size == sizeof *to) return xsock_engine_opened->socket_copy(to, from, size);
    if (xsock_engine_opened->socket_copy(&narrow, from, size) != 0) return -1;
    *to = narrow;
    return 0;
}

static int store_offset(void* to, const off64_t* from, size_t size) {
    const off_t narrow = (off_t)*from;
    const void* const value = size == sizeof *from ? (const void*)from : (const void*)&narrow;
    return xsock_engine_opened->socket_copy(to, value, size);
}

/* What the kernel checks of the file; `given`: *at is, else it becomes the file's position. */
static int check_file(int in, int given, off64_t* at, size_t count) {
    const int flags = flags_of(in);
    if (flags < 0) return -1;
    if (!may_read(flags)) return (int)no(EBADF);
    if (given) {
        if (pread64(in, NULL, 0, 0) < 0 && errno == ESPIPE) return -1;
    } else if ((*at = lseek64(in, 0, SEEK_CUR)) < 0) {
        return (int)no(EINVAL);
    }
    if (*at < 0 || (ssize_t)count < 0 || (off64_t)count > INT64_MAX - *at) return (int)no(EINVAL);
    return 0;
}

/* Whether there are bytes behind `at`, so that those before it need not go by themselves. */
static int has_more(const struct stat64* file, off64_t at) {
    return !S_ISREG(file->st_mode) || at < file->st_size;
}

static ssize_t send_file(struct xsock_socket* sock, int out, int in, off64_t* at, size_t count) {
    char buffer[BUFFER];
    struct stat64 file;
    size_t sent = 0;
    if (fstat64(in, &file) != 0) return -1;
    while (sent < count) {
        const ssize_t got = pread64(in, buffer, least(count - sent, sizeof buffer), *at);
        ssize_t n;
        int flags = 0;
        if (got < 0 && (errno == EISDIR || errno == ESPIPE)) errno = EINVAL;
        if (got <= 0) return sent > 0 ? (ssize_t)sent : got;
        if (sent + (size_t)got < count && has_more(&file, *at + got)) flags |= MSG_MORE;
        if (sent > 0) flags |= MSG_NOSIGNAL; /* for the call that has nothing else to say */
        n = xsock_engine_opened->socket_send(sock, out, buffer, (size_t)got, flags);
        if (n < 0) return partly(sock, sent, n);
        sent += (size_t)n;
        *at += n;
        if (n < got) break;
    }
    return (ssize_t)sent;
}

/* `offset`: NULL, or a number of so many bytes. */
static ssize_t sendfile_to(struct xsock_socket* sock, int out, int in, void* offset, size_t size,
                           size_t count) {
    const int answer = xsock_engine_opened->socket_no_stream(sock, out, XSOCK_WRITING_PARTS);
    const int given = offset != NULL;
    off64_t at = 0;
    ssize_t n = -1;
    if (answer != XSOCK_MOVE) return answer;
    if (given && load_offset(&at, offset, size) != 0) return -1;
    if (check_file(in, given, &at, count) == 0) {
        n = send_file(sock, out, in, &at, least(count, MOST));
    }
    if (given) {
        const int saved = errno;
        if (store_offset(offset, &at, size) != 0) return -1; /* as the kernel: whatever was sent */
        errno = saved;
    } else if (n > 0) {
        lseek64(in, at, SEEK_SET);
    }
    return n;
}

/* ---- splice: the pipe ---------------------------------------------------------------------------
 */
struct splice {
    struct overlay_call* call;
    struct xsock_socket* sock;
    int fd, pipe;
    unsigned flags; /* SPLICE_F_NONBLOCK: also where the pipe has O_NONBLOCK */
    size_t left, moved;
};

static int sleep_for_pipe(struct overlay_call* call, struct pollfd* p) {
    int n;
    OVERLAY_SLEEP_BEGIN(call)
    n = LIBC(poll)(p, 1, -1);
    OVERLAY_SLEEP_END(call)
    return n;
}

/* What the pipe is ready for: `events`, or its other end has gone. 0: nothing, errno says why. As
 * the kernel, a call that has moved some bytes does not wait for the pipe. */
static int pipe_events(const struct splice* s, short events) {
    struct pollfd p = {s->pipe, events, 0};
    int n = LIBC(poll)(&p, 1, 0);
    if (n == 0 && s->moved == 0 && (s->flags & SPLICE_F_NONBLOCK) == 0) {
        n = sleep_for_pipe(s->call, &p);
    }
    if (n == 0) errno = EAGAIN;
    return n > 0 ? p.revents : 0;
}

/* The pipe is ready, but another thread may have come first: EAGAIN. A kernel or a pipe without
 * RWF_NOWAIT waits then. */
static ssize_t read_pipe(int fd, void* to, size_t bytes) {
    const struct iovec iov = {to, bytes};
    const ssize_t n = LIBC(preadv2)(fd, &iov, 1, -1, RWF_NOWAIT);
    return n >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS) ? n : LIBC(read)(fd, to, bytes);
}

static ssize_t write_pipe(int fd, const void* from, size_t bytes) {
    const struct iovec iov = {(void*)from, bytes};
    const ssize_t n = LIBC(pwritev2)(fd, &iov, 1, -1, RWF_NOWAIT);
    return n >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS) ? n : LIBC(write)(fd, from, bytes);
}

/* ---- splice: from a pipe to the stream ----------------------------------------------------------
 */
static void moved(struct splice* s, ssize_t bytes) {
    s->moved += (size_t)bytes;
    s->left -= (size_t)bytes;
}

static int is_nonblocking(const struct splice* s) {
    return (xsock_engine_opened->socket_fcntl(s->sock, s->fd, F_GETFL, 0) & O_NONBLOCK) != 0;
}

static int poll_room(const struct splice* s, const struct timespec* timeout) {
    struct pollfd p = {s->fd, POLLOUT, 0};
    return xsock_engine_opened->socket_poll(&p, 1, &s->sock, timeout, NULL);
}

/* Until the socket is writable, as long as a send would wait. -1: it is not, or takes nothing any
 * more. */
static int wait_for_room(const struct splice* s) {
    const struct timespec* timeout = NULL;
    struct timespec limit = {0, 0};
    int n;
    if (is_nonblocking(s)) {
        timeout = &limit;
    } else {
        struct timeval time = {0, 0};
        socklen_t size = sizeof time;
        const int answer = xsock_engine_opened->socket_getsockopt(s->sock, s->fd, SOL_SOCKET,
                                                                  SO_SNDTIMEO, &time, &size);
        if (answer == XSOCK_PASS) {
            LIBC(getsockopt)(s->fd, SOL_SOCKET, SO_SNDTIMEO, &time, &size);
        }
        limit.tv_sec = time.tv_sec;
        limit.tv_nsec = time.tv_usec * 1000;
        if (limit.tv_sec != 0 || limit.tv_nsec != 0) timeout = &limit;
    }
    n = poll_room(s, timeout);
    if (n == 0) errno = EAGAIN;
    if (n <= 0) return -1;
    return xsock_engine_opened->socket_send(s->sock, s->fd, NULL, 0,
                                            s->moved > 0 ? MSG_NOSIGNAL : 0) < 0
               ? -1
               : 0;
}

/* What a writable socket takes at once: a third of its buffer. */
static size_t certain_room(const struct splice* s) {
    int bytes = 0;
    socklen_t size = sizeof bytes;
    if (xsock_engine_opened->socket_getsockopt(s->sock, s->fd, SOL_SOCKET, SO_SNDBUF, &bytes,
                                               &size) != 0 ||
        bytes < 3) {
        return 1;
    }
    return (size_t)bytes / 3;
}

/* They are out of the pipe. Where another thread has taken the room, or memory is short, they wait
 * for it, whatever the socket's flags and time limit. -1: the connection has ended. */
static int send_all(struct splice* s, const char* from, ssize_t bytes, int flags) {
    while (bytes > 0) {
        const ssize_t n =
            xsock_engine_opened->socket_send(s->sock, s->fd, from, (size_t)bytes, flags);
        if (n >= 0) {
            moved(s, n);
            from += n;
            bytes -= n;
        } else if (errno == ENOBUFS) {
            LIBC(poll)(NULL, 0, 1);
        } else if (errno == EAGAIN || errno == EINTR) {
            poll_room(s, NULL);
        } else {
            return -1;
        }
    }
    return 0;
}

static ssize_t from_pipe(struct splice* s) {
    char buffer[BUFFER];
    const size_t step = least(certain_room(s), sizeof buffer);
    while (s->left > 0) {
        const int events = pipe_events(s, POLLIN);
        int flags = s->moved > 0 ? MSG_NOSIGNAL : 0, waiting = 0;
        ssize_t n;
        if (events == 0) return s->moved > 0 ? (ssize_t)s->moved : -1;
        if ((events & POLLIN) == 0) break; /* no writer, and no bytes */
        if (wait_for_room(s) != 0) return partly(s->sock, s->moved, -1);
        n = read_pipe(s->pipe, buffer, least(s->left, step));
        if (n < 0 && errno == EAGAIN) continue;
        if (n <= 0) return s->moved > 0 ? (ssize_t)s->moved : n;
        LIBC(ioctl)(s->pipe, FIONREAD, &waiting);
        if ((s->flags & SPLICE_F_MORE) != 0 || (waiting > 0 && s->left > (size_t)n)) {
            flags |= MSG_MORE;
        }
        if (send_all(s, buffer, n, flags) != 0) return partly(s->sock, s->moved, -1);
    }
    return (ssize_t)s->moved;
}

/* ---- splice: from the stream to a pipe ----------------------------------------------------------
 */
static ssize_t to_pipe(struct splice* s) {
    char buffer[PIPE_BUF]; /* a pipe that is writable has room for it */
    while (s->left > 0) {
        const int events = pipe_events(s, POLLOUT);
        ssize_t n;
        if (events == 0) return s->moved > 0 ? (ssize_t)s->moved : -1;
        if ((events & POLLERR) != 0) {
            if (s->moved > 0) break;
            pthread_kill(pthread_self(), SIGPIPE);
            return no(EPIPE);
        }
        n = xsock_engine_opened->socket_recv(s->sock, s->fd, buffer, least(s->left, sizeof buffer),
                                             MSG_PEEK | (s->moved > 0 ? MSG_DONTWAIT : 0));
        if (n <= 0) return partly(s->sock, s->moved, n);
        n = write_pipe(s->pipe, buffer, (size_t)n);
        if (n < 0 && errno == EAGAIN) continue;
        if (n < 0) return s->moved > 0 ? (ssize_t)s->moved : -1;
        xsock_engine_opened->socket_recv(s->sock, s->fd, NULL, (size_t)n, MSG_TRUNC | MSG_DONTWAIT);
        moved(s, n);
    }
    return (ssize_t)s->moved;
}

/* ---- splice -------------------------------------------------------------------------------------
 */
enum { KNOWN_SPLICE = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT };

/* Both ends as the program gave them. */
struct ends {
    int in, out;
    off64_t *in_at, *out_at;
};

/* What the kernel checks, in its order; `pipe`: the other end, and where the program gave an offset
 * of either. The flags of the pipe; -1 with errno. */
static int check_ends(const struct ends* e, int sending, size_t count, unsigned flags) {
    const int pipe = sending ? e->in : e->out;
    const off64_t* const pipe_at = sending ? e->in_at : e->out_at;
    const off64_t* const socket_at = sending ? e->out_at : e->in_at;
    const int pipe_flags =
        (flags & ~(unsigned)KNOWN_SPLICE) != 0 ? (int)no(EINVAL) : flags_of(pipe);
    struct stat64 file;
    off64_t at;
    int is_pipe;
    if (pipe_flags < 0) return -1;
    is_pipe = fstat64(pipe, &file) == 0 && S_ISFIFO(file.st_mode);
    if (is_pipe && pipe_at != NULL) return (int)no(ESPIPE);
    if (pipe_at != NULL && xsock_engine_opened->socket_copy(&at, pipe_at, sizeof at) != 0)
        return -1;
    if (socket_at != NULL && xsock_engine_opened->socket_copy(&at, socket_at, sizeof at) != 0) {
        return -1;
    }
    if (!(sending ? may_read(pipe_flags) : may_write(pipe_flags))) return (int)no(EBADF);
    if (!is_pipe || socket_at != NULL || (ssize_t)count < 0) return (int)no(EINVAL);
    return pipe_flags;
}

/* `sending`: the socket is the end that is written to. */
static ssize_t splice_with(struct overlay_call* call, struct xsock_socket* sock,
                           const struct ends* e, int sending, size_t count, unsigned flags) {
    struct splice s = {.call = call, .sock = sock, .flags = flags, .left = least(count, MOST)};
    const int answer =
        xsock_engine_opened->socket_no_stream(sock, sending ? e->out : e->in, sending);
    int pipe_flags;
    if (answer != XSOCK_MOVE) return answer;
    if (count == 0) return 0;
    s.fd = sending ? e->out : e->in;
    s.pipe = sending ? e->in : e->out;
    pipe_flags = check_ends(e, sending, count, flags);
    if (pipe_flags < 0) return -1;
    if ((pipe_flags & O_NONBLOCK) != 0) s.flags |= SPLICE_F_NONBLOCK;
    return sending ? from_pipe(&s) : to_pipe(&s);
}

/* ---- the calls ----------------------------------------------------------------------------------
 */
/* The kernel moves bytes of a socket to a pipe, as splice() does, and to nothing else. */
static ssize_t sendfile_from(struct overlay_call* call, struct xsock_socket* sock, int out, int in,
                             const void* offset, size_t size, size_t count) {
    const struct ends e = {.in = in, .out = out};
    const int answer = xsock_engine_opened->socket_no_stream(sock, in, 0);
    struct stat64 file;
    off64_t at;
    if (answer != XSOCK_MOVE) return answer;
    if (offset != NULL) return load_offset(&at, offset, size) == 0 ? no(ESPIPE) : -1;
    if (fstat64(out, &file) != 0 || !S_ISFIFO(file.st_mode)) return XSOCK_PASS;
    return splice_with(call, sock, &e, 0, count, 0);
}

ssize_t overlay_sendfile(int out, int in, off_t* offset, size_t count) {
    OVERLAY(ssize_t, out, sendfile_to(sock, out, in, offset, sizeof *offset, count));
    OVERLAY(ssize_t, in, sendfile_from(&call_, sock, out, in, offset, sizeof *offset, count));
    return LIBC(sendfile)(out, in, offset, count);
}

ssize_t overlay_sendfile64(int out, int in, off64_t* offset, size_t count) {
    OVERLAY(ssize_t, out, sendfile_to(sock, out, in, offset, sizeof *offset, count));
    OVERLAY(ssize_t, in, sendfile_from(&call_, sock, out, in, offset, sizeof *offset, count));
    return LIBC(sendfile64)(out, in, offset, count);
}

ssize_t overlay_splice(int in, off64_t* in_at, int out, off64_t* out_at, size_t count,
                       unsigned flags) {
    const struct ends e = {in, out, in_at, out_at};
    OVERLAY(ssize_t, out, splice_with(&call_, sock, &e, 1, count, flags));
    OVERLAY(ssize_t, in, splice_with(&call_, sock, &e, 0, count, flags));
    return LIBC(splice)(in, in_at, out, out_at, count, flags);
}
