/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Waiting in the engine, for the wrappers of wait.c and for system calls by number. */
#ifndef XSOCK_OVERLAY_WAIT_H
#define XSOCK_OVERLAY_WAIT_H

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

/* Whether a descriptor of the call has a handle. */
int wait_poll_has_handle(const struct pollfd* fds, nfds_t count);
int wait_select_has_handle(int count, const fd_set* reads, const fd_set* writes,
                           const fd_set* excepts);

/* The calls in the engine. -1 with errno; XSOCK_PASS: the call is libc's after all. */
int wait_poll(struct pollfd* fds, nfds_t count, const struct timespec* timeout,
              const sigset_t* mask);
/* `timeout` becomes the time that was left. */
int wait_select(int count, fd_set* reads, fd_set* writes, fd_set* excepts, struct timespec* timeout,
                const sigset_t* mask);
int wait_epoll(int set, struct epoll_event* events, int count, const struct timespec* timeout,
               const sigset_t* mask);

/* How many numbers select() checks, of the `count` that the program names. */
int wait_within_sets(int count);
/* The `n` events that the kernel alone gave for a set that is the engine's by now: what the call
 * answers. `limited`: it had a time limit. */
int wait_mode_changed_meanwhile(int set, struct epoll_event* events, int n, int count, int limited,
                                const sigset_t* mask);

#endif /* XSOCK_OVERLAY_WAIT_H */
