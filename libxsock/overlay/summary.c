/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Counting sockets for the exit summary. Nothing here allocates. */
#include "libxsock/overlay/summary.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libxsock/overlay/fork.h"
#include "libxsock/overlay/overlay.h"
#include "libxsock/overlay/shared.h"

_Atomic int summary_wanted = 1;

enum { PATH_ROOM = 1024, MODES = 24, STACKS = 12 };
enum { OUT_OF_THE_WAY = 1024 /* of the program's numbers */ };

static char path[PATH_ROOM];
static pid_t process; /* whose counts these are */
static _Atomic unsigned long counts[SUMMARY_KEYS];
static _Atomic int written;

/* Opened at the first socket and inherited by children: later the process may have no right to it
 * any more, or not see it (setuid, chroot). The program may close the number. */
static struct {
    _Atomic int begun;
    int fd;
    dev_t device;
    ino_t inode;
} kept = {.fd = -1};

/* The words of socket_mode_text() and socket_stack_text() are few, and have static storage. */
struct words {
    const char* _Atomic word;
    _Atomic unsigned long count;
};
static struct words modes[MODES], stacks[STACKS];

void summary_forked(void) {
    int i;
    process = getpid();
    for (i = 0; i < SUMMARY_KEYS; i++) atomic_store(&counts[i], 0);
    for (i = 0; i < MODES; i++) atomic_store(&modes[i].count, 0);
    for (i = 0; i < STACKS; i++) atomic_store(&stacks[i].count, 0);
    atomic_store(&written, 0);
}

static void at_exit(void) { summary_write("exit"); }

static void begin(void) {
    const char* const wanted = secure_getenv("XSOCK_SUMMARY");
    const size_t length = wanted != NULL ? strlen(wanted) : 0;
    if (!overlay_is_first() || length == 0 || length >= sizeof path) {
        atomic_store(&summary_wanted, 0);
        return;
    }
    memcpy(path, wanted, length + 1);
    process = getpid();
    fork_watch();
    atexit(at_exit);
    at_quick_exit(at_exit);
}

void summary_init(void) {
    static pthread_once_t begun = PTHREAD_ONCE_INIT;
    const int saved = errno;
    pthread_once(&begun, begin);
    errno = saved;
}

static int open_file(void) { return open(path, O_WRONLY | O_APPEND | O_CLOEXEC); }

static void keep_file(void) {
    struct rlimit files;
    struct stat status;
    int fd;
    if (atomic_exchange(&kept.begun, 1)) return;
    fd = open_file();
    if (fd < 0) return;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && fstat(fd, &status) == 0) {
        const rlim_t half = files.rlim_cur / 2;
        const rlim_t from = half < OUT_OF_THE_WAY ? half : OUT_OF_THE_WAY;
        kept.device = status.st_dev;
        kept.inode = status.st_ino;
        kept.fd = LIBC(fcntl)(fd, F_DUPFD_CLOEXEC, (void*)from);
    }
    LIBC(close)(fd);
}

/* As open_file(): a number for the caller. */
static int reach_file(void) {
    struct stat status;
    if (kept.fd >= 0 && fstat(kept.fd, &status) == 0 && status.st_dev == kept.device &&
        status.st_ino == kept.inode) {
        return kept.fd;
    }
    return open_file();
}

/* Whether to count. The first to ask may be a constructor that runs before this library's. */
static int counting(void) {
    summary_init();
    return atomic_load_explicit(&summary_wanted, memory_order_relaxed);
}

void summary_socket_slow(int domain, int type) {
    if (!counting()) return;
    if ((domain == AF_INET || domain == AF_INET6) &&
        (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM) {
        const int saved = errno;
        keep_file();
        errno = saved;
        atomic_fetch_add(&counts[SUMMARY_SOCKETS], 1);
    }
}

void summary_count_slow(enum summary_key key, int fd) {
    const int saved = errno;
    int type = 0;
    int domain = 0;
    socklen_t length = sizeof type;
    if (!counting()) return;
    if (LIBC(getsockopt)(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
        LIBC(getsockopt)(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM &&
        (domain == AF_INET || domain == AF_INET6)) {
        keep_file();
        atomic_fetch_add(&counts[key], 1);
    }
    errno = saved;
}

static void count_word(struct words* words, int most, const char* word) {
    int i;
    for (i = 0; i < most; i++) {
        const char* there = NULL;
        if (atomic_compare_exchange_strong(&words[i].word, &there, word) ||
            strcmp(there, word) == 0) {
            atomic_fetch_add(&words[i].count, 1);
            return;
        }
    }
}

int summary_listens(int fd) {
    const int saved = errno;
    int listens = 0;
    socklen_t length = sizeof listens;
    if (LIBC(getsockopt)(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0) listens = 0;
    errno = saved;
    return listens;
}

static int is_undecided(const char* word) { return strcmp(word, "undecided") == 0; }

void summary_mode_slow(struct fd_handle* handle) {
    const char *word, *stack;
    if (!counting() || XSOCK_IS_SET(handle->sock) || handle->counted == SUMMARY_COUNTED) return;
    word = xsock_engine_opened->socket_mode_text(handle->sock);
    if (handle->counted == SUMMARY_LEFT_TO_PARENT) {
        if (is_undecided(word)) return;
        atomic_fetch_add(&counts[SUMMARY_INHERITED], 1);
    }
    handle->counted = SUMMARY_COUNTED;
    count_word(modes, MODES, word);
    stack = xsock_engine_opened->socket_stack_text(handle->sock);
    if (stack != NULL) count_word(stacks, STACKS, stack);
}

void summary_inherited(struct fd_handle* handle) {
    if (!summary_may_be_wanted() || XSOCK_IS_SET(handle->sock)) return;
    handle->counted = is_undecided(xsock_engine_opened->socket_mode_text(handle->sock))
                          ? SUMMARY_LEFT_TO_PARENT
                          : SUMMARY_COUNTED;
}

void summary_received(int fd) {
    struct fd_handle* const handle = fd_get(fd);
    if (summary_may_be_wanted() && counting()) keep_file();
    if (handle != NULL) handle->counted = SUMMARY_LEFT_TO_PARENT;
    fd_put(handle);
}

void summary_plain_slow(const char* reason) {
    if (counting()) count_word(modes, MODES, reason);
}

/* ---- the line -----------------------------------------------------------------------------------
 */
struct line {
    char text[2 * PATH_ROOM];
    size_t length;
};

static void add_text(struct line* line, const char* text) {
    while (*text != '\0' && line->length < sizeof line->text) line->text[line->length++] = *text++;
}

/* " PREFIXKEY=COUNT" */
static void add_count(struct line* line, const char* prefix, const char* key, unsigned long count) {
    char digits[24];
    size_t i = sizeof digits;
    digits[--i] = '\0';
    do {
        digits[--i] = (char)('0' + count % 10);
        count /= 10;
    } while (count != 0);
    add_text(line, prefix);
    add_text(line, key);
    add_text(line, "=");
    add_text(line, digits + i);
}

static void add_words(struct line* line, const char* prefix, struct words* words, int most) {
    int i;
    for (i = 0; i < most; i++) {
        const unsigned long count = atomic_load(&words[i].count);
        if (count != 0) add_count(line, prefix, atomic_load(&words[i].word), count);
    }
}

static unsigned long refused(void) { return fd_any() ? xsock_engine_opened->socket_refused() : 0; }

/* " unpinned:REASON=COUNT" */
static void add_unpinned(struct line* line) {
    const char* name = NULL;
    int reason = 0;
    if (!fd_any()) return;
    for (;;) {
        const unsigned long count = xsock_engine_opened->socket_unpinned(reason++, &name);
        if (name == NULL) return;
        if (count != 0) add_count(line, " unpinned:", name, count);
    }
}

static int should_print(void) {
    int i;
    if (refused() != 0) return 1;
    for (i = 0; i < SUMMARY_KEYS; i++) {
        if (atomic_load(&counts[i]) != 0) return 1;
    }
    for (i = 0; i < MODES; i++) {
        if (atomic_load(&modes[i].count) != 0) return 1;
    }
    return 0;
}

/* Sockets that are open still have no verdict yet. 1: one of them has started in this process, as a
 * child's whose parent has accepted it. */
static int count_open_ones(void) {
    const uint32_t top = fd_any() ? atomic_load(&fd_table.top) : 0;
    int started = 0;
    uint32_t fd;
    for (fd = 0; fd < top; fd++) {
        struct fd_handle* const handle = fd_get((int)fd);
        if (handle != NULL) {
            if (handle->counted != SUMMARY_COUNTED && !XSOCK_IS_SET(handle->sock)) {
                started |= xsock_engine_opened->socket_started(handle->sock) == 1;
            }
            summary_mode_slow(handle);
        }
        fd_put(handle);
    }
    return started;
}

void summary_write(const char* end) {
    static const char* const keys[SUMMARY_KEYS] = {"sockets",   "connected", "accepted",
                                                   "listening", "asked",     "inherited"};
    const int saved = errno;
    struct line line = {.length = 0};
    ssize_t n;
    int wanted;
    int file;
    int i;
    /* A child of vfork() has its parent's counts before it. */
    if (!summary_may_be_wanted() || process != getpid() || atomic_load(&written)) return;
    wanted = count_open_ones();
    wanted |= should_print();
    if (!wanted || atomic_exchange(&written, 1)) return;
    add_text(&line, "xsock-summary 1");
    add_count(&line, " ", "pid", (unsigned long)getpid());
    add_count(&line, " ", "ppid", (unsigned long)getppid());
    add_text(&line, " end=");
    add_text(&line, end);
    for (i = 0; i < SUMMARY_KEYS; i++) add_count(&line, " ", keys[i], atomic_load(&counts[i]));
    add_words(&line, " ", modes, MODES);
    add_words(&line, " stack:", stacks, STACKS);
    add_unpinned(&line);
    if (refused() != 0) add_count(&line, " ", "handed-on", refused());
    add_text(&line, " program=");
    if (line.length < PATH_ROOM) {
        n = readlink("/proc/self/exe", line.text + line.length, PATH_ROOM);
        if (n > 0) line.length += (size_t)n;
    }
    if (line.length == sizeof line.text) line.length--;
    line.text[line.length++] = '\n';
    file = reach_file();
    if (file >= 0) {
        /* One write: lines of several processes do not mix. Errors cannot be reported here. */
        n = LIBC(write)(file, line.text, line.length);
        if (file != kept.fd) LIBC(close)(file);
    }
    (void)n;
    errno = saved;
}
