/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * POSIX asynchronous I/O on DDPMODE descriptors. libc's helper threads call the kernel from inside
 * libc, where no wrapper stands; so requests on such a descriptor are ours, those on any other
 * libc's. As libc does it, a thread for each descriptor with requests makes one call after the
 * other, as long as there are some. A request's state is in the program's aiocb, where libc's
 * aio_error() and aio_return() read it.
 */
#include <aio.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libxsock/overlay/aio_notify.h"
#include "libxsock/overlay/overlay.h"

/* A call of lio_listio(). The program may use an aiocb for something else as soon as it is done, so
 * what is not done is counted here. */
struct list {
    int left;              /* requests of ours, libc's together as one, and the call itself */
    int failed;            /* one of ours has */
    struct sigevent event; /* when none is left */
    int libcs_count;
    struct aiocb* libcs[];
};

struct request {
    struct aiocb* control;
    int opcode;            /* LIO_READ, LIO_WRITE, or what ends in EINVAL */
    struct list* list;     /* its part of one; once done: it was the last */
    struct sigevent event; /* once done */
    struct request* next;
};

/* The requests of one descriptor; the first is under way. */
struct line {
    int fd;
    struct request* first;
    struct line* next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct line* lines;
static _Atomic uint32_t completions; /* a futex: grows with each end of a request */

static int state_of(const struct aiocb* control) {
    return __atomic_load_n(&control->__error_code, __ATOMIC_ACQUIRE);
}

static int is_done(const struct aiocb* control) { return state_of(control) != EINPROGRESS; }

/* One of ours, and not done. @pre the lock is held */
static int is_queued(const struct aiocb* control) {
    const struct line* l;
    const struct request* r;
    for (l = lines; l != NULL; l = l->next) {
        for (r = l->first; r != NULL; r = r->next) {
            if (r->control == control) return 1;
        }
    }
    return 0;
}

/* ---- telling the program ------------------------------------------------------------------------
 */
static void notify_of_list(struct list* list) {
    aio_notify(&list->event);
    free(list);
}

/* The call's count, or libc's. */
static void count_down(struct list* list) {
    int left;
    pthread_mutex_lock(&lock);
    left = --list->left;
    pthread_mutex_unlock(&lock);
    if (left == 0) notify_of_list(list);
}

/* A request is out of its line and done; the program may free its aiocb at once.
 * @pre the lock is held, so that a request is always either in a line or done */
static void finish(struct request* r, ssize_t result, int error) {
    r->event = r->control->aio_sigevent;
    r->control->__return_value = result;
    __atomic_store_n(&r->control->__error_code, error, __ATOMIC_RELEASE);
    if (r->list == NULL) return;
    r->list->failed |= error != 0;
    if (--r->list->left != 0) r->list = NULL;
}

static void tell_and_free(struct request* r) {
    atomic_fetch_add(&completions, 1);
    syscall(SYS_futex, &completions, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    aio_notify(&r->event);
    if (r->list != NULL) notify_of_list(r->list);
    free(r);
}

/* ---- requests -----------------------------------------------------------------------------------
 */
static ssize_t call(int fd, const struct request* r) {
    void* const buffer = (void*)r->control->aio_buf;
    const size_t bytes = r->control->aio_nbytes;
    if (r->opcode == LIO_READ) return overlay_read(fd, buffer, bytes);
    if (r->opcode == LIO_WRITE) return overlay_write(fd, buffer, bytes);
    errno = EINVAL;
    return -1;
}

static void* serve(void* argument) {
    struct line* const l = argument;
    for (;;) {
        struct request* const r = l->first; /* only this thread takes it away */
        const ssize_t n = call(l->fd, r);
        const int error = n < 0 ? errno : 0;
        int over;
        pthread_mutex_lock(&lock);
        finish(r, n, error);
        l->first = r->next;
        over = l->first == NULL;
        if (over) {
            struct line** place = &lines;
            while (*place != l) place = &(*place)->next;
            *place = l->next;
        }
        pthread_mutex_unlock(&lock);
        tell_and_free(r);
        if (!over) continue;
        free(l);
        return NULL;
    }
}

static int refuse(struct aiocb* control, int error) {
    control->__error_code = errno = error;
    control->__return_value = -1;
    return -1;
}

/* `list`: its part of one, or NULL. */
static int enqueue(struct aiocb* control, int opcode, struct list* list) {
    const int fd = control->aio_fildes;
    struct request* r;
    struct line *l, *spare;
    int failed;
    if (control->aio_reqprio < 0 || control->aio_reqprio > AIO_PRIO_DELTA_MAX) {
        return refuse(control, EINVAL);
    }
    r = calloc(1, sizeof *r);
    spare = calloc(1, sizeof *spare);
    failed = r == NULL || spare == NULL;
    if (!failed) {
        struct request** place;
        *r = (struct request){.control = control, .opcode = opcode, .list = list};
        fd_table_is_ours(); /* a child without a fork handler detects the fork here */
        pthread_mutex_lock(&lock);
        for (l = lines; l != NULL && l->fd != fd; l = l->next) {
        }
        control->__error_code = EINPROGRESS;
        if (l != NULL) {
            for (place = &l->first; *place != NULL; place = &(*place)->next) {
            }
            *place = r;
        } else {
            *spare = (struct line){fd, r, lines};
            failed = aio_start_thread(serve, spare) != 0;
            if (!failed) {
                lines = spare;
                spare = NULL;
            }
        }
        if (!failed && list != NULL) list->left++;
        pthread_mutex_unlock(&lock);
    }
    free(spare);
    if (!failed) return 0;
    free(r);
    return refuse(control, EAGAIN);
}

static int is_ours(const struct aiocb* control) { return overlay_is_socket(control->aio_fildes); }

int overlay_aio_read(struct aiocb* control) {
    return is_ours(control) ? enqueue(control, LIO_READ, NULL) : LIBC(aio_read)(control);
}

int overlay_aio_write(struct aiocb* control) {
    return is_ours(control) ? enqueue(control, LIO_WRITE, NULL) : LIBC(aio_write)(control);
}

/* The members that are used here lie before the offset, in which the two structures differ. */
int overlay_aio_read64(struct aiocb64* control) {
    struct aiocb* const same = (struct aiocb*)control;
    return is_ours(same) ? enqueue(same, LIO_READ, NULL) : LIBC(aio_read64)(control);
}

int overlay_aio_write64(struct aiocb64* control) {
    struct aiocb* const same = (struct aiocb*)control;
    return is_ours(same) ? enqueue(same, LIO_WRITE, NULL) : LIBC(aio_write64)(control);
}

/* ---- waiting ------------------------------------------------------------------------------------
 */
/* What of the list is not done: with requests of ours, and with libc's. */
struct mixture {
    int ours, libcs;
};

static struct mixture not_done(const struct aiocb* const* list, int count) {
    struct mixture m = {0, 0};
    int i;
    if (!fd_any()) return m;
    fd_table_is_ours();
    pthread_mutex_lock(&lock);
    for (i = 0; i < count; i++) {
        if (list[i] == NULL) continue;
        if (is_queued(list[i])) {
            m.ours++;
        } else if (!is_done(list[i])) {
            m.libcs++;
        }
    }
    pthread_mutex_unlock(&lock);
    return m;
}

/* Until `completions` is no more what was `seen`, or for `time` (NULL: ever). -1: EINTR. */
static int sleep_for(uint32_t seen, const struct timespec* time) {
    int cancel_type;
    long slept;
    /* (nothing is held, so that the thread may be cancelled at any instruction) */
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &cancel_type);
    slept = syscall(SYS_futex, &completions, FUTEX_WAIT_PRIVATE, seen, time, NULL, 0);
    pthread_setcanceltype(cancel_type, NULL);
    return slept != 0 && errno == EINTR ? -1 : 0;
}

/* Until one of the list is done; -1 with EAGAIN (`until`, CLOCK_MONOTONIC; may be NULL) or EINTR.
 * Where some are libc's, which does not wake this thread, it checks once a millisecond. */
static int wait_for(const struct aiocb* const* list, int count, const struct timespec* until) {
    const struct timespec nap = {0, 1000000};
    const int mixed = not_done(list, count).libcs != 0;
    for (;;) {
        const uint32_t seen = atomic_load(&completions);
        struct timespec now, left;
        int i, used = 0;
        for (i = 0; i < count; i++) {
            if (list[i] == NULL) continue;
            used++;
            if (is_done(list[i])) return 0;
        }
        if (used == 0) return 0;
        if (until != NULL) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            left.tv_sec = until->tv_sec - now.tv_sec;
            left.tv_nsec = until->tv_nsec - now.tv_nsec;
            if (left.tv_nsec < 0) {
                left.tv_sec--;
                left.tv_nsec += 1000000000;
            }
            if (left.tv_sec < 0) {
                errno = EAGAIN;
                return -1;
            }
        }
        if (sleep_for(seen, mixed ? &nap : until != NULL ? &left : NULL) != 0) return -1;
    }
}

int overlay_aio_suspend(const struct aiocb* const* list, int count, const struct timespec* time) {
    struct timespec until;
    if (not_done(list, count).ours == 0) return LIBC(aio_suspend)(list, count, time);
    if (time != NULL) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += time->tv_sec + (until.tv_nsec + time->tv_nsec) / 1000000000;
        until.tv_nsec = (until.tv_nsec + time->tv_nsec) % 1000000000;
    }
    return wait_for(list, count, time != NULL ? &until : NULL);
}

int overlay_aio_suspend64(const struct aiocb64* const* list, int count,
                          const struct timespec* time) {
    const struct aiocb* const* const same = (const struct aiocb* const*)list;
    if (not_done(same, count).ours == 0) return LIBC(aio_suspend64)(list, count, time);
    return overlay_aio_suspend(same, count, time);
}

/* ---- cancelling ---------------------------------------------------------------------------------
 */
/* Those of `fd` that have not begun, all or the one of `control`. 0: this descriptor has no request
 * of ours; else 1, and *answer. */
static int cancel(int fd, const struct aiocb* control, int* answer) {
    struct request* cancelled = NULL;
    struct line* l;
    if (!fd_any()) return 0;
    if (control != NULL && control->aio_fildes != fd) return 0; /* libc refuses it */
    fd_table_is_ours();
    *answer = AIO_ALLDONE;
    pthread_mutex_lock(&lock);
    for (l = lines; l != NULL && l->fd != fd; l = l->next) {
    }
    if (l != NULL) {
        struct request** place = &l->first->next;
        const int under_way = control == NULL || l->first->control == control;
        while (*place != NULL) {
            struct request* const r = *place;
            if (control != NULL && r->control != control) {
                place = &r->next;
                continue;
            }
            *place = r->next;
            finish(r, -1, ECANCELED);
            r->next = cancelled;
            cancelled = r;
        }
        if (cancelled != NULL) *answer = AIO_CANCELED;
        if (under_way) *answer = AIO_NOTCANCELED;
    }
    pthread_mutex_unlock(&lock);
    while (cancelled != NULL) {
        struct request* const r = cancelled;
        cancelled = r->next;
        tell_and_free(r);
    }
    return l != NULL || overlay_is_socket(fd);
}

int overlay_aio_cancel(int fd, struct aiocb* control) {
    int answer;
    return cancel(fd, control, &answer) ? answer : LIBC(aio_cancel)(fd, control);
}

int overlay_aio_cancel64(int fd, struct aiocb64* control) {
    int answer;
    return cancel(fd, (struct aiocb*)control, &answer) ? answer : LIBC(aio_cancel64)(fd, control);
}

/* ---- lists --------------------------------------------------------------------------------------
 * One with a request of ours is taken apart; libc's are a list of their own.
 */
static int any_ours(struct aiocb* const* list, int count) {
    int i;
    if (!fd_any()) return 0;
    for (i = 0; i < count; i++) {
        if (list[i] != NULL && list[i]->aio_lio_opcode != LIO_NOP && is_ours(list[i])) return 1;
    }
    return 0;
}

static void on_libcs_done(union sigval list) { count_down(list.sival_ptr); }

static int call_libc(int mode, struct list* l, struct sigevent* event, int wide) {
    if (wide) {
        struct aiocb64* const* const same = (struct aiocb64* const*)l->libcs;
        return LIBC(lio_listio64)(mode, same, l->libcs_count, event);
    }
    return LIBC(lio_listio)(mode, l->libcs, l->libcs_count, event);
}

/* 0, EIO (one has failed) or EINTR. */
static int wait_for_ours(struct list* l) {
    for (;;) {
        const uint32_t seen = atomic_load(&completions);
        int left, failed;
        pthread_mutex_lock(&lock);
        left = l->left;
        failed = l->failed;
        pthread_mutex_unlock(&lock);
        if (left == 1) return failed ? EIO : 0;
        if (sleep_for(seen, NULL) != 0) return EINTR;
    }
}

/* The same of all. */
static int wait_for_both(struct list* l, int wide) {
    int libcs = 0, ours;
    if (l->libcs_count != 0 && call_libc(LIO_WAIT, l, NULL, wide) != 0) {
        libcs = errno == EINTR ? EINTR : EIO;
        if (libcs == EINTR) return EINTR;
    }
    ours = wait_for_ours(l);
    return ours != 0 ? ours : libcs;
}

static void on_cancelled(void* list) { count_down(list); }

static int wait_for_all(struct list* l, int wide) {
    int error;
    pthread_cleanup_push(on_cancelled, l);
    error = wait_for_both(l, wide);
    pthread_cleanup_pop(0);
    return error;
}

/* Of LIO_NOWAIT. As libc's, the event does not come where libc lacks memory. 0 or an errno. */
static int start_libcs(struct list* l, int wide) {
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    if (l->libcs_count == 0) return 0;
    if (l->event.sigev_notify != SIGEV_NONE) {
        event.sigev_notify = SIGEV_THREAD;
        event.sigev_notify_function = on_libcs_done;
        event.sigev_value.sival_ptr = l;
        pthread_mutex_lock(&lock);
        l->left++;
        pthread_mutex_unlock(&lock);
    }
    return call_libc(LIO_NOWAIT, l, &event, wide) == 0 ? 0 : errno;
}

static int list_io(int mode, struct aiocb* const* list, int count, const struct sigevent* event,
                   int wide) {
    struct list* l;
    int i, error = 0, later, started = 0;
    if (mode != LIO_WAIT && mode != LIO_NOWAIT) {
        errno = EINVAL;
        return -1;
    }
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    l = calloc(1, sizeof *l + (size_t)count * sizeof l->libcs[0]);
    if (l == NULL) {
        errno = EAGAIN;
        return -1;
    }
    l->left = 1;
    l->event.sigev_notify = SIGEV_NONE;
    if (mode == LIO_NOWAIT && event != NULL) l->event = *event;
    for (i = 0; i < count; i++) {
        const int opcode = list[i] != NULL ? list[i]->aio_lio_opcode : LIO_NOP;
        if (opcode == LIO_NOP) continue;
        if (!is_ours(list[i])) {
            l->libcs[l->libcs_count++] = list[i];
        } else if (enqueue(list[i], opcode, l) == 0) {
            started++;
        } else {
            error = errno;
        }
    }
    if (error != 0 && mode == LIO_WAIT && started + l->libcs_count != 0) error = EIO;
    later = mode == LIO_WAIT ? wait_for_all(l, wide) : start_libcs(l, wide);
    if (later != 0) error = later;
    count_down(l);
    if (error == 0) return 0;
    errno = error;
    return -1;
}

int overlay_lio_listio(int mode, struct aiocb* const* list, int count, struct sigevent* event) {
    if (!any_ours(list, count)) return LIBC(lio_listio)(mode, list, count, event);
    return list_io(mode, list, count, event, 0);
}

int overlay_lio_listio64(int mode, struct aiocb64* const* list, int count, struct sigevent* event) {
    struct aiocb* const* const same = (struct aiocb* const*)list;
    if (!any_ours(same, count)) return LIBC(lio_listio64)(mode, list, count, event);
    return list_io(mode, same, count, event, 1);
}

void overlay_aio_forked(void) {
    pthread_mutex_init(&lock, NULL);
    lines = NULL;
}
