/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * poll, select and epoll as system calls by number. Where they differ from libc's functions of the
 * same names: the time that was left is written back, a signal mask comes with its size, and memory
 * that is not there is EFAULT. So arguments are copied in, the engine works on the copies, and what
 * the kernel would write is copied out. A call without a handle, or that the kernel would refuse
 * before it checks a descriptor, is the kernel's.
 */
#include "libxsock/overlay/raw_wait.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/wait.h"

enum {
    KERNEL_MASK = 8, /* bytes of the kernel's sigset_t; libc's is longer */
    FEW_FDS = 64,
    SETS = 3,
    WORD_BITS = 8 * sizeof(unsigned long),
    FEW_WORDS = FD_SETSIZE / WORD_BITS,
};

static int copy(void* to, const void* from, size_t length) {
    return xsock_engine_opened->socket_copy(to, from, length);
}

static int fail_with(int error) {
    errno = error;
    return -1;
}

/* ---- time limits and signal masks ---------------------------------------------------------------
 */
struct limit {
    const struct timespec* timeout; /* NULL: none */
    struct timespec given, begin;
};

static struct timespec monotonic(void) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now;
}

/* As poll_select_set_timeout(). */
static int begin_limit(struct limit* limit) {
    const struct timespec* const t = &limit->given;
    if (t->tv_sec < 0 || t->tv_nsec < 0 || t->tv_nsec >= 1000000000) return fail_with(EINVAL);
    limit->timeout = t;
    limit->begin = monotonic();
    return 0;
}

static int limit_of(const void* timespec, struct limit* limit) {
    limit->timeout = NULL;
    if (timespec == NULL) return 0;
    if (copy(&limit->given, timespec, sizeof limit->given) != 0) return -1;
    return begin_limit(limit);
}

static int limit_of_timeval(const void* timeval, struct limit* limit) {
    struct timeval t;
    limit->timeout = NULL;
    if (timeval == NULL) return 0;
    if (copy(&t, timeval, sizeof t) != 0) return -1;
    limit->given.tv_sec = t.tv_sec + t.tv_usec / 1000000;
    limit->given.tv_nsec = t.tv_usec % 1000000 * 1000;
    return begin_limit(limit);
}

static void limit_of_ms(int ms, struct limit* limit) {
    limit->timeout = NULL;
    if (ms < 0) return;
    limit->given.tv_sec = ms / 1000;
    limit->given.tv_nsec = ms % 1000 * 1000000L;
    limit->timeout = &limit->given;
}

/* As poll_select_finish(): a limit of 0 is not written back. 0: nothing to write. */
static int time_left(const struct limit* limit, struct timespec* left) {
    struct timespec now;
    if (limit->timeout == NULL || (limit->given.tv_sec == 0 && limit->given.tv_nsec == 0)) return 0;
    now = monotonic();
    left->tv_sec = limit->given.tv_sec - (now.tv_sec - limit->begin.tv_sec);
    left->tv_nsec = limit->given.tv_nsec - (now.tv_nsec - limit->begin.tv_nsec);
    while (left->tv_nsec < 0) {
        left->tv_nsec += 1000000000;
        left->tv_sec--;
    }
    while (left->tv_nsec >= 1000000000) {
        left->tv_nsec -= 1000000000;
        left->tv_sec++;
    }
    if (left->tv_sec < 0) left->tv_sec = left->tv_nsec = 0;
    return 1;
}

/* A limit in memory that cannot be written stays as it is, and the call's result too. */
static void write_left(const struct limit* limit, void* timespec) {
    const int saved = errno;
    struct timespec left;
    if (time_left(limit, &left)) copy(timespec, &left, sizeof left);
    errno = saved;
}

static void write_left_timeval(const struct limit* limit, void* timeval) {
    const int saved = errno;
    struct timespec left;
    if (time_left(limit, &left)) {
        const struct timeval t = {left.tv_sec, left.tv_nsec / 1000};
        copy(timeval, &t, sizeof t);
    }
    errno = saved;
}

/* As set_user_sigmask(): of a mask that is NULL the size does not matter. */
static int mask_of(const void* from, size_t size, sigset_t* place, const sigset_t** mask) {
    *mask = NULL;
    if (from == NULL) return 0;
    if (size != KERNEL_MASK) return fail_with(EINVAL);
    memset(place, 0, sizeof *place);
    if (copy(place, from, KERNEL_MASK) != 0) return -1;
    *mask = place;
    return 0;
}

/* ---- poll ---------------------------------------------------------------------------------------
 */
struct polled {
    struct pollfd* fds;
    unsigned count;
    struct pollfd few[FEW_FDS];
};

static void end_polled(struct polled* p) {
    const int saved = errno;
    if (p->fds != p->few) free(p->fds);
    errno = saved;
}

static int any_has_handle(const void* fds, unsigned count) {
    struct pollfd few[FEW_FDS];
    const struct pollfd* at = fds;
    while (count != 0) {
        const unsigned n = count < FEW_FDS ? count : FEW_FDS;
        if (copy(few, at, n * sizeof *few) != 0) return 0; /* the kernel says so too */
        if (wait_poll_has_handle(few, n)) return 1;
        at += n;
        count -= n;
    }
    return 0;
}

/* 1: the copy has a handle among its descriptors; 0: the call is the kernel's; -1: errno is set. */
static int begin_polled(struct polled* p, const void* fds, unsigned count) {
    struct rlimit files;
    if (count == 0 || getrlimit(RLIMIT_NOFILE, &files) != 0 || count > files.rlim_cur) return 0;
    p->count = count;
    p->fds = p->few;
    /* Memory is asked for only where a handle needs it: a signal handler's call on plain
     * descriptors may have interrupted malloc(). */
    if (count > FEW_FDS && !any_has_handle(fds, count)) return 0;
    if (count > FEW_FDS) p->fds = malloc(count * sizeof *p->fds);
    if (p->fds == NULL) return fail_with(ENOMEM);
    if (copy(p->fds, fds, count * sizeof *p->fds) == 0 && wait_poll_has_handle(p->fds, count)) {
        return 1;
    }
    end_polled(p);
    return 0;
}

static long poll_copy(struct polled* p, void* fds, const struct limit* limit,
                      const sigset_t* mask) {
    const long result = wait_poll(p->fds, p->count, limit->timeout, mask);
    const int saved = errno;
    unsigned i;
    if (result < 0 && saved != EINTR) return result;
    /* As the kernel: nothing but this, for other threads may change the rest meanwhile. */
    for (i = 0; i < p->count; i++) {
        struct pollfd* const to = (struct pollfd*)fds + i;
        if (copy(&to->revents, &p->fds[i].revents, sizeof to->revents) != 0) return -1;
    }
    errno = saved;
    return result;
}

int raw_poll(long* a, long* result) {
    struct polled p;
    struct limit limit;
    const int begun = begin_polled(&p, (const void*)a[0], (unsigned)a[1]);
    *result = -1;
    if (begun <= 0) return begun != 0;
    limit_of_ms((int)a[2], &limit);
    *result = poll_copy(&p, (void*)a[0], &limit, NULL);
    end_polled(&p);
    return 1;
}

int raw_ppoll(long* a, long* result) {
    struct polled p;
    struct limit limit;
    sigset_t place;
    const sigset_t* mask;
    const int begun = begin_polled(&p, (const void*)a[0], (unsigned)a[1]);
    *result = -1;
    if (begun <= 0) return begun != 0;
    if (limit_of((const void*)a[2], &limit) == 0 &&
        mask_of((const void*)a[3], (size_t)a[4], &place, &mask) == 0) {
        *result = poll_copy(&p, (void*)a[0], &limit, mask);
        write_left(&limit, (void*)a[2]);
    }
    end_polled(&p);
    return 1;
}

/* ---- select -------------------------------------------------------------------------------------
 */
struct selected {
    int count;
    size_t words; /* of each set */
    void* user[SETS];
    unsigned long* set[SETS]; /* NULL where the program's is */
    unsigned long* memory;
    unsigned long few[SETS * FEW_WORDS];
};

static void end_selected(struct selected* s) {
    const int saved = errno;
    if (s->memory != s->few) free(s->memory);
    errno = saved;
}

static fd_set* set_of(const struct selected* s, int i) { return (fd_set*)s->set[i]; }

/* As begin_polled(). `a`: count and three sets; the count becomes what the kernel may read. */
static int begin_selected(struct selected* s, long* a) {
    int i;
    if ((int)a[0] <= 0) return 0;
    s->count = wait_within_sets((int)a[0]);
    a[0] = s->count;
    s->words = ((size_t)s->count + WORD_BITS - 1) / WORD_BITS;
    s->memory = s->few;
    if (s->words > FEW_WORDS) s->memory = malloc(SETS * s->words * sizeof *s->memory);
    if (s->memory == NULL) return fail_with(ENOMEM);
    for (i = 0; i < SETS; i++) {
        s->user[i] = (void*)a[1 + i];
        s->set[i] = s->user[i] != NULL ? s->memory + (size_t)i * s->words : NULL;
        if (s->set[i] != NULL && copy(s->set[i], s->user[i], s->words * sizeof *s->memory) != 0) {
            break;
        }
    }
    if (i == SETS && wait_select_has_handle(s->count, set_of(s, 0), set_of(s, 1), set_of(s, 2))) {
        return 1;
    }
    end_selected(s);
    return 0;
}

static long select_copy(struct selected* s, const struct limit* limit, const sigset_t* mask) {
    const unsigned past = (unsigned)s->count % WORD_BITS;
    struct timespec left = {0, 0};
    long result;
    int i;
    if (limit->timeout != NULL) left = limit->given;
    result = wait_select(s->count, set_of(s, 0), set_of(s, 1), set_of(s, 2),
                         limit->timeout != NULL ? &left : NULL, mask);
    if (result < 0) return result;
    for (i = 0; i < SETS; i++) {
        if (s->set[i] == NULL) continue;
        /* The kernel writes whole words: of numbers from `count` on there is nothing to tell. */
        if (past != 0) s->set[i][s->words - 1] &= (1ul << past) - 1;
        if (copy(s->user[i], s->set[i], s->words * sizeof *s->memory) != 0) return -1;
    }
    return result;
}

int raw_select(long* a, long* result) {
    struct selected s;
    struct limit limit;
    const int begun = begin_selected(&s, a);
    *result = -1;
    if (begun <= 0) return begun != 0;
    if (limit_of_timeval((const void*)a[4], &limit) == 0) {
        *result = select_copy(&s, &limit, NULL);
        write_left_timeval(&limit, (void*)a[4]);
    }
    end_selected(&s);
    return 1;
}

/* The sixth argument of pselect6. */
struct mask_argument {
    const void* mask;
    size_t size;
};

int raw_pselect6(long* a, long* result) {
    struct selected s;
    struct limit limit;
    struct mask_argument argument = {NULL, 0};
    sigset_t place;
    const sigset_t* mask;
    const int begun = begin_selected(&s, a);
    *result = -1;
    if (begun <= 0) return begun != 0;
    if ((a[5] == 0 || copy(&argument, (const void*)a[5], sizeof argument) == 0) &&
        limit_of((const void*)a[4], &limit) == 0 &&
        mask_of(argument.mask, argument.size, &place, &mask) == 0) {
        *result = select_copy(&s, &limit, mask);
        write_left(&limit, (void*)a[4]);
    }
    end_selected(&s);
    return 1;
}

/* ---- epoll --------------------------------------------------------------------------------------
 */
int raw_epoll_ctl(long* a, long* result) {
    const int set = (int)a[0];
    const int operation = (int)a[1];
    const int fd = (int)a[2];
    struct epoll_event event;
    if (operation == EPOLL_CTL_ADD) overlay_note_registered(fd);
    if (!fd_has(set) && !fd_has(fd)) return 0;
    *result = -1;
    if (operation != EPOLL_CTL_DEL && copy(&event, (const void*)a[3], sizeof event) != 0) return 1;
    *result = overlay_epoll_ctl(set, operation, fd, operation != EPOLL_CTL_DEL ? &event : NULL);
    return 1;
}

/* 0: `set` has no handle, or that of a socket, of which the kernel says what it is. */
static int wait_on(int set, void* events, int count, const struct limit* limit,
                   const sigset_t* mask, long* result) {
    *result = wait_epoll(set, events, count, limit->timeout, mask);
    return *result != XSOCK_PASS;
}

int raw_epoll_wait(long* a, long* result) {
    struct limit limit;
    if (!fd_has((int)a[0])) return 0;
    limit_of_ms((int)a[3], &limit);
    return wait_on((int)a[0], (void*)a[1], (int)a[2], &limit, NULL, result);
}

static int wait_masked(long* a, int by_timespec, long* result) {
    struct limit limit;
    sigset_t place;
    const sigset_t* mask;
    if (!fd_has((int)a[0])) return 0;
    *result = -1;
    if (!by_timespec) {
        limit_of_ms((int)a[3], &limit);
    } else if (limit_of((const void*)a[3], &limit) != 0) {
        return 1;
    }
    if (mask_of((const void*)a[4], (size_t)a[5], &place, &mask) != 0) return 1;
    return wait_on((int)a[0], (void*)a[1], (int)a[2], &limit, mask, result);
}

int raw_epoll_pwait(long* a, long* result) { return wait_masked(a, 0, result); }
int raw_epoll_pwait2(long* a, long* result) { return wait_masked(a, 1, result); }

long raw_epoll_after(long number, const long* a, long result) {
    const int set = (int)a[0];
    const int masked = number == SYS_epoll_pwait || number == SYS_epoll_pwait2;
    const int limited = number == SYS_epoll_pwait2 ? a[3] != 0 : (int)a[3] >= 0;
    sigset_t place;
    const sigset_t* mask = NULL;
    if (result <= 0 || !fd_has(set)) return result;
    if (masked) mask_of((const void*)a[4], (size_t)a[5], &place, &mask);
    return wait_mode_changed_meanwhile(set, (struct epoll_event*)a[1], (int)result, (int)a[2],
                                       limited, mask);
}
