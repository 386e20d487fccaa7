/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stdio over a DDPMODE descriptor. libc's own streams call the kernel from inside libc, where no
 * wrapper stands; so fdopen() of such a descriptor makes a stream of ours. What fflush() writes is
 * one message (or several, where the stream's buffer filled up before); what the stream reads is
 * what messages hold, one after the other.
 *
 * While 0, 1 or 2 is a DDPMODE descriptor, stdin, stdout or stderr is such a stream too. libc's
 * own, which a program may hold elsewhere (std::cout does), has a descriptor meanwhile that answers
 * EBADF: nothing that it writes gets into the connection.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libxsock/overlay/overlay.h"

struct stream {
    int fd;
    FILE* file;
    struct stream* next;
    /* A message is longer than what the stream asks for: the rest waits here. */
    size_t at, filled, room;
    char* bytes;
    FILE* replaced; /* libc's, where `file` stands for stdin, stdout or stderr */
};

/* Those for 0, 1 and 2. A file that was made once stays: the program may hold it. */
static struct stream standard[3];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream* streams;
static _Atomic int stream_count;

static ssize_t stream_read(void* cookie, char* buffer, size_t size) {
    struct stream* const s = cookie;
    size_t n;
    if (s->at == s->filled) {
        const ssize_t length = overlay_recv(s->fd, NULL, 0, MSG_PEEK | MSG_TRUNC);
        ssize_t got;
        if (length < 0) return -1;
        if ((size_t)length <= size) return overlay_read(s->fd, buffer, size);
        if ((size_t)length > s->room) {
            char* const larger = realloc(s->bytes, (size_t)length);
            if (larger == NULL) return -1;
            s->bytes = larger;
            s->room = (size_t)length;
        }
        got = overlay_read(s->fd, s->bytes, s->room);
        if (got <= 0) return got;
        s->at = 0;
        s->filled = (size_t)got;
    }
    n = s->filled - s->at < size ? s->filled - s->at : size;
    memcpy(buffer, s->bytes + s->at, n);
    s->at += n;
    return (ssize_t)n;
}

/* stdio hands over a large block as it is: then it is several messages. 0, or less than there is,
 * tells of an error. */
static ssize_t stream_write(void* cookie, const char* buffer, size_t size) {
    struct stream* const s = cookie;
    int most = 0;
    socklen_t length = sizeof most;
    size_t done = 0;
    if (fd_has(s->fd)) overlay_getsockopt(s->fd, SOL_XSOCK, DDPBUFSIZE, &most, &length);
    while (done < size) {
        const size_t left = size - done;
        const ssize_t n = overlay_write(s->fd, buffer + done,
                                        most > 0 && left > (size_t)most ? (size_t)most : left);
        if (n <= 0) break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

static int stream_seek(void* cookie, off64_t* offset, int whence) {
    (void)cookie;
    (void)offset;
    (void)whence;
    errno = ESPIPE;
    return -1;
}

static void unlist(struct stream* s) {
    struct stream** place;
    fd_table_is_ours();
    pthread_mutex_lock(&lock);
    for (place = &streams; *place != NULL && *place != s; place = &(*place)->next) {
    }
    if (*place != NULL) {
        *place = s->next;
        atomic_fetch_sub(&stream_count, 1);
    }
    pthread_mutex_unlock(&lock);
}

/* What is behind a stream of ours, or NULL. */
static struct stream* stream_of(const FILE* file) {
    struct stream* s;
    if (XSOCK_LIKELY(atomic_load_explicit(&stream_count, memory_order_relaxed) == 0)) return NULL;
    fd_table_is_ours(); /* a child without a fork handler detects the fork here */
    pthread_mutex_lock(&lock);
    for (s = streams; s != NULL && s->file != file; s = s->next) {
    }
    pthread_mutex_unlock(&lock);
    return s;
}

static int stream_close(void* cookie) {
    struct stream* const s = cookie;
    const int result = overlay_close(s->fd);
    unlist(s);
    free(s->bytes);
    if (s >= standard && s < standard + 3) {
        memset(s, 0, sizeof *s);
    } else {
        free(s);
    }
    return result;
}

static int make_stream(struct stream* s, int fd, const char* mode) {
    static const cookie_io_functions_t calls = {stream_read, stream_write, stream_seek,
                                                stream_close};
    s->fd = fd;
    s->file = fopencookie(s, mode, calls);
    if (s->file == NULL) return -1;
    pthread_mutex_lock(&lock);
    s->next = streams;
    streams = s;
    atomic_fetch_add(&stream_count, 1);
    pthread_mutex_unlock(&lock);
    return 0;
}

FILE* overlay_fdopen(int fd, const char* mode) {
    struct stream* s;
    if (!overlay_is_socket(fd)) return LIBC(fdopen)(fd, mode);
    s = calloc(1, sizeof *s);
    if (s == NULL || make_stream(s, fd, mode) != 0) {
        free(s);
        return NULL;
    }
    if (strchr(mode, 'e') != NULL) fcntl(fd, F_SETFD, FD_CLOEXEC);
    return s->file;
}

/* ---- 0, 1 and 2 ---------------------------------------------------------------------------------
 */
static FILE** variable_of(int fd) { return fd == 0 ? &stdin : fd == 1 ? &stdout : &stderr; }

static void flush(int fd) {
    FILE* const file = *variable_of(fd);
    if (file == NULL || ftrylockfile(file) != 0) return;
    fflush_unlocked(file);
    funlockfile(file);
}

void overlay_stdio_before(int from, int to) {
    if (to <= STDIN_FILENO || to > STDERR_FILENO || !fd_any()) return;
    if (!fd_has(from) && standard[to].replaced == NULL) return;
    if (fd_table_is_ours()) flush(to);
}

static void flush_standard(void) {
    flush(STDOUT_FILENO);
    flush(STDERR_FILENO);
}

/* Runs before the engine drains, whose own handler was there earlier. */
static void call_at_exit(void) { atexit(flush_standard); }

void overlay_stdio_follow(int fd) {
    static pthread_once_t exits = PTHREAD_ONCE_INIT;
    struct stream* s;
    FILE** variable;
    int is;
    if (!fd_any() || fd < STDIN_FILENO || fd > STDERR_FILENO || overlay_inside() ||
        !fd_table_is_ours()) {
        return;
    }
    s = &standard[fd];
    variable = variable_of(fd);
    is = overlay_is_socket(fd);
    if (is == (s->replaced != NULL)) return;
    if (!is) {
        if (*variable == s->file) *variable = s->replaced;
        s->replaced->_fileno = fd;
        s->replaced = NULL;
        s->fd = -1;
        return;
    }
    if (*variable == NULL) return;
    if (s->file == NULL && make_stream(s, fd, fd == STDIN_FILENO ? "r" : "w") != 0) return;
    if (fd == STDERR_FILENO) setvbuf(s->file, NULL, _IONBF, 0);
    __fpurge(s->file);
    clearerr(s->file);
    s->fd = fd;
    s->at = s->filled = 0;
    s->replaced = *variable;
    s->replaced->_fileno = fd_inactive();
    *variable = s->file;
    pthread_once(&exits, call_at_exit);
}

/* ---- streams of libc's that are closed ----------------------------------------------------------
 * One that is older than DDPMODE: what it has buffered is a message, and its descriptor is closed
 * as by close(), around the call in which libc closes the number. */
static struct fd_handle* begin_close_under(FILE* file, int fd) {
    const size_t buffered = __fpending(file);
    if (buffered != 0) {
        overlay_write(fd, file->_IO_write_base, buffered);
        __fpurge(file);
    }
    return fd_begin_close(fd);
}

/* The descriptor of libc's own stream `file`, if it has a handle; else -1. One that ours stands for
 * takes its place again, and the socket there is closed. */
static int older_stream_fd(FILE* file) {
    const int saved = errno;
    int fd;
    if (file == NULL || !fd_any() || stream_of(file) != NULL || overlay_inside() ||
        !fd_table_is_ours()) {
        return -1;
    }
    for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (standard[fd].replaced == file) overlay_close(fd);
    }
    fd = LIBC(fileno)(file);
    errno = saved;
    return fd_has(fd) ? fd : -1;
}

int overlay_fclose(FILE* file) {
    const int fd = older_stream_fd(file);
    int cancel_state, result;
    struct fd_handle* handle;
    if (fd < 0) return LIBC(fclose)(file);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    handle = begin_close_under(file, fd);
    result = LIBC(fclose)(file);
    fd_end_close(handle);
    pthread_setcancelstate(cancel_state, NULL);
    return result;
}

typedef FILE* reopen_fn(const char* path, const char* mode, FILE* file);

static FILE* reopen(reopen_fn* real, const char* path, const char* mode, FILE* file) {
    struct stream* const s = stream_of(file);
    const int fd = s != NULL ? -1 : older_stream_fd(file);
    FILE* result;
    if (s != NULL) {
        fflush(file);
        if (s->replaced != NULL) {
            file = s->replaced;
            overlay_close(s->fd); /* brings it back */
        } else {
            overlay_close(s->fd);
            unlist(s);
            free(s->bytes);
            free(s);
            /* (-1 and -2 in a stream of fopencookie(), which freopen() does not expect) */
            file->_wide_data = NULL;
            file->_fileno = -1;
        }
        return real(path, mode, file);
    }
    if (fd < 0) return real(path, mode, file);
    {
        struct fd_handle* const handle = begin_close_under(file, fd);
        result = real(path, mode, file);
        fd_end_close(handle);
    }
    return result;
}

FILE* overlay_freopen(const char* path, const char* mode, FILE* file) {
    return reopen(LIBC(freopen), path, mode, file);
}

FILE* overlay_freopen64(const char* path, const char* mode, FILE* file) {
    return reopen(LIBC(freopen64), path, mode, file);
}

void overlay_stdio_forked(void) {
    const struct stream* s;
    int count = 0;
    pthread_mutex_init(&lock, NULL);
    for (s = streams; s != NULL; s = s->next) count++;
    atomic_store(&stream_count, count);
}

/* The descriptor of a stream of ours, or of the one that it stands for; or -1. */
static int stream_fd(const FILE* file) {
    const struct stream* const s = stream_of(file);
    int fd;
    if (s != NULL) return s->fd;
    if (XSOCK_LIKELY(atomic_load_explicit(&stream_count, memory_order_relaxed) == 0)) return -1;
    for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (file != NULL && standard[fd].replaced == file) return fd;
    }
    return -1;
}

int overlay_fileno(FILE* stream) {
    const int fd = stream_fd(stream);
    return fd >= 0 ? fd : LIBC(fileno)(stream);
}

int overlay_fileno_unlocked(FILE* stream) {
    const int fd = stream_fd(stream);
    return fd >= 0 ? fd : LIBC(fileno_unlocked)(stream);
}

/* ---- dprintf ----------------------------------------------------------------------------------
 */
static int print_message(int fd, const char* format, va_list arguments) {
    char small[1024];
    char* text = small;
    va_list again;
    int length;
    va_copy(again, arguments);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): each caller has begun it */
    length = vsnprintf(small, sizeof small, format, arguments);
    if (length >= (int)sizeof small) {
        text = malloc((size_t)length + 1);
        if (text != NULL) {
            vsnprintf(text, (size_t)length + 1, format, again);
        } else {
            length = -1;
        }
    }
    va_end(again);
    if (length > 0 && overlay_write(fd, text, (size_t)length) != length) length = -1;
    if (text != small) free(text);
    return length;
}

int overlay_vdprintf(int fd, const char* format, va_list arguments) {
    if (fd_has(fd)) return print_message(fd, format, arguments);
    return LIBC(vdprintf)(fd, format, arguments);
}

int overlay_dprintf(int fd, const char* format, ...) {
    va_list arguments;
    int result;
    va_start(arguments, format);
    result = overlay_vdprintf(fd, format, arguments);
    va_end(arguments);
    return result;
}

int overlay___vdprintf_chk(int fd, int flag, const char* format, va_list arguments) {
    if (fd_has(fd)) return print_message(fd, format, arguments);
    return LIBC(__vdprintf_chk)(fd, flag, format, arguments);
}

int overlay___dprintf_chk(int fd, int flag, const char* format, ...) {
    va_list arguments;
    int result;
    va_start(arguments, format);
    result = overlay___vdprintf_chk(fd, flag, format, arguments);
    va_end(arguments);
    return result;
}
