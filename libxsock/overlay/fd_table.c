/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The table of descriptors: how it is made, shared, closed, and counted again in a forked child. */
#include "libxsock/overlay/fd_table.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libxsock/overlay/fork.h"
#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/summary.h"

/* Pages of the table cost memory when they are first used only; address space is what is bounded.
 */
enum { SLOTS_FEW = 1 << 12, SLOTS_LEAST = 1 << 20, SLOTS_MOST = 1 << 26, HANDLES_AT_ONCE = 512 };

struct fd_table fd_table;
_Atomic int fd_duplicated;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* making the table; the free list */
static struct fd_handle* free_handles;

/* The kernel answers EBADF to calls on it, and on each number that is about to be closed. */
static int inactive_fd;
static _Atomic uint32_t closings_begun, closings_ended;

/* References that the parent's threads held have no owner here: only descriptors count. */
static void count_again(void) {
    const uint32_t top = atomic_load(&fd_table.top);
    uint32_t fd;
    for (fd = 0; fd < top; fd++) {
        struct fd_handle* const handle = atomic_load(&fd_table.slots[fd]);
        if (handle != NULL) atomic_store(&handle->refs, 0);
    }
    for (fd = 0; fd < top; fd++) {
        struct fd_handle* const handle = atomic_load(&fd_table.slots[fd]);
        if (handle != NULL && atomic_fetch_add(&handle->refs, 1) == 0) summary_inherited(handle);
    }
}

int fd_table_is_ours(void) { return !fd_any() || !fork_shares_memory(); }

void fd_table_forked(void) {
    pthread_mutex_init(&lock, NULL); /* another thread may have begun with a table */
    if (!fd_any()) return;
    free_handles = NULL; /* may have been torn: leave it, make new ones */
    atomic_store(&closings_ended, atomic_load(&closings_begun));
    count_again();
}

static int make_table(void) {
    struct rlimit files = {SLOTS_LEAST, SLOTS_LEAST};
    uint32_t limit = SLOTS_LEAST;
    void* slots;

    getrlimit(RLIMIT_NOFILE, &files);
    while (limit < files.rlim_max && limit < SLOTS_MOST) limit *= 2;
    do {
        slots = mmap(NULL, limit * sizeof(*fd_table.slots), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        /* Address space may be limited (RLIMIT_AS). */
    } while (slots == MAP_FAILED && (limit /= 2) >= SLOTS_FEW);
    if (slots == MAP_FAILED) return -1;
    inactive_fd = fork_detect() == 0 ? xsock_engine_opened->socket_inactive_fd() : -1;
    if (inactive_fd < 0) {
        munmap(slots, limit * sizeof(*fd_table.slots));
        return -1;
    }
    fd_table.slots = slots;
    atomic_store_explicit(&fd_table.limit, limit, memory_order_release);
    return 0;
}

static struct fd_handle* new_handle(void) {
    struct fd_handle* handle = NULL;
    pthread_mutex_lock(&lock);
    if (free_handles == NULL) {
        struct fd_handle* const many =
            mmap(NULL, HANDLES_AT_ONCE * sizeof *many, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int i;
        for (i = 0; many != MAP_FAILED && i < HANDLES_AT_ONCE; i++) {
            many[i].next = free_handles;
            free_handles = &many[i];
        }
    }
    handle = free_handles;
    if (handle != NULL) free_handles = handle->next;
    pthread_mutex_unlock(&lock);
    return handle;
}

static void free_handle(struct fd_handle* handle) {
    pthread_mutex_lock(&lock);
    handle->next = free_handles;
    free_handles = handle;
    pthread_mutex_unlock(&lock);
}

struct fd_handle* fd_get(int fd) {
    if (!fd_has_handle(fd)) return NULL;
    fork_notice();
    for (;;) {
        struct fd_handle* const handle =
            atomic_load_explicit(&fd_table.slots[fd], memory_order_acquire);
        uint32_t refs;
        if (handle == NULL) return NULL;
        refs = atomic_load_explicit(&handle->refs, memory_order_relaxed);
        while (refs != 0 && !atomic_compare_exchange_weak(&handle->refs, &refs, refs + 1)) {
        }
        if (refs == 0) continue; /* let go of meanwhile: the slot says something else now */
        if (atomic_load(&fd_table.slots[fd]) == handle) return handle;
        fd_put(handle); /* it belongs to another descriptor by now */
    }
}

/* Let go of in a signal handler that interrupted the engine or this file. */
static struct fd_handle* _Atomic deferred;

static void release_handle(struct fd_handle* handle) {
    const int saved = errno;
    const int before = overlay_begin();
    struct xsock_socket* const sock = handle->sock;
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    summary_mode(handle);
    free_handle(handle);
    if (XSOCK_IS_SET(sock)) {
        xsock_engine_opened->socket_epoll_close(sock);
    } else {
        xsock_engine_opened->socket_unref(sock, -1);
    }
    pthread_setcancelstate(cancel_state, NULL);
    overlay_end(before);
    errno = saved;
}

/* No reference is left. */
static void release(struct fd_handle* handle) {
    if (!overlay_inside()) {
        release_handle(handle);
        return;
    }
    handle->next = atomic_load(&deferred);
    while (!atomic_compare_exchange_weak(&deferred, &handle->next, handle)) {
    }
}

void fd_put(struct fd_handle* handle) {
    if (handle != NULL && atomic_fetch_sub(&handle->refs, 1) == 1) release(handle);
}

void fd_put_deferred(void) {
    struct fd_handle* handle;
    if (atomic_load_explicit(&deferred, memory_order_relaxed) == NULL) return;
    for (handle = atomic_exchange(&deferred, NULL); handle != NULL;) {
        struct fd_handle* const next = handle->next;
        release_handle(handle);
        handle = next;
    }
}

static void raise_top(int fd) {
    uint32_t top = atomic_load(&fd_table.top);
    while (top <= (uint32_t)fd &&
           !atomic_compare_exchange_weak(&fd_table.top, &top, (uint32_t)fd + 1)) {
    }
}

/* The reference that the slot holds is already counted. */
static int put_into_slot(int fd, struct fd_handle* handle) {
    if ((uint32_t)fd >= atomic_load(&fd_table.limit)) {
        errno = EMFILE;
        return -1;
    }
    raise_top(fd);
    fd_put(atomic_exchange(&fd_table.slots[fd], handle));
    return 0;
}

/* Whether two numbers are one open file description. A socket's inode says so too, where kcmp() is
 * not to be had; epoll sets all have the same one. */
static int same_file(int a, int b, const struct stat* a_stat, const struct stat* b_stat) {
    const pid_t pid = getpid();
    if (a_stat->st_ino != b_stat->st_ino || a_stat->st_dev != b_stat->st_dev) return 0;
    if (S_ISSOCK(a_stat->st_mode)) return 1;
    return syscall(SYS_kcmp, pid, pid, 0 /* KCMP_FILE */, a, b) == 0;
}

void fd_install_duplicates(int fd) {
    enum { FREE_IN_A_ROW = 1024 };
    /* A program may have got one socket as all three when it was started, as inetd's are. */
    const uint32_t limit =
        atomic_load(&fd_duplicated) ? atomic_load(&fd_table.limit) : STDERR_FILENO + 1;
    struct fd_handle* const handle = fd_get(fd);
    struct stat mine, other;
    int holes = 0;
    uint32_t i;
    if (handle == NULL) return;
    /* Numbers are given out from below: a long stretch of free ones is the end. */
    if (fstat(fd, &mine) != 0) holes = FREE_IN_A_ROW;
    for (i = 0; i < limit && holes < FREE_IN_A_ROW; i++) {
        if (fd_has((int)i)) {
            holes = 0;
        } else if (fstat((int)i, &other) != 0) {
            holes++;
        } else {
            holes = 0;
            if (same_file(fd, (int)i, &mine, &other) && !overlay_engine_owns((int)i)) {
                atomic_store(&fd_duplicated, 1);
                fd_share((int)i, handle);
            }
        }
    }
    fd_put(handle);
}

int fd_join(int fd) {
    const uint32_t top = fd_any() ? atomic_load(&fd_table.top) : 0;
    struct stat mine, other;
    uint32_t i;
    if (top == 0 || fd_has(fd) || fstat(fd, &mine) != 0 || !S_ISSOCK(mine.st_mode)) return 0;
    for (i = 0; i < top; i++) {
        struct fd_handle* const handle = fd_get((int)i);
        int shared = 0;
        if (handle == NULL) continue;
        shared = fstat((int)i, &other) == 0 && same_file(fd, (int)i, &mine, &other) &&
                 fd_share(fd, handle) == 0;
        fd_put(handle);
        if (shared) return 1;
    }
    return 0;
}

int fd_install(int fd, struct xsock_socket* sock) {
    struct fd_handle* handle;
    struct stat status;
    int failed = 0;
    int before;
    if (!fd_any()) {
        before = overlay_begin();
        fork_watch(); /* outside of the lock, which the handler renews */
        pthread_mutex_lock(&lock);
        if (!fd_any()) failed = make_table();
        pthread_mutex_unlock(&lock);
        overlay_end(before);
        if (failed) return -1;
    }
    fork_notice();
    if ((uint32_t)fd >= atomic_load(&fd_table.limit)) {
        errno = EMFILE;
        return -1;
    }
    before = overlay_begin();
    handle = new_handle();
    overlay_end(before);
    if (handle == NULL) {
        errno = ENOMEM;
        return -1;
    }
    handle->sock = sock;
    handle->inode = !XSOCK_IS_SET(sock) && fstat(fd, &status) == 0 ? status.st_ino : 0;
    handle->forks = atomic_load_explicit(&fork_count, memory_order_relaxed);
    handle->counted = SUMMARY_NOT_COUNTED;
    atomic_store_explicit(&handle->travelled, 0, memory_order_relaxed);
    atomic_store_explicit(&handle->plain, 0, memory_order_relaxed);
    /* Only now may others that still hold a stale pointer to it count on it. */
    atomic_store(&handle->refs, 1);
    put_into_slot(fd, handle);
    return 0;
}

int fd_share(int fd, struct fd_handle* handle) {
    atomic_fetch_add(&handle->refs, 1);
    if (put_into_slot(fd, handle) == 0) return 0;
    fd_put(handle);
    errno = EMFILE;
    return -1;
}

struct fd_handle* fd_take(int fd) {
    if (!fd_has(fd) || !fd_table_is_ours()) return NULL;
    return atomic_exchange(&fd_table.slots[fd], NULL);
}

/* Replaces the file under `fd` in the kernel's table. A number beyond a limit of RLIMIT_NOFILE that
 * was lowered meanwhile stays what it is: the kernel does not replace such ones. */
static void deactivate(int fd) {
    const int saved = errno;
    /* (dup3() would open a number that is closed) */
    if (LIBC(fcntl)(fd, F_GETFD, NULL) >= 0) LIBC(dup3)(inactive_fd, fd, O_CLOEXEC);
    errno = saved;
}

int fd_inactive(void) { return inactive_fd; }

/* The last number of a socket in this process: its peer must see it closed, which the kernel's
 * close() is not if what the peer has sent belongs to the start of iWARP. */
static void finish_if_last(int fd) {
    struct fd_handle* const handle = overlay_inside() ? NULL : fd_get(fd);
    if (handle == NULL) return;
    if (!XSOCK_IS_SET(handle->sock) && atomic_load(&handle->refs) == 2) {
        const int may_be_shared =
            atomic_load_explicit(&handle->travelled, memory_order_relaxed) ||
            handle->forks != atomic_load_explicit(&fork_count, memory_order_relaxed);
        const int saved = errno;
        const int before = overlay_begin();
        xsock_engine_opened->socket_closing(handle->sock, fd, may_be_shared);
        overlay_end(before);
        errno = saved;
    }
    fd_put(handle);
}

struct fd_handle* fd_begin_close(int fd) {
    finish_if_last(fd);
    atomic_fetch_add(&closings_begun, 1);
    deactivate(fd);
    return fd_take(fd);
}

void fd_end_close(struct fd_handle* handle) {
    atomic_fetch_add(&closings_ended, 1);
    /* Of a handler that interrupted a call on it, and may end the process: nothing finds it. */
    if (handle != NULL && overlay_inside()) summary_mode(handle);
    fd_put(handle);
}

uint32_t fd_closings(void) {
    const uint32_t ended = atomic_load(&closings_ended);
    const uint32_t begun = atomic_load(&closings_begun);
    return begun == ended ? begun : begun - 1;
}

int fd_closed_while_copied(int copy, uint32_t closings) {
    pid_t pid;
    int flags;
    if (atomic_load(&closings_begun) == closings) return 0;
    flags = LIBC(fcntl)(copy, F_GETFL, NULL);
    if (flags < 0 || (flags & O_PATH) == 0) return 0;
    pid = getpid();
    /* One of the program's own? Where kcmp() is not to be had, hardly. */
    return syscall(SYS_kcmp, pid, pid, 0 /* KCMP_FILE */, copy, inactive_fd) <= 0;
}

int fd_is_of(int fd, int copy, const struct fd_handle* handle) {
    struct stat status;
    if (handle->inode == 0) return atomic_load(&fd_table.slots[fd]) == handle;
    return fstat(copy, &status) == 0 && S_ISSOCK(status.st_mode) && status.st_ino == handle->inode;
}

void fd_forget(int fd) {
    if (fd_has(fd)) fd_put(fd_take(fd));
}

int fd_forget_all_of(int fd, struct fd_handle* handle) {
    const uint32_t top = atomic_load(&fd_table.top);
    /* Another thread may be emptying the slots for the same reason. */
    const int known = atomic_exchange(&handle->plain, 1) ||
                      atomic_load_explicit(&fd_table.slots[fd], memory_order_relaxed) == handle;
    uint32_t i;
    for (i = 0; i <= top; i++) {
        /* Its own slot first: mostly it is the only one. */
        const uint32_t at = i == 0 ? (uint32_t)fd : i - 1;
        struct fd_handle* expected = handle;
        if (at >= atomic_load(&fd_table.limit)) continue;
        if (atomic_load_explicit(&fd_table.slots[at], memory_order_relaxed) != handle) continue;
        if (!atomic_compare_exchange_strong(&fd_table.slots[at], &expected, NULL)) continue;
        if (atomic_fetch_sub(&handle->refs, 1) == 2) break; /* the caller's is the last one */
    }
    return known;
}

void fd_forget_range(unsigned first, unsigned last) {
    uint32_t top;
    if (!fd_any() || !fd_table_is_ours()) return;
    top = atomic_load(&fd_table.top);
    for (; first < top && first <= last; first++) fd_forget((int)first);
}

struct fd_handle* fd_begin_close_range(unsigned first, unsigned last) {
    const uint32_t top = atomic_load(&fd_table.top);
    struct fd_handle* unreferenced = NULL;
    atomic_fetch_add(&closings_begun, 1);
    for (; first < top && first <= last; first++) {
        struct fd_handle* handle;
        if (!fd_has((int)first)) continue;
        finish_if_last((int)first);
        deactivate((int)first);
        handle = fd_take((int)first);
        if (handle == NULL || atomic_fetch_sub(&handle->refs, 1) != 1) continue;
        handle->next = unreferenced;
        unreferenced = handle;
    }
    return unreferenced;
}

void fd_end_close_range(struct fd_handle* handles) {
    atomic_fetch_add(&closings_ended, 1);
    while (handles != NULL) {
        struct fd_handle* const next = handles->next;
        release(handles);
        handles = next;
    }
}
