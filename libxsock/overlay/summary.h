/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What `xsock run --summary` prints after a program. XSOCK_SUMMARY names a file; each process that
 * had TCP sockets appends one line to it when it ends or calls exec:
 *
 *   xsock-summary 1 pid=N ppid=N end=exit|exec sockets=N connected=N accepted=N listening=N asked=N
 *   inherited=N message=N undecided=N off=N CODE=N ... program=PATH
 *
 * (one line; the program comes last). Counts are of this process since it began or was forked. The
 * keys after `inherited` are what DDPMODE sockets were when they ended, as socket_mode_text() calls
 * it, and why the policy of the byte-stream mode left others plain: policy-tcp, unknown-peer,
 * fast-open.
 * `inherited` of them were undecided when this process was forked, or got them: the process that
 * accepted them calls them undecided. handed-on is how many uses of a started one in another
 * process were refused. stack:kernel and stack:CODE are, of those that have started, what places
 * what their peers write, as socket_stack_text() calls it. unpinned:REASON is how many memory
 * regions could not be pinned for the kernel module, as socket_unpinned() calls it.
 */
#ifndef XSOCK_OVERLAY_SUMMARY_H
#define XSOCK_OVERLAY_SUMMARY_H

#include <stdatomic.h>

struct fd_handle;

enum summary_key {
    SUMMARY_SOCKETS,
    SUMMARY_CONNECTED,
    SUMMARY_ACCEPTED,
    SUMMARY_LISTENING,
    SUMMARY_WANTED,
    SUMMARY_INHERITED,
    SUMMARY_KEYS
};

/* 0: XSOCK_SUMMARY is not set, or another copy of the overlay counts. 1 until that is known.
 */
extern _Atomic int summary_wanted;

/* Of a handle: whether its mode is in the summary. */
enum summary_state {
    SUMMARY_NOT_COUNTED,
    SUMMARY_COUNTED,
    SUMMARY_LEFT_TO_PARENT /* undecided when this process was forked: counted once it is decided */
};

/* When the library is loaded; a socket of a constructor that runs earlier may have come first. */
void summary_init(void);
void summary_socket_slow(int domain, int type);
void summary_count_slow(enum summary_key key, int fd);
void summary_mode_slow(struct fd_handle* handle);
/* 1: it listens already. Servers call listen() again (nginx): the socket is counted once. */
int summary_listens(int fd);
/* Writes the line. Async-signal-safe. `end` is "exit" or "exec". */
void summary_write(const char* end);
/* In a forked child: its counts begin at 0. The sockets that it has inherited are its parent's to
 * count, but for those that are decided here. */
void summary_forked(void);
void summary_inherited(struct fd_handle* handle);
/* As an inherited one: it has come from the process that accepted it, and has a handle now. */
void summary_received(int fd);

/* A socket that the policy leaves plain, by the reason, of static storage. */
void summary_plain_slow(const char* reason);

static inline int summary_may_be_wanted(void) {
    return __builtin_expect(atomic_load_explicit(&summary_wanted, memory_order_relaxed), 0);
}

static inline void summary_socket(int domain, int type) {
    if (summary_may_be_wanted()) summary_socket_slow(domain, type);
}
/* Does not count what is no TCP socket. */
static inline void summary_count(enum summary_key key, int fd) {
    if (summary_may_be_wanted()) summary_count_slow(key, fd);
}
/* A DDPMODE socket ends, or has turned out to be plain; its mode is counted, once. */
static inline void summary_mode(struct fd_handle* handle) {
    if (summary_may_be_wanted()) summary_mode_slow(handle);
}

static inline void summary_plain(const char* reason) {
    if (summary_may_be_wanted()) summary_plain_slow(reason);
}

#endif /* XSOCK_OVERLAY_SUMMARY_H */
