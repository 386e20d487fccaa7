/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Readiness. A call whose descriptors have no handle is libc's. One with a handle among them goes
 * to the engine whole, with an array that has the handle, or NULL, of each; so does every call on
 * an epoll set that a DDPMODE socket has ever joined.
 */
#include "libxsock/overlay/wait.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "libxsock/overlay/fork.h"
#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/policy.h"

struct entered {
    int cancel_state;
    int before;
};

/* Handles of the descriptors of one call, a reference each. */
struct handles {
    size_t count;
    struct fd_handle** handle; /* NULL: plain */
    struct xsock_socket** sock;
    uint32_t generation;
    struct entered entered;
    void* memory; /* NULL: the two lie in `few` */
    void* few[128];
};

/* A reference that was taken in the process of that generation. */
static void put_of(uint32_t generation, struct fd_handle* handle) {
    if (generation == atomic_load_explicit(&fork_generation, memory_order_relaxed)) fd_put(handle);
}

static int handles_begin(struct handles* h, size_t count) {
    void** memory = h->few;
    h->memory = NULL;
    h->count = count;
    h->generation = atomic_load_explicit(&fork_generation, memory_order_relaxed);
    if (2 * count > sizeof h->few / sizeof *h->few) {
        memory = h->memory = calloc(2 * count, sizeof *memory);
        if (memory == NULL) return -1;
    } else {
        memset(memory, 0, 2 * count * sizeof *memory);
    }
    h->handle = (struct fd_handle**)memory;
    h->sock = (struct xsock_socket**)(memory + count);
    return 0;
}

static void handles_take(struct handles* h, size_t i, int fd) {
    h->handle[i] = fd_get(fd);
    if (h->handle[i] != NULL) h->sock[i] = h->handle[i]->sock;
}

static void handles_end(struct handles* h) {
    const int saved = errno;
    size_t i;
    for (i = 0; i < h->count; i++) put_of(h->generation, h->handle[i]);
    free(h->memory);
    errno = saved;
}

/* A call of the engine that may wait: see overlay_enter(). */
static int wait_begin(struct entered* entered) {
    entered->before = overlay_begin_call();
    if (entered->before < 0) return -1;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &entered->cancel_state);
    return 0;
}

/* One that takes locks of the overlay, too. */
static int wait_begin_inside(struct entered* entered) {
    if (wait_begin(entered) != 0) return -1;
    overlay_begin();
    return 0;
}

static void wait_end(const struct entered* entered) {
    const int saved = errno;
    overlay_end(entered->before);
    pthread_setcancelstate(entered->cancel_state, NULL);
    errno = saved;
}

static struct timespec of_ms(int ms) {
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    return t;
}

/* ---- poll ---------------------------------------------------------------------------------------
 */
int wait_poll_has_handle(const struct pollfd* fds, nfds_t count) {
    nfds_t i;
    if (!fd_any() || fds == NULL || (XSOCK_ENGINE_CALLS_US && overlay_inside())) return 0;
    for (i = 0; i < count; i++) {
        if (fd_has(fds[i].fd)) return 1;
    }
    return 0;
}

int wait_poll(struct pollfd* fds, nfds_t count, const struct timespec* timeout,
              const sigset_t* mask) {
    struct handles h;
    int result;
    nfds_t i;
    if (handles_begin(&h, count) != 0) return -1;
    for (i = 0; i < count; i++) handles_take(&h, i, fds[i].fd);
    if ((result = wait_begin(&h.entered)) == 0) {
        result = xsock_engine_opened->socket_poll(fds, count, (struct xsock_socket* const*)h.sock,
                                                  timeout, mask);
        wait_end(&h.entered);
    }
    handles_end(&h);
    return result;
}

static __attribute__((noinline)) int poll_slow(struct pollfd* fds, nfds_t count, int timeout_ms) {
    if (wait_poll_has_handle(fds, count)) {
        const struct timespec timeout = of_ms(timeout_ms);
        const int result = wait_poll(fds, count, timeout_ms < 0 ? NULL : &timeout, NULL);
        if (result != XSOCK_PASS) return result;
    }
    return LIBC(poll)(fds, count, timeout_ms);
}

int overlay_poll(struct pollfd* fds, nfds_t count, int timeout_ms) {
    OVERLAY_UNLESS(fd_any(), poll, (fds, count, timeout_ms), poll_slow);
}
XSOCK_LIBC_ALIAS(__poll, poll)

static __attribute__((noinline)) int ppoll_slow(struct pollfd* fds, nfds_t count,
                                                const struct timespec* timeout,
                                                const sigset_t* mask) {
    if (wait_poll_has_handle(fds, count)) {
        const int result = wait_poll(fds, count, timeout, mask);
        if (result != XSOCK_PASS) return result;
    }
    return LIBC(ppoll)(fds, count, timeout, mask);
}

int overlay_ppoll(struct pollfd* fds, nfds_t count, const struct timespec* timeout,
                  const sigset_t* mask) {
    OVERLAY_UNLESS(fd_any(), ppoll, (fds, count, timeout, mask), ppoll_slow);
}

int overlay___poll_chk(struct pollfd* fds, nfds_t count, int timeout_ms, size_t size) {
    if (size / sizeof *fds >= count && wait_poll_has_handle(fds, count)) {
        return overlay_poll(fds, count, timeout_ms);
    }
    return LIBC(__poll_chk)(fds, count, timeout_ms, size);
}

int overlay___ppoll_chk(struct pollfd* fds, nfds_t count, const struct timespec* timeout,
                        const sigset_t* mask, size_t size) {
    if (size / sizeof *fds >= count && wait_poll_has_handle(fds, count)) {
        return overlay_ppoll(fds, count, timeout, mask);
    }
    return LIBC(__ppoll_chk)(fds, count, timeout, mask, size);
}

/* ---- select -------------------------------------------------------------------------------------
 */
/* Sets may be longer than fd_set: programs allocate them for more descriptors. */
static int is_set(const fd_set* set, int fd) {
    const unsigned long* const words = (const unsigned long*)set;
    const int bits = 8 * (int)sizeof *words;
    return set != NULL && (words[fd / bits] >> fd % bits & 1);
}

static int wanted(int fd, const fd_set* reads, const fd_set* writes, const fd_set* excepts) {
    return is_set(reads, fd) || is_set(writes, fd) || is_set(excepts, fd);
}

/* The kernel reads no more numbers than its table of the process has, however many the caller
 * says: programs say all that there might be (getdtablesize()), with sets of FD_SETSIZE. The
 * engine's descriptors, far up, have made that table larger than the program's sets. */
int wait_within_sets(int count) {
    const struct dirent* entry;
    int most = FD_SETSIZE;
    DIR* folder;
    if (count <= most) return count;
    folder = opendir("/proc/self/fd");
    if (folder == NULL) return count;
    while ((entry = readdir(folder)) != NULL) {
        const int fd = atoi(entry->d_name);
        if (fd >= most && fd != dirfd(folder) && xsock_engine_opened->socket_foreign(fd)) {
            most = fd + 1;
        }
    }
    closedir(folder);
    return most < count ? most : count;
}

int wait_select_has_handle(int count, const fd_set* reads, const fd_set* writes,
                           const fd_set* excepts) {
    int fd;
    if (!fd_any() || (XSOCK_ENGINE_CALLS_US && overlay_inside())) return 0;
    for (fd = 0; fd < count; fd++) {
        if (fd_has(fd) && wanted(fd, reads, writes, excepts)) return 1;
    }
    return 0;
}

int wait_select(int count, fd_set* reads, fd_set* writes, fd_set* excepts, struct timespec* timeout,
                const sigset_t* mask) {
    struct handles h;
    int result;
    int fd;
    if (handles_begin(&h, (size_t)count) != 0) return -1;
    for (fd = 0; fd < count; fd++) {
        if (wanted(fd, reads, writes, excepts)) handles_take(&h, (size_t)fd, fd);
    }
    if ((result = wait_begin(&h.entered)) == 0) {
        result = xsock_engine_opened->socket_select(
            count, reads, writes, excepts, (struct xsock_socket* const*)h.sock, timeout, mask);
        wait_end(&h.entered);
    }
    handles_end(&h);
    return result;
}

static __attribute__((noinline)) int select_slow(int count, fd_set* reads, fd_set* writes,
                                                 fd_set* excepts, struct timeval* timeout) {
    if (fd_any()) count = wait_within_sets(count);
    if (wait_select_has_handle(count, reads, writes, excepts)) {
        struct timespec left = {0, 0};
        int result;
        if (timeout != NULL) {
            if (timeout->tv_sec < 0 || timeout->tv_usec < 0) {
                errno = EINVAL;
                return -1;
            }
            left.tv_sec = timeout->tv_sec + timeout->tv_usec / 1000000;
            left.tv_nsec = timeout->tv_usec % 1000000 * 1000;
        }
        result = wait_select(count, reads, writes, excepts, timeout ? &left : NULL, NULL);
        if (result != XSOCK_PASS) {
            if (timeout != NULL) {
                timeout->tv_sec = left.tv_sec;
                timeout->tv_usec = left.tv_nsec / 1000;
            }
            return result;
        }
    }
    return LIBC(select)(count, reads, writes, excepts, timeout);
}

int overlay_select(int count, fd_set* reads, fd_set* writes, fd_set* excepts,
                   struct timeval* timeout) {
    OVERLAY_UNLESS(fd_any(), select, (count, reads, writes, excepts, timeout), select_slow);
}
XSOCK_LIBC_ALIAS(__select, select)

static __attribute__((noinline)) int pselect_slow(int count, fd_set* reads, fd_set* writes,
                                                  fd_set* excepts, const struct timespec* timeout,
                                                  const sigset_t* mask) {
    if (fd_any()) count = wait_within_sets(count);
    if (wait_select_has_handle(count, reads, writes, excepts)) {
        struct timespec left = timeout != NULL ? *timeout : (struct timespec){0, 0};
        const int result = wait_select(count, reads, writes, excepts, timeout ? &left : NULL, mask);
        if (result != XSOCK_PASS) return result;
    }
    return LIBC(pselect)(count, reads, writes, excepts, timeout, mask);
}

int overlay_pselect(int count, fd_set* reads, fd_set* writes, fd_set* excepts,
                    const struct timespec* timeout, const sigset_t* mask) {
    OVERLAY_UNLESS(fd_any(), pselect, (count, reads, writes, excepts, timeout, mask), pselect_slow);
}

/* ---- epoll --------------------------------------------------------------------------------------
 */
static int fresh(int fd) {
    if (fd >= 0) fd_forget(fd);
    return fd;
}

int overlay_epoll_create(int size) { return fresh(LIBC(epoll_create)(size)); }
int overlay_epoll_create1(int flags) { return fresh(LIBC(epoll_create1)(flags)); }

/* The handle of an epoll set; NULL when it has none. */
static struct fd_handle* get_set(int fd) {
    struct fd_handle* const handle = fd_get(fd);
    if (handle != NULL && !XSOCK_IS_SET(handle->sock)) {
        fd_put(handle);
        return NULL;
    }
    return handle;
}

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER; /* a set the engine's */

void overlay_wait_forked(void) { pthread_mutex_init(&making, NULL); }

/* The first DDPMODE member makes a set the engine's. */
static struct fd_handle* make_set(int fd) {
    struct fd_handle* handle;
    pthread_mutex_lock(&making);
    handle = get_set(fd);
    if (handle == NULL) {
        struct xsock_socket* const set = xsock_engine_opened->socket_epoll_open(fd);
        if (set != NULL && fd_install(fd, set) == 0) {
            fd_install_duplicates(fd);
            handle = get_set(fd);
            xsock_engine_opened->socket_epoll_wake_kernel(set);
        } else if (set != NULL) {
            const int saved = errno;
            xsock_engine_opened->socket_epoll_close(set);
            errno = saved;
        }
    }
    pthread_mutex_unlock(&making);
    return handle;
}

/* Under the kernel's own registrations until it starts, then under ours with the same events and
 * data. All descriptors are searched only for those that may have one, or have namesakes. */
int overlay_adopt_registrations(int fd) {
    const struct xsock_engine* const engine = xsock_engine_opened;
    struct fd_handle* member;
    struct entered entered;
    int result = 0;
    int epfd = -1;
    if (!overlay_may_be_registered(fd) &&
        !atomic_load_explicit(&fd_duplicated, memory_order_relaxed)) {
        return 0;
    }
    member = fd_get(fd);
    if (member == NULL) return 0;
    if (wait_begin_inside(&entered) != 0) {
        fd_put(member);
        return -1;
    }
    while (result == 0 && (epfd = engine->socket_epoll_next(fd, epfd)) >= 0) {
        struct fd_handle* const set = make_set(epfd);
        result = set == NULL ? -1 : engine->socket_epoll_adopt(set->sock, fd, member->sock);
        fd_put(set);
    }
    fd_put(member);
    wait_end(&entered);
    return result;
}

static __attribute__((noinline)) int epoll_ctl_slow(int set, int operation, int fd,
                                                    struct epoll_event* event) {
    struct fd_handle *set_handle, *member;
    int result = -1;
    struct entered entered;
    if (!fd_has(set) && !fd_has(fd)) return LIBC(epoll_ctl)(set, operation, fd, event);
    if (XSOCK_ENGINE_CALLS_US && overlay_inside()) {
        return LIBC(epoll_ctl)(set, operation, fd, event);
    }
    if (wait_begin_inside(&entered) != 0) return -1;
    member = fd_get(fd);
    set_handle = get_set(set);
    if (set_handle == NULL &&
        (member == NULL || (operation != EPOLL_CTL_ADD && !XSOCK_IS_SET(member->sock)))) {
        result = XSOCK_PASS; /* not a member, or one from before it was in DDPMODE */
    } else if (set_handle != NULL || XSOCK_IS_SET(member->sock) ||
               (set_handle = make_set(set)) != NULL) {
        result = xsock_engine_opened->socket_epoll_ctl(set_handle != NULL ? set_handle->sock : NULL,
                                                       set, operation, fd,
                                                       member != NULL ? member->sock : NULL, event);
    }
    fd_put(member);
    fd_put(set_handle);
    wait_end(&entered);
    return result != XSOCK_PASS ? result : LIBC(epoll_ctl)(set, operation, fd, event);
}

int overlay_epoll_ctl(int set, int operation, int fd, struct epoll_event* event) {
    if (operation == EPOLL_CTL_ADD) {
        /* A listening socket of the program before this one is listed before the first client. */
        if (!fd_has(fd) && overlay_hint_of(fd) == XSOCK_HINT_NONE) policy_accept(fd);
        overlay_note_registered(fd);
    }
    OVERLAY_UNLESS(fd_has(set) || fd_has(fd), epoll_ctl, (set, operation, fd, event),
                   epoll_ctl_slow);
}

int wait_epoll(int set, struct epoll_event* events, int count, const struct timespec* timeout,
               const sigset_t* mask) {
    const uint32_t generation = atomic_load_explicit(&fork_generation, memory_order_relaxed);
    struct fd_handle* handle;
    int result;
    struct entered entered;
    if (!fd_has(set) || (XSOCK_ENGINE_CALLS_US && overlay_inside())) return XSOCK_PASS;
    handle = get_set(set);
    if (handle == NULL) return XSOCK_PASS;
    if ((result = wait_begin(&entered)) == 0) {
        result =
            xsock_engine_opened->socket_epoll_wait(handle->sock, set, events, count, timeout, mask);
        wait_end(&entered);
    }
    put_of(generation, handle);
    return result;
}

/* The set has become the engine's while the kernel alone was asked. Nothing of the program's came:
 * it goes on there. How much of a time limit is left is not known; then it is as if a signal had
 * come, which such callers must expect (signal(7): SIGCONT is enough). */
__attribute__((noinline)) int wait_mode_changed_meanwhile(int set, struct epoll_event* events,
                                                          int n, int count, int limited,
                                                          const sigset_t* mask) {
    int result;
    if (XSOCK_ENGINE_CALLS_US && overlay_inside()) return n;
    n = xsock_engine_opened->socket_epoll_filter(events, n);
    if (n > 0) return n;
    result = limited ? XSOCK_PASS : wait_epoll(set, events, count, NULL, mask);
    if (result != XSOCK_PASS) return result;
    errno = EINTR;
    return -1;
}

static __attribute__((noinline)) int epoll_wait_slow(int set, struct epoll_event* events, int count,
                                                     int timeout_ms) {
    if (fd_has(set)) {
        const struct timespec timeout = of_ms(timeout_ms);
        const int result = wait_epoll(set, events, count, timeout_ms < 0 ? NULL : &timeout, NULL);
        if (result != XSOCK_PASS) return result;
    }
    return LIBC(epoll_wait)(set, events, count, timeout_ms);
}

int overlay_epoll_wait(int set, struct epoll_event* events, int count, int timeout_ms) {
    int n;
    if (fd_has(set)) return epoll_wait_slow(set, events, count, timeout_ms);
    n = LIBC(epoll_wait)(set, events, count, timeout_ms);
    if (n <= 0 || !fd_has(set)) return n;
    return wait_mode_changed_meanwhile(set, events, n, count, timeout_ms >= 0, NULL);
}

static __attribute__((noinline)) int epoll_pwait_slow(int set, struct epoll_event* events,
                                                      int count, int timeout_ms,
                                                      const sigset_t* mask) {
    if (fd_has(set)) {
        const struct timespec timeout = of_ms(timeout_ms);
        const int result = wait_epoll(set, events, count, timeout_ms < 0 ? NULL : &timeout, mask);
        if (result != XSOCK_PASS) return result;
    }
    return LIBC(epoll_pwait)(set, events, count, timeout_ms, mask);
}

int overlay_epoll_pwait(int set, struct epoll_event* events, int count, int timeout_ms,
                        const sigset_t* mask) {
    int n;
    if (fd_has(set)) return epoll_pwait_slow(set, events, count, timeout_ms, mask);
    n = LIBC(epoll_pwait)(set, events, count, timeout_ms, mask);
    if (n <= 0 || !fd_has(set)) return n;
    return wait_mode_changed_meanwhile(set, events, n, count, timeout_ms >= 0, mask);
}

int overlay_epoll_pwait2(int set, struct epoll_event* events, int count,
                         const struct timespec* timeout, const sigset_t* mask) {
    int n;
    if (fd_has(set)) {
        const int result = wait_epoll(set, events, count, timeout, mask);
        if (result != XSOCK_PASS) return result;
    }
    n = LIBC(epoll_pwait2)(set, events, count, timeout, mask);
    if (n <= 0 || !fd_has(set)) return n;
    return wait_mode_changed_meanwhile(set, events, n, count, timeout != NULL, mask);
}
