/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stdio over a DDPMODE descriptor. libc's own streams call the kernel from inside libc, where no
 * wrapper stands; so fdopen() of such a descriptor makes a stream of ours. What fflush() writes is
 * one message (or several, where the stream's buffer filled up before); what the stream reads is
 * what messages hold, one after the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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
};

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

/* 0 tells stdio of an error. */
static ssize_t stream_write(void* cookie, const char* buffer, size_t size) {
    struct stream* const s = cookie;
    const ssize_t n = overlay_write(s->fd, buffer, size);
    return n < 0 ? 0 : n;
}

static int stream_seek(void* cookie, off64_t* offset, int whence) {
    (void)cookie;
    (void)offset;
    (void)whence;
    errno = ESPIPE;
    return -1;
}

static int stream_close(void* cookie) {
    struct stream* const s = cookie;
    struct stream** place;
    int result;
    fd_table_is_ours();
    pthread_mutex_lock(&lock);
    for (place = &streams; *place != NULL && *place != s; place = &(*place)->next) {
    }
    if (*place != NULL) {
        *place = s->next;
        atomic_fetch_sub(&stream_count, 1);
    }
    pthread_mutex_unlock(&lock);
    result = overlay_close(s->fd);
    free(s->bytes);
    free(s);
    return result;
}

FILE* overlay_fdopen(int fd, const char* mode) {
    static const cookie_io_functions_t calls = {stream_read, stream_write, stream_seek,
                                                stream_close};
    struct stream* s;
    if (!overlay_is_socket(fd)) return LIBC(fdopen)(fd, mode);
    s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->fd = fd;
    s->file = fopencookie(s, mode, calls);
    if (s->file == NULL) {
        free(s);
        return NULL;
    }
    if (strchr(mode, 'e') != NULL) fcntl(fd, F_SETFD, FD_CLOEXEC);
    pthread_mutex_lock(&lock);
    s->next = streams;
    streams = s;
    atomic_fetch_add(&stream_count, 1);
    pthread_mutex_unlock(&lock);
    return s->file;
}

void overlay_stdio_forked(void) {
    const struct stream* s;
    int count = 0;
    pthread_mutex_init(&lock, NULL);
    for (s = streams; s != NULL; s = s->next) count++;
    atomic_store(&stream_count, count);
}

/* The descriptor of a stream of ours, or -1. */
static int stream_fd(const FILE* file) {
    const struct stream* s;
    int fd = -1;
    if (XSOCK_LIKELY(atomic_load_explicit(&stream_count, memory_order_relaxed) == 0)) return -1;
    fd_table_is_ours(); /* a child without a fork handler detects the fork here */
    pthread_mutex_lock(&lock);
    for (s = streams; s != NULL; s = s->next) {
        if (s->file == file) fd = s->fd;
    }
    pthread_mutex_unlock(&lock);
    return fd;
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
